#include "host/plugins/options.hpp"

#include <cmath>
#include <system_error>

#include "host/base/confinement.hpp"
#include "host/base/option_reader.hpp"

namespace galley {
namespace {

// What the C getters see: the value of a list at an index, or a single value at index 0.
const Value* element(const Value* value, uint64_t index) {
  if (!value) return nullptr;
  const List* list = value->as<List>();
  if (!list) return index == 0 ? value : nullptr;
  return index < list->size() ? &(*list)[index] : nullptr;
}

const Value* find_in(const void* handle, const char* name) {
  if (!name) return nullptr;
  const auto* options = static_cast<const Options*>(handle);
  options->note_asked(name);
  return options->find(name);
}

/// Reads a value by `as`; one that is there and is of another type is the plugin's mistake.
template <class As>
galley_status read(const void* handle, const char* name, const Value* value, As&& as) {
  if (!value) return GALLEY_INVALID;
  if (as(*value)) return GALLEY_OK;
  static_cast<const Options*>(handle)->note_misread(name);
  return GALLEY_INVALID;
}

bool to_number(const Value& value, double* out) {
  const auto* schedule = value.as<Schedule>();
  if (schedule) *out = schedule->at(1);
  return schedule || value.number(out);
}

bool to_string(const Value& value, const char** out) {
  const auto* text = value.as<std::string>();
  if (text) *out = text->c_str();
  return text != nullptr;
}

galley_status get_integer(const void* handle, const char* name, int64_t* out) {
  return read(handle, name, find_in(handle, name), [&](const Value& value) {
    if (const auto* i = value.as<int64_t>()) {
      *out = *i;
      return true;
    }
    const auto* schedule = value.as<Schedule>();
    if (!schedule || std::floor(schedule->at(1)) != schedule->at(1)) return false;
    *out = static_cast<int64_t>(schedule->at(1));
    return true;
  });
}

galley_status get_number(const void* handle, const char* name, double* out) {
  return read(handle, name, find_in(handle, name), [&](const Value& value) { return to_number(value, out); });
}

galley_status get_boolean(const void* handle, const char* name, int32_t* out) {
  return read(handle, name, find_in(handle, name), [&](const Value& value) {
    const bool* b = value.as<bool>();
    if (b) *out = *b ? 1 : 0;
    return b != nullptr;
  });
}

galley_status get_string(const void* handle, const char* name, const char** out) {
  return read(handle, name, find_in(handle, name), [&](const Value& value) { return to_string(value, out); });
}

galley_status get_count(const void* handle, const char* name, uint64_t* out) {
  const Value* value = find_in(handle, name);
  if (!value) return GALLEY_INVALID;
  const List* list = value->as<List>();
  *out = list ? list->size() : 1;
  return GALLEY_OK;
}

galley_status get_string_at(const void* handle, const char* name, uint64_t index, const char** out) {
  return read(handle, name, element(find_in(handle, name), index), [&](const Value& value) { return to_string(value, out); });
}

galley_status get_number_at(const void* handle, const char* name, uint64_t index, double* out) {
  return read(handle, name, element(find_in(handle, name), index), [&](const Value& value) { return to_number(value, out); });
}

}  // namespace

Options::Options(Table values)
    : values_(std::move(values)),
      table_{sizeof(galley_options), 1,       this, get_integer, get_number, get_boolean, get_string, get_count, get_string_at,
             get_number_at,          table_at} {
  for (const auto& [name, value] : values_) {
    const List* list = value.as<List>();
    for (const Value& entry : list ? *list : List())
      if (const auto* table = entry.as<Table>()) tables_[name].emplace_back(new Options(*table));
  }
}

const galley_options* Options::table_at(const void* handle, const char* name, uint64_t index) {
  const auto* options = static_cast<const Options*>(handle);
  if (name) options->note_asked(name);
  const auto found = options->tables_.find(name ? name : "");
  if (found != options->tables_.end() && index < found->second.size()) return found->second[index]->table();
  if (options->find(name ? name : "")) options->note_misread(name);
  return nullptr;
}

Result<std::unique_ptr<const Options>> Options::create(const StrategySpec& spec, const Use& use, const std::string& owner) {
  const OptionReader reader(
      use.options, {.place = [&](const std::string& name) { return use.place_of(name); }, .owner = owner.empty() ? spec.name : owner});
  TRY_STATUS(reader.only(spec.options));
  Table values;
  for (const OptionSpec& option : spec.options) {
    Value value = TRY(reader.take(option));
    if (value.is_nil()) continue;
    if (option.type == OptionType::Path && reader.find(option.name)) {
      std::error_code ignored;
      const std::filesystem::path path = std::filesystem::absolute(*value.as<std::string>(), ignored).lexically_normal();
      if (!std::filesystem::exists(path, ignored))
        return reader.error(option.name, reader.called(option.name) + ": there is no '" + path.string() + "'");
      // The plugin may open it by its own means.
      if (const Status inside = Confinement::check(path); !inside)
        return reader.error(option.name, reader.called(option.name) + ": " + inside.error().cause);
      value = Value(path.string());
    }
    values[option.name] = std::move(value);
  }
  return std::unique_ptr<const Options>(new Options(std::move(values)));
}

const Value* Options::find(std::string_view name) const {
  const auto found = values_.find(std::string(name));
  return found == values_.end() ? nullptr : &found->second;
}

const Schedule* Options::schedule(std::string_view name) const {
  const Value* value = find(name);
  return value ? value->as<Schedule>() : nullptr;
}

std::optional<double> Options::number(std::string_view name, int64_t step) const {
  const Value* value = find(name);
  double out = 0;
  if (!value) return std::nullopt;
  if (const auto* s = value->as<Schedule>()) return s->at(step);
  if (!value->number(&out)) return std::nullopt;
  return out;
}

}  // namespace galley
