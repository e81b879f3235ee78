// embedding: a copy of C elements a row, as F32; of a table in a format, the numbers of the rows that are looked up. embedding_grad, and
// take_rows_grad with an index: each piece of work owns 64 columns of the table and adds the rows of dy to them in order, so that no two
// pieces write the same place and the sum does not depend on who runs first. Both move each byte of dy or y once.
#include <algorithm>
#include <cstring>

#include "cpu/coded.hpp"

namespace galley::cpu::embedding_op {
namespace {

using namespace sdk;

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
  const cpu::Input table(n, 1);  // (V, C)
  float* y = n.write<float>(0);  // (R, C)
  const int64_t R = count(n.in(0)), C = columns(n.in(1));
  check_ids(n, ids, R, n.in(1).shape[0]);
  const cpu::Coded coded(n.in(1));
  if (coded) cpu::over_rows(R, C, [&, dtype = n.in(1).dtype](int64_t r) { cpu::load(coded, dtype, ids[r] * C, C, y + r * C); });
  else cpu::over_rows(R, C, [=](int64_t r) { table.copy(ids[r] * C, C, y + r * C); });
}

constexpr int64_t piece = 64;  // columns

// Adds row by row, where the table lies.
void add_rows(const Node& n, const int32_t* ids) {
  const cpu::Input dy(n, 0);          // (R, C)
  float* dtable = n.write<float>(0);  // (V, C)
  const int64_t R = count(n.in(1)), C = columns(n.in(0)), padding = n.i("padding", -1);
  cpu::in_blocks(C, piece, [=](int64_t first, int64_t last) {
    cpu::Buffer buffer;
    for (int64_t r = 0; r < R; ++r) {
      if (ids[r] == padding) continue;
      const float* from = dy.read(r * C + first, last - first, buffer);
      float* to = dtable + ids[r] * C + first;
      GALLEY_INDEPENDENT
      for (int64_t c = 0; c < last - first; ++c) to[c] += from[c];
    }
  });
}

// A table in 16 bit would round each sum: all rows of one id are added up before they get there. `order` has room for R numbers.
void add_ids(const Node& n, const int32_t* ids, int64_t* order) {
  const cpu::Input dy(n, 0);
  const cpu::Output dtable(n, 0);
  const int64_t R = count(n.in(1)), C = columns(n.in(0)), V = rows(n.out(0)), padding = n.i("padding", -1);
  for (int64_t r = 0; r < R; ++r) order[r] = static_cast<int64_t>(ids[r]) << 32 | r;
  std::sort(order, order + R);
  cpu::in_blocks(C, piece, [=](int64_t first, int64_t last) {
    cpu::Buffer read, sums;
    const int64_t size = last - first;
    for (int64_t k = 0; k < R && order[k] >> 32 < V;) {
      const int64_t id = order[k] >> 32, at = id * C + first;
      float* const to = dtable.open(at, size, sums);
      if (!dtable.adds()) std::fill(to, to + size, 0.0f);
      for (; k < R && order[k] >> 32 == id; ++k) {
        const float* from = dy.read((order[k] & 0xFFFFFFFF) * C + first, size, read);
        for (int64_t c = 0; c < size && id != padding; ++c) to[c] += from[c];
      }
      dtable.close(at, size, to);
    }
  });
}

void embedding_grad(const Node& n, void* workspace) {
  const int32_t* ids = n.read<int32_t>(1);
  const galley_operand& dtable = n.out(0);
  check_ids(n, ids, count(n.in(1)), std::max(rows(dtable), n.i("padding", -1) + 1));
  if (!n.accumulates(0))
    cpu::in_blocks(galley_operand_bytes(&dtable), 4 * cpu::block_elements, [bytes = n.write<char>(0)](int64_t first, int64_t last) {
      std::memset(bytes + first, 0, static_cast<size_t>(last - first));
    });
  if (dtable.dtype == GALLEY_F32) add_rows(n, ids);
  else add_ids(n, ids, static_cast<int64_t*>(workspace));
}

int64_t embedding_grad_workspace(const Node& n, const galley_target&) {
  return n.out(0).dtype == GALLEY_F32 ? 0 : count(n.in(1)) * static_cast<int64_t>(sizeof(int64_t));
}

bool rows_in_f32(const Node& n) { return cpu::all_numbers(n) && cpu::reads_weight(n) && n.out(0).dtype == GALLEY_F32; }

bool by_index(const Node& n) { return cpu::all_numbers(n) && n.has(1); }

const bool added = add(kernel<embedding, rows_in_f32>("embedding.cpu", "embedding", GALLEY_KERNEL_DEVICE, GALLEY_KERNEL_FORMATS)) &&
                   add(kernel<embedding_grad, cpu::all_numbers, embedding_grad_workspace>("embedding_grad.cpu", "embedding_grad")) &&
                   add(kernel<embedding_grad, by_index, embedding_grad_workspace>("take_rows_grad.cpu", "take_rows_grad"));

}  // namespace
}  // namespace galley::cpu::embedding_op
