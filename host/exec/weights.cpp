#include "host/exec/weights.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <set>
#include <vector>

#include "host/base/glob.hpp"
#include "host/base/listed.hpp"
#include "host/base/nearest.hpp"
#include "host/exec/convert.hpp"
#include "host/exec/read_rows.hpp"

namespace galley {
namespace {

using tensor_files::Entry;
using tensor_files::Reader;

/// The tensors that are meant: those that are there, under its names in their order.
std::vector<const Entry*> find_entries(const Reader& reader, const Read& code) {
  std::vector<const Entry*> found;
  if (const Entry* entry = reader.find(code.entry)) found.push_back(entry);
  for (const std::string& alias : code.aliases)
    if (const Entry* entry = reader.find(alias)) found.push_back(entry);
  return found;
}

/// A name in a file may have as many megabytes as its header.
std::string listed_briefly(const std::vector<std::string>& names) { return listed(names, 3, 200); }

Status check_entry(const Reader& reader, const Entry& entry, const Instruction& code) {
  const Operand& wanted = code.outputs[0];
  const Shape& shape = code.read()->whole.empty() ? wanted.shape : code.read()->whole;
  const std::string place = reader.place_of(entry) + " is " + tensor_files::describe(entry.dtype, entry.shape);
  const bool as_bytes = tensor_files::in_blocks(entry.dtype) && wanted.dtype == GALLEY_U8;
  if ((as_bytes ? tensor_files::block_shape(entry) : shape_read(entry, *code.read())) != shape)
    return recipe_error(place + ", the model has " + dtype_name(wanted.dtype) + " (" + tensor_files::numbers_text(shape) + ")",
                        "the file belongs to another configuration");
  // Blocks are bytes where a format's component is wanted, and no numbers.
  if (tensor_files::in_blocks(entry.dtype) != as_bytes || !convertible(dtype_of(entry.dtype), wanted.dtype))
    return recipe_error(place + ", which cannot be read as " + dtype_name(wanted.dtype));
  return ok();
}

// Returns an index into a tensor as "[3, 17]".
std::string index_text(int64_t flat, const Shape& shape) {
  std::string text;
  for (size_t i = shape.size(); i-- > 0;) {
    text = std::to_string(flat % shape[i]) + (text.empty() ? "" : ", ") + text;
    flat /= shape[i];
  }
  return "[" + text + "]";
}

std::string short_text(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value, std::chars_format::general, 9).ptr};
}

/// Two tensors of one shape that the model has one for.
Status check_same(const Reader& reader, const Entry& a, const Entry& b, const Read& code) {
  constexpr int64_t most = int64_t{1} << 16;
  const uint32_t types[] = {dtype_of(a.dtype), dtype_of(b.dtype)};
  const Entry* const entries[] = {&a, &b};
  const bool blocks = tensor_files::in_blocks(a.dtype) || tensor_files::in_blocks(b.dtype);
  const int64_t count = blocks ? static_cast<int64_t>(std::min(a.bytes, b.bytes)) : elements(a.shape);
  std::vector<std::byte> bytes[2];
  std::vector<double> numbers[2];
  for (int64_t done = 0; done < count; done += most) {
    const int64_t part = std::min(most, count - done);
    for (size_t i = 0; i < 2; ++i) {
      const int64_t width = galley_dtype_bytes(types[i]);
      bytes[i].resize(static_cast<size_t>(part * width));
      TRY_STATUS(reader.read_bytes(*entries[i], static_cast<uint64_t>(done * width), bytes[i], code.form));
    }
    if (types[0] == types[1] && bytes[0] == bytes[1] && (!blocks || a.dtype == b.dtype)) continue;
    std::string where;
    if (is_floating(types[0]) && is_floating(types[1])) {
      for (size_t i = 0; i < 2; ++i) {
        numbers[i].resize(static_cast<size_t>(part));
        convert(numbers[i].data(), GALLEY_F64, bytes[i].data(), types[i], part);
      }
      const auto [x, y] = std::mismatch(numbers[0].begin(), numbers[0].end(), numbers[1].begin());
      if (x == numbers[0].end()) continue;
      where = " at " + index_text(done + (x - numbers[0].begin()), a.shape) + ": " + short_text(*x) + " and " + short_text(*y);
    }
    return recipe_error(code.file + ": tensors '" + a.name + "' and '" + b.name + "' differ" + where + ", and the model has one for both",
                        code.hint);
  }
  return ok();
}

}  // namespace

