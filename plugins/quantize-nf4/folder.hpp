// Models' folders that bitsandbytes has quantized to 4 bit, as transformers saves them. Beside the codes of X.weight lie its absmax under
// X.weight.absmax, with double quantization X.weight.nested_absmax, the code books as X.weight.quant_map and X.weight.nested_quant_map, and
// a text of JSON as the bytes of X.weight.quant_state.bitsandbytes__nf4 (or fp4): type, block, shape, and nested_offset, which no tensor
// holds. config.json says so as well, under "quantization_config".
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bitsandbytes/config.hpp"
#include "four_bit.hpp"
#include "galley/cpp/graph.hpp"

namespace galley::four_bit_folder {

/// How a weight is stored.
struct QuantState {
  std::vector<int64_t> shape;
  double offset = 0;  ///< with double quantization
};

class Folder {
 public:
  /// What the model's folder holds; nothing, if its config.json has no quantization_config. Throws sdk::Failure with file, tensor and next
  /// step where it is quantized otherwise than this project reads, where tensors contradict each other, and where a code book is another.
  static std::optional<Folder> read(const sdk::GraphReader& graph);

  /// Of a weight by its name in the file; nullptr: the folder has its numbers.
  const QuantState* find(const std::string& weight) const;
  const std::string& path() const { return path_; }
  /// Whether there are weights at all. Where there are none, config.json says how they would be stored, and which modules are numbers;
  /// blocks are then of 64.
  bool has_weights() const { return has_weights_; }
  /// Throws for what lies in 4 bit and is none of these weights.
  void check_known(const std::set<std::string>& weights) const;
  four_bit::Type type() const { return type_; }
  int64_t block() const { return block_; }
  bool doubled() const { return doubled_; }

 private:
  void read_state(const std::string& tensor, const std::string& text);
  void follow_config(const bitsandbytes::Config& config);
  void check_book(const char* pattern, const std::vector<float>& book) const;

  std::string path_;
  four_bit::Type type_ = four_bit::kNf4;
  int64_t block_ = 0;
  bool doubled_ = false;
  std::map<std::string, QuantState> states_;
  bool has_weights_ = true;
  std::vector<std::string> skipped_;  ///< without weights: modules that stay numbers
  QuantState any_;                    ///< likewise: of the others
};

/// The code book of a type by code, and that of nested absmax.
std::vector<float> code_book(four_bit::Type type);
std::vector<float> nested_code_book();

/// The text before the number nested_offset, which ends in '}'; without double quantization the whole text.
std::string state_text(four_bit::Type type, int64_t block, bool doubled, const std::vector<int64_t>& shape);
/// What config.json says of a folder that is saved so. `skipped`: modules that are not quantized.
std::string config_text(four_bit::Type type, bool doubled, const std::vector<std::string>& skipped);

/// The ops that make of constants and of an offset what is saved.
bool add_ops();

}  // namespace galley::four_bit_folder
