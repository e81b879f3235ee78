#!/usr/bin/env python3
# The cases of errors.py that a model's files can bring: weights, shards, configuration.
#
#   GALLEY=… GALLEY_SOURCE=… GALLEY_BINARY=… tests/python/errors_files.py [CASE]…
import resource

from errors_kit import *

fresh_folder()


# --- Files of a model ----------------------------------------------------------------------------------------------------------
@case
def model_file_missing():
    folder = Folder("model-file-missing")
    os.remove(folder.path("model/model.safetensors"))
    refused(folder, 2, folder.path("model"), "model.safetensors")


@case
def model_folder_missing():
    folder = Folder("model-folder-missing")
    shutil.rmtree(folder.path("model"))
    refused(folder, 2, "recipe.lua:2", folder.path("model"), "config.json")


@case
def file_truncated():
    folder = Folder("truncated")
    whole = safetensors(weights())
    file = folder.path("model/model.safetensors")
    for size, parts in ((0, ["0 bytes"]), (5, ["5 bytes"]), (300, ["truncated", "292"]), (len(whole) - 100, ["transformer.ln_f.bias", "[16256, 16320]", "16220"])):
        write(file, whole[:size])
        refused(folder, 2, file, *parts)


@case
def file_with_bytes_too_many():
    folder = Folder("too-long")
    file = folder.write("model/model.safetensors", safetensors(weights()) + b"\0" * 8)
    refused(folder, 2, file, "8 of 16328 bytes")


@case
def header_size_absurd():
    folder = Folder("header")
    whole = safetensors(weights())
    for size in (0, 1, 1 << 60, (1 << 63) - 1, (1 << 64) - 1, len(whole), len(whole) - 7):
        file = folder.write("model/model.safetensors", struct.pack("<Q", size) + whole[8:])
        refused(folder, 2, file, " %d bytes" % size)


@case
def header_of_very_many_tensors():
    """Their number and the length of their names cost no more than they are long."""
    folder = Folder("header-many")
    many = ",".join('"tensor.%06d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' % i for i in range(100000))
    for names in (many, '"%s":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' % ("x" * 30000000)):
        text = "{%s}" % names
        file = folder.write("model/model.safetensors", struct.pack("<Q", len(text)) + text.encode())
        limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
        ended = galley("train", folder.path("recipe.lua"), "--out", folder.out, before=limit)
        check(ended.returncode == 2 and "16 of the model's 16 tensors are missing" in ended.stderr, "exit code 2 was expected: %s" % ended)
        check(len(ended.stderr) < 2000, "%d bytes of error" % len(ended.stderr))


@case
def files_that_never_end():
    """A pipe, which nobody writes into, is not waited for."""
    for name in ("model/model.safetensors", "model/config.json"):
        folder = Folder("pipe")
        os.remove(folder.path(name))
        os.mkfifo(folder.path(name))
        ended = galley("train", folder.path("recipe.lua"), "--out", folder.out)
        check_error(ended, 2, folder.path(name))


@case
def header_is_no_json():
    folder = Folder("header-json")
    file = folder.write("model/model.safetensors", struct.pack("<Q", 8) + b'{"a": 1,' + b"\0" * 64)
    refused(folder, 2, file)


@case
def header_hostile():
    folder = Folder("header-hostile")
    one = '"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}'
    for text, part in (("[" * 200000, "'{'"), ('{"a":' * 200000, ""), ("{%s, %s}" % (one, one), '"a"')):
        file = folder.write("model/model.safetensors", struct.pack("<Q", len(text)) + text.encode() + bytes(4))
        refused(folder, 2, file, part)