Status check_files(const Program& program, std::span<const std::string> ignored) {
  std::map<std::string, std::vector<const Instruction*>> reads;
  for (const Segment& segment : program.segments)
    for (const Instruction& code : segment.code)
      if (code.read()) reads[code.read()->file].push_back(&code);

  for (const auto& [file, codes] : reads) {
    const Reader reader = TRY(Reader::open(file));
    std::set<std::string_view> read;
    std::vector<std::string> missing;
    std::string hint;
    for (const Instruction* code : codes) {
      const std::vector<const Entry*> entries = find_entries(reader, *code->read());
      for (const Entry* entry : entries) {
        read.insert(entry->name);
        TRY_STATUS(check_entry(reader, *entry, *code));
      }
      if (!entries.empty()) continue;
      missing.push_back(code->read()->entry);
      hint = missing.size() == 1 ? code->read()->hint : "";
    }
    for (const Program::Unread& known : program.unread)
      if (known.file == file) read.insert(known.names.begin(), known.names.end());
    std::vector<std::string> unexpected;
    for (const Entry& entry : reader.entries()) {
      if (read.contains(entry.name)) continue;
      if (std::none_of(ignored.begin(), ignored.end(), [&](const std::string& pattern) { return glob_matches(pattern, entry.name); }))
        unexpected.push_back(entry.name);
    }
    if (!missing.empty()) {
      if (const std::string near = did_you_mean(missing[0], unexpected); !near.empty()) hint = near;
      if (hint.empty() && !unexpected.empty()) hint = "the file has " + listed_briefly(unexpected) + ", which the model does not";
      return recipe_error(file + ": " + std::to_string(missing.size()) + " of the model's " + std::to_string(codes.size()) +
                              " tensors are missing: " + listed_briefly(missing),
                          hint);
    }
    if (!unexpected.empty()) {
      return recipe_error(file + ": " + std::to_string(unexpected.size()) + " of " + std::to_string(reader.entries().size()) +
                              " tensors are unknown to the model: " + listed_briefly(unexpected),
                          "the configuration may be another model's; training without them would not train this model");
    }
  }
  return ok();
}

Result<const Reader*> WeightFiles::open(const std::string& file) {
  auto at = readers_.find(file);
  if (at == readers_.end()) at = readers_.emplace(file, TRY(Reader::open(file))).first;
  return &at->second;
}

Status WeightFiles::read(const Instruction& code) {
  TRY_STATUS(machine_.synchronize());
  const Read& from_file = *code.read();
  const Reader& reader = *TRY(open(from_file.file));
  const std::vector<const Entry*> entries = find_entries(reader, from_file);
  if (entries.empty()) return recipe_error(from_file.file + ": tensor '" + from_file.entry + "' is missing", from_file.hint);
  const Entry* const entry = entries[0];
  const Operand& operand = code.outputs[0];
  for (const Entry* e : entries) TRY_STATUS(check_entry(reader, *e, code));

  const uint32_t from = dtype_of(entry->dtype), to = operand.dtype;
  const int64_t from_bytes = galley_dtype_bytes(from), to_bytes = galley_dtype_bytes(to);
  const int64_t count = elements(operand.shape);
  const Runs& runs = from_file.runs;
  const Shape& shape = from_file.whole.empty() ? operand.shape : from_file.whole;
  std::byte* const direct = machine_.host_address(operand.tensor, operand.offset);

  // Without access the converted numbers lie in the staging buffer too, after those of the file.
  const TensorId staging = program_.staging;
  std::byte* const buffer = staging != no_tensor ? machine_.host_address(staging) : nullptr;
  const int64_t room = buffer ? program_.tensors[static_cast<size_t>(staging)].bytes : 0;
  const bool straight = direct && from == to;
  const int64_t per_element = from_bytes + (direct ? 0 : to_bytes);
  // Blocks are read whole: they are checked.
  const bool blocks = tensor_files::in_blocks(entry->dtype);
  const int64_t block = blocks ? static_cast<int64_t>(tensor_files::size_of(entry->dtype)) : 1;
  const int64_t most = straight ? count : room / per_element / block * block;
  if (most == 0 && count > 0)
    return plugin_error("the plan's staging buffer of " + std::to_string(room) + " bytes is too small to read '" + entry->name + "'");

  for (int64_t done = 0; done < count;) {
    const int64_t part = std::min(most, count - done);
    std::byte* const source = straight ? direct + done * to_bytes : buffer;
    std::byte* const target = direct ? direct + done * to_bytes : buffer + most * from_bytes;
    const std::span<std::byte> read = {source, static_cast<size_t>(part * from_bytes)};
    TRY_STATUS(read_elements(reader, *entry, from_file, done, read));
    if (const int64_t bad = blocks ? tensor_files::first_broken_block(entry->dtype, read) : -1; bad >= 0)
      return recipe_error(
          reader.place_of(*entry) + ", block " + std::to_string(runs.at(done) / block + bad) + ": a scale is NaN or infinite",
          "these weights are broken; training would only spread it");
    if (source != target) convert(target, to, source, from, part);
    // What is finite in the file and not here does not fit; what is not finite there is not here either.
    if (const int64_t bad = first_not_finite(target, to, part); bad >= 0) {
      const std::string place = reader.place_of(*entry) + ", element " + index_text(runs.at(done + bad), shape) + ": ";
      double value = 0;
      convert(&value, GALLEY_F64, source + bad * from_bytes, from, 1);
      if (first_not_finite(source, from, part) == bad)
        return recipe_error(place + (value != value ? "NaN"
                                     : value > 0    ? "+infinity"
                                                    : "-infinity"),
                            "these weights are broken; training would only spread it");
      return recipe_error(place + short_number(value) + " does not fit " + dtype_name(to), "store this tensor in a dtype with more range");
    }
    if (!direct) {
      TRY_STATUS(machine_.copy(operand.tensor, operand.offset + done * to_bytes, staging, most * from_bytes, part * to_bytes));
      TRY_STATUS(machine_.synchronize());
    }
    done += part;
  }
  for (size_t i = 1; i < entries.size(); ++i) TRY_STATUS(check_same(reader, *entry, *entries[i], from_file));
  return ok();
}

}  // namespace galley
