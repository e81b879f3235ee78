// Programs of several processes fit together; what is changed in one of them is found.
#include "host/proofs/congruent.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "galley/op.h"
#include "host/session/study.hpp"
#include "tests/base/folder.hpp"
#include "tests/session/built.hpp"

namespace galley {
namespace {

constexpr int64_t kProcesses = 4;

class Congruent : public testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path path = folder_.path() / "recipe.lua";
    std::ofstream(path)
        << "return recipe {\n  model = model { family = \"llama\", config = { vocab_size = 300, hidden_size = 128, intermediate_size = "
           "384, "
           "num_hidden_layers = 2, num_attention_heads = 4, num_key_value_heads = 2, max_position_embeddings = 32 } },\n"
           "  data = data.random {}, batch = 1, length = 8, steps = 2, seed = 1,\n  use \"accumulate\" { steps = 4 },\n"
           "  use \"amp\" { compute = \"bf16\" }, use \"zero\" { stage = 1, min_size = 1"
        << (groups() ? ", within = \"board\"" : "") << " }, use \"adamw\" { lr = 1e-3 },\n}\n";
    StudyOptions options = options_of_build();
    if (groups()) {
      const std::filesystem::path links = folder_.path() / "links.toml";
      std::ofstream(links) << "[[link]]\nname = \"board\"\nranks = 2\nbandwidth = 1e9\n[[link]]\nname = \"network\"\nbandwidth = 1e8\n";
      options.target = links;
    }
    options.runs = false;
    options.lanes.ranks = kProcesses;
    for (options.lanes.rank = 0; options.lanes.rank < kProcesses; ++options.lanes.rank) {
      auto made = study(path, options);
      ASSERT_TRUE(made) << made.error().cause;
      programs_.push_back((*made)->program);
      studies_.push_back(std::move(*made));
    }
  }
  virtual bool groups() const { return false; }
  /// What is found; "": nothing.
  std::string found(bool all = true) const {
    std::vector<const Program*> programs;
    for (const Program& p : programs_) programs.push_back(&p);
    const Status status = congruent(programs, all);
    return status ? "" : status.error().cause;
  }
  /// The places of an op in a segment.
  std::vector<size_t> places(const Program& program, SegmentKind kind, const std::string& op) const {
    std::vector<size_t> out;
    const auto& code = program.segment(kind).code;
    for (size_t i = 0; i < code.size(); ++i)
      if (const Launch* launch = code[i].launch(); launch && launch->op() && launch->op()->name == op) out.push_back(i);
    return out;
  }
  Instruction& exchange(size_t process, const std::string& op, size_t number = 0) {
    Program& program = programs_[process];
    for (const SegmentKind kind : {SegmentKind::Micro, SegmentKind::Update})
      if (const auto at = places(program, kind, op); number < at.size()) return program.segment(kind).code[at[number]];
    ADD_FAILURE() << "there is no " << op;
    return program.segment(SegmentKind::Micro).code.front();
  }

  Folder folder_;
  std::vector<std::unique_ptr<Study>> studies_;
  std::vector<Program> programs_;
};

TEST_F(Congruent, AsTheyWerePlanned) {
  EXPECT_EQ(found(), "");
  EXPECT_GT(places(programs_[0], SegmentKind::Micro, "reduce_scatter").size(), 10u);
  EXPECT_GT(places(programs_[0], SegmentKind::Update, "all_gather").size(), 5u);
  EXPECT_EQ(places(programs_[0], SegmentKind::Update, "all_reduce_here").size(), 1u);
}

TEST_F(Congruent, TwoAreSwapped) {
  std::swap(exchange(2, "reduce_scatter", 3), exchange(2, "reduce_scatter", 4));
  EXPECT_NE(found().find("exchange 4 of micro is, on process 2: reduce_scatter"), std::string::npos) << found();
}

TEST_F(Congruent, OneIsMissing) {
  auto& code = programs_[1].segment(SegmentKind::Update).code;
  code.erase(code.begin() + static_cast<std::ptrdiff_t>(places(programs_[1], SegmentKind::Update, "all_gather").back()));
  EXPECT_NE(found().find("on process 1: no more; on process 0: all_gather"), std::string::npos) << found();
}

