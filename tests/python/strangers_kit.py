# What tests/python/strangers.py and strangers_all.py share: files of somebody else beside files that they are not to reach, and the ways there.
from errors_kit import *
from mark_kit import unmarked, write_marked

SECRET = "the secret of somebody who unpacked this"
CHAT = "{{ '%s' }}" % SECRET
TOKENIZER = json.dumps({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
                        "decoder": {"type": "ByteLevel"},
                        "model": {"type": "BPE", "vocab": {chr(c): c - 97 for c in range(97, 123)} | {"\u0120": 26}, "merges": []}})
BESIDE = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt", "tokenizer.model", "chat_template.jinja",
          "generation_config.json")
WITH_TEXT = RECIPE.replace('data.batch { path = "batch.safetensors" }', 'data.text { files = { "text/*.txt" }, validation = 0.5 }').replace("steps = 3", "batch = 1, length = 8, steps = 2")
LORA = '  use "lora" { rank = 2, targets = { "c_attn" } },\n'


def with_outside(name):
    """A folder with all that a model has, and outside/ beside it with the same and a secret."""
    folder = Folder(name)
    folder.outside = os.path.join(folder.root, "outside")
    folder.write("model/tokenizer.json", TOKENIZER)
    for i in range(4):
        folder.write("text/%d.txt" % i, "a text of small letters " * 20)
    shutil.copytree(folder.input, folder.outside)
    for name in BESIDE:
        text = CHAT if name.endswith("jinja") else SECRET if name.endswith((".txt", ".model")) else json.dumps({"secret": SECRET})
        write(os.path.join(folder.outside, "model", name), text)
    write(os.path.join(folder.outside, "secret.txt"), SECRET + " " + "x" * 100)
    write(os.path.join(folder.outside, "common.lua"), "return { lr = 1e-3 }")
    return folder


