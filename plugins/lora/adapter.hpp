// What an adapter is: which linear layers it adapts, with which rank and scaling; from the recipe's options or from a folder that PEFT
// wrote.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "pattern.hpp"

namespace galley::lora {

/// Throws sdk::Failure with one line that names the file and the key.
class Adapter {
 public:
  /// From options: one rank and alpha for all.
  Adapter(int64_t rank, double alpha, bool rslora, double dropout) : rank_(rank), alpha_(alpha), dropout_(dropout), rslora_(rslora) {}
  /// From `folder`/adapter_config.json and the header of adapter_model.safetensors. A key of the configuration that changes the mathematics
  /// and is not known here is an error by name.
  static Adapter read(const std::string& folder);

  /// Whether target_modules and exclude_modules, by PEFT's rules, mean the module. Only of an adapter that was read.
  bool targets(const std::string& module) const;
  bool all_linear() const { return all_linear_; }
  int64_t rank(const std::string& module) const;
  /// What B·A·x is multiplied by.
  double scaling(const std::string& module) const;

  bool from_file() const { return !tensors_.empty(); }
  double dropout() const { return dropout_; }
  void set_dropout(double dropout) { dropout_ = dropout; }
  const std::string& bias() const { return bias_; }
  const std::string& file() const { return file_; }
  /// The shapes of the file's tensors.
  const std::map<std::string, std::vector<int64_t>>& tensors() const { return tensors_; }

  /// adapter_config.json for an adapter with these targets. One that was read comes out as it went in, but for its dropout.
  std::string config(const std::vector<std::string>& targets, bool fan_in_fan_out) const;

 private:
  Adapter() = default;
  void read_config(const std::string& path);
  void read_header();

  int64_t rank_ = 0;
  double alpha_ = 0;
  double dropout_ = 0;
  bool rslora_ = false;
  std::string bias_ = "none";
  std::vector<std::pair<Pattern, double>> rank_pattern_, alpha_pattern_;
  bool all_linear_ = false;
  std::vector<std::string> target_list_, exclude_list_;
  std::optional<Pattern> target_pattern_, exclude_pattern_;  ///< none: the lists
  std::string file_;
  std::string text_;  ///< of adapter_config.json
  std::map<std::string, std::vector<int64_t>> tensors_;
};

}  // namespace galley::lora
