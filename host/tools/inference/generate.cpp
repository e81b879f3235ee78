#include "host/tools/inference/generate.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>
#include <utility>

#include "host/base/random.hpp"
#include "host/sources/shape.hpp"

namespace galley {
namespace {

/// As many tokens as take the processor longer one by one than as a piece of a prompt.
constexpr size_t kFew = 8;

}  // namespace

int32_t draw_token(std::span<const float> logits, const Draw& how, std::span<const int32_t> text, uint32_t random) {
  std::vector<float> scores(logits.begin(), logits.end());
  if (how.repetition_penalty != 1)
    for (const int32_t token : std::set<int32_t>(text.begin(), text.end())) {
      float& score = scores.at(static_cast<size_t>(token));
      score = static_cast<float>(score < 0 ? score * how.repetition_penalty : score / how.repetition_penalty);
    }
  if (how.temperature == 0 || how.top_k == 1) return static_cast<int32_t>(std::ranges::max_element(scores) - scores.begin());
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](int32_t a, int32_t b) {
    const float x = scores[static_cast<size_t>(a)], y = scores[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  size_t n = std::min(how.top_k > 0 ? static_cast<size_t>(how.top_k) : order.size(), order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(n), order.end(), likelier);
  std::vector<double> weights(n);
  const double top = scores[static_cast<size_t>(order[0])];
  for (size_t i = 0; i < n; ++i) weights[i] = std::exp((scores[static_cast<size_t>(order[i])] - top) / how.temperature);
  const auto sum_of = [&] { return std::accumulate(weights.begin(), weights.begin() + static_cast<std::ptrdiff_t>(n), 0.0); };
  if (how.top_p < 1) {
    const double reach = how.top_p * sum_of();
    double kept = 0;
    size_t few = 0;
    while (few < n && kept < reach) kept += weights[few++];
    n = std::max<size_t>(few, 1);
  }
  while (n > 1 && weights[n - 1] < how.min_p) --n;  // the likeliest has the weight 1
  double rest = sum_of() * galley_uniform(random);
  for (size_t i = 0; i < n; ++i) {
    rest -= weights[i];
    if (rest < 0) return order[i];
  }
  return order[n - 1];
}

Generator::Generator(Session& session)
    : session_(session), program_(session.study().program), window_(session.spare_window()), known_(static_cast<size_t>(program_.rows)) {
  const TensorId logits = is_cached() ? program_.cached.logits : program_.sample_logits;
  logits_.resize(static_cast<size_t>(elements(program_.tensors[static_cast<size_t>(logits)].shape)));
  const auto rows = static_cast<size_t>(program_.rows), all = rows * static_cast<size_t>(std::max<int64_t>(program_.cached.positions, 1));
  for (auto* numbers : {&tokens_, &positions_}) numbers->reserve(all);
  for (auto* numbers : {&start_, &last_, &others_}) numbers->reserve(rows);
}

void Generator::read_source(std::span<const int32_t> tokens, int64_t number) {
  const BatchRow row = window_.row(number);
  const size_t n = std::min(tokens.size(), row.length());
  row.pad(n, row.length());
  for (size_t i = 0; i < n; ++i) {
    row.tokens()[i] = tokens[i];
    row.positions()[i] = static_cast<int32_t>(i);
    row.first_key()[i] = 0;
  }
  complete_row(row, 0, n, nullptr, {});
  source_taken_ = false;
}

Result<std::span<const float>> Generator::logits(std::span<const std::span<const int32_t>> texts) {
  if (!is_cached()) {
    TRY_STATUS(take_row(texts[0]));
  } else {
    if (!std::exchange(begun_, true)) TRY_STATUS(run(SegmentKind::Caches, no_tensor));
    if (has_source() && !std::exchange(source_taken_, true)) TRY_STATUS(take_source());
    std::vector<std::span<const int32_t>> shown;
    for (const std::span<const int32_t> text : texts) shown.push_back(text.last(std::min(text.size(), context())));
    TRY_STATUS(take_pieces(shown));
  }
  return std::span<const float>(logits_);
}

/// Without caches: the whole row.
Status Generator::take_row(std::span<const int32_t> text) {
  const BatchRow row = window_.row(0);
  const std::span<int32_t> target = row[Fill::TargetTokens];
  const size_t most = has_source() ? target.size() : row.length();
  const size_t shown = std::min(text.size(), most), first = text.size() - shown;
  if (has_source()) {
    std::ranges::fill(target, 0);
    std::ranges::copy(text.subspan(first), target.begin());
  } else {
    read_source(text.subspan(first));
  }
  TRY_STATUS(session_.feed(window_, 0));
  const int32_t position[] = {static_cast<int32_t>(shown - 1)};
  TRY_STATUS(put(program_.sample_position, position));
  return run(SegmentKind::Sample, program_.sample_logits);
}

/// With caches: what the model reads of the source is kept.
Status Generator::take_source() {
  for (std::vector<int32_t>& known : known_) known.clear();
  TRY_STATUS(session_.feed(window_, 0));
  return run(SegmentKind::Sample, no_tensor);
}

/// What the caches do not have yet: in pieces, or, where that is less work, one by one.
Status Generator::take_pieces(std::span<const std::span<const int32_t>> texts) {
  const size_t few = has_source() ? SIZE_MAX : session_.study().target.synchronous ? kFew : 1;
  while (true) {
    size_t most = 0;
    for (size_t r = 0; r < texts.size(); ++r) {
      std::vector<int32_t>& known = known_[r];
      const auto [end, other] = std::ranges::mismatch(known, texts[r]);
      known.erase(end, known.end());
      most = std::max(most, texts[r].size() - known.size());
    }
    const bool ends = most <= few ? most <= 1 : most <= static_cast<size_t>(program_.cached.positions);
    TRY_STATUS(take_positions(texts, most <= few ? SegmentKind::Next : SegmentKind::Sample));
    if (ends) return ok();
  }
}

/// The next positions of each text. One of which all is known is given its last ones again, so that all logits are those of the last call.
Status Generator::take_positions(std::span<const std::span<const int32_t>> texts, SegmentKind segment) {
  const bool next = segment == SegmentKind::Next;
  const auto n = static_cast<size_t>(next ? 1 : program_.cached.positions), length = context();
  for (auto* numbers : {&tokens_, &positions_, &start_, &last_}) numbers->clear();
  for (size_t r = 0; r < texts.size(); ++r) {
    const std::span<const int32_t> text = texts[r];
    std::vector<int32_t>& known = known_[r];
    const size_t begin = std::min({known.size(), text.size() - 1, length - n}), end = std::min(begin + n, text.size());
    start_.push_back(static_cast<int32_t>(begin));
    last_.push_back(static_cast<int32_t>(r * n + end - begin - 1));
    for (size_t i = begin; i < begin + n; ++i) {
      tokens_.push_back(i < end ? text[i] : 0);  // what is put into the caches after the end will be overwritten before it is read
      positions_.push_back(static_cast<int32_t>(i));
    }
    if (end > known.size()) known.assign(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end));
  }
  for (const Program::Input& input : next ? program_.cached.next : program_.cached.prompt)
    TRY_STATUS(put(input.tensor, numbers_of(input.fill)));
  TRY_STATUS(put(program_.cached.start, start_));
  TRY_STATUS(put(program_.sample_position, last_));
  return run(segment, next ? program_.cached.logits : program_.sample_logits);
}

std::span<const int32_t> Generator::numbers_of(Fill fill) {
  if (fill == Fill::Tokens || fill == Fill::TargetTokens) return tokens_;
  if (fill == Fill::Positions || fill == Fill::TargetPositions) return positions_;
  others_.clear();  // where the source is in its row, the same for each position
  for (int64_t r = 0; r < rows(); ++r) others_.push_back(window_.row(r)[fill].front());
  return others_;
}

Status Generator::put(TensorId tensor, std::span<const int32_t> numbers) {
  const std::span<const std::byte> from = std::as_bytes(numbers);
  size_t done = 0;
  return session_.executor().machine().fill(tensor, 0, static_cast<int64_t>(from.size()), [&](std::span<std::byte> piece) -> Status {
    std::memcpy(piece.data(), from.data() + done, piece.size());
    done += piece.size();
    return ok();
  });
}

Status Generator::run(SegmentKind segment, TensorId logits) {
  Executor& executor = session_.executor();
  executor.tell({session_.steps_done() + 1, 1});
  TRY_STATUS(executor.run(segment));
  TRY_STATUS(executor.synchronize());
  if (logits == no_tensor) return ok();
  return executor.machine().get(logits, 0, std::as_writable_bytes(std::span(logits_)));
}

}  // namespace galley
