// Plans the GGUF file of an adapter, in PEFT's format, for programs that use it beside a file of its model.
#pragma once

#include <filesystem>

#include "host/base/value.hpp"
#include "host/tools/gguf/conversion.hpp"

namespace galley {

/// Decides the tensors of the file as the model's family names them, and adds its keys. Without a type the numbers keep their dtype.
Result<Conversion> plan_adapter(const tensor_files::Reader& from, const Value& about, GgufNaming& naming, const GgufType* type,
                                GgufKeys* keys);

/// Reads the written file with Galley's own reader, and compares each number with that of the adapter, rounded once.
Status check_adapter_file(const tensor_files::Reader& from, const Conversion& conversion, const std::filesystem::path& file);

}  // namespace galley