@case
def index_that_leads_elsewhere():
    folder = Folder("index")
    elsewhere = os.path.join(folder.root, "elsewhere.safetensors")
    os.rename(folder.path("model/model.safetensors"), elsewhere)
    for file in ("../../elsewhere.safetensors", elsewhere):
        index = folder.write("model/model.safetensors.index.json", json.dumps({"weight_map": {name: file for name in SHAPES}}))
        refused(folder, 2, index, '"%s"' % file)
    refused(folder, 2, folder.write("model/model.safetensors.index.json", "{"))
    refused(folder, 2, folder.write("model/model.safetensors.index.json", "{}"), "'weight_map'")
    refused(folder, 2, folder.write("model/model.safetensors.index.json", json.dumps({"weight_map": {name: "gone.safetensors" for name in SHAPES}})), "gone.safetensors")


@case
def offsets_wrong():
    def same(header):
        header["transformer.ln_f.bias"]["data_offsets"] = header["transformer.ln_f.weight"]["data_offsets"]

    def backward(header):
        header["transformer.ln_f.bias"]["data_offsets"].reverse()

    def negative(header):
        header["transformer.ln_f.bias"]["data_offsets"] = [-64, 0]

    def huge(header):
        header["transformer.ln_f.bias"]["data_offsets"] = [(1 << 63) - 64, (1 << 63) - 1]

    def span(header):
        header["transformer.ln_f.bias"]["data_offsets"][1] -= 4

    def product(header):
        header["transformer.ln_f.bias"]["shape"] = [1 << 31, 1 << 31, 1 << 31]

    folder = Folder("offsets")
    for edit, part in ((same, "overlap"), (backward, "[16320,16256]"), (negative, "-64"), (huge, "9223372036854775744"), (span, "16316"), (product, "2147483648")):
        refused(folder, 2, folder.model(edit=edit), "transformer.ln_f.bias", part)


@case
def dtype_wrong():
    folder = Folder("dtype")
    tensors = weights()
    tensors["transformer.ln_f.bias"] = ("I32", (C,), bytes(4 * C))
    refused(folder, 2, folder.model(tensors), "transformer.ln_f.bias", "I32")

    def unknown(header):
        header["transformer.ln_f.bias"]["dtype"] = "Q4"

    refused(folder, 2, folder.model(edit=unknown), "transformer.ln_f.bias", '"Q4"')


