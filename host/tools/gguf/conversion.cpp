#include "host/tools/gguf/conversion.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "host/base/ordered.hpp"
#include "host/base/pool.hpp"
#include "host/exec/convert.hpp"
#include "host/tools/gguf/blocks.hpp"

namespace galley {
namespace {

using tensor_files::Dtype;

constexpr GgufType kTypes[] = {{"f32", Dtype::F32, Dtype::F32, 0},     {"f16", Dtype::F16, Dtype::F16, 1},
                               {"bf16", Dtype::BF16, Dtype::BF16, 32}, {"q8_0", Dtype::Q8_0, Dtype::Q8_0, 7},
                               {"q6_k", Dtype::Q6_K, Dtype::Q6_K, 18}, {"q4_k", Dtype::Q4_K, Dtype::Q6_K, 14},
                               {"q4_0", Dtype::Q4_0, Dtype::Q6_K, 2}};
constexpr int64_t kChunkNumbers = int64_t{4} << 20;

/// What stands in for a block type in rows of that length.
Dtype fitting(Dtype dtype, int64_t row) {
  const auto fits = [&](Dtype d) { return row % static_cast<int64_t>(tensor_files::numbers_of(d)) == 0; };
  if (!fits(dtype)) dtype = dtype == Dtype::Q4_K ? Dtype::Q5_0 : dtype == Dtype::Q6_K ? Dtype::Q8_0 : Dtype::F16;
  return fits(dtype) ? dtype : Dtype::F16;
}

/// Blocks in their order, and what is before and after them by name.
std::pair<int64_t, std::string> place_in_file(const std::string& name) {
  if (!name.starts_with("blk.")) return {name.starts_with("token") ? -1 : INT64_MAX, name};
  return {std::atoll(name.c_str() + 4), name.substr(name.find('.', 4))};
}

/// Rows of one tensor on their way from file to file.
class RowConverter {
 public:
  RowConverter(const tensor_files::Reader& from, const ConvertedTensor& tensor)
      : from_(from), tensor_(tensor), entry_(from.find(tensor.from)) {
    width_ = tensor.to.shape.empty() ? 1 : tensor.to.shape.back();
    rows_ = 1;
    for (size_t k = 0; k + 1 < tensor.to.shape.size(); ++k) rows_ *= tensor.to.shape[k];
    step_ = std::max<int64_t>(1, kChunkNumbers / width_);
    // Blocks are of a row's numbers; of a vector, as many as one likes.
    row_bytes_ = static_cast<uint64_t>(width_) / tensor_files::numbers_of(tensor.to.dtype) * tensor_files::size_of(tensor.to.dtype);
  }
  int64_t rows() const { return rows_; }
  int64_t step() const { return step_; }
  uint64_t row_bytes() const { return row_bytes_; }

  /// Converts rows [at, at + n), as the file orders them.
  Result<std::span<const std::byte>> rows_at(int64_t at, int64_t n, Pool& pool) {
    const uint64_t source_row = static_cast<uint64_t>(width_) * tensor_files::size_of(entry_->dtype);
    bytes_.resize(static_cast<size_t>(n) * source_row);
    TRY_STATUS(from_.read_bytes(*entry_, static_cast<uint64_t>(at) * source_row, bytes_, tensor_.form.inverse()));
    numbers_.resize(static_cast<size_t>(n * width_));
    convert(numbers_.data(), GALLEY_F32, bytes_.data(), dtype_of(entry_->dtype), n * width_);
    if (first_not_finite(numbers_.data(), GALLEY_F32, n * width_) >= 0)
      return run_error(from_.place_of(*entry_) + " has a number that is not finite");
    if (const auto& form = tensor_.form; !form.same_numbers())
      for (float& x : numbers_) x = static_cast<float>((static_cast<double>(x) + form.added) * form.scale);
    out_.resize(static_cast<size_t>(n) * row_bytes_);
    TRY_STATUS(round_rows(n, pool));
    return std::span<const std::byte>(out_);
  }

 private:
  Status round_rows(int64_t n, Pool& pool) {
    const Dtype dtype = tensor_.to.dtype;
    if (!tensor_files::in_blocks(dtype)) {
      convert(out_.data(), dtype_of(dtype), numbers_.data(), GALLEY_F32, n * width_);
      const int64_t bad = first_not_finite(out_.data(), dtype_of(dtype), n * width_);
      return bad < 0 ? ok() : too_large(numbers_[static_cast<size_t>(bad)]);
    }
    struct Work {
      RowConverter* self;
      int64_t rows;
    } work = {this, n};
    constexpr int64_t rows_of_block = 16;
    pool.run((n + rows_of_block - 1) / rows_of_block,
             [](void* context, int64_t block) {
               const auto [self, rows] = *static_cast<Work*>(context);
               const int64_t begin = block * rows_of_block, end = std::min(rows, begin + rows_of_block);
               write_blocks(self->tensor_.to.dtype,
                            std::span(self->numbers_)
                                .subspan(static_cast<size_t>(begin * self->width_), static_cast<size_t>((end - begin) * self->width_)),
                            self->out_.data() + static_cast<uint64_t>(begin) * self->row_bytes_);
             },
             &work);
    const int64_t broken = tensor_files::first_broken_block(dtype, out_);
    return broken < 0 ? ok() : too_large(numbers_[static_cast<size_t>(broken) * tensor_files::numbers_of(dtype)]);
  }

