// embedding: a copy of C elements a row. embedding_grad: each piece of work owns 64 columns of the table and adds the rows of dy to them
// in order, so that no two pieces write the same place and the sum does not depend on who runs first. Both move each byte of dy or y once.
#include <cstring>

#include "cpu/vector.hpp"

namespace {

using namespace galley::sdk;
namespace cpu = galley::cpu;

// Ids come from data and rows of the table from a model: a mismatch is the user's to see, not memory's to suffer.
void check_ids(const Node& n, const int32_t* ids, int64_t R, int64_t V) {
  uint32_t largest = 0;
  for (int64_t r = 0; r < R; ++r) largest = static_cast<uint32_t>(ids[r]) > largest ? static_cast<uint32_t>(ids[r]) : largest;
  if (largest < V) return;
  for (int64_t r = 0; r < R; ++r)
    if (ids[r] < 0 || ids[r] >= V)
      invalid(std::string(n.name()) + ": id " + std::to_string(ids[r]) + " at row " + std::to_string(n.view()->first_row + r) +
              " is not in the table of " + std::to_string(V) + " rows");
}

void embedding(const Node& n, void*) {
  const int32_t* ids = n.read<int32_t>(0);
  const float* table = n.read<float>(1);  // (V, C)
  float* y = n.write<float>(0);           // (R, C)
  const int64_t R = count(n.in(0)), C = columns(n.in(1));
  check_ids(n, ids, R, n.in(1).shape[0]);
  cpu::over_rows(R, C, [=](int64_t r) { std::memcpy(y + r * C, table + ids[r] * C, static_cast<size_t>(C) * sizeof(float)); });
}

void embedding_grad(const Node& n, void*) {
  const float* dy = n.read<float>(0);  // (R, C)
  const int32_t* ids = n.read<int32_t>(1);
  float* dtable = n.write<float>(0);  // (V, C)
  const int64_t R = count(n.in(1)), C = columns(n.in(0)), V = n.out(0).shape[0];
  check_ids(n, ids, R, V);
  if (!n.accumulates(0))
    cpu::over_elements(
        V * C, [=](int64_t first, int64_t last) { std::memset(dtable + first, 0, static_cast<size_t>(last - first) * sizeof(float)); });
  constexpr int64_t piece = 64;
  cpu::in_blocks(C, piece, [=](int64_t first, int64_t last) {
    for (int64_t r = 0; r < R; ++r) {
      const float* from = dy + r * C;
      float* to = dtable + ids[r] * C;
      GALLEY_INDEPENDENT
      for (int64_t c = first; c < last; ++c) to[c] += from[c];
    }
  });
}

const bool added = add(kernel<embedding, cpu::all_f32>("embedding.cpu", "embedding")) &&
                   add(kernel<embedding_grad, cpu::all_f32>("embedding_grad.cpu", "embedding_grad"));

}  // namespace
