# What tests/python/errors.py stands on: tiny models and batches written by hand, the program run with a limit, folders hashed.
import hashlib
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
import traceback

GALLEY = os.environ["GALLEY"]
SOURCE = os.environ["GALLEY_SOURCE"]
TEST_PLUGINS = os.path.join(os.environ["GALLEY_BINARY"], "tests", "plugins")
WORK = os.path.join(os.getcwd(), "errors")

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


def safetensors(tensors, edit=None):
    """The bytes of a file; `edit` may change the header (a dict) before it is written."""
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    if edit:
        edit(header)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values())


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
        self.root = os.path.join(WORK, name)
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


def digest(folder):
    """One hash of every name, kind and byte below a folder."""
    sum = hashlib.sha256()
    for at, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(folders + files):
            path = os.path.join(at, name)
            sum.update(("%s %o\n" % (os.path.relpath(path, folder), os.lstat(path).st_mode)).encode())
            if os.path.islink(path):
                sum.update(os.readlink(path).encode())
            elif name in files:
                with open(path, "rb") as file:
                    sum.update(file.read())
    return sum.hexdigest()


# --- The program ---------------------------------------------------------------------------------------------------------------
class Ended:
    def __init__(self, code, out, err, seconds):
        self.code, self.out, self.err, self.seconds = code, out, err, seconds
        self.lines = err.splitlines()

    def __str__(self):
        return "exit code %s after %.2f s\n--- stderr\n%s--- stdout (end)\n%s" % (self.code, self.seconds, self.err, self.out[-500:])


def galley(*arguments, timeout=20, cwd=None, before=None):
    begin = time.monotonic()
    try:
        done = subprocess.run([GALLEY, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout, cwd=cwd, preexec_fn=before)
    except subprocess.TimeoutExpired as late:
        return Ended("none: killed", "", (late.stderr or b"").decode(errors="replace") + "\n", time.monotonic() - begin)
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode(), time.monotonic() - begin)


def start(*arguments):
    return subprocess.Popen([GALLEY, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
