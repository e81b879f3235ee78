// A micro-batch in which backward makes again what was not kept.
#include "host/plan/plan.hpp"
#include "host/proofs/shadow.hpp"
#include "tests/passes/hand.hpp"

namespace galley::hand {
namespace {

/// a = x·w0 · b = a·w1 · c = b·w2: backward reads all three.
class Clone : public Hand {
 protected:
  std::string cloned(std::vector<uint32_t> choices) {
    galley_tensor at = input("x");
    for (const char* name : {"a", "b", "c"}) {
      at = node(name, "mul", {at, parameter("w" + std::string(name))});
      graph.node(graph.tensor(at).producer).block = blocks++;
    }
    node("l", "loss", {at}, Section::Forward, {*draft.scalars.get(GALLEY_SCALAR_LOSS)});
    train({graph.find("wa"), graph.find("wb"), graph.find("wc")});
    if (const std::string wrong = run({differentiate, order, place, bind, decide}); !wrong.empty()) return wrong;
    c->choices = std::move(choices);
    if (const std::string wrong = run({clone}); !wrong.empty()) return wrong;
    return code(SegmentKind::Micro);
  }
  /// What the passes after make of it, on the shadow device; "" or what is wrong.
  std::string ran() {
    const std::string wrong = run({alias, overlap});
    return wrong.empty() ? cause(check_plan(c->program, make_plan(c->program, target), target)) : wrong;
  }
  int64_t blocks = 0;
  Owner owner(const std::string& name, size_t nth = 0) const {
    for (const ProgramTensor& t : c->program.tensors)
      if (t.name == name && nth-- == 0) return t.owner;
    ADD_FAILURE() << name << " is not in the program";
    return Owner::Data;
  }
};

TEST_F(Clone, WhatIsKeptIsSaved) {
  EXPECT_EQ(cloned({GALLEY_KEEP, GALLEY_KEEP, GALLEY_KEEP}),
            "micro[0] mul.any 'a': r x f32(4), r wa f32(4) -> w a f32(4)\n"
            "micro[1] mul.any 'b': r a f32(4), r wb f32(4) -> w b f32(4)\n"
            "micro[2] mul.any 'c': r b f32(4), r wc f32(4) -> w c f32(4)\n"
            "micro[3] loss.any 'l': r c f32(4) -> w step scalars+640 f64(1)\n"
            "micro[4] mul.any 'l.mul.5': r c f32(4), r c f32(4) -> w l.mul.5 f32(4)\n"
            "micro[5] mul.any 'c.mul.6': r l.mul.5 f32(4), r wc f32(4) -> w c.mul.6 f32(4)\n"
            "micro[6] mul.any 'c.mul.7': r l.mul.5 f32(4), r b f32(4) -> w grad.wc f32(4)\n"
            "micro[7] mul.any 'b.mul.8': r c.mul.6 f32(4), r wb f32(4) -> w b.mul.8 f32(4)\n"
            "micro[8] mul.any 'b.mul.9': r c.mul.6 f32(4), r a f32(4) -> w grad.wb f32(4)\n"
            "micro[9] mul.any 'a.mul.10': r b.mul.8 f32(4), r x f32(4) -> w grad.wa f32(4)\n");
  EXPECT_EQ(owner("a"), Owner::Saved);
}

TEST_F(Clone, WhatIsNotKeptIsMadeAgainBeforeItsFirstReader) {
  EXPECT_EQ(cloned({GALLEY_KEEP, GALLEY_RECOMPUTE, GALLEY_KEEP}),
            "micro[0] mul.any 'a': r x f32(4), r wa f32(4) -> w a f32(4)\n"
            "micro[1] mul.any 'b': r a f32(4), r wb f32(4) -> w b f32(4)\n"
            "micro[2] mul.any 'c': r b f32(4), r wc f32(4) -> w c f32(4)\n"
            "micro[3] loss.any 'l': r c f32(4) -> w step scalars+640 f64(1)\n"
            "micro[4] mul.any 'l.mul.5': r c f32(4), r c f32(4) -> w l.mul.5 f32(4)\n"
            "micro[5] mul.any 'c.mul.6': r l.mul.5 f32(4), r wc f32(4) -> w c.mul.6 f32(4)\n"
            "micro[6] mul.any 'b' again: r a f32(4), r wb f32(4) -> w b f32(4)\n"
            "micro[7] mul.any 'c.mul.7': r l.mul.5 f32(4), r b f32(4) -> w grad.wc f32(4)\n"
            "micro[8] mul.any 'b.mul.8': r c.mul.6 f32(4), r wb f32(4) -> w b.mul.8 f32(4)\n"
            "micro[9] mul.any 'b.mul.9': r c.mul.6 f32(4), r a f32(4) -> w grad.wb f32(4)\n"
            "micro[10] mul.any 'a.mul.10': r b.mul.8 f32(4), r x f32(4) -> w grad.wa f32(4)\n");
  EXPECT_EQ(owner("b"), Owner::Activations);
  EXPECT_EQ(owner("b", 1), Owner::Saved) << "the clone is what backward reads";
}

TEST_F(Clone, AChainIsMadeAgainFromItsBeginning) {
  EXPECT_EQ(cloned({GALLEY_RECOMPUTE, GALLEY_RECOMPUTE, GALLEY_KEEP}),
            "micro[0] mul.any 'a': r x f32(4), r wa f32(4) -> w a f32(4)\n"
            "micro[1] mul.any 'b': r a f32(4), r wb f32(4) -> w b f32(4)\n"
            "micro[2] mul.any 'c': r b f32(4), r wc f32(4) -> w c f32(4)\n"
            "micro[3] loss.any 'l': r c f32(4) -> w step scalars+640 f64(1)\n"
            "micro[4] mul.any 'l.mul.5': r c f32(4), r c f32(4) -> w l.mul.5 f32(4)\n"
            "micro[5] mul.any 'c.mul.6': r l.mul.5 f32(4), r wc f32(4) -> w c.mul.6 f32(4)\n"
            "micro[6] mul.any 'a' again: r x f32(4), r wa f32(4) -> w a f32(4)\n"
            "micro[7] mul.any 'b' again: r a f32(4), r wb f32(4) -> w b f32(4)\n"
            "micro[8] mul.any 'c.mul.7': r l.mul.5 f32(4), r b f32(4) -> w grad.wc f32(4)\n"
            "micro[9] mul.any 'b.mul.8': r c.mul.6 f32(4), r wb f32(4) -> w b.mul.8 f32(4)\n"
            "micro[10] mul.any 'b.mul.9': r c.mul.6 f32(4), r a f32(4) -> w grad.wb f32(4)\n"
            "micro[11] mul.any 'a.mul.10': r b.mul.8 f32(4), r x f32(4) -> w grad.wa f32(4)\n");
}

TEST_F(Clone, WhatIsKeptCountsAsSavedInBytesThatWereAnothers) {
  cloned({GALLEY_RECOMPUTE, GALLEY_KEEP, GALLEY_KEEP});
  ASSERT_EQ(run({alias}), "");
  const Instruction& b = c->program.segment(SegmentKind::Micro).code[1];
  ASSERT_EQ(b.outputs[0].tensor, b.inputs[0].tensor) << "b takes over the bytes of a, which is made again";
  EXPECT_EQ(c->program.tensors[static_cast<size_t>(b.outputs[0].tensor)].owner, Owner::Saved);
}

TEST_F(Clone, WhatIsMadeForEachBlockIsDroppedAtTheBlocksEnd) {
  EXPECT_EQ(cloned({GALLEY_RECOMPUTE_EACH, GALLEY_RECOMPUTE_EACH, GALLEY_KEEP}),
            "micro[0] mul.any 'a': r x f32(4), r wa f32(4) -> w a f32(4)\n"
            "micro[1] mul.any 'b': r a f32(4), r wb f32(4) -> w b f32(4)\n"
            "micro[2] mul.any 'c': r b f32(4), r wc f32(4) -> w c f32(4)\n"
            "micro[3] loss.any 'l': r c f32(4) -> w step scalars+640 f64(1)\n"
            "micro[4] mul.any 'l.mul.5': r c f32(4), r c f32(4) -> w l.mul.5 f32(4)\n"
            "micro[5] mul.any 'c.mul.6': r l.mul.5 f32(4), r wc f32(4) -> w c.mul.6 f32(4)\n"
            "micro[6] mul.any 'a' again: r x f32(4), r wa f32(4) -> w a f32(4)\n"
            "micro[7] mul.any 'b' again: r a f32(4), r wb f32(4) -> w b f32(4)\n"
            "micro[8] mul.any 'c.mul.7': r l.mul.5 f32(4), r b f32(4) -> w grad.wc f32(4)\n"
            "micro[9] mul.any 'b.mul.8': r c.mul.6 f32(4), r wb f32(4) -> w b.mul.8 f32(4)\n"
            "micro[10] mul.any 'a' again: r x f32(4), r wa f32(4) -> w a f32(4)\n"
            "micro[11] mul.any 'b.mul.9': r c.mul.6 f32(4), r a f32(4) -> w grad.wb f32(4)\n"
            "micro[12] mul.any 'a.mul.10': r b.mul.8 f32(4), r x f32(4) -> w grad.wa f32(4)\n");
  EXPECT_EQ(ran(), "");
}

TEST_F(Clone, WhatIsOffloadedComesBackOnceForABlock) {
  target.memories[1].computes = false;
  EXPECT_EQ(cloned({GALLEY_OFFLOAD_TO(1), GALLEY_RECOMPUTE, GALLEY_KEEP}),
            "micro[0] mul.any 'a': r x f32(4), r wa f32(4) -> w a f32(4)\n"
            "micro[1] copy 'copy of a': r a f32(4) -> w a@1 f32(4)\n"
            "micro[2] mul.any 'b': r a f32(4), r wb f32(4) -> w b f32(4)\n"
            "micro[3] mul.any 'c': r b f32(4), r wc f32(4) -> w c f32(4)\n"
            "micro[4] loss.any 'l': r c f32(4) -> w step scalars+640 f64(1)\n"
            "micro[5] mul.any 'l.mul.5': r c f32(4), r c f32(4) -> w l.mul.5 f32(4)\n"
            "micro[6] mul.any 'c.mul.6': r l.mul.5 f32(4), r wc f32(4) -> w c.mul.6 f32(4)\n"
            "micro[7] copy 'copy of a': r a@1 f32(4) -> w a f32(4)\n"
            "micro[8] mul.any 'b' again: r a f32(4), r wb f32(4) -> w b f32(4)\n"
            "micro[9] mul.any 'c.mul.7': r l.mul.5 f32(4), r b f32(4) -> w grad.wc f32(4)\n"
            "micro[10] mul.any 'b.mul.8': r c.mul.6 f32(4), r wb f32(4) -> w b.mul.8 f32(4)\n"
            "micro[11] copy 'copy of a': r a@1 f32(4) -> w a f32(4)\n"
            "micro[12] mul.any 'b.mul.9': r c.mul.6 f32(4), r a f32(4) -> w grad.wb f32(4)\n"
            "micro[13] mul.any 'a.mul.10': r b.mul.8 f32(4), r x f32(4) -> w grad.wa f32(4)\n");
  EXPECT_EQ(owner("a"), Owner::Activations);
  for (const size_t nth : {1u, 2u, 3u}) EXPECT_EQ(owner("a", nth), Owner::Saved) << "elsewhere, and what comes back";
  EXPECT_EQ(ran(), "");
}

TEST_F(Clone, CopiesOfOffloadedTensorsRunOnQueuesOfTheirOwn) {
  target.memories[1].computes = false;
  target.queues = {Queue::Compute, Queue::In, Queue::Out};
  const std::string text = cloned({GALLEY_OFFLOAD_TO(1), GALLEY_OFFLOAD_TO(1), GALLEY_OFFLOAD_TO(1)});
  EXPECT_NE(text.find("micro[1] record event 1 'record'\n"
                      "micro[2] wait queue 2 event 1 'wait'\n"
                      "micro[3] copy queue 2 event 2 'copy of a': r a f32(4) -> w a@1 f32(4)\n"
                      "micro[4] wait event 2 'wait'\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("copy queue 1 event 10 'copy of b': r b@1 f32(4) -> w b f32(4)\n"), std::string::npos) << text;
  EXPECT_EQ(ran(), "");
}

}  // namespace
}  // namespace galley::hand
