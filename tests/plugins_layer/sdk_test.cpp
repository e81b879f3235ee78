// What the C++ side of the SDK finds in a plugin before the host sees it: methods that would never be called, and more components than a
// format may have.
#include <gtest/gtest.h>

#include "galley/cpp/strategy.hpp"

namespace galley::sdk {
namespace {

using detail::Misfits;

struct Right {
  explicit Right(const Options&) {}
  void model(ModelGraph&) const {}
  void load(LoadGraph&) const {}
  void claim(const GraphReader&, const Claims&) const {}
  static constexpr uint32_t stages = GALLEY_STAGE_STEP;
  void build(UpdateGraph&, Trained) const {}
  void decide(const galley_saved_set&, uint32_t*) const {}
  int64_t budget() const { return 0; }
  std::unique_ptr<Listener> listen(const galley_started_event&) const { return std::make_unique<Listener>(); }
};
struct Empty final {};
struct Wrong {
  void model(Graph&, uint32_t) const {}
  void load(ModelGraph&) const {}
  void claim(Graph&, const Claims&) const {}
  void build(UpdateGraph&, Trained) {}  // not const
  void decide(const galley_saved_set*, uint32_t*) const {}
  uint64_t budget() const { return 0; }
  Listener listen(const galley_started_event&) const { return {}; }
};

TEST(SdkStrategy, MethodsThatNobodyWouldCallDoNotCompile) {
  EXPECT_TRUE(Misfits<Wrong>::model && Misfits<Wrong>::load && Misfits<Wrong>::claim && Misfits<Wrong>::build && Misfits<Wrong>::decide &&
              Misfits<Wrong>::budget && Misfits<Wrong>::listen);
  EXPECT_FALSE(Misfits<Right>::model || Misfits<Right>::load || Misfits<Right>::claim || Misfits<Right>::build || Misfits<Right>::decide ||
               Misfits<Right>::budget || Misfits<Right>::listen);
  EXPECT_FALSE(Misfits<Empty>::model || Misfits<Empty>::load || Misfits<Empty>::claim || Misfits<Empty>::build || Misfits<Empty>::decide ||
               Misfits<Empty>::budget || Misfits<Empty>::listen);
  EXPECT_NE(detail::StrategyOf<Right>::get(nullptr, GALLEY_CLAIM), nullptr);
}

/// Counts what it is told.
struct Counts {
  explicit Counts(const Options&) {}
  struct Counter final : Listener {
    explicit Counter(int& n) : told(n) {}
    ~Counter() override { told += 100; }
    void step(const galley_step_event&) override { ++told; }
    void validated(const galley_validated_event&) override { ++told; }
    void note(const char*) override { throw std::runtime_error("it does not read"); }
    void ended(const galley_ended_event&) override { throw Failure(GALLEY_FAILED, "it has no end"); }
    int& told;
  };
  std::unique_ptr<Listener> listen(const galley_started_event&) const { return std::make_unique<Counter>(told); }
  mutable int told = 0;
  static constexpr bool ends_run = true;
};

struct Deaf {
  std::unique_ptr<Listener> listen(const galley_started_event&) const { return nullptr; }
};

TEST(SdkListener, IsMade) {
  const auto& table = *static_cast<const galley_observer*>(detail::StrategyOf<Deaf>::get(nullptr, GALLEY_OBSERVER));
  EXPECT_EQ(table.flags, 0u);
  const auto start = fresh<galley_started_event>();
  galley_error error = GALLEY_ERROR_INIT;
  Deaf deaf;
  void* listener = nullptr;
  EXPECT_EQ(table.started(&deaf, &start, &listener, &error), GALLEY_FAILED);
  EXPECT_STREQ(error.text, "it made no listener");
}

TEST(SdkListener, RefusesWhatItDoesNotKnow) {
  const auto none = fresh<galley_options>();
  const Counts counts{Options(&none)};
  const auto& table = *static_cast<const galley_observer*>(detail::StrategyOf<Counts>::get(nullptr, GALLEY_OBSERVER));
  EXPECT_EQ(table.flags, GALLEY_OBSERVER_ENDS_RUN);
  galley_error error = GALLEY_ERROR_INIT;
  void* listener = nullptr;
  void* const instance = const_cast<Counts*>(&counts);
  auto start = fresh<galley_started_event>();
  // Each call with each bit that must be understood, and is not; and with another revision.
  const auto refuses = [&](auto event, uint64_t known, const auto& call) {
    for (int bit = 0; bit < 32; ++bit) {
      event.flags = uint64_t{1} << bit;
      EXPECT_EQ(call(&event), event.flags & known ? GALLEY_OK : GALLEY_INVALID) << "bit " << bit;
    }
    event.flags = 0;
    event.revision = 2;
    EXPECT_EQ(call(&event), GALLEY_INVALID);
  };
  refuses(start, 0, [&](const galley_started_event* e) { return table.started(instance, e, &listener, &error); });
  EXPECT_EQ(listener, nullptr);
  ASSERT_EQ(table.started(instance, &start, &listener, &error), GALLEY_OK);
  refuses(fresh<galley_step_event>(), GALLEY_STEP_KNOWN, [&](const galley_step_event* e) { return table.step(listener, e, &error); });
  refuses(fresh<galley_validated_event>(), GALLEY_VALIDATED_KNOWN,
          [&](const galley_validated_event* e) { return table.validated(listener, e, &error); });
  EXPECT_EQ(counts.told, 2);
  const auto note = fresh<galley_note_event>();
  EXPECT_EQ(table.note(listener, &note, &error), GALLEY_FAILED);
  EXPECT_STREQ(error.text, "it does not read");
  // Whatever the end says, it is one.
  auto end = fresh<galley_ended_event>();
  end.revision = 2;
  EXPECT_EQ(table.ended(listener, &end, &error), GALLEY_INVALID);
  EXPECT_EQ(counts.told, 102);
  ASSERT_EQ(table.started(instance, &start, &listener, &error), GALLEY_OK);
  end.revision = 1;
  EXPECT_EQ(table.ended(listener, &end, &error), GALLEY_FAILED);
  EXPECT_STREQ(error.text, "it has no end");
  EXPECT_EQ(counts.told, 202);
}

/// As many as the first extent says.
void many(const std::vector<int64_t>& shape, const FormatOptions&, Components& out) {
  for (int64_t k = 0; k < shape[0]; ++k) out.add(".c", GALLEY_F32, std::vector<int64_t>(shape.size(), 1), 0);
}

TEST(SdkComponents, NoMoreThanThereIsRoomFor) {
  const galley_format table = format<many>("many", "pack", "unpack");
  galley_component parts[GALLEY_MAX_COMPONENTS];
  galley_component* pointers[GALLEY_MAX_COMPONENTS];
  for (size_t k = 0; k < GALLEY_MAX_COMPONENTS; ++k) {
    parts[k] = fresh<galley_component>();
    pointers[k] = &parts[k];
  }
  const auto made = [&](const std::vector<int64_t>& shape, galley_error& error) {
    uint32_t n = 0;
    error = GALLEY_ERROR_INIT;
    const galley_status status =
        table.components(table.self, shape.data(), static_cast<uint32_t>(shape.size()), nullptr, 0, pointers, &n, &error);
    return status == GALLEY_OK ? static_cast<int64_t>(n) : -1;
  };
  galley_error error;
  EXPECT_EQ(made({8}, error), 8);
  EXPECT_EQ(made({9}, error), -1);
  EXPECT_STREQ(error.text, "component '.c' is one more than the 8 that a format may have");
  EXPECT_EQ(made({1, 1, 1, 1, 1, 1, 1, 1, 1}, error), -1);
  EXPECT_STREQ(error.text, "component '.c' has rank 9");
}

}  // namespace
}  // namespace galley::sdk
