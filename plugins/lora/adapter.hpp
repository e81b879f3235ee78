// What an adapter is: which linear layers it adapts, with which rank and scaling, and how it begins; from the recipe's options or from a
// folder that PEFT wrote.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "peft/config.hpp"
#include "peft/parts.hpp"
#include "tokens.hpp"

namespace galley::lora {

using peft::Module;

/// How A and B begin. `principal`: of a weight, and the weight without it begins in the weight's place. `loftq`: of what a weight loses in
/// the format in which it is stored.
struct Init {
  std::string text;  // as PEFT says it in init_lora_weights: "true", "gaussian", "orthogonal", "pissa", "pissa_niter_16", "olora", "loftq"
  int64_t iterations = 0;  // of "pissa_niter_N", and of "loftq"
  bool principal() const { return text.rfind("pissa", 0) == 0 || text == "olora"; }
  bool loftq() const { return text == "loftq"; }
};

/// Throws sdk::Failure with one line that names the file and the key.
class Adapter {
 public:
  /// From the options of a recipe, or where these name a `path`, from there: `path`/adapter_config.json and the header of
  /// adapter_model.safetensors. A key of the configuration that changes the mathematics and is not known here is an error by name.
  explicit Adapter(const sdk::Options& options);

  /// The modules that are adapted, in order.
  std::vector<const Module*> choose(const sdk::Graph& graph, const std::vector<Module>& modules) const;
  int64_t rank(const Module& m) const;
  /// What B·A·x is multiplied by.
  double scaling(const Module& m) const;
  /// Whether a module of the model, or one that it is a part of, is trained and saved whole beside the adapter: the name of the outermost
  /// one; or "".
  std::string saved_with(const sdk::Graph& graph, const std::string& module) const;
  /// Each word for such modules has to mean one of these.
  void check_saved(const std::vector<std::string>& modules) const;

  bool from_file() const { return file_.there(); }
  double dropout() const { return dropout_; }
  bool dora() const { return dora_; }
  const Init& init() const { return init_; }
  const std::string& bias() const { return bias_; }
  const peft::AdapterFile& file() const { return file_; }
  const Tokens& tokens() const { return tokens_; }

  /// adapter_config.json for these modules, and for the modules of the model that are saved whole. One that was read comes out as it went
  /// in, but for its dropout, and for its rank where the file that is saved has twice as many (see Init).
  peft::Json config(const sdk::GraphReader& graph, const std::vector<Module>& modules, const std::vector<const Module*>& chosen,
                    std::vector<std::string> saved) const;

 private:
  void take_options(const sdk::Options& options);
  void read_folder(const std::string& folder);
  void read_config(const std::string& path);
  std::vector<const Module*> choose_by_file(const std::vector<Module>& modules) const;
  peft::Json new_config(const sdk::GraphReader& graph, const std::vector<Module>& modules, const std::vector<const Module*>& chosen,
                        std::vector<std::string> saved) const;

  int64_t rank_ = 0;
  double alpha_ = 0, dropout_ = 0;
  bool rslora_ = false, dora_ = false, all_linear_ = false;
  std::string bias_ = "none";
  Init init_;
  std::vector<peft::ByModule> ranks_, alphas_;
  std::vector<peft::Word> targets_, exclude_, to_save_, pattern_words_;  // of a recipe
  peft::Meant target_modules_, exclude_modules_;                         // of a configuration
  peft::Layers layers_;
  std::vector<std::string> modules_to_save_;  // likewise
  Tokens tokens_;
  peft::AdapterFile file_;
  std::string text_;  // of adapter_config.json
};

}  // namespace galley::lora