@case
def shape_wrong():
    folder = Folder("shape")
    tensors = weights()
    tensors["transformer.wpe.weight"] = ("F32", (P // 2, 2 * C), tensors["transformer.wpe.weight"][2])
    refused(folder, 2, folder.model(tensors), "transformer.wpe.weight", "(8, 32)", "(16, 16)")


@case
def tensor_missing():
    folder = Folder("tensor-missing")
    tensors = weights()
    del tensors["transformer.h.0.mlp.c_fc.bias"]
    folder.model(tensors)
    refused(folder, 2, folder.path("model"), "transformer.h.0.mlp.c_fc.bias")


@case
def tensor_unexpected():
    folder = Folder("tensor-unexpected")
    tensors = weights()
    tensors["transformer.h.1.ln_1.weight"] = ("F32", (C,), bytes(4 * C))
    folder.model(tensors)
    refused(folder, 2, folder.path("model"), "transformer.h.1.ln_1.weight")


@case
def head_that_is_not_the_embedding():
    folder = Folder("head")
    tensors = weights()
    dtype, shape, data = tensors["transformer.wte.weight"]
    tensors["lm_head.weight"] = (dtype, shape, data)
    folder.model(tensors)
    trained(galley("train", folder.path("recipe.lua"), "--out", folder.out))
    shutil.rmtree(folder.out)
    tensors["lm_head.weight"] = (dtype, shape, data[:-4] + struct.pack("<f", 7.0))
    folder.model(tensors)
    both = "'transformer.wte.weight' and 'lm_head.weight' differ at [31, 15]"
    for command in ("train", "gradients"):
        more = ("--out", os.path.join(folder.root, "g.safetensors")) if command == "gradients" else ()
        refused(folder, 2, folder.path("model"), both, hint="tie_word_embeddings = false in config.json", command=command, more=more)
    folder.config(tie_word_embeddings=False)
    trained(galley("train", folder.path("recipe.lua"), "--out", folder.out))
    del tensors["lm_head.weight"]
    folder.model(tensors)
    shutil.rmtree(folder.out)
    refused(folder, 2, folder.path("model"), "'lm_head.weight'", hint="tie_word_embeddings = true in config.json")


@case
def head_in_the_place_of_the_embedding():
    folder = Folder("head-alone")
    tensors = weights()
    tensors["lm_head.weight"] = tensors.pop("transformer.wte.weight")
    folder.model(tensors)
    trained(galley("train", folder.path("recipe.lua"), "--out", folder.out))


@case
def weights_not_finite():
    for value, text in ((float("nan"), "NaN"), (float("inf"), "inf")):
        folder = Folder("not-finite-" + text)
        tensors = weights()
        tensors["transformer.h.0.ln_2.bias"] = ("F32", (C,), struct.pack("<%df" % C, *([0.0] * 3 + [value] * (C - 3))))
        refused(folder, 2, folder.model(tensors), "transformer.h.0.ln_2.bias", "[3]", text)


@case
def gradients_not_finite():
    folder = Folder("gradients-not-finite")
    tensors = weights()
    tensors["transformer.ln_f.weight"] = ("F32", (C,), struct.pack("<%df" % C, *[3e38] * C))
    folder.model(tensors)
    out = os.path.join(folder.root, "g.safetensors")
    ended = galley("gradients", folder.path("recipe.lua"), "--out", out)
    check_error(ended, 1, out, "the loss is")
    check(os.path.exists(out), "what was computed is there to be looked at: %s" % ended)


@case
def configuration_is_no_json():
    folder = Folder("config-json")
    refused(folder, 2, folder.write("model/config.json", '{\n"model_type": "gpt2",\n"n_embd": ,\n}') + ":3:11")
    refused(folder, 2, folder.write("model/config.json", ""))
    refused(folder, 2, folder.write("model/config.json", "[" * 100000))
    refused(folder, 2, folder.write("model/config.json", "[1, 2]"))


@case
def architecture_unknown():
    folder = Folder("architecture")
    refused(folder, 2, folder.config(model_type="rwkv9"), "'rwkv9'", hint="gpt2")


@case
def configuration_key_that_changes_the_mathematics():
    folder = Folder("key")
    refused(folder, 2, folder.config(attn_logit_softcapping=30.0), "'attn_logit_softcapping'", "30.0")
    refused(folder, 2, folder.config(activation_function="swoosh"), "'activation_function'", "'swoosh'")
    refused(folder, 2, folder.config(n_head=3), "n_embd = 16", "n_head = 3")
    refused(folder, 2, folder.config(n_embd="wide"), "'n_embd'", "wide")
    refused(folder, 2, folder.config(layer_norm_epsilon=-1e-5), "'layer_norm_epsilon'", "-1e-05", command="plan")
    refused(folder, 2, folder.config(resid_pdrop=1.0), "'resid_pdrop'", "1.0", command="plan")
    refused(folder, 2, folder.config(n_layer=None), "'n_layer'", "null", command="plan")
    refused(folder, 2, folder.config(has=1), "'has'", command="plan")


LLAMA = {
    "model_type": "llama", "vocab_size": V, "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": P,
}


@case
def configuration_that_planning_refuses():
    """Values that no program computes with, and keys that say different things: by `plan`, which reads no weights."""
    rope3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8}
    window = {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
    cases = [
        ({"rms_norm_eps": -1e-6}, "'rms_norm_eps'", "-1e-06"),
        ({"attention_dropout": 1.5}, "'attention_dropout'", "1.5"),
        ({"hidden_act": "mish"}, "'hidden_act'", "mish"),
        ({"num_attention_heads": 6, "num_key_value_heads": 6}, "hidden_size = 64", "num_attention_heads = 6"),
        ({"num_attention_heads": 6, "num_key_value_heads": 6, "head_dim": 8}, "hidden_size = 64", "num_attention_heads = 6"),
        ({"model_type": "qwen2", "num_key_value_heads": None, "hidden_size": 66}, "hidden_size = 66", "num_attention_heads = 4"),
        ({"rope_theta": 0}, "'rope_theta'", "0"),
        ({"rope_theta": "big"}, "'rope_theta'", "big"),
        ({"rope_scaling": "linear"}, "'rope_scaling'", "linear"),
        ({"rope_scaling": {"type": "linear"}}, "'rope_scaling'", "'factor'"),
        ({"rope_scaling": {"type": "linear", "factor": 0.0}}, "'rope_scaling'", "'factor'", "0.0"),
        ({"rope_scaling": {"type": "xpos", "factor": 2.0}}, "'rope_scaling'", "'xpos'"),
        ({"rope_scaling": {"type": "longrope", "factor": 2.0}}, "'rope_scaling'", "'short_factor'"),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0, "truncate": 1}}, "'rope_scaling'", "'truncate'", "1"),
        ({"rope_scaling": {"rope_type": "linear", "type": "llama3", "factor": 2.0}}, "'rope_scaling'", "'linear'", "'llama3'"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": -1.0}}, "'rope_parameters'", "'rope_theta'", "-1.0"),
        ({"rope_parameters": {**rope3, "high_freq_factor": 1.0}},
         "'rope_parameters'", "'high_freq_factor' = 1.0", "'low_freq_factor' = 1.0"),
        ({"rope_parameters": {**rope3, "partial_rotary_factor": 0.5}}, "'rope_parameters'", "'partial_rotary_factor'"),
        # transformers reads the first of each pair and leaves the other out.
        ({"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": {"rope_type": "default"}},
         "'rope_scaling'", "'rope_parameters'", "'rope_type'"),
        ({"rope_scaling": rope3, "rope_parameters": {**rope3, "rope_theta": 5e5}}, "'rope_scaling'", "'rope_parameters'", "'rope_theta'"),
        ({"rope_scaling": {**rope3, "rope_theta": 5e5}, "rope_theta": 1e4}, "'rope_scaling'", "500000.0", "10000.0"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}, "rope_theta": 1e4}, "'rope_parameters'", "500000.0", "10000.0"),
        # ... and these it does not read at all.
        ({"use_sliding_window": True, "sliding_window": 8}, "sliding_window'"),
        ({"sliding_window": 8}, "'sliding_window'"),
        ({"model_type": "mistral", "use_sliding_window": True}, "'use_sliding_window'"),
        ({"model_type": "mistral", "attention_bias": True}, "'attention_bias'"),
        ({"model_type": "qwen3", "mlp_bias": True}, "'mlp_bias'"),
        ({"model_type": "mistral", "sliding_window": 4.5}, "'sliding_window'", "4.5"),
        ({"model_type": "mistral", "sliding_window": 0}, "'sliding_window'", "0"),
        ({"layer_types": ["full_attention"] * 3, **window}, "'layer_types'", "num_hidden_layers = 2", "3"),
        ({"layer_types": "full_attention", **window}, "'layer_types'", "full_attention"),
        ({"layer_types": ["full_attention", "chunked_attention"], **window}, "layer_types[2]", "'chunked_attention'"),
        ({"layer_types": ["full_attention", "sliding_attention"], "model_type": "qwen3", "sliding_window": 8}, "'use_sliding_window'"),
        # What transformers has there where the configuration is silent.
        ({"model_type": "mistral", "num_key_value_heads": ...}, "num_attention_heads = 4", "num_key_value_heads = 8", "mistral"),
    ]
    folder = Folder("configuration")
    for changes, *parts in cases:
        config = {key: value for key, value in {**LLAMA, **changes}.items() if value is not ...}
        refused(folder, 2, folder.write("model/config.json", json.dumps(config)), *parts, command="plan")


finish()
