#include "peft/selection.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "galley/cpp/glob.hpp"

namespace galley::peft {

Word::Word(const std::string& text, const std::string& option) : text_(text), place_("'" + option + "'") {
  if (text.rfind("re:", 0) == 0) pattern_.emplace(text.substr(3), place_);
}

bool Word::means(const Module& m) const {
  if (text_ == "all-linear") return !m.head;
  if (text_ == "attention") return m.attention;
  return names(m.name);
}

bool Word::names(const std::string& module) const { return pattern_ ? pattern_->matches(module) : sdk::glob_match_suffix(text_, module); }

std::vector<Word> words_of(const std::vector<std::string>& texts, const std::string& option) {
  std::vector<Word> out;
  out.reserve(texts.size());
  for (const std::string& text : texts) out.emplace_back(text, option);
  return out;
}

std::vector<const Module*> choose(const std::vector<Module>& modules, const std::vector<Word>& targets, const std::vector<Word>& exclude) {
  if (modules.empty()) sdk::invalid("the model has no linear layer to adapt");
  std::set<const Module*> chosen;
  const auto mean = [&](const Word& word, const auto& take) {
    bool found = false;
    for (const Module& m : modules)
      if (word.means(m)) {
        take(&m);
        found = true;
      }
    if (!found) sdk::invalid("no linear layer is called '" + word.text() + "'; " + sdk::nearest_names(word.text(), names_of(modules)));
  };
  for (const Word& word : targets) mean(word, [&](const Module* m) { chosen.insert(m); });
  for (const Word& word : exclude) mean(word, [&](const Module* m) { chosen.erase(m); });
  if (chosen.empty()) sdk::invalid("'exclude' leaves no linear layer of 'targets' to adapt");
  std::vector<const Module*> out;
  for (const Module& m : modules)
    if (chosen.count(&m)) out.push_back(&m);
  return out;
}

double look_up(const std::vector<ByModule>& values, const Module& m, double otherwise) {
  const auto found = std::find_if(values.begin(), values.end(), [&](const ByModule& entry) { return entry.means(m); });
  return found == values.end() ? otherwise : found->value;
}

bool Meant::targets(const std::string& module) const {
  if (pattern) return pattern->matches(module);
  return std::any_of(list.begin(), list.end(), [&](const std::string& name) { return module == name || ends_with(module, "." + name); });
}

int64_t Layers::number_of(const std::string& module) const {
  for (size_t dot = module.find('.'); dot != std::string::npos; dot = module.find('.', dot + 1)) {
    const size_t end = module.find_first_not_of("0123456789", dot + 1);
    if (end == dot + 1 || end == std::string::npos || module[end] != '.' || end - dot > 9) continue;
    const std::string begin = module.substr(0, dot);
    const bool found = before.empty() ? begin.find('.') != std::string::npos
                                      : std::any_of(before.begin(), before.end(), [&](const Pattern& p) { return p.matches(begin); });
    if (found) return std::stoll(module.substr(dot + 1, end - dot - 1));
  }
  return -1;
}

bool Layers::mean(const std::string& module) const {
  if (numbers.empty()) return true;
  const int64_t number = number_of(module);
  return number >= 0 && std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

Layers layers_of(const sdk::Options& options) {
  Layers out;
  for (const double number : options.numbers("layers_to_transform")) {
    if (!(number >= 0 && number < 1e6) || std::floor(number) != number)
      sdk::invalid("'layers_to_transform' has to hold whole numbers from 0 on");
    out.numbers.push_back(static_cast<int64_t>(number));
  }
  for (const std::string& text : options.strings("layers_pattern")) out.before.push_back(before_number(text, "'layers_pattern'"));
  if (out.numbers.empty() && !out.before.empty())
    sdk::invalid("'layers_pattern' says what stands before the numbers of 'layers_to_transform'");
  return out;
}

Pattern before_number(const std::string& text, const std::string& where) { return {"(?:.*\\.)?(?:" + text + ")", where}; }

void keep(const Layers& layers, std::vector<const Module*>* modules) {
  for (const int64_t number : layers.numbers)
    if (std::none_of(modules->begin(), modules->end(), [&](const Module* m) { return layers.number_of(m->name) == number; })) {
      int64_t last = -1;
      for (const Module* m : *modules) last = std::max(last, layers.number_of(m->name));
      sdk::invalid("'layers_to_transform': no linear layer of 'targets' is in layer " + std::to_string(number),
                   last < 0 ? "no name of them has a number" + std::string(layers.before.empty() ? "" : " after 'layers_pattern'")
                            : "the last one is " + std::to_string(last) + ", and the first is 0");
    }
  std::erase_if(*modules, [&](const Module* m) { return !layers.mean(m->name); });
}

std::string whole_module(const std::string& module, const std::vector<std::string>& names, const std::vector<Word>& words) {
  for (size_t end = module.find('.'); !module.empty(); end = module.find('.', end + 1)) {
    const std::string part = module.substr(0, end);
    if (std::any_of(names.begin(), names.end(), [&](const std::string& name) { return ends_with(part, name); }) ||
        std::any_of(words.begin(), words.end(), [&](const Word& word) { return word.names(part); }))
      return part;
    if (end == std::string::npos) break;
  }
  return "";
}

void check_whole(const std::vector<Word>& words, const std::vector<std::string>& modules) {
  for (const Word& word : words)
    if (std::none_of(modules.begin(), modules.end(), [&](const std::string& name) { return word.names(name); }))
      sdk::invalid(word.place() + ": no module is called '" + word.text() + "'; " + sdk::nearest_names(word.text(), modules));
}

}  // namespace galley::peft
