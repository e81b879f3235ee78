#include "host/tools/inference/generate.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "host/base/random.hpp"
#include "host/sources/shape.hpp"

namespace galley {

int32_t draw_token(std::span<const float> logits, const Draw& how, uint32_t random) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  const size_t wanted = how.temperature == 0 ? 1 : how.top_k > 0 ? static_cast<size_t>(how.top_k) : order.size();
  size_t n = std::min(wanted, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(n), order.end(), likelier);
  if (n == 1) return order[0];
  std::vector<double> weights(n);
  const double top = logits[static_cast<size_t>(order[0])];
  for (size_t i = 0; i < n; ++i) weights[i] = std::exp((logits[static_cast<size_t>(order[i])] - top) / how.temperature);
  double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (how.top_p < 1) {
    double kept = 0;
    size_t few = 0;
    while (few < n && kept < how.top_p * sum) kept += weights[few++];
    n = std::max<size_t>(few, 1);
    sum = std::accumulate(weights.begin(), weights.begin() + static_cast<std::ptrdiff_t>(n), 0.0);
  }
  double rest = sum * galley_uniform(random);
  for (size_t i = 0; i < n; ++i) {
    rest -= weights[i];
    if (rest < 0) return order[i];
  }
  return order[n - 1];
}

Generator::Generator(Session& session) : session_(session) {
  const Program& program = session.study().program;
  window_ = {session.study().data.layout, {}, 0, 1, 0};
  window_.layout.rows = 1;
  window_.memory = session.bytes_of(program.window);
  logits_.resize(static_cast<size_t>(program.tensors[static_cast<size_t>(program.sample_logits)].shape.back()));
}

void Generator::read_source(std::span<const int32_t> tokens) {
  const BatchRow row = window_.row(0);
  const size_t n = std::min(tokens.size(), row.length());
  row.pad(n, row.length());
  for (size_t i = 0; i < n; ++i) {
    row.tokens()[i] = tokens[i];
    row.positions()[i] = static_cast<int32_t>(i);
    row.first_key()[i] = 0;
  }
  complete_row(row, 0, n, nullptr, {});
}

Result<std::span<const float>> Generator::logits(std::span<const int32_t> tokens) {
  Executor& executor = session_.executor();
  const Program& program = session_.study().program;
  const BatchRow row = window_.row(0);
  const std::span<int32_t> target = row[Fill::TargetTokens];
  const size_t most = has_source() ? target.size() : row.length();
  const size_t shown = std::min(tokens.size(), most), first = tokens.size() - shown;
  if (has_source()) {
    std::ranges::fill(target, 0);
    std::ranges::copy(tokens.subspan(first), target.begin());
  } else {
    read_source(tokens.subspan(first));
  }
  executor.tell({1, 1});
  TRY_STATUS(session_.feed(window_, 0));
  const auto position = static_cast<int32_t>(shown - 1);
  TRY_STATUS(executor.machine().fill(program.sample_position, 0, sizeof position, [&](std::span<std::byte> bytes) -> Status {
    std::memcpy(bytes.data(), &position, sizeof position);
    return ok();
  }));
  TRY_STATUS(executor.run(SegmentKind::Sample));
  TRY_STATUS(executor.synchronize());
  TRY_STATUS(executor.machine().get(program.sample_logits, 0, std::as_writable_bytes(std::span(logits_))));
  return std::span<const float>(logits_);
}

}  // namespace galley
