// What to recompute under a budget: of what the planner is asked about, the choices that fit and take the least time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "galley/cpp/strategy.hpp"

namespace galley::recompute {

/// Tries in this order, and takes what fits first:
///   1. All is kept.
///   2. Inside blocks, what takes the least seconds a byte is not kept: as few tensors of this order as will do, those of early blocks
///   first.
///   3. Of what enters blocks, each n-th is kept too, for one n after the other. Backward then holds n blocks.
///   4. The same, but recomputed for each block: backward then holds one.
/// What another strategy would offload or compress is so where this takes less time, for the bytes that it frees, than to recompute it.
class Search {
 public:
  Search(const galley_saved_set& set, int64_t budget) : set_(set), budget_(budget), choices_(set.n_items, GALLEY_KEEP) {}

  std::vector<uint32_t> run() {
    if (fits(choices_)) return choices_;
    find_steps();
    if (fits(first(steps_.size()))) return fewest();
    int64_t root = 2;
    while (root * root < set_.blocks) ++root;
    for (int64_t n = 2; n <= std::min(2 * root, set_.blocks); ++n)
      if (const auto choices = every(n, GALLEY_RECOMPUTE); fits(choices)) return choices;
    for (int64_t n = 2; n < 2 * set_.blocks; n *= 2)
      if (const auto choices = every(std::min(n, set_.blocks), GALLEY_RECOMPUTE_EACH); fits(choices)) return choices;
    sdk::invalid("the plan takes at least " + amount(least_) + " of the memory that computes, whatever is recomputed; the budget is " +
                 amount(budget_));
  }

 private:
  struct Step {
    uint64_t item;
    uint32_t choice;
    double price;  ///< seconds a byte that is free then
  };
  using Choices = std::vector<uint32_t>;

  /// "1.00 KiB (1025 bytes)": rounded for people, and to the byte for a recipe.
  static std::string amount(int64_t bytes) {
    static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    auto value = static_cast<double>(bytes);
    size_t unit = 0;
    for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
    char text[32];
    std::snprintf(text, sizeof text, unit ? "%.2f %s" : "%.0f %s", value, units[unit]);
    return unit ? text + (" (" + std::to_string(bytes) + " bytes)") : text;
  }

  bool fits(const Choices& choices) {
    galley_error error = GALLEY_ERROR_INIT;
    int64_t peak = 0;
    if (set_.peak(set_.context, choices.data(), 0, &peak, &error) != GALLEY_OK) sdk::invalid(error.text);
    least_ = std::min(least_, peak);
    return peak <= budget_;
  }

  void find_steps() {
    for (uint64_t i = 0; i < set_.n_items; ++i) {
      const galley_saved_item& item = *set_.items[i];
      Step best = {i, GALLEY_KEEP, 0};
      const auto consider = [&](uint32_t choice, double seconds, int64_t left = 0) {
        const double price = seconds / static_cast<double>(std::max<int64_t>(item.bytes - left, 1));
        if (best.choice == GALLEY_KEEP || price < best.price) best = {i, choice, price};
      };
      if (item.block >= 0 && item.flags & GALLEY_SAVED_RECOMPUTABLE && !(item.flags & GALLEY_SAVED_BLOCK_INPUT))
        consider(GALLEY_RECOMPUTE, item.recompute_seconds);
      for (uint32_t k = 0; k < item.n_accepted; ++k) {
        const uint32_t choice = item.accepted[k], where = choice >> 8;
        if (choice == GALLEY_OFFLOAD_TO(where) && where < item.n_memories) consider(choice, item.offload_seconds_to[where]);
        if (choice == GALLEY_COMPRESS_TO(where) && where < item.n_formats && item.format_bytes[where] < item.bytes)
          consider(choice, item.format_seconds[where], item.format_bytes[where]);
      }
      if (best.choice != GALLEY_KEEP) steps_.push_back(best);
    }
    std::stable_sort(steps_.begin(), steps_.end(), [](const Step& a, const Step& b) { return a.price < b.price; });
  }

  Choices first(size_t count) const {
    Choices out = choices_;
    for (size_t k = 0; k < count; ++k) out[steps_[k].item] = steps_[k].choice;
    return out;
  }

  /// By halves: more steps are taken for less memory.
  Choices fewest() {
    size_t no = 0, yes = steps_.size();
    while (yes - no > 1) {
      const size_t half = (no + yes) / 2;
      (fits(first(half)) ? yes : no) = half;
    }
    return first(yes);
  }

  Choices every(int64_t n, uint32_t how) const {
    Choices out = first(steps_.size());
    for (uint64_t i = 0; i < set_.n_items; ++i) {
      const galley_saved_item& item = *set_.items[i];
      const int64_t enters = item.block + 1;
      if (item.flags & GALLEY_SAVED_BLOCK_INPUT && item.flags & GALLEY_SAVED_RECOMPUTABLE && item.block >= 0 && enters % n != 0 &&
          enters != set_.blocks && out[i] == GALLEY_KEEP)
        out[i] = how;
      if (out[i] == GALLEY_RECOMPUTE) out[i] = how;
    }
    return out;
  }

  const galley_saved_set& set_;
  int64_t budget_;
  Choices choices_;  ///< all is kept
  std::vector<Step> steps_;
  int64_t least_ = INT64_MAX;
};

}  // namespace galley::recompute
