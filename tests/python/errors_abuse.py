#!/usr/bin/env python3
# The cases of errors.py that a hostile or careless command can bring: files to write that are none, limits, closed streams, targets that
# make no sense.
#
#   GALLEY=… GALLEY_SOURCE=… GALLEY_BINARY=… tests/python/errors_abuse.py [CASE]…
import resource
import stat
import threading

from errors_kit import *

fresh_folder()


def asides(folder):
    return [name for name in os.listdir(folder) if ".tmp-" in name]


# --- Files that a person names ---------------------------------------------------------------------------------------------------
@case
def files_through_links():
    """--out of gradients, --trace and --reference-out follow a link, and write through no file that lies where a temporary might."""
    folder = Folder("links")
    recipe, far = folder.path("recipe.lua"), os.path.join(folder.root, "far")
    precious = write(os.path.join(folder.root, "precious"), "kept")
    os.mkdir(far)
    for kind in ("gradients", "reference", "trace"):
        link, file = os.path.join(folder.root, kind), os.path.join(far, kind)
        write(file, "old")
        os.symlink(os.path.join("far", kind), link)
        os.symlink("precious", link + ".tmp")
        os.symlink("../precious", file + ".tmp")
        if kind == "gradients":
            ended = galley("gradients", recipe, "--out", link)
        elif kind == "reference":
            ended = galley("gradients", recipe, "--out", os.path.join(folder.root, "other"), "--reference", "--reference-out", link)
        else:
            os.symlink("precious", folder.out + ".run.toml.tmp")
            ended = galley("train", recipe, "--out", folder.out, "--trace", link)
        if kind == "reference":
            check(ended.returncode == 0 and ended.stderr.startswith("reference: "), "one line about what was compared was expected: %s" % ended)
        else:
            trained(ended)
        check(os.path.islink(link) and os.path.getsize(file) > 100, "the file that the link leads to was to be written: %s" % ended)
        with open(precious) as kept:
            check(kept.read() == "kept", "a file of somebody else was written: %s" % ended)
        check(not asides(folder.root) and not asides(far), "something is left aside: %s" % ended)


@case
def files_that_are_pipes():
    folder = Folder("pipes")
    recipe, pipe = folder.path("recipe.lua"), os.path.join(folder.root, "pipe")
    plain = os.path.join(folder.root, "plain")
    trained(galley("gradients", recipe, "--out", plain))
    os.mkfifo(pipe)
    for words in (["gradients", recipe, "--out", pipe], ["train", recipe, "--out", folder.out, "--trace", pipe]):
        came = []
        def read():
            with open(pipe, "rb") as file:
                came.append(file.read())
        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        ended = galley(*words)
        trained(ended)
        reader.join(5)
        check(stat.S_ISFIFO(os.lstat(pipe).st_mode), "the pipe has been replaced: %s" % ended)
        if words[0] == "gradients":
            with open(plain, "rb") as file:
                check(came == [file.read()], "what came through the pipe is another file: %s" % ended)
        else:
            check(json.loads(came[0])[0]["ph"] == "M", "what came through the pipe is no trace: %s" % ended)


@case
def files_that_cannot_be_written():
    """Before anything is computed; a run that would be of no use is taken away again."""
    folder = Folder("unwritable")
    for name in (os.path.join(folder.root, "none", "file"), folder.root, ""):
        refused(folder, 2, "'%s'" % name, command="gradients", more=["--out", name])
        refused(folder, 2, "'%s'" % name, more=["--trace", name])


@case
def files_that_are_pipes_to_read():
    folder = Folder("pipe-tokenizer")
    os.mkfifo(folder.path("pipe"))
    check_error(galley("tokenize", folder.path("pipe")), 2, "it is a named pipe")
    folder.write("text", "Some text. " * 100)
    folder.recipe(TEXT.replace("STEPS", "2").replace('"bytes"', '"pipe"'))
    check_error(galley("plan", folder.path("recipe.lua")), 2, "it is a named pipe")


