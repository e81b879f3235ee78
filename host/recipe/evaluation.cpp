#include "host/recipe/evaluation.hpp"

#include <string>
#include <vector>

#include "host/base/nearest.hpp"
#include "host/recipe/declared.hpp"
#include "host/recipe/language.hpp"

namespace galley {

Result<Evaluation> read_evaluation(const Fields& fields, const std::function<Status(Value*, const Place&)>& resolve) {
  const Declared& declared = declared_evaluate();
  TRY_STATUS(fields.only(declared.options));
  const auto whole = [&](const char* name) -> Result<int64_t> { return *TRY(fields.take(declared[name])).as<int64_t>(); };
  Evaluation out;
  out.place = fields.place_of("prompts");
  Value prompts = TRY(fields.take(declared["prompts"]));
  TRY_STATUS(resolve(&prompts, out.place));
  out.prompts = *prompts.as<std::string>();
  out.every = TRY(whole("every"));
  out.start = *TRY(fields.take(declared["start"])).as<bool>();
  out.samples = TRY(whole("samples"));
  out.tokens = TRY(whole("tokens"));
  out.int8_cache = TRY(fields.choice(declared["cache"])).has_value();
  const Value* match = fields.find("match");
  if (!match) return out;
  if (const Entry* function = find_entry(*match); function && function->kind == Entry::Kind::Function) {
    out.function = function->number;
    return out;
  }
  const auto* text = match->as<std::string>();
  const bool pattern = text && text->find_first_of("%[(.^$*+") != std::string::npos;
  const std::vector<std::string> named = {"exact", "rouge-l"};
  if (!text || (!pattern && *text != named[0] && *text != named[1]))
    return fields.wrong("match", declared["match"].expects(), text ? did_you_mean(*text, named) : "");
  out.match = *text;
  return out;
}

}  // namespace galley
