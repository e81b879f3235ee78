#!/usr/bin/env python3
# The cases of errors.py that a model's files can bring: weights, shards, configuration.
#
#   GALLEY=… GALLEY_SOURCE=… GALLEY_BINARY=… tests/python/errors_files.py [CASE]…
from errors_kit import *


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
def weights_not_finite():
    for value, text in ((float("nan"), "NaN"), (float("inf"), "inf")):
        folder = Folder("not-finite-" + text)
        tensors = weights()
        tensors["transformer.h.0.ln_2.bias"] = ("F32", (C,), struct.pack("<%df" % C, *([0.0] * 3 + [value] * (C - 3))))
        refused(folder, 2, folder.model(tensors), "transformer.h.0.ln_2.bias", "[3]", text)


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


if __name__ == "__main__":
    sys.exit(run_all(sys.argv[1:]))