  Error too_large(float number) const {
    return run_error(from_.place_of(*entry_) + ": numbers around " + short_number(static_cast<double>(number)) + " are too large for " +
                         tensor_files::name_of(tensor_.to.dtype),
                     "write the file with --dtype f32 or bf16");
  }

  const tensor_files::Reader& from_;
  const ConvertedTensor& tensor_;
  const tensor_files::Entry* entry_;
  int64_t rows_ = 1, width_ = 1, step_ = 1;
  uint64_t row_bytes_ = 0;
  std::vector<std::byte> bytes_, out_;
  std::vector<float> numbers_;
};

}  // namespace

const GgufType* gguf_type(const std::string& name) {
  const auto* at = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const GgufType& type) { return name == type.name; });
  return at == std::end(kTypes) ? nullptr : at;
}

std::string gguf_type_names() {
  std::string out;
  for (const GgufType& type : kTypes) out += (out.empty() ? "" : ", ") + std::string(type.name);
  return out;
}

Result<Conversion> plan_conversion(const tensor_files::Reader& from, GgufNaming& naming, const GgufType* type) {
  Conversion out;
  std::map<std::string, size_t> instead;
  std::set<std::string> names;
  for (const tensor_files::Entry& entry : from.entries()) {
    ConvertedTensor tensor;
    const GgufNaming::Named named = TRY(naming.tensor(entry.name));
    tensor.to = {named.name, entry.dtype, entry.shape};
    tensor.from = entry.name;
    tensor.form = named.form;
    if (named.form.turned) std::ranges::reverse(tensor.to.shape);
    names.insert(named.name);
    out.tensors.push_back(std::move(tensor));
  }
  for (ConvertedTensor& tensor : out.tensors) {
    const std::string& name = tensor.to.name;
    if (tensor.to.shape.size() < 2) {
      tensor.to.dtype = Dtype::F32;
      continue;
    }
    if (!type) continue;
    const bool head = name == "output.weight" || (name == "token_embd.weight" && !names.contains("output.weight"));
    const Dtype wanted = head ? type->head : type->dtype;
    tensor.to.dtype = fitting(wanted, tensor.to.shape.back());
    out.turns_blocks |= tensor.form.turned && tensor_files::in_blocks(tensor.to.dtype);
    if (tensor.to.dtype != wanted) ++instead[tensor_files::name_of(wanted) + std::string(" in ") + tensor_files::name_of(tensor.to.dtype)];
  }
  for (const auto& [what, count] : instead)
    out.notes.push_back(std::to_string(count) + (count == 1 ? " matrix" : " matrices") + " whose rows are no whole blocks of " +
                        what.substr(0, what.find(' ')) + ": written" + what.substr(what.find(' ')));
  for (const auto& [name, numbers] : naming.model().vectors)
    if (const auto* list = numbers.as<List>()) out.tensors.push_back({{name, Dtype::F32, {static_cast<int64_t>(list->size())}}, "", {}});
  std::ranges::sort(out.tensors, {}, [](const ConvertedTensor& t) { return place_in_file(t.to.name); });
  return out;
}

Status convert_tensors(const tensor_files::Reader& from, const GgufModel& model, const Conversion& conversion, const GgufKeys& keys,
                       File& to, const std::function<Status(uint64_t done, uint64_t total)>& progress) {
  std::vector<GgufTensor> tensors;
  for (const ConvertedTensor& tensor : conversion.tensors) tensors.push_back(tensor.to);
  GgufFile file = TRY(GgufFile::create(to, keys, tensors));
  Pool pool(static_cast<int>(usable_threads()));
  uint64_t done = 0;
  for (size_t t = 0; t < conversion.tensors.size(); ++t) {
    const ConvertedTensor& tensor = conversion.tensors[t];
    if (tensor.from.empty()) {
      std::vector<float> numbers;
      for (const Value& value : *model.vectors.at(tensor.to.name).as<List>()) {
        double number = 0;
        value.number(&number);
        numbers.push_back(static_cast<float>(number));
      }
      TRY_STATUS(file.write(t, 0, std::as_bytes(std::span(numbers))));
      continue;
    }
    RowConverter rows(from, tensor);
    for (int64_t at = 0; at < rows.rows(); at += rows.step()) {
      const std::span<const std::byte> bytes = TRY(rows.rows_at(at, std::min(rows.step(), rows.rows() - at), pool));
      TRY_STATUS(file.write(t, static_cast<uint64_t>(at) * rows.row_bytes(), bytes));
      done += bytes.size();
      TRY_STATUS(progress(done, file.bytes()));
    }
  }
  return file.finish();
}

}  // namespace galley
