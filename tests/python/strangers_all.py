#!/usr/bin/env python3
# label: all
# Files of somebody else: every way out of its folder that a recipe can try, with --confine and without.
#
#   GALLEY=… GALLEY_SOURCE=… GALLEY_BINARY=… tests/python/strangers_all.py [CASE]…
from strangers_kit import *

fresh_folder()


def ways(table, more):
    for way in table:
        refuses(*way, more)


@case
def a_recipe_with_confine():
    check(len(RECIPES) > 50, "%d ways" % len(RECIPES))
    ways(RECIPES, ["--confine"])


@case
def beside_a_gguf_file():
    import gguf_kit
    folder = with_outside("gguf")
    config = dict(vocab_size=32, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=16,
                  rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=True)
    gguf_kit.make(folder.path("g"), config, lambda name, shape: "F32")
    folder.recipe(WITH_TEXT.replace('path = "model"', 'path = arg("model", "g/model.gguf")'))
    for name in ("tokenizer.json", *BESIDE):
        for file in ("tokenizer.json", name):
            if os.path.lexists(folder.path("g/" + file)):
                os.remove(folder.path("g/" + file))
        folder.write("g/tokenizer.json", TOKENIZER)
        link(folder, "g/" + name, folder.outside + "/model/" + name)
        for more in ([], ["--set", "model=" + folder.path("g/model.gguf")], ["--set", "model=" + folder.path("g")]):  # The file is lent, not what it leads to
            refused(folder, 2, "g/%s' leads out" % name, command="plan", more=["--confine", *more])
        refused(folder, 2, "g/%s' leads out of its folder" % name, "would be saved with the model", command="plan")
        os.remove(folder.path("g/" + name))
    folder.write("g/tokenizer.json", TOKENIZER)
    ended = galley("plan", folder.path("recipe.lua"), "--confine", "--set", "model=" + folder.path("g/model.gguf"))
    check(ended.returncode == 0, "what lies beside the file that was named belongs to it: %s" % ended)
    # In Hugging Face's cache the file is a link, and its name is on the link.
    hub = os.path.join(folder.root, "models--o--n")
    os.makedirs(hub + "/snapshots/1")
    os.makedirs(hub + "/blobs")
    for i, name in enumerate(("model.gguf", "tokenizer.json")):
        shutil.move(folder.path("g/" + name), hub + "/blobs/%d" % i)
        os.symlink("../../blobs/%d" % i, hub + "/snapshots/1/" + name)
    for named in ("/snapshots/1", "/snapshots/1/model.gguf"):
        ended = galley("plan", folder.path("recipe.lua"), "--confine", "--set", "model=" + hub + named)
        check(ended.returncode == 0, "a GGUF file in the cache is a model: %s" % ended)


@case
def a_recipe_without():
    ways(OPENLY, [])


finish()
