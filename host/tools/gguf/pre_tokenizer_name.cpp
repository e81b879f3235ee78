#include "host/tools/gguf/pre_tokenizer_name.hpp"

#include "host/base/json.hpp"

namespace galley {
namespace {

/// Ways to split, as split_text() writes them. Source: the tokenizer.json files of GPT-2, SmolLM, Llama 3, Qwen2, Qwen3.5, Mistral NeMo,
/// GPT-4o and BLOOM, and src/llama-vocab.cpp of https://github.com/ggml-org/llama.cpp for the names.
struct KnownSplit {
  const char *pre, *split;
  bool ignores_merges;
};
#define GALLEY_WORD R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
#define GALLEY_CAPITALS R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
#define GALLEY_SUFFIX "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define GALLEY_SPACES R"(\s*[\r\n]+|\s+(?!\S)|\s+)"
constexpr const char* kLlama3 =
    "split " GALLEY_SUFFIX R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" GALLEY_SPACES "\n";
constexpr KnownSplit kSplits[] = {
    {"gpt-2", "words\n", false},
    {"smollm", "digits\nwords\n", false},
    {"llama-bpe", kLlama3, true},
    {"smaug-bpe", kLlama3, false},
    {"qwen2", "split " GALLEY_SUFFIX R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" GALLEY_SPACES "\n", false},
    {"qwen35", "split " GALLEY_SUFFIX R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)" GALLEY_SPACES "\n",
     false},
    {"tekken", "split " GALLEY_WORD "|" GALLEY_CAPITALS R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" GALLEY_SPACES "\n", true},
    {"gpt-4o",
     "split " GALLEY_WORD GALLEY_SUFFIX "?|" GALLEY_CAPITALS GALLEY_SUFFIX R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" GALLEY_SPACES "\n",
     false},
    {"bloom", "split  ?[^(\\s|[.,!?…。，、।۔،])]+\n", false},
};
#undef GALLEY_WORD
#undef GALLEY_CAPITALS
#undef GALLEY_SUFFIX
#undef GALLEY_SPACES

bool flag_of(const Value& step, const char* name, bool otherwise) {
  const auto* flag = step.field<bool>(name);
  return flag ? *flag : otherwise;
}

/// Writes a step as a line; what is not known to leave a text as it is, as its JSON.
std::string split_text(const Value& step) {
  const std::string type = step.text_field("type");
  if (type == "Sequence") {
    std::string out;
    if (const auto* steps = step.field<List>("pretokenizers"))
      for (const Value& one : *steps) out += split_text(one);
    return out;
  }
  // A text is split at what matches: kept as pieces of their own, or as the pieces where the pattern matches all there is.
  const std::string behavior = step.text_field("behavior");
  const bool isolates = behavior == "Isolated" || (behavior == "Removed" && flag_of(step, "invert", false));
  if (type == "Split" && isolates && step.field<Table>("pattern"))
    if (const std::string regex = Value(*step.field<Table>("pattern")).text_field("Regex"); !regex.empty()) return "split " + regex + "\n";
  if (type == "Digits" && flag_of(step, "individual_digits", false)) return "digits\n";
  if (type == "ByteLevel" && !flag_of(step, "add_prefix_space", true)) return flag_of(step, "use_regex", true) ? "words\n" : "";
  return to_json(step) + "\n";
}

}  // namespace

Result<std::string> pre_tokenizer_name(const Value& pre_tokenizer, bool ignores_merges) {
  const std::string split = split_text(pre_tokenizer);
  std::string names;
  for (const KnownSplit& known : kSplits) {
    if (known.split == split && known.ignores_merges == ignores_merges) return std::string(known.pre);
    names += std::string(names.empty() ? "" : ", ") + known.pre;
  }
  std::string shown = to_json(pre_tokenizer);
  if (shown.size() > 300) shown = shown.substr(0, 300) + "…";
  return recipe_error("'pre_tokenizer' splits texts in a way that llama.cpp has no name for ('tokenizer.ggml.pre'): " + shown +
                          (ignores_merges ? ", with 'ignore_merges'" : ""),
                      "known are those of " + names);
}

}  // namespace galley
