// Which nodes become one launch. The device "hand" has kernels for groups of any `square`, of `product` that read the same x, and of up to
// three `follows` with 256 bytes of workspace each, and for the chains add>square, full>add and (in groups too) product>full.
#include <algorithm>
#include <random>

#include "host/plan/plan.hpp"
#include "host/proofs/shadow.hpp"
#include "tests/passes/hand.hpp"

namespace galley::hand {
namespace {

class Fuse : public Hand {
 protected:
  Fuse() { options.purpose = Purpose::Evaluate; }
  void loss(galley_tensor of) { node("l", "loss", {of}, Section::Forward, {*draft.scalars.get(GALLEY_SCALAR_LOSS)}); }
  /// The kernels that eval runs.
  std::string kernels() const {
    std::string out;
    for (const Instruction& i : c->program.segment(SegmentKind::Eval).code)
      if (const Launch* launch = i.launch()) out += (out.empty() ? "" : " ") + std::string(launch->kernel->name);
    return out;
  }
  /// The nodes of eval's groups: "a b, c d".
  std::string groups() const {
    std::string out;
    for (const Instruction& i : c->program.segment(SegmentKind::Eval).code) {
      const Launch* launch = i.launch();
      if (!launch || launch->nodes.size() <= launch->links) continue;
      out += out.empty() ? "" : ", ";
      for (const LaunchNode& node : launch->nodes) out += (&node == launch->nodes.data() ? "" : " ") + node.name;
    }
    return out;
  }
  /// Whether an instruction is a launch of several nodes.
  static bool several(const Instruction& i) { return i.launch() && i.launch()->nodes.size() > 1; }
  const Instruction& first() const {
    for (const Instruction& i : c->program.segment(SegmentKind::Eval).code)
      if (several(i)) return i;
    return c->program.segment(SegmentKind::Eval).code.front();
  }
};

TEST_F(Fuse, NodesOfOneOpThatDoNotDependOnEachOtherAreAGroup) {
  const galley_tensor x = input("x"), y = input("y");
  loss(node("z", "mul", {node("sx", "square", {x}), node("sy", "square", {y})}));
  ASSERT_EQ(run({order, place, bind, fuse, alias}), "");
  EXPECT_EQ(kernels(), "square.group mul.any loss.any");
  EXPECT_EQ(first().name, "sx and 1 more");
  ASSERT_EQ(first().launch()->nodes.size(), 2u);
  EXPECT_EQ(first().launch()->nodes[1].name, "sy");
}

TEST_F(Fuse, OneLaunchHasTheConstantsOfAll) {
  const galley_tensor x = input("x"), y = input("y");
  loss(node("z", "mul", {node("lx", "look", {x}), node("ly", "look", {y})}));
  ASSERT_EQ(run({order, place, bind, fuse, alias}), "");
  EXPECT_EQ(kernels(), "look.tables mul.any loss.any");
  int64_t constants = 0;
  for (const ProgramTensor& t : c->program.tensors)
    if (t.name.starts_with("constants of ")) constants += t.bytes;
  EXPECT_EQ(constants, 128);
  ASSERT_NE(first().constants(), no_tensor);
  EXPECT_EQ(c->program.tensors[static_cast<size_t>(first().constants())].bytes, 128);
}

TEST_F(Fuse, OperandsInFormatsKeepTheirComponents) {
  const galley_tensor w = parameter("w"), v = parameter("v");
  for (const galley_tensor p : {w, v}) graph.tensor(p).storage.format = "pair";
  options.purpose = Purpose::Train;
  options.exports = options.evaluates = false;
  const galley_tensor g = input("g");
  train({w, v});
  node("sw", "step", {w, g}, Section::Update, {});
  node("sv", "step", {v, g}, Section::Update, {});
  ASSERT_EQ(run({order, place, bind, fuse, alias}), "");
  const Segment& update = c->program.segment(SegmentKind::Update);
  ASSERT_EQ(update.code.size(), 1u);
  const Instruction& both = update.code.front();
  const std::vector<LaunchNode>& nodes = both.launch()->nodes;
  EXPECT_EQ(std::string(both.launch()->kernel->name), "step.pairs");
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(both.inputs.size(), nodes[0].inputs.count + nodes[1].inputs.count + 4);
  const auto name = [&](const Operand& o) { return c->program.tensors[static_cast<size_t>(o.tensor)].name; };
  for (const size_t node : {size_t{0}, size_t{1}}) {
    ASSERT_EQ(nodes[node].inputs.count, 2u);
    const Operand& p = both.inputs_of(nodes[node])[0];
    ASSERT_TRUE(p.format);
    EXPECT_EQ(name(both.inputs[p.format->first]), node ? "v.halves" : "w.halves");
    EXPECT_EQ(name(both.inputs[p.format->first + 1]), node ? "v.scale" : "w.scale");
  }
}

TEST_F(Fuse, WhatReadsTheFirstOneStaysBehindIt) {
  const galley_tensor sx = node("sx", "square", {input("x")});
  loss(node("sy", "square", {node("y", "mul", {sx, sx})}));
  ASSERT_EQ(run({order, place, bind, fuse, alias}), "");
  EXPECT_EQ(kernels(), "square.any mul.any square.any loss.any");
}

TEST_F(Fuse, WhatNothingElseReadsHasNoMemory) {
  const galley_tensor x = input("x");
  loss(node("q", "square", {node("s", "add", {x, x})}));
  ASSERT_EQ(run({order, place, bind, fuse, alias}), "");
  EXPECT_EQ(kernels(), "add.square loss.any");
  const Instruction& chain = first();
  EXPECT_EQ(op_text(*chain.launch()), "add>square");
  EXPECT_FALSE(chain.outputs[0].present());
  EXPECT_FALSE(chain.inputs[2].present());
  EXPECT_EQ(chain.outputs[0].inner, chain.inputs[2].inner);
  EXPECT_EQ(chain.inputs[2].shape, Shape{4});
  for (const ProgramTensor& t : c->program.tensors) EXPECT_NE(t.name, "s");
  EXPECT_EQ(c->program.kernels, (std::vector<Program::Chosen>{{"add>square", "add.square", "hand"}, {"loss", "loss.any", "hand"}}));
}

TEST_F(Fuse, AKernelOfOneNodeThatWantsToGoFirstDoes) {
  // Of sixteen numbers there is a kernel of `full` with a priority of a million, which the chain full>add does not have.
  const galley_tensor few = input("few", {4}), many = input("many", {16});
  loss(node("b", "add", {node("a", "full", {few}), few}));
  loss(node("d", "add", {node("c", "full", {many}), many}));
  ASSERT_EQ(run({order, place, bind, fuse, alias}), "");
  EXPECT_EQ(kernels(), "full.add loss.any full.sixteen add.a loss.any");
}

TEST_F(Fuse, WhatIsReadLaterIsWritten) {
  const galley_tensor x = input("x"), s = node("s", "add", {x, x});
  loss(node("q", "square", {s}));
  loss(node("m", "mul", {s, x}));
  ASSERT_EQ(run({order, place, bind, fuse, alias}), "");
  EXPECT_EQ(kernels(), "add.square loss.any mul.any loss.any");
  EXPECT_TRUE(first().outputs[0].present());
  EXPECT_EQ(first().outputs[0].tensor, first().inputs[2].tensor);
  EXPECT_EQ(first().outputs[0].inner, 0u);
  EXPECT_EQ(first().inputs[2].inner, 1u);
}

TEST_F(Fuse, NodesThatReadTheSameAreOfferedBeforeOthersJoin) {
  // All five are independent, and the kernel takes none together that read different x.
  const galley_tensor x = input("x"), y = input("y"), w = parameter("w");
  const galley_tensor a = node("a", "product", {x, w}), b = node("b", "product", {y, w}), d = node("d", "product", {x, w});
  const galley_tensor e = node("e", "product", {y, w}), f = node("f", "product", {x, w});
  loss(node("s", "mul", {a, b}));
  loss(node("t", "mul", {d, e}));
  loss(f);
  ASSERT_EQ(run({order, place, bind, fuse, alias}), "");
  EXPECT_EQ(kernels(), "product.group product.group mul.any loss.any mul.any loss.any loss.any");
  EXPECT_EQ(groups(), "a d f, b e");
}

TEST_F(Fuse, RowsOfOneTensorAreNotTheSame) {
  // Three chunks of the head read other rows each; the tensor has one name.
  Instruction three;
  std::vector<LaunchNode>& nodes = three.launch()->nodes;
  nodes.clear();
  ProgramTensor x;
  x.name = "x";
  x.bytes = 48;
  c->program.tensors = {x};
  for (size_t k = 0; k < 3; ++k) {
    Operand rows;
    rows.tensor = 0;
    rows.offset = k == 2 ? 16 : 0;
    rows.shape = {4};
    three.inputs.insert(three.inputs.end(), {rows, rows});
    three.outputs.push_back(rows);
    nodes.push_back({std::to_string(k), op("product"), {}, 0, 0, -1, {2 * k, 2}, {k, 1}});
  }
  const auto asked = [&] { return std::string((*c->kernels.choose(three, c->program.tensors))->refusals); };
  EXPECT_NE(asked().find("product.group: different x"), std::string::npos) << asked();
  three.inputs[4].offset = 0;
  EXPECT_EQ(asked(), "") << "the answer is not that to a question of the same shapes";
}

TEST_F(Fuse, HalvesOfAGroupThatNoKernelTakes) {
  const galley_tensor x = input("x");
  for (const char* name : {"a", "b", "c", "d", "e"}) loss(node(name, "follows", {x}));
  loss(node("wide", "copy", {input("y", {1000})}));
  ASSERT_EQ(run({order, place, bind, fuse, alias}), "");
  EXPECT_EQ(groups(), "a b c, d e");
}

TEST_F(Fuse, HalvesOfAGroupWhoseWorkspaceHasNoRoom) {
  // 3 · 64 bytes and 3 · 256 of workspace are more than what lives at most, 2 · 64 and 2 · 256 are not.
  const galley_tensor x = input("x"), y = input("y", {176});
  for (const char* name : {"a", "b", "c"}) loss(node(name, "follows", {x}));
  loss(node("wide", "copy", {y}));
  ASSERT_EQ(run({order, place, bind, fuse, alias}), "");
  EXPECT_EQ(groups(), "a b");
  EXPECT_EQ(kernels(), "follows.group loss.any loss.any follows.any loss.any copy.writes loss.any");
}

TEST_F(Fuse, WhatHasNoRoomStaysApart) {
  const galley_tensor x = input("x", {64});
  loss(node("a", "follows", {x}));
  loss(node("b", "follows", {x}));
  ASSERT_EQ(run({order, place, bind, fuse, alias}), "");
  EXPECT_EQ(groups(), "") << "b would live beside a";
}

// ---- Random graphs -----------------------------------------------------------------------------------------------------------------

/// A model over tensors of five sizes; backward keeps, makes again or brings back what it reads.
class RandomGraph : public Hand {
 public:
  explicit RandomGraph(uint64_t seed) : random_(seed) {
    target.memories[1].computes = false;
    target.memories[1].alignment = 512;
    target.memories[1].in_bandwidth = target.memories[1].out_bandwidth = 1e9;
    if (one_of(2)) target.queues = {Queue::Compute, Queue::In, Queue::Out};
    c->decisions.micro_batches = one_of(2) ? 1 : 3;
    std::vector<galley_tensor> parameters;
    for (const int64_t count : {40, 250, 400, 700, 1000}) {
      const std::string size = std::to_string(count);
      parameters.push_back(parameter("w" + size, {count}));
      const galley_tensor x = input("x" + size, {count});
      made_.push_back({x, parameters.back(), node("y" + size, "product", {x, parameters.back()})});
    }
    for (size_t k = 0, nodes = 10 + one_of(50); k < nodes; ++k) {
      std::vector<galley_tensor>& same = made_[one_of(made_.size())];
      const std::string name = "n" + std::to_string(k);
      const auto any = [&] {
        const size_t at = one_of(same.size() - 1);
        return same[at ? at + 1 : 0];  // no node reads the parameter twice
      };
      galley_tensor y = 0;
      switch (one_of(7)) {
        case 0: y = node(name, "add", {any(), any()}); break;
        case 1: y = node(name, "mul", {any(), any()}); break;
        case 2: y = node(name, "full", {any()}); break;
        case 3: node(name, "square", {any()}); continue;
        case 4: node(name, "follows", {same[0]}); continue;
        default: y = node(name, "product", {any(), same[1]}); break;
      }
      graph.node(graph.tensor(y).producer).block = static_cast<int64_t>(k / 8);
      same.push_back(y);
    }
    const galley_tensor loss = *draft.scalars.get(GALLEY_SCALAR_LOSS);
    for (const auto& same : made_) {
      const std::string size = std::to_string(graph.tensor(same[0]).shape[0]);
      const galley_tensor last = node("last" + size, "product", {same.back(), same[1]});
      node("loss" + size, "loss", {last}, Section::Forward, {loss}, {same != made_.front()});
    }
    train(parameters);
    asked = static_cast<uint32_t>(one_of(2));
    use("peaks", {{"share", 0.7}, {"each", 0.5}, {"offload", 0.35}, {"memory", int64_t{asked}}, {"seed", static_cast<int64_t>(seed)}});
  }
  void TestBody() override {}
  using Hand::c, Hand::run, Hand::target;