TEST_F(Congruent, ACutIsShifted) {
  AttrList& attrs = exchange(3, "reduce_scatter").launch()->nodes[0].attrs;
  const galley_attr* ends = attrs.find("ends");
  std::vector<int64_t> shifted(static_cast<const int64_t*>(ends->data), static_cast<const int64_t*>(ends->data) + ends->count);
  for (int64_t& end : shifted)
    if (end > 16384 && end < shifted.back()) end -= 16384;
  attrs.set("ends", shifted);
  EXPECT_NE(found(), "");
}

TEST_F(Congruent, AnotherBegins) {
  AttrList& attrs = exchange(1, "reduce_scatter").launch()->nodes[0].attrs;
  attrs.set("start", attrs.find("start") ? int64_t{3} : int64_t{1});
  EXPECT_NE(found(), "");
}

TEST_F(Congruent, AnotherProcess) {
  exchange(1, "reduce_scatter").launch()->nodes[0].attrs.set("rank", int64_t{2});
  EXPECT_NE(found().find("is that of process 2 of its axis, in the program of process 1"), std::string::npos) << found();
}

TEST_F(Congruent, InOtherMicroBatches) {
  exchange(1, "reduce_scatter").when = When::Always;
  EXPECT_NE(found().find("in micro-batches: always"), std::string::npos) << found();
}

TEST_F(Congruent, InAnotherDtype) {
  exchange(2, "all_reduce_here").inputs[0].dtype = GALLEY_F32;
  EXPECT_NE(found().find("f32"), std::string::npos) << found();
}

TEST_F(Congruent, OfAnotherSize) {
  exchange(2, "all_reduce_here").inputs[0].shape = {3};
  EXPECT_NE(found().find("3 numbers"), std::string::npos) << found();
}

TEST_F(Congruent, APartIsElsewhere) {
  for (ProgramTensor& t : programs_[1].tensors)
    if (t.is_part() && elements(t.shape) > 0 && t.owner == Owner::Gradients) {
      t.runs.first += 64;
      EXPECT_NE(found(false).find("for the part ["), std::string::npos) << found(false);
      return;
    }
  FAIL() << "no part of a gradient";
}

TEST_F(Congruent, APartIsLost) {
  for (ProgramTensor& t : programs_[2].tensors)
    if (t.is_part() && elements(t.shape) > 0 && t.owner == Owner::States) {
      t.shape = {0};
      EXPECT_NE(found().find("'" + t.name + "'"), std::string::npos) << found();
      EXPECT_EQ(found(false), "");  // only all of them show it
      return;
    }
  FAIL() << "no part of a state";
}

TEST_F(Congruent, APartIsThereTwice) {
  for (ProgramTensor& t : programs_[0].tensors)
    if (t.is_part() && elements(t.shape) > 0 && t.runs.first + elements(t.shape) < elements(t.whole) && t.owner == Owner::States) {
      t.shape = {elements(t.shape) + 1};
      EXPECT_NE(found().find("has '" + t.name + "' from element "), std::string::npos) << found();
      EXPECT_NE(found().find(" on; those before end at "), std::string::npos) << found();
      return;
    }
  FAIL() << "no part of a state";
}

// Whatever one process leaves out, its exchanges have other numbers: of each exchanged tensor, the last node that made it.
TEST_F(Congruent, OneProcessLeavesSomethingOut) {
  int left_out = 0;
  for (const auto& [kind, op] : {std::pair(SegmentKind::Micro, "reduce_scatter"), std::pair(SegmentKind::Update, "all_gather")}) {
    for (const size_t at : places(programs_[2], kind, op)) {
      const Program before = programs_[2];
      auto& code = programs_[2].segment(kind).code;
      const Operand& taken = code[at].inputs[0];
      if (elements(taken.shape) == 0) continue;
      for (size_t i = at; i-- > 0;) {
        const bool makes = code[i].launch() && std::ranges::any_of(code[i].outputs, [&](const Operand& o) {
                             return o.tensor == taken.tensor && o.offset <= taken.offset && (o.access & GALLEY_WRITE);
                           });
        if (!makes || code[i].launch()->nodes.size() > 1) continue;
        code.erase(code.begin() + static_cast<std::ptrdiff_t>(i));
        EXPECT_NE(found().find(" on others"), std::string::npos) << found();
        ++left_out;
        break;
      }
      programs_[2] = before;
    }
  }
  EXPECT_GT(left_out, 10);
}

