// Attention by a library that keeps no matrix of scores: which nodes it takes, what memory it needs, and in which pieces backward runs.
// For cuDNN 9 (fused_cudnn.hpp); where CUDA is emulated, loops stand in for it (models/cuda/emulated/attention.hpp).
//
// It takes what most training is: rows that are one document each, causal, in BF16 or F16, of a multiple of 128 positions. All else is for
// this project's own kernels.
//
// Deterministic backward. cuDNN then writes the gradients of all scores, 2·heads·S² bytes for a sequence, and multiplies them afterwards;
// otherwise it adds up dq in F32 by atomics, in an order that differs from run to run. To bound that memory, backward runs in pieces: of
// some sequences, or of some key heads of one sequence, no smaller than it takes to keep the GPU busy.
#pragma once

#include <compare>

#include "cuda/library.hpp"
#include "cuda/workspace.hpp"
#include "ops/attention/extents.hpp"

namespace galley::models {

/// What a call computes: the whole of a node, or a piece.
struct FusedForm {
  int64_t B, heads, kv_heads, S, D;
  int64_t q_row, kv_row, o_row;  ///< distance of rows, in numbers
  int64_t q_head, kv_head;       ///< of heads in a row of q, and of k and v; those of o lie side by side
  int64_t lse_heads;             ///< heads that a sequence has in lse
  uint32_t dtype;
  float scale;
  bool deterministic;
  auto operator<=>(const FusedForm&) const = default;

  int64_t queries() const { return B * heads * S; }
};

/// Operands of a call. In backward: go is do, and o and lse are read.
struct FusedOperands {
  const void *q, *k, *v, *go;
  void *o, *dq, *dk, *dv;
  float* lse;
};

/// Memory of a call of backward: sums of do·o (B, heads, S) in F32; dq (B, heads, S, D) in F32, unless deterministic; the library's own.
struct FusedMemory {
  static constexpr int64_t kAlignment = cuda::kWorkspaceAlignment, kForward = 65536;

  FusedMemory(const FusedForm& f, int architecture) {
    const bool datacenter = architecture >= 90 && architecture < 120;  // the engines of sm_90 and sm_10x; elsewhere those of sm_80
    const int64_t numbers = f.queries() * f.D;
    dq = aligned(4 * f.queries());
    library = dq + (f.deterministic ? 0 : aligned(4 * numbers));
    end = library + kForward;
    if (f.deterministic) end += 2 * f.queries() * f.S;  // gradients of scores
    else if (!datacenter) end += 4 * numbers;           // dq once more
    if (f.heads != f.kv_heads) end += 4 * numbers;      // dk and dv of each query head
  }
  static int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
  int64_t dq, library, end;  ///< where they begin; the sums begin at 0
};

/// Why a node is not for the library; null: it takes it. `out`: the outputs that are in the dtype of q.
inline const char* fused_refusal(const sdk::Node& n, const AttentionExtents& e, std::initializer_list<uint32_t> in,
                                 std::initializer_list<uint32_t> out) {
  using namespace attention_input;
  const uint32_t dtype = n.in(Q).dtype;
  if (dtype != GALLEY_BF16 && dtype != GALLEY_F16) return "dtypes: cudnn takes BF16 and F16";
  for (const uint32_t i : in)
    if (n.has(i) && n.in(i).dtype != dtype) return "dtypes: cudnn takes operands of one dtype";
  for (const uint32_t i : out)
    if (!n.has_out(i) || n.out(i).dtype != dtype) return "dtypes: cudnn writes the dtype that it reads, and all gradients";
  if (!e.causal || n.has(FirstKey) || n.has(LastKey) || e.window > 0) return "rows: cudnn takes rows of one document, causal";
  if (n.has(Slopes) || n.has(Bias) || e.softcap > 0 || e.dropout > 0) return "biases, softcap and dropout are not for cudnn";
  if (e.Sq != e.Sk || e.Sq % 128) return "lengths: cudnn takes multiples of 128";
  if (e.D % 8 || e.D > 128) return "heads: cudnn takes multiples of 8 up to 128";
  return nullptr;
}

inline FusedForm fused_form(const sdk::Node& n, const AttentionExtents& e, bool deterministic) {
  return {e.B,
          e.heads,
          e.kv_heads,
          e.Sq,
          e.D,
          e.q_row(),
          e.kv_row(),
          e.q_columns(),
          e.q_head(),
          e.kv_head(),
          e.heads,
          n.in(attention_input::Q).dtype,
          static_cast<float>(e.scale),
          deterministic};
}

/// A piece of backward: `rows` sequences with all their heads, or `groups` key heads of one, with their query heads.
inline FusedForm fused_piece(FusedForm f, int64_t rows, int64_t groups) {
  f.heads = f.heads / f.kv_heads * groups;
  f.B = rows, f.kv_heads = groups;
  return f;
}
/// The smallest piece that keeps `processors` busy, or the largest below that within `budget` bytes; B = 0: none is within it.
inline FusedForm fused_piece_within(const FusedForm& whole, int architecture, int64_t processors, int64_t budget) {
  constexpr int64_t kBlocks = 4, kBlockRows = 128;  // blocks of rows for each processor
  FusedForm best = whole;
  best.B = 0;
  const auto busy = [&](const FusedForm& f) { return f.B * f.heads * (f.S / kBlockRows) >= kBlocks * processors; };
  const auto consider = [&](int64_t rows, int64_t groups) {
    if (best.B && busy(best)) return;
    const FusedForm piece = fused_piece(whole, rows, groups);
    if (FusedMemory(piece, architecture).end + FusedMemory::kAlignment <= budget) best = piece;
  };
  for (int64_t groups = 1; groups < whole.kv_heads; ++groups)
    if (whole.kv_heads % groups == 0) consider(1, groups);
  for (int64_t rows = 1; rows <= whole.B; ++rows)
    if (whole.B % rows == 0) consider(rows, whole.kv_heads);
  return best;
}

}  // namespace galley::models