  uint32_t asked = 0;  ///< the memory class whose peak a strategy asks for
  std::string answered;

  size_t one_of(size_t n) { return random_() % n; }
  /// "" or what is wrong.
  std::string prepare() {
    if (const std::string wrong = run({differentiate}) + verified(); !wrong.empty()) return wrong;
    testing::internal::CaptureStderr();
    const std::string wrong = run({order, place, bind, decide});
    answered = testing::internal::GetCapturedStderr();
    if (!wrong.empty()) return wrong;
    return run({clone});
  }
  std::string shadow() { return cause(check_plan(c->program, make_plan(c->program, target), target)); }

 private:
  std::mt19937_64 random_;
  std::vector<std::vector<galley_tensor>> made_;  ///< by size; input and parameter first
};

TEST(FuseRandom, NoPeakIsHigherAndTheProgramIsValid) {
  size_t groups = 0, chains = 0, again = 0, elsewhere = 0, given_up = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    RandomGraph g(seed);
    SCOPED_TRACE("seed " + std::to_string(seed));
    ASSERT_EQ(g.prepare(), "");
    const Program cloned = g.c->program;
    const auto planned = [&](const std::vector<Status (*)(Compilation&)>& passes) {
      g.c->program = cloned;
      EXPECT_EQ(g.run(passes), "");
      std::vector<int64_t> out;
      for (const auto& memory : make_plan(g.c->program, g.target).classes) out.push_back(memory.planned);
      return out;
    };
    const std::vector<int64_t> apart = planned({alias}), joined = planned({fuse, alias});
    for (size_t memory = 0; memory < apart.size(); ++memory)
      EXPECT_LE(joined[memory], apart[memory] + apart[memory] / 1024) << "class " << memory;
    EXPECT_EQ(g.answered, "peaks: " + std::to_string(joined[g.asked]) + "\n");
    EXPECT_EQ(g.shadow(), "");
    const size_t before = groups + chains;
    for (const Instruction& i : g.c->program.segment(SegmentKind::Micro).code) {
      const Launch* launch = i.launch();
      if (!launch) continue;
      groups += launch->nodes.size() > launch->links;
      chains += launch->links > 1;
      again += launch->nodes.size() > 1 && i.recomputed;
    }
    given_up += groups + chains == before;
    elsewhere += apart[1] > 0;
    EXPECT_EQ(g.run({overlap}), "");
    EXPECT_EQ(g.shadow(), "");
  }
  EXPECT_GT(groups, 1000u);
  EXPECT_GT(chains, 300u);
  EXPECT_GT(again, 100u);
  EXPECT_GT(elsewhere, 150u);
  EXPECT_LT(given_up, 10u) << "room is looked for before it is taken";
}

/// What a launch reads of the micro-batch it runs in, where another instruction has first made it.
std::vector<std::pair<size_t, TensorId>> made_before(const Program& program, size_t launch) {
  const auto& code = program.segment(SegmentKind::Micro).code;
  std::vector<std::pair<size_t, TensorId>> out;
  for (const Operand& o : code[launch].inputs) {
    if (!o.present() || o.inner || program.tensors[static_cast<size_t>(o.tensor)].life != Life::Segment) continue;
    const auto writes = [&](const Instruction& i) {
      return std::ranges::any_of(i.outputs, [&](const Operand& made) { return made.tensor == o.tensor; });
    };
    const auto maker = std::find_if(code.begin(), code.end(), writes);
    if (maker != code.end()) out.emplace_back(maker - code.begin(), o.tensor);
  }
  return out;
}

TEST(FuseRandom, TheShadowRejectsMutants) {
  size_t too_early = 0, not_made = 0, dependent = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    RandomGraph g(seed);
    ASSERT_EQ(g.prepare(), "");
    ASSERT_EQ(g.run({fuse}), "");
    const Program good = g.c->program;
    const auto rejected = [&](const Program& program) { return !check_plan(program, make_plan(program, g.target), g.target).ok(); };
    ASSERT_FALSE(rejected(good));
    const auto& code = good.segment(SegmentKind::Micro).code;
    for (size_t launch = 0; launch < code.size(); ++launch) {
      const Launch* reads = code[launch].launch();
      if (!reads || reads->nodes.size() == 1) continue;
      for (const auto& [maker, tensor] : made_before(good, launch)) {
        SCOPED_TRACE("seed " + std::to_string(seed) + ", '" + code[launch].name + "' reads '" +
                     good.tensors[static_cast<size_t>(tensor)].name + "'");
        Program program = good;
        auto& mutant = program.segment(SegmentKind::Micro).code;
        const auto at = [&](size_t i) { return mutant.begin() + static_cast<std::ptrdiff_t>(i); };
        std::rotate(at(maker), at(launch), at(launch + 1));
        EXPECT_TRUE(rejected(program)) << "before it is made";
        ++too_early;
        program = good;
        for (Operand& o : mutant[maker].outputs)
          if (o.tensor == tensor) o.tensor = no_tensor;
        EXPECT_TRUE(rejected(program)) << "which has no memory where it is made";
        ++not_made;
        program = good;
        const Launch* makes = code[maker].launch();
        if (!makes || makes->links != reads->links) continue;
        for (const LaunchNode& n : makes->nodes) {
          LaunchNode& added = mutant[launch].launch()->nodes.emplace_back(n);
          added.inputs.first += code[launch].inputs.size();
          added.outputs.first += code[launch].outputs.size();
        }
        mutant[launch].inputs.insert(mutant[launch].inputs.end(), code[maker].inputs.begin(), code[maker].inputs.end());
        mutant[launch].outputs.insert(mutant[launch].outputs.end(), code[maker].outputs.begin(), code[maker].outputs.end());
        mutant.erase(at(maker));
        EXPECT_TRUE(rejected(program)) << "in the launch that makes it";
        ++dependent;
      }
    }
  }
  EXPECT_GT(too_early, 100u);
  EXPECT_GT(not_made, 100u);
  EXPECT_GT(dependent, 100u);
}

}  // namespace
}  // namespace galley::hand