def link(folder, name, to):
    """A link at `name`, whatever is there."""
    path = folder.path(name)
    if os.path.lexists(path):
        shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.remove(path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.symlink(to, path)


def pipe(folder, name):
    if os.path.exists(folder.path(name)):
        os.remove(folder.path(name))
    os.mkfifo(folder.path(name))


def data_at(folder, path):
    folder.recipe(RECIPE.replace("batch.safetensors", path))


def model_at(folder, path):
    folder.recipe(RECIPE.replace('"model"', json.dumps(path)))


def tokenizer_at(folder, path):
    folder.recipe(WITH_TEXT.replace("validation", "tokenizer = %s, validation" % json.dumps(path)))


def text_at(folder, path):
    folder.recipe(WITH_TEXT.replace("text/*.txt", path))


def shards(folder, name):
    """The weights as one shard, which lies at `name`."""
    os.makedirs(os.path.dirname(folder.path("model/shard")), exist_ok=True)
    os.rename(folder.path("model/model.safetensors"), folder.path("model/shard.safetensors"))
    folder.write("model/model.safetensors.index.json", json.dumps({"weight_map": {tensor: name for tensor in SHAPES}}))


def adapter(folder, name="adapter"):
    """An adapter of the folder's model, as `galley train` leaves it."""
    folder.recipe(RECIPE.replace(ADAMW, LORA + ADAMW).replace("steps = 3", "steps = 1"))
    trained(galley("train", folder.path("recipe.lua"), "--out", folder.path("made")))
    shutil.copytree(folder.path("made/adapter"), folder.path(name))
    shutil.rmtree(folder.path("made"))
    folder.recipe(RECIPE.replace(ADAMW, '  use "lora" { path = "%s" },\n' % name + ADAMW))


def adapter_with(folder, name):
    adapter(folder)
    shutil.move(folder.path("adapter/" + name), os.path.join(folder.outside, name))
    link(folder, "adapter/" + name, os.path.join(folder.outside, name))


OUT = "leads out of the recipe's folder"
# What a confined recipe tries: (what it is, how it is made, a part of what is said, the command that is to refuse it).
RECIPES = [
    ("an absolute path", lambda f: data_at(f, f.outside + "/batch.safetensors"), OUT, "plan"),
    ("a path up", lambda f: data_at(f, "../outside/batch.safetensors"), OUT, "plan"),
    ("a path up from a folder that is not there", lambda f: data_at(f, "new/../../outside/batch.safetensors"), OUT, "plan"),
    ("the current folder by /proc", lambda f: data_at(f, "/proc/self/cwd/batch.safetensors"), OUT, "plan"),
    ("the root by /proc", lambda f: data_at(f, "/proc/self/root" + f.outside + "/batch.safetensors"), OUT, "plan"),
    ("an open file by /proc", lambda f: data_at(f, "/proc/self/fd/0"), "leads out", "plan"),
    ("a link to a file", lambda f: link(f, "batch.safetensors", f.outside + "/batch.safetensors"), OUT, "plan"),
    ("a link to a folder", lambda f: (link(f, "sub", "../outside"), data_at(f, "sub/batch.safetensors")), OUT, "plan"),
    ("links in a row", lambda f: (link(f, "a", "b"), link(f, "b", "c"), link(f, "c", "../outside"), data_at(f, "a/batch.safetensors")), OUT, "plan"),
    ("a link to /proc/self/cwd", lambda f: (link(f, "here", "/proc/self/cwd"), data_at(f, "here/batch.safetensors")), OUT, "plan"),
    ("a model elsewhere", lambda f: model_at(f, f.outside + "/model"), OUT, "plan"),
    ("a model by a link", lambda f: link(f, "model", "../outside/model"), OUT, "plan"),
    ("config.json", lambda f: link(f, "model/config.json", "../../outside/model/config.json"), OUT, "plan"),
    ("the weights", lambda f: link(f, "model/model.safetensors", f.outside + "/model/model.safetensors"), OUT, "train"),
    ("a shard up", lambda f: shards(f, "../../outside/model/model.safetensors"), "is not the name of a file beside the index", "train"),
    ("a shard by a link", lambda f: (shards(f, "s.safetensors"), link(f, "model/s.safetensors", f.outside + "/model/model.safetensors")), OUT, "train"),
    ("the index", lambda f: (shards(f, "shard.safetensors"), shutil.move(f.path("model/model.safetensors.index.json"), f.outside + "/i"),
                             link(f, "model/model.safetensors.index.json", f.outside + "/i")), OUT, "train"),
    ("a tokenizer elsewhere", lambda f: tokenizer_at(f, f.outside + "/model/tokenizer.json"), OUT, "plan"),
    ("a tokenizer by a link", lambda f: (link(f, "t.json", f.outside + "/model/tokenizer.json"), tokenizer_at(f, "t.json")), OUT, "plan"),
    ("the model's tokenizer", lambda f: (link(f, "model/tokenizer.json", f.outside + "/model/tokenizer.json"), f.recipe(WITH_TEXT)), OUT, "plan"),
    *(("beside the model: " + name, lambda f, name=name: link(f, "model/" + name, f.outside + "/model/" + name), "leads out", "plan") for name in BESIDE),
    *(("beside a tokenizer: " + name, lambda f, name=name: (f.write("t/tokenizer.json", TOKENIZER), link(f, "t/" + name, f.outside + "/model/" + name),
                                                           tokenizer_at(f, "t/tokenizer.json")), "leads out", "plan") for name in BESIDE),
    ("a module up", lambda f: f.recipe('local c = require "../outside/common"\n' + RECIPE), "leads out of the folders for modules", "plan"),
    ("a module by a link", lambda f: (link(f, "common.lua", "../outside/common.lua"), f.recipe('local c = require "common"\n' + RECIPE)), "leads out of the folders for modules",
     "plan"),
    ("a pattern elsewhere", lambda f: text_at(f, f.outside + "/text/*"), OUT, "data"),
    ("a pattern that finds a link", lambda f: (link(f, "text/9.txt", f.outside + "/secret.txt"), f.recipe(WITH_TEXT)), OUT, "data"),
    ("a pattern through a link", lambda f: (link(f, "text/sub", f.outside), text_at(f, "text/*/*.txt")), OUT, "data"),
    ("validation elsewhere", lambda f: f.recipe(WITH_TEXT.replace("validation = 0.5", "validation = { %s }" % json.dumps(f.outside + "/secret.txt"))), OUT, "data"),
    ("lines by a link", lambda f: (link(f, "l.jsonl", f.outside + "/secret.txt"), f.recipe(WITH_TEXT.replace('data.text { files = { "text/*.txt" }', 'data.chat { files = { "l.jsonl" }'))), OUT,
     "data"),
    ("an adapter elsewhere", lambda f: (adapter(f), shutil.move(f.path("adapter"), f.outside + "/adapter"),
                                        f.recipe(RECIPE.replace(ADAMW, '  use "lora" { path = "../outside/adapter" },\n' + ADAMW))), OUT, "plan"),
    ("an adapter's configuration", lambda f: adapter_with(f, "adapter_config.json"), OUT, "plan"),
    ("an adapter's weights", lambda f: adapter_with(f, "adapter_model.safetensors"), OUT, "train"),
    ("a named pipe for data", lambda f: pipe(f, "batch.safetensors"), "named pipe", "plan"),
    ("a named pipe for config.json", lambda f: pipe(f, "model/config.json"), "named pipe", "plan"),
    ("a named pipe for the weights", lambda f: pipe(f, "model/model.safetensors"), "named pipe", "train"),
    ("a named pipe for a tokenizer", lambda f: (pipe(f, "model/tokenizer.json"), f.recipe(WITH_TEXT)), "named pipe", "plan"),
    *(("a named pipe for " + name, lambda f, name=name: pipe(f, "model/" + name), "named pipe", "plan") for name in BESIDE),
    ("a device", lambda f: link(f, "batch.safetensors", "/dev/zero"), "leads out", "plan"),
    ("a folder for data", lambda f: (os.remove(f.path("batch.safetensors")), os.mkdir(f.path("batch.safetensors"))), "batch.safetensors", "plan"),
    ("a folder for merges.txt", lambda f: os.mkdir(f.path("model/merges.txt")), "directory", "plan"),
    ("a name with an end of line", lambda f: data_at(f, "a\\nb/../../outside/batch.safetensors"), OUT, "plan"),
    ("a name that is an escape sequence", lambda f: data_at(f, "/\\27]0;x\\7"), OUT, "plan"),
]
# The same without --confine: what is no regular file is refused by name, and a link out of the model's folder is not copied.
OPENLY = [x for x in RECIPES if x[0].startswith(("a named pipe", "beside", "a folder"))] + [
    ("a device", lambda f: link(f, "batch.safetensors", "/dev/zero"), "device", "plan")]


def refuses(name, make, part, command, more):
    folder = with_outside("ways")
    make(folder)
    ended = refused(folder, 2, part, command=command, more=more)
    check(SECRET not in ended.stderr + ended.stdout, "%s: the secret is told: %s" % (name, ended))
    check(ended.seconds < 10, "%s: it waits: %s" % (name, ended))
