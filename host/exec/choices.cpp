#include "host/exec/choices.hpp"

#include "host/base/json.hpp"
#include "host/base/new_file.hpp"
#include "host/plugins/abi.hpp"

namespace galley {

Choices::Choices() : table_(new_struct<galley_choices>()) {
  table_.self = this;
  table_.find = find;
  table_.keep = keep;
}

Status Choices::read(const std::filesystem::path& file) {
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return ok();
  const Value value = TRY(read_json(file));
  const Table* const choices = value.as<Table>();
  if (!choices) return run_error(file.string() + ": it is no table of choices", "remove it: kernels will be measured again");
  for (const auto& [key, choice] : *choices)
    if (const auto* text = choice.as<std::string>()) all_[key] = *text;
  return ok();
}

Status Choices::write(const std::filesystem::path& file) const {
  Table out;
  for (const auto& [key, choice] : all_) out.emplace(key, Value(choice));
  return write_atomic(file, to_json(Value(std::move(out)), 2) + "\n");
}

const char* Choices::find(void* self, const char* key) {
  const auto& all = static_cast<Choices*>(self)->all_;
  const auto at = all.find(std::string_view(key));
  return at == all.end() ? nullptr : at->second.c_str();
}

void Choices::keep(void* self, const char* key, const char* choice) {
  auto* const choices = static_cast<Choices*>(self);
  choices->all_[key] = choice;
  choices->changed_ = true;
}

}  // namespace galley
