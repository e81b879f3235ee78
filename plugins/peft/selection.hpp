// Which modules are meant: by a recipe, or by a configuration of PEFT.
//
// A recipe's words are "attention", "all-linear" (all but the head), the end of a module's name after a dot, with * and ?, or "re:" and a
// regular expression of Python that matches a module's whole name. PEFT takes a string for a regular expression, and a list for names.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "peft/modules.hpp"
#include "peft/pattern.hpp"

namespace galley::peft {

/// One word of a recipe.
class Word {
 public:
  /// `option`: where it stands, for messages.
  Word(const std::string& text, const std::string& option);
  bool means(const Module& m) const;
  /// Of a module that need not be a linear layer.
  bool names(const std::string& module) const;
  const std::string& text() const { return text_; }
  /// "'targets'"
  const std::string& place() const { return place_; }

 private:
  std::string text_, place_;
  std::optional<Pattern> pattern_;
};
std::vector<Word> words_of(const std::vector<std::string>& texts, const std::string& option);

/// The modules that a recipe means, in order. A word that means none is an error with the nearest names.
std::vector<const Module*> choose(const std::vector<Module>& modules, const std::vector<Word>& targets, const std::vector<Word>& exclude);

/// A value by module.
struct ByModule {
  std::function<bool(const Module&)> means;
  double value;
};
/// The first that means the module.
double look_up(const std::vector<ByModule>& values, const Module& m, double otherwise);

/// Names or a regular expression of a configuration.
struct Meant {
  std::vector<std::string> list;
  std::optional<Pattern> pattern;
  bool empty() const { return list.empty() && !pattern; }
  /// As target_modules and exclude_modules mean modules.
  bool targets(const std::string& module) const;
};

/// Of the layers that are repeated in a model, those that an adapter adapts: PEFT's layers_to_transform and layers_pattern.
struct Layers {
  std::vector<int64_t> numbers;  ///< from 0 on; none: all
  std::vector<Pattern> before;   ///< what stands before a layer's number, after a dot or from the beginning; none: any two words
  /// The number of the layer that a module is a part of; -1: it is part of none.
  int64_t number_of(const std::string& module) const;
  bool mean(const std::string& module) const;
};
/// Of a recipe: the options layers_to_transform and layers_pattern.
Layers layers_of(const sdk::Options& options);
/// A regular expression for what stands before a layer's number.
Pattern before_number(const std::string& text, const std::string& where);
/// Leaves of the modules that a recipe means those of its layers. Each number has to be that of a module's layer.
void keep(const Layers& layers, std::vector<const Module*>* modules);

/// By which of these modules, that are trained and saved whole, a module is saved: itself or one that it is a part of; "": by none. `names`
/// are those of a configuration, of which PEFT looks for the ends.
std::string whole_module(const std::string& module, const std::vector<std::string>& names, const std::vector<Word>& words);
/// Each word for such modules has to mean one of these.
void check_whole(const std::vector<Word>& words, const std::vector<std::string>& modules);

}  // namespace galley::peft
