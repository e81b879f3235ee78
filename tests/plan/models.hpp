// Programs as the passes would make them of transformers, written down directly: what the planner and the shadow are tested on. Names,
// sizes and orders are those of real models; nothing here has a kernel.
#pragma once

#include <cstdint>
#include <string>

#include "host/plan/program.hpp"
#include "host/plan/target.hpp"

namespace galley::models {

enum class Training : uint8_t { Full, Lora, InBackward };
enum class Recompute : uint8_t { Nothing, Cheap, Blocks, Mixed };  ///< Cheap: norms and activations; Blocks: all but a block's input
enum class Offload : uint8_t { Nothing, Saved, States };
enum class Optimizer : uint8_t { Adam, Momentum, Muon, Factored };

struct Spec {
  int64_t layers = 2, batch = 1, length = 64, width = 64, kv_width = 64, hidden = 172, heads = 4, vocabulary = 1000, rank = 8;
  int64_t chunks = 1, micro_batches = 1;
  bool gated = true;       ///< Llama's MLP and norms; otherwise GPT-2's
  bool tied = false;       ///< the head is the embedding's table
  bool quantized = false;  ///< frozen weights in 4 bits, unpacked before every use
  bool mixed = false;      ///< products in BF16 beside F32 weights: a cast of every weight before its use
  bool evaluates = true, samples = true;
  uint32_t activation = GALLEY_F32;
  Training training = Training::Full;
  Recompute recompute = Recompute::Nothing;
  Offload offload = Offload::Nothing;
  Optimizer optimizer = Optimizer::Adam;
};

/// A model of random shape and strategies, small enough to be checked thousands of times.
Spec random_spec(uint64_t seed);
/// Llama-2 7B: 32 layers, 4,096 wide, head and loss in 8 chunks.
Spec seven_billion();
Program build(const Spec& spec);
std::string text(const Spec& spec);
/// Classes "host" (64 bytes) and "spill" (4,096 bytes), two queues.
Target two_classes();

}  // namespace galley::models
