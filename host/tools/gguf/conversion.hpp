// Turns a model's tensors, from safetensors files, into those of a GGUF file, some rows after the other.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "host/base/tensor_files.hpp"
#include "host/tools/gguf/gguf_file.hpp"
#include "host/tools/gguf/naming.hpp"

namespace galley {

/// A type of the numbers of a file. In a file of a block type, vectors and norms are in F32; the head, or the embedding where it is the
/// head, is in the type that llama-quantize gives it by default; and a matrix whose rows are no whole blocks gets the type that
/// llama-quantize falls back to.
struct GgufType {
  const char* name;  ///< "q4_k"
  tensor_files::Dtype dtype, head;
  int64_t number;  ///< general.file_type
};
/// Returns the type of that name; null if there is none. gguf_type_names() lists them: "f32, bf16, …".
const GgufType* gguf_type(const std::string& name);
std::string gguf_type_names();

/// Where a tensor of the file comes from.
struct ConvertedTensor {
  GgufTensor to;
  std::string from;  ///< the parameter; "": a vector of GgufModel::vectors
  tensor_files::FileForm form;
};

struct Conversion {
  std::vector<ConvertedTensor> tensors;
  bool turns_blocks = false;       ///< some have the model's columns as rows of blocks, which Galley does not read
  std::vector<std::string> notes;  ///< which types differ from the one asked for
};

/// Decides the tensors of a file. Without a type, matrices keep the dtype that they have in the files.
Result<Conversion> plan_conversion(const tensor_files::Reader& from, GgufNaming& naming, const GgufType* type);

/// Writes a GGUF file of planned tensors: keys first, then the numbers, some megabytes at a time, each rounded once. A number that is not
/// finite, or too large for its type, is exit code Failed. `progress` gets the bytes that are written and those of the whole file; its error
/// ends the work.
Status convert_tensors(const tensor_files::Reader& from, const GgufModel& model, const Conversion& conversion, const GgufKeys& keys,
                       File& to, const std::function<Status(uint64_t done, uint64_t total)>& progress);

}  // namespace galley