/// Two groups of two processes each, each of which has all parts.
class CongruentGroups : public Congruent {
 protected:
  bool groups() const override { return true; }
  /// The sums of groups of parts.
  std::vector<size_t> across(size_t process) const {
    std::vector<size_t> out;
    for (const size_t at : places(programs_[process], SegmentKind::Micro, "all_reduce"))
      if (along_axis(programs_[process].segment(SegmentKind::Micro).code[at]).stride == 2) out.push_back(at);
    return out;
  }
};

TEST_F(CongruentGroups, AsTheyWerePlanned) {
  EXPECT_EQ(found(), "");
  EXPECT_GT(across(0).size(), 10u);
  EXPECT_EQ(programs_[3].sharers, 2);
}

TEST_F(CongruentGroups, AGroupGivesAnotherAnotherPart) {
  Instruction& sum = programs_[2].segment(SegmentKind::Micro).code[across(2).front()];
  for (Operand* o : {&sum.inputs[0], &sum.outputs[0]}) o->shape = {elements(o->shape) + 1};
  EXPECT_NE(found().find(" on the others of its axis"), std::string::npos) << found();
}

TEST_F(CongruentGroups, AGroupHasOtherNeighbours) {
  programs_[1].segment(SegmentKind::Micro).code[across(1).front()].launch()->nodes[0].attrs.set("stride", int64_t{1});
  EXPECT_NE(found().find("2 apart"), std::string::npos) << found();
}

TEST_F(CongruentGroups, TheFirstGroupLacksAPart) {
  for (ProgramTensor& t : programs_[1].tensors)
    if (t.is_part() && elements(t.shape) > 0 && t.owner == Owner::States) {
      t.shape = {0};
      EXPECT_NE(found().find("'" + t.name + "'"), std::string::npos) << found();
      return;
    }
  FAIL() << "no part of a state";
}

/// Columns of a matrix, of which processes that compute together have some each; two groups of them.
TEST(CongruentNeighbours, ColumnsAreTheWhole) {
  std::vector<Program> programs(4);
  for (int64_t r = 0; r < 4; ++r) {
    Program& p = programs[static_cast<size_t>(r)];
    p.ranks = 4, p.rank = r, p.together = 2;
    ProgramTensor t;
    t.name = "weight", t.shape = {3, 8}, t.whole = {3, 16}, t.life = Life::Run, t.neighbours = true;
    t.runs = {r % 2 * 8, 8, 16};
    p.tensors = {t};
  }
  const auto found = [&] {
    std::vector<const Program*> all;
    for (const Program& p : programs) all.push_back(&p);
    const Status status = congruent(all, true);
    return status ? "" : status.error().cause;
  };
  EXPECT_EQ(found(), "");
  EXPECT_TRUE(programs[1].counts(programs[1].tensors[0]));
  EXPECT_FALSE(programs[2].counts(programs[2].tensors[0]));
  for (const auto& change :
       {+[](ProgramTensor& t) { t.runs.first = 0; }, +[](ProgramTensor& t) { t.runs.step = 8; }, +[](ProgramTensor& t) { t.runs.run = 4; },
        +[](ProgramTensor& t) {
          t.shape = {2, 8};
        }}) {
    ProgramTensor& own = programs[1].tensors[0];
    const ProgramTensor before = own;
    change(own);
    EXPECT_NE(found().find("'weight'"), std::string::npos) << found();
    own = before;
  }
  programs[3].together = 1;
  EXPECT_NE(found().find("processes that compute together"), std::string::npos) << found();
}

TEST_F(Congruent, AnotherWindow) {
  programs_[3].micro_batches = 5;
  EXPECT_EQ(found(), "plan: micro-batches of a window are others for process 3 than for process 0");
}

}  // namespace
}  // namespace galley
