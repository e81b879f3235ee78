// For tests: a strategy that searches. It draws choices, asks for their peak, and says on stderr what the last answer was. With a budget it
// takes what others accept, and says that. Another one compresses what some ops make, and says what peak and seconds that has.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

class Peaks {
 public:
  explicit Peaks(const Options& options)
      : calls_(options.integer("calls", 1)),
        seed_(static_cast<uint64_t>(options.integer("seed", 1))),
        share_(options.number("share", 0.5)),
        memory_(static_cast<uint32_t>(options.integer("memory", 0))),
        choice_(options.integer("choice", -1)),
        each_(options.number("each", 0)),
        offload_(options.number("offload", 0)),
        compress_(options.number("compress", 0)),
        budget_(options.integer("budget", 0)) {
    names_ = options.strings("formats");
    for (const std::string& name : names_) formats_.add(name.c_str());
  }

  int64_t budget() const { return budget_; }
  const SavedFormats& formats() const { return formats_; }

  void decide(const galley_saved_set& set, uint32_t* choices) const {
    if (budget_) return accept(set, choices);
    int64_t peak = 0;
    uint64_t state = seed_;
    for (int64_t call = 0; call < calls_; ++call) {
      for (uint64_t i = 0; i < set.n_items; ++i) choices[i] = draw(state) < share_ ? drawn(set, *set.items[i], state) : GALLEY_KEEP;
      galley_error error = GALLEY_ERROR_INIT;
      if (set.peak(set.context, choices, memory_, &peak, &error) != GALLEY_OK) invalid(error.text);
    }
    if (choice_ >= 0) choices[0] = static_cast<uint32_t>(choice_);
    std::fprintf(stderr, "peaks: %lld\n", static_cast<long long>(peak));
  }

 private:
  uint32_t drawn(const galley_saved_set& set, const galley_saved_item& item, uint64_t& state) const {
    if (item.flags & GALLEY_SAVED_COMPRESSIBLE && draw(state) < compress_)
      for (uint32_t f = 0; f < set.n_formats; ++f)
        if (item.format_bytes[f] > 0) return GALLEY_COMPRESS_TO(f);
    if (item.flags & GALLEY_SAVED_OFFLOADABLE && draw(state) < offload_) return GALLEY_OFFLOAD_TO(set.target->n_memories - 1);
    if (!(item.flags & GALLEY_SAVED_RECOMPUTABLE)) return GALLEY_KEEP;
    return draw(state) < each_ ? GALLEY_RECOMPUTE_EACH : GALLEY_RECOMPUTE;
  }

  static void accept(const galley_saved_set& set, uint32_t* choices) {
    for (uint64_t i = 0; i < set.n_items; ++i) {
      const galley_saved_item& item = *set.items[i];
      std::fprintf(stderr, "accepted for %s:", item.name);
      for (uint32_t k = 0; k < item.n_accepted; ++k) std::fprintf(stderr, " %u", item.accepted[k]);
      std::fprintf(stderr, "\n");
      if (item.n_accepted) choices[i] = item.accepted[0];
    }
  }

  static double draw(uint64_t& state) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(state >> 11) / 9007199254740992.0;
  }

  int64_t calls_;
  uint64_t seed_;
  double share_;
  uint32_t memory_;
  int64_t choice_;
  double each_, offload_, compress_;
  int64_t budget_;
  std::vector<std::string> names_;
  SavedFormats formats_;
};

class Squeezes {
 public:
  explicit Squeezes(const Options& options)
      : format_(options.string("format")), ops_(options.strings("ops")), choice_(options.integer("choice", -1)) {
    formats_.add(format_.c_str());
  }

  const SavedFormats& formats() const { return formats_; }

  void decide(const galley_saved_set& set, uint32_t* choices) const {
    uint32_t mine = 0;
    while (mine < set.n_formats && set.formats[mine]->name != format_) ++mine;
    const std::pair<int64_t, double> before = asked(set, choices);
    int64_t items = 0, bytes = 0, packed = 0;
    double seconds = 0;
    for (uint64_t i = 0; i < set.n_items; ++i) {
      const galley_saved_item& item = *set.items[i];
      if (choices[i] != GALLEY_KEEP || item.format_bytes[mine] == 0 || std::find(ops_.begin(), ops_.end(), item.op) == ops_.end()) continue;
      choices[i] = GALLEY_COMPRESS_TO(mine);
      ++items;
      bytes += item.bytes;
      packed += item.format_bytes[mine];
      seconds += item.format_seconds[mine];
    }
    const std::pair<int64_t, double> after = asked(set, choices);
    if (choice_ >= 0) choices[0] = static_cast<uint32_t>(choice_);
    std::fprintf(stderr, "squeezes: %lld items of %lld bytes into %lld in %.9g s; peak %lld, then %lld; seconds %.9g, then %.9g\n",
                 static_cast<long long>(items), static_cast<long long>(bytes), static_cast<long long>(packed), seconds,
                 static_cast<long long>(before.first), static_cast<long long>(after.first), before.second, after.second);
  }

 private:
  static std::pair<int64_t, double> asked(const galley_saved_set& set, const uint32_t* choices) {
    std::pair<int64_t, double> out;
    galley_error error = GALLEY_ERROR_INIT;
    if (set.peak(set.context, choices, 0, &out.first, &error) != GALLEY_OK ||
        set.seconds(set.context, choices, &out.second, &error) != GALLEY_OK)
      invalid(error.text);
    return out;
  }

  std::string format_;
  std::vector<std::string> ops_;
  int64_t choice_;
  SavedFormats formats_;
};

const bool registered = add(strategy<Peaks>("peaks")) && add(strategy<Squeezes>("squeezes"));

}  // namespace

GALLEY_PLUGIN("peaks", "1.0.0");
