// Cross-entropy: a row of logits (200 KB for GPT-2's 50,257 words) is read from memory once, for its largest value, and from the
// second-level cache for the sum of exponentials. Losses of rows are kept in double in the workspace and added in order. Backward is one
// pass, in place. A row's hit is known when a number comes before the label's, most often after a few.
#include <algorithm>
#include <cmath>

#include "cpu/number.hpp"

namespace galley::cpu::cross_entropy_op {
namespace {

using namespace sdk;

void check_labels(const Node& n, const int32_t* labels, int64_t R, int64_t V) {
  for (int64_t r = 0; r < R; ++r)
    if (labels[r] >= V)
      invalid(std::string(n.name()) + ": label " + std::to_string(labels[r]) + " at row " + std::to_string(n.view()->first_row + r) +
              " is not one of the " + std::to_string(V) + " classes");
}

void cross_entropy(const Node& n, void* workspace) {
  const float* logits = n.read<float>(0);  // (R, V)
  const int32_t* labels = n.read<int32_t>(1);
  double *loss = n.write<double>(0), *of_row = static_cast<double*>(workspace);
  float* lse = n.write<float>(1);
  const int64_t R = rows(n.in(0)), V = columns(n.in(0));
  check_labels(n, labels, R, V);
  cpu::over_rows(R, V, [=](int64_t r) {
    const float* x = logits + r * V;
    const float largest = cpu::largest(x, V);
    const float sum = cpu::sum(V, [=](int64_t v) { return cpu::exp(x[v] - largest); });
    const double total = static_cast<double>(largest) + std::log(static_cast<double>(sum));
    if (lse) lse[r] = static_cast<float>(total);
    of_row[r] = labels[r] < 0 ? 0.0 : total - static_cast<double>(x[labels[r]]);
  });
  double total = 0;
  for (int64_t r = 0; r < R; ++r) total += of_row[r];
  *loss = n.accumulates(0) ? *loss + total : total;
}

int64_t workspace(const Node& n, const galley_target&) { return rows(n.in(0)) * static_cast<int64_t>(sizeof(double)); }

void cross_entropy_grad(const Node& n, void*) {
  const float *logits = n.read<float>(0), *lse = n.read<float>(2), *seed_at = n.read<float>(3);
  const int32_t* labels = n.read<int32_t>(1);
  const cpu::Output d(n, 0);
  const int64_t R = rows(n.in(0)), V = columns(n.in(0)), run = cpu::run_over(d);
  check_labels(n, labels, R, V);
  const float seed = *seed_at;
  cpu::by_access(d.adds(), [&](auto add) {
    cpu::over_rows(R, V, [=](int64_t r) {
      const float* x = logits + r * V;
      const int32_t label = labels[r];
      if (label < 0 && decltype(add)::value) return;
      const float total = label < 0 ? 0.0f : lse[r];
      cpu::Buffer buffer;
      cpu::in_runs(0, V, run, [&](int64_t first, int64_t size) {
        float* const to = d.open(r * V + first, size, buffer);
        if (label < 0) {
          std::fill(to, to + size, 0.0f);
        } else {
          const float* from = x + first;
          GALLEY_INDEPENDENT
          for (int64_t v = 0; v < size; ++v) cpu::put(add, to[v], cpu::exp(from[v] - total) * seed);
          if (label >= first && label < first + size) to[label - first] -= seed;
        }
        d.close(r * V + first, size, to);
      });
    });
  });
}

/// Whether no number of a row comes before the label's: none is larger, and of equal ones it is the first.
bool is_largest(const float* x, int64_t label, int64_t V) {
  constexpr int64_t kRun = 1024;  // numbers that are read at once
  const float own = x[label];
  int before = 0;
  for (int64_t v = 0; v < label && !before; v += kRun)
    for (int64_t i = v; i < std::min(v + kRun, label); ++i) before |= !(x[i] < own);
  for (int64_t v = label + 1; v < V && !before; v += kRun)
    for (int64_t i = v; i < std::min(v + kRun, V); ++i) before |= !(x[i] <= own);
  return !before;
}

void label_hits(const Node& n, void* workspace) {
  const float* logits = n.read<float>(0);
  const int32_t* labels = n.read<int32_t>(1);
  double *hits = n.write<double>(0), *of_row = static_cast<double*>(workspace);
  const int64_t R = rows(n.in(0)), V = columns(n.in(0));
  check_labels(n, labels, R, V);
  cpu::over_rows(R, V, [=](int64_t r) { of_row[r] = labels[r] >= 0 && is_largest(logits + r * V, labels[r], V); });
  double total = n.accumulates(0) ? *hits : 0;
  for (int64_t r = 0; r < R; ++r) total += of_row[r];
  *hits = total;
}

bool counts(const Node& n) { return n.in(0).dtype == GALLEY_F32 && n.out(0).dtype == GALLEY_F64; }

bool supports(const Node& n) {
  return n.in(0).dtype == GALLEY_F32 && n.out(0).dtype == GALLEY_F64 && (!n.has_out(1) || n.out(1).dtype == GALLEY_F32);
}

const bool added = add(kernel<cross_entropy, supports, workspace>("cross_entropy.cpu", "cross_entropy")) &&
                   add(kernel<cross_entropy_grad, cpu::all_numbers>("cross_entropy_grad.cpu", "cross_entropy_grad")) &&
                   add(kernel<label_hits, counts, workspace>("label_hits.cpu", "label_hits"));

}  // namespace
}  // namespace galley::cpu::cross_entropy_op
