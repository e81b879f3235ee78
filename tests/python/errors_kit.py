# What tests/python/errors.py and those like it stand on: tiny models and batches written by hand, what is asked of every error, folders hashed.
import hashlib
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import time

# All of these for those that import all of this.
from galley_test import (binary, case, cases, check, end_of, every, finish, fresh_folder, galley, program, require, safetensors, skip, source, start, together,  # noqa: F401
                         until)

TEST_PLUGINS = os.path.join(binary, "tests", "plugins")

V, P, C = 32, 16, 16  # Vocabulary, positions, width
CONFIG = {
    "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": V, "n_positions": P, "n_embd": C, "n_layer": 1, "n_head": 2,
    "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new",
}
SHAPES = {
    "transformer.wte.weight": (V, C),
    "transformer.wpe.weight": (P, C),
    "transformer.h.0.ln_1.weight": (C,),
    "transformer.h.0.ln_1.bias": (C,),
    "transformer.h.0.attn.c_attn.weight": (C, 3 * C),
    "transformer.h.0.attn.c_attn.bias": (3 * C,),
    "transformer.h.0.attn.c_proj.weight": (C, C),
    "transformer.h.0.attn.c_proj.bias": (C,),
    "transformer.h.0.ln_2.weight": (C,),
    "transformer.h.0.ln_2.bias": (C,),
    "transformer.h.0.mlp.c_fc.weight": (C, 4 * C),
    "transformer.h.0.mlp.c_fc.bias": (4 * C,),
    "transformer.h.0.mlp.c_proj.weight": (4 * C, C),
    "transformer.h.0.mlp.c_proj.bias": (C,),
    "transformer.ln_f.weight": (C,),
    "transformer.ln_f.bias": (C,),
}


# --- Files ---------------------------------------------------------------------------------------------------------------------
def count(shape):
    n = 1
    for extent in shape:
        n *= extent
    return n


def weights():
    """name -> (dtype, shape, bytes), the same at every call."""
    numbers = random.Random(1)
    out = {}
    for name, shape in SHAPES.items():
        middle = 1.0 if name.endswith("weight") and "ln_" in name else 0.0
        out[name] = ("F32", shape, struct.pack("<%df" % count(shape), *(middle + numbers.gauss(0, 0.05) for _ in range(count(shape)))))
    return out


def batch(ids=None, labels=None, rows=2, length=8):
    numbers = random.Random(2)
    ids = ids or [numbers.randrange(V) for _ in range(rows * length)]
    labels = labels or ids
    pack = lambda values: struct.pack("<%di" % len(values), *values)
    return safetensors({"input_ids": ("I32", (rows, length), pack(ids)), "labels": ("I32", (rows, length), pack(labels))})


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb" if isinstance(data, bytes) else "w") as file:
        file.write(data)
    return path


RECIPE = """return recipe {
  model = model { path = "model" },
  data  = data.batch { path = "batch.safetensors" },
  steps = 3, seed = 1,
  use "adamw" { lr = 1e-3 },
}
"""


class Folder:
    """The input of one case: recipe.lua, model/ and batch.safetensors, all right until the case spoils something."""

    def __init__(self, name):
        self.root = os.path.abspath(name)
        shutil.rmtree(self.root, ignore_errors=True)
        self.input = os.path.join(self.root, "input")
        self.out = os.path.join(self.root, "out")
        self.write("recipe.lua", RECIPE)
        self.write("model/config.json", json.dumps(CONFIG))
        self.write("model/model.safetensors", safetensors(weights()))
        self.write("batch.safetensors", batch())

    def path(self, name):
        return os.path.join(self.input, name)

    def write(self, name, data):
        return write(self.path(name), data)

    def model(self, tensors=None, edit=None):
        return self.write("model/model.safetensors", safetensors(tensors or weights(), edit))

    def config(self, **changes):
        return self.write("model/config.json", json.dumps({**CONFIG, **changes}))

    def recipe(self, text):
        return self.write("recipe.lua", text)