# --- Limits and streams ----------------------------------------------------------------------------------------------------------
@case
def limit_on_the_size_of_files():
    folder = Folder("file-size")
    ended = galley("gradients", folder.path("recipe.lua"), "--out", os.path.join(folder.root, "g"),
                   before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
    check_error(ended, 1, "cannot write", "File too large")
    check(not asides(folder.root), "something is left aside: %s" % ended)


@case
def limit_on_memory():
    """From too little to enough: an error each time, never a signal."""
    folder = Folder("memory-limit")
    folder.write("text", "Some text of 42 words. " * 20000)
    tokenizer = json.dumps({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
                            "model": {"type": "BPE", "vocab": {chr(c): c - 33 for c in range(33, 127)} | {"\u0120": 94}, "merges": []}})
    folder.write("tokenizer.json", tokenizer)
    folder.recipe(TEXT.replace("STEPS", "2").replace('"bytes"', '"tokenizer.json"'))
    codes = set()
    for megabytes in range(8, 64, 2):
        ended = galley("data", folder.path("recipe.lua"), before=lambda: resource.setrlimit(resource.RLIMIT_DATA, (megabytes << 20,) * 2))
        check(ended.returncode in (0, 1, 2), "killed with %d MiB: %s" % (megabytes, ended))
        codes.add(ended.returncode)
    check(codes > {0}, "all or none of the limits were enough: %s" % ended)


@case
def limit_on_the_stack():
    """A small one is made larger where that is allowed, for threads as well; where it is not, that is said."""
    folder = Folder("stack")
    folder.recipe(RECIPE.replace("steps = 3", "steps = 1"))
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    if hard == resource.RLIM_INFINITY or hard >= 8 << 20:
        trained(galley("train", folder.path("recipe.lua"), "--out", folder.out, before=lambda: resource.setrlimit(resource.RLIMIT_STACK, (128 << 10, hard))))
    ended = galley("plan", folder.path("recipe.lua"), before=lambda: resource.setrlimit(resource.RLIMIT_STACK, (128 << 10, 128 << 10)))
    check_error(ended, 1, "the stack may have 128 KiB", hint="ulimit -s")


@case
def stdout_closed():
    folder = Folder("closed-stdout")
    for words in ("plan " + folder.path("recipe.lua"), "plugins", "data " + folder.path("recipe.lua")):
        check_error(galley("-c", '"$0" $1 >&-', program, words, executable="sh"), 1, "stdout is closed", words.split()[0])


@case
def library_that_is_cut():
    """The loader maps what the file's tables say: after the file's end that would be a fault."""
    folder = Folder("cut-library")
    clip = os.path.join(binary, "plugins", "clip")
    own = folder.path("plugins/clip")
    shutil.copytree(clip, own)
    folder.recipe(RECIPE.replace("  use", '  use "clip" { norm = 1 },\n  use'))
    library = os.path.join(own, "clip.so")
    size = os.path.getsize(library)
    for share in (0.3, 0.6, 0.9):
        shutil.copy(os.path.join(clip, "clip.so"), library)
        os.truncate(library, int(size * share))
        ended = galley("plan", folder.path("recipe.lua"), "--plugin-path", folder.path("plugins"))
        check(ended.returncode == 4 and "is cut: it has" in ended.stderr and "clip.so" in ended.stderr, "a cut library was to be named: %s" % ended)


# --- Targets ---------------------------------------------------------------------------------------------------------------------
MEMORY = '[[memory]]\nname = "%s"\nalignment = %s\nhost_access = true\ncomputes = true\n'


@case
def targets_that_make_no_sense():
    folder = Folder("targets")
    refused(folder, 2, "--target ''", more=["--target", ""], command="plan")
    refused(folder, 2, "--target h100", "'cuda'", "'cpu'", more=["--target", "h100"], hint="galley plan")
    for text, part in ((MEMORY % ("\\u001b[31m", "64"), "a control character in the name '\\x1b[31m'"), (MEMORY % ("m", str(1 << 40)), "alignment 1099511627776 is more than"), ('isa = "x\\u0007"\n', "'x\\x07'")):
        target = folder.write("target.toml", text)
        refused(folder, 2, "target.toml", part, more=["--target", target], command="plan")
    # An instruction set that nobody knows, which would be planned with the slowest kernels; of a GPU's, and one of a later number are known.
    with open(os.path.join(source, "models/targets/h100.toml")) as file:
        gpu = file.read()
    for text, cause, hint in (('isa = "x"\n', "'isa' is 'x', which no kernel for device 'cpu' is built for", "x86-64-v"), ('isa = "x86-64-v"\n', "'isa' is 'x86-64-v'", "x86-64-v"),
                              (gpu.replace("sm_90", "sm-90"), "'isa' is 'sm-90', which no kernel for device 'cuda' is built for", "sm_80")):
        refused(folder, 2, "target.toml", cause, more=["--target", folder.write("target.toml", text)], hint=hint, command="plan")
    planned = galley("plan", folder.path("recipe.lua"), "--target", folder.write("target.toml", 'isa = "x86-64-v9"\n'))
    check(planned.returncode == 0, "a target of a later x86-64 was to be planned: %s" % planned)
    target = folder.write("target.toml", MEMORY % ("host", "1"))
    refused(folder, 2, "target.toml", "the alignment 1;", more=["--target", target])


# --- Recipes and tokenizers --------------------------------------------------------------------------------------------------------
@case
def lora_twice():
    folder = with_recipe("lora-twice", "  use", '  use "lora" { rank = 2 },\n  use "lora" { rank = 2 },\n  use')
    refused(folder, 2, "recipe.lua", "the recipe uses \"lora\" twice", command="plan")


@case
def adapter_without_a_scale():
    folder = with_recipe("adapter-scale", "  use", '  use "lora" { path = "adapter" },\n  use')
    for alpha in ("0", "-1", "1e400"):
        file = folder.write("adapter/adapter_config.json", '{"peft_type": "LORA", "r": 4, "lora_alpha": %s, "target_modules": ["c_attn"]}' % alpha)
        refused(folder, 2, file, "1e400" if alpha == "1e400" else "'lora_alpha' has to be a positive number", command="plan")


@case
def adapter_of_many_levels():
    """Parsers of plugins recurse; what comes to them has been looked at."""
    folder = Folder("adapter-levels")
    deep = '{"peft_type": "%s", "auto_mapping": ' + '{"a":' * 100000 + "1" + "}" * 100001
    wide = '{"peft_type": "%s", "rank_pattern": {' + ",".join('"%d": 1' % i for i in range(40000)) + "}}"
    for strategy in ("lora", "ia3", "vera"):
        for text, part in ((deep, "more than 200 levels"), (wide, "more than 32768 values"), ("{", "syntax error")):
            folder.recipe(RECIPE.replace("  use", '  use "%s" { path = "adapter" },\n  use' % strategy))
            file = folder.write("adapter/adapter_config.json", text.replace("%s", strategy.upper()))
            refused(folder, 2, strategy, file, part, command="plan")


@case
def counts_without_end():
    """Counted, not timed: a loaded machine says the same."""
    folder = Folder("counts")
    for layers in (10**6, 1 << 62):
        folder.config(n_layer=layers)
        ended = refused(folder, 2, "the model has more than 131072 tensors and nodes", hint="number of layers", command="plan")
        check(ended.seconds < 10, "it took long: %s" % ended)


@case
def patterns_that_explode():
    for code in ("('a'):rep(1e5):find(('a*'):rep(50) .. 'b')", "table.move({}, 1, 1 << 60, 2)",
                 "table.insert(setmetatable({}, { __len = function() return 1 << 53 end }), 1, 0)"):
        folder = Folder("explodes")
        folder.recipe("local x = %s\n%s" % (code, RECIPE))
        refused(folder, 2, "recipe.lua:1: ", command="plan")


@case
def tokenizer_that_explodes():
    folder = Folder("replace-bomb")
    rules = [{"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}] * 9
    file = folder.write("tokenizer.json", json.dumps({"normalizer": {"type": "Sequence", "normalizers": rules}, "model": {
        "type": "BPE", "vocab": {"a": 0}, "merges": []}}))
    check_error(galley("tokenize", file), 2, file, "normalizer.normalizers[1]", "100 times as long")


@case
def tokenizer_that_takes_long():
    """Tokens that begin alike over thousands of bytes, so that a text is looked up from each of its bytes over all of them."""
    folder = Folder("long-tokens")
    long, text = "a" * 16383, json.dumps({"text": "a" * 400000}) + "\n"
    for name, model, added in (("Unigram", {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0], [long + "b", -1.0]]}, []),
                               ("WordPiece", {"type": "WordPiece", "max_input_chars_per_word": 1 << 40, "vocab": {"[UNK]": 0, "a": 1, "##a": 2, "##" + long[3:] + "b": 3}}, []),
                               ("added tokens", {"type": "BPE", "vocab": {"a": 0}, "merges": []}, [{"id": 1, "content": long + "b"}])):
        file = folder.write("tokenizer.json", json.dumps({"added_tokens": added, "model": model}))
        check_error(galley("tokenize", file, input=text), 2, "stdin:1", file, "more than 256 steps a byte")
    file = folder.write("tokenizer.json", json.dumps({"added_tokens": [{"id": 1, "content": "b" * 16385}], "model": model}))
    check_error(galley("tokenize", file), 2, file, "added_tokens[0]", "16385 bytes")


@case
def lines_without_end():
    folder = Folder("lines")
    for words in (["embed", folder.path("model")], ["sample", folder.path("model"), "--chat", "--template", "chatml"]):
        folder.write("model/tokenizer.json", json.dumps({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False}}))
        check_error(galley(*words, "--length", "8", input='"' + "a" * (17 << 20) + '"\n'), 2, "stdin:1: a line of more than 16 MiB")


finish()
