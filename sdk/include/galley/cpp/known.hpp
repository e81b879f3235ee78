// What this SDK knows of the ops that come with Galley: how many inputs and outputs they have, and which attributes. A kernel that is built
// with it says so (galley_known_op), and a later Galley offers it nothing that has come since. tests/python/contracts.py writes the table.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

namespace galley::sdk::detail {

struct PublicOp {
  const char* name;
  uint32_t n_inputs, n_outputs;
  const char* attrs;  ///< names, with blanks between
};

// clang-format off
inline constexpr PublicOp kPublicOps[] = {
    {"adamw_step", 9, 0, "beta1 beta2 eps weight_decay coupled"},
    {"add", 2, 1, "alpha dtype"},
    {"all_gather", 1, 1, "ranks stride rank ends start shape axis"},
    {"all_gather_here", 1, 0, "ranks stride rank ends start axis"},
    {"all_reduce", 1, 1, "ranks stride axis"},
    {"all_reduce_here", 1, 0, "ranks stride axis"},
    {"attention", 8, 2, "heads kv_heads head_dim by_head causal scale softcap window dropout max_distance bidirectional dtype tf32 stream"},
    {"attention_grad", 11, 4, "heads kv_heads head_dim by_head causal scale softcap window dropout max_distance bidirectional dbias dtype tf32 stream"},
    {"bf16_pack", 2, 1, "stream"},
    {"bf16_unpack", 1, 1, "dtype"},
    {"binary_cross_entropy", 2, 1, ""},
    {"binary_cross_entropy_grad", 3, 1, "dtype"},
    {"companded8_pack", 1, 2, "signed"},
    {"companded8_unpack", 2, 1, "signed dtype"},
    {"copy", 1, 1, "dtype"},
    {"cross_entropy", 2, 2, ""},
    {"cross_entropy_grad", 4, 1, "dtype"},
    {"dropout", 2, 1, "p length dtype stream"},
    {"dynamic8_pack", 1, 2, "signed"},
    {"dynamic8_unpack", 2, 1, "signed dtype"},
    {"ema_step", 6, 0, "decay warmup"},
    {"embedding", 2, 1, "padding tf32"},
    {"embedding_grad", 2, 1, "rows padding dtype tf32"},
    {"fill", 0, 1, "shape value stream seed"},
    {"four_bit_pack", 1, 4, "type block double"},
    {"four_bit_unpack", 4, 1, "type block double dtype"},
    {"gelu", 1, 1, "approximate dtype"},
    {"gelu_grad", 2, 1, "approximate dtype"},
    {"gguf_blocks_unpack", 1, 1, "type dtype"},
    {"int8_rows_pack", 1, 2, "columns"},
    {"int8_rows_unpack", 2, 1, "columns dtype"},
    {"label_hits", 2, 1, ""},
    {"layer_norm", 3, 3, "eps dtype"},
    {"layer_norm_dw", 4, 2, "bias dtype"},
    {"layer_norm_dx", 5, 1, "dtype"},
    {"linear", 3, 1, "transposed alpha dtype tf32"},
    {"linear_dw", 2, 1, "transposed alpha dtype tf32"},
    {"linear_dx", 2, 1, "transposed alpha dtype tf32"},
    {"linear_int8", 3, 1, "transposed threshold dtype tf32"},
    {"lion_step", 7, 0, "beta1 beta2 weight_decay"},
    {"mean_rows", 2, 1, "dtype"},
    {"mean_rows_grad", 2, 1, "dtype"},
    {"muon_step", 6, 0, "weight_decay scale"},
    {"quick_gelu", 1, 1, "dtype"},
    {"quick_gelu_grad", 2, 1, "dtype"},
    {"random_normal", 0, 1, "shape mean std stream seed"},
    {"random_uniform", 0, 1, "shape low high stream seed"},
    {"reduce_scatter", 1, 1, "ranks stride rank ends start axis"},
    {"relu", 1, 1, "dtype"},
    {"relu2", 1, 1, "dtype"},
    {"relu2_grad", 2, 1, "dtype"},
    {"relu_grad", 2, 1, "dtype"},
    {"rms_norm", 2, 2, "eps offset group dtype"},
    {"rms_norm_dw", 3, 1, "group dtype"},
    {"rms_norm_dx", 4, 1, "group offset dtype"},
    {"rope", 3, 1, "heads head_dim inverse cycle turning dtype"},
    {"scale", 1, 1, "alpha dtype"},
    {"scale_columns", 4, 1, "dtype"},
    {"scale_columns_dw", 4, 1, ""},
    {"sgd_step", 7, 0, "momentum dampening weight_decay nesterov"},
    {"shift", 1, 1, "by"},
    {"sigmoid", 1, 1, "dtype"},
    {"sigmoid_grad", 2, 1, "dtype"},
    {"silu", 1, 1, "dtype"},
    {"silu_grad", 2, 1, "dtype"},
    {"softcap", 1, 1, "cap dtype"},
    {"softcap_grad", 2, 1, "cap dtype"},
    {"split_pack", 1, 2, ""},
    {"split_unpack", 2, 1, "dtype"},
    {"squared_error", 2, 1, ""},
    {"squared_error_grad", 3, 1, "dtype"},
    {"sum_rows", 1, 1, "dtype"},
    {"swiglu", 2, 1, "activation dtype"},
    {"swiglu_grad", 3, 2, "gate up activation dtype"},
    {"take_rows", 2, 1, "position dtype"},
    {"take_rows_grad", 2, 1, "shape position dtype"},
    {"tanh", 1, 1, "dtype"},
    {"tanh_grad", 2, 1, "dtype"},
    {"transpose", 1, 1, "dtype"},
    {"values", 0, 1, "shape values stream seed"},
};
// clang-format on

/// visit(part) for each part of a text between marks: "add" and "rms_norm" of "add>rms_norm". An empty text has none.
template <class Visit>
void each_part(const std::string& text, char mark, const Visit& visit) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(mark, at), text.size());
    visit(text.substr(at, end - at));
    at = end + 1;
  }
}

}  // namespace galley::sdk::detail