ADAMW = '  use "adamw" { lr = 1e-3 },\n'
TEXT = """return recipe {
  model = model { family = "gpt2", config = { vocab_size = 256, n_positions = 16, n_embd = 16, n_layer = 1, n_head = 2, resid_pdrop = 0.1, embd_pdrop = 0.1, attn_pdrop = 0.1 } },
  data  = data.text { files = { "text" }, tokenizer = "bytes" },
  batch = 2, length = 8, steps = STEPS, seed = 3,
  save = { every = 50, keep = 2 },
  use "adamw" { lr = 1e-3 },
}
"""


def with_recipe(name, old, new):
    folder = Folder(name)
    require(old in RECIPE, "%r is not in the recipe" % old)
    folder.recipe(RECIPE.replace(old, new))
    return folder


def digest(folder):
    """One hash of every name, kind and byte below a folder."""
    hash = hashlib.sha256()
    for at, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(folders + files):
            path = os.path.join(at, name)
            hash.update(("%s %o\n" % (os.path.relpath(path, folder), os.lstat(path).st_mode)).encode())
            if os.path.islink(path):
                hash.update(os.readlink(path).encode())
            elif os.path.isfile(path):
                with open(path, "rb") as file:
                    hash.update(file.read())
    return hash.hexdigest()


# --- What is asked of every error ----------------------------------------------------------------------------------------------
def check_error(ended, code, *parts, hint=None):
    """The exit code, one line of cause with every part in it, at most one line of hint below it, and nothing else on stderr."""
    require(ended.returncode == code, "exit code %s was expected: %s" % (code, ended))
    require(1 <= len(ended.lines) <= 2, "one line of cause and at most one of hint were expected: %s" % ended)
    check(ended.lines[0].startswith("galley: "), "the cause must begin with 'galley: ': %s" % ended)
    for part in parts:
        check(part in ended.lines[0], "the cause must name %r: %s" % (part, ended))
    if len(ended.lines) == 2:
        check(ended.lines[1].startswith("  ") and ended.lines[1].strip(), "the hint must be indented: %s" % ended)
    if hint is not None:
        check(len(ended.lines) == 2 and hint in ended.lines[1], "the hint must say %r: %s" % (hint, ended))


def refused(folder, code, *parts, hint=None, more=(), command="train"):
    """Runs the folder's recipe, which must be refused without a trace: the input as it was, no run directory, nothing beside them."""
    before, beside = digest(folder.input), sorted(os.listdir(folder.root))
    out = ["--out", folder.out] if command == "train" else []
    ended = galley(command, folder.path("recipe.lua"), *out, *more)
    check_error(ended, code, *parts, hint=hint)
    check(digest(folder.input) == before, "the input has changed: %s" % ended)
    check(sorted(os.listdir(folder.root)) == beside, "something is left: %s: %s" % (os.listdir(folder.root), ended))
    return ended


def trained(ended):
    require(ended.returncode == 0, "exit code 0 was expected: %s" % ended)
    check(ended.stderr == "", "nothing was expected on stderr: %s" % ended)


def files_below(folder):
    return sorted(os.path.relpath(os.path.join(at, name), folder) for at, _, names in os.walk(folder) for name in names)


def check_no_halves(ended, folder):
    """Whatever a failure leaves: every state in it is whole, and nothing lies around under a name for the meantime."""
    for name in files_below(folder):
        check(".tmp" not in name and not name.endswith((".partial", "~")), "a half-written file is left: " + name + ": %s" % ended)
    states = os.path.join(folder, "state")
    for name in os.listdir(states) if os.path.isdir(states) else []:
        found = sorted(os.listdir(os.path.join(states, name)))
        check(found == ["state.safetensors", "state.toml"], "state/%s has %s: %s" % (name, found, ended))


def metrics(out):
    """The lines of a run, without what differs from run to run."""
    with open(os.path.join(out, "metrics.jsonl")) as file:
        lines = [json.loads(line) for line in file]
    negative = [line for line in lines if line.pop("seconds", 0) < 0]
    check(not negative, "negative seconds: %s" % negative)
    return lines
