#include "host/tools/gguf/adapter.hpp"

#include "host/exec/convert.hpp"

namespace galley {

Result<Conversion> plan_adapter(const tensor_files::Reader& from, const Value& about, GgufNaming& naming, const GgufType* type,
                                GgufKeys* keys) {
  Table shapes;
  for (const tensor_files::Entry& entry : from.entries()) shapes[entry.name] = Value(List(entry.shape.begin(), entry.shape.end()));
  const GgufNaming::Adapter adapter = TRY(naming.adapter(about, shapes));
  for (const auto& [key, value] : adapter.keys) keys->add(key, value);
  Conversion out;
  for (const tensor_files::Entry& entry : from.entries()) {
    const GgufNaming::Named& named = adapter.tensors.at(entry.name);
    out.tensors.push_back({{named.name, type ? type->dtype : entry.dtype, entry.shape}, entry.name, named.form});
  }
  return out;
}

Status check_adapter_file(const tensor_files::Reader& from, const Conversion& conversion, const std::filesystem::path& file) {
  const tensor_files::Reader written = TRY(tensor_files::Reader::open(file));
  for (const ConvertedTensor& tensor : conversion.tensors) {
    const tensor_files::Entry *ours = from.find(tensor.from), *theirs = written.find(tensor.to.name);
    const bool there = theirs && theirs->shape == ours->shape && theirs->dtype == tensor.to.dtype;
    std::vector<std::byte> numbers(ours->bytes), rounded(there ? theirs->bytes : 0), read(rounded.size());
    if (there) {
      TRY_STATUS(from.read(*ours, numbers));
      TRY_STATUS(written.read(*theirs, read, tensor.form));
      const auto count = static_cast<int64_t>(ours->bytes / tensor_files::size_of(ours->dtype));
      convert(rounded.data(), dtype_of(theirs->dtype), numbers.data(), dtype_of(ours->dtype), count);
    }
    if (!there || rounded != read)
      return run_error("tensor '" + tensor.to.name + "' of the file that was written is not that of the adapter");
  }
  return ok();
}

}  // namespace galley
