// What a run begins with: values that nodes make of files and first values, and nothing that nobody reads.
#include <algorithm>

#include "host/passes/place/components.hpp"
#include "host/plugins/isa.hpp"
#include "tests/passes/hand.hpp"

namespace galley::hand {
namespace {

class Load : public Hand {
 protected:
  Load() {
    x = input("x");
    w = parameter("w");
    options.purpose = Purpose::Evaluate;
  }
  void model(galley_tensor of) {
    node("l", "loss", {node("y", "mul", {x, of})}, Section::Forward, {*draft.scalars.get(GALLEY_SCALAR_LOSS)});
  }
  galley_tensor made(const std::string& name, const char* op, std::vector<galley_tensor> inputs) {
    return node(name, op, std::move(inputs), Section::Load);
  }
  void begins(galley_tensor t, galley_tensor value, uint32_t component = GALLEY_BEGIN_NUMBERS) {
    draft.beginnings[t][component] = {value, no_use};
  }
  galley_tensor initialized(const std::string& name, uint32_t kind, galley_tensor from) {
    const galley_tensor t = tensor(name, {4}, kind);
    graph.tensor(t).initial = {"hand_copy", {from}, {}};
    return t;
  }
  void from_file(galley_tensor t) { graph.tensor(t).source.path = "model"; }
  /// The load segment, or what is wrong.
  std::string loaded() {
    const std::string wrong = run({load, order, place});
    return wrong.empty() ? code(SegmentKind::Load) : wrong;
  }
  galley_tensor x, w;
};

TEST_F(Load, NodesReadWhatTheFileSaysAndMakeWhatTheParameterBeginsAs) {
  model(w);
  from_file(w);
  begins(w, made("twice", "add", {w, w}));
  EXPECT_EQ(loaded(),
            "load[0] read 'read first w' entry 'w' -> w first w f32(4), w staging u8(1048576)\n"
            "load[1] add 'twice': r first w f32(4), r first w f32(4) -> w twice f32(4)\n"
            "load[2] copy 'begin w': r twice f32(4) -> w w f32(4)\n");
  EXPECT_EQ(verified(), "");
}

TEST_F(Load, OrWhatTheInitializerSays) {
  model(w);
  begins(w, made("twice", "add", {w, w}));
  EXPECT_EQ(loaded(),
            "load[0] fill 'init w' -> w first w f32(4)\n"
            "load[1] add 'twice': r first w f32(4), r first w f32(4) -> w twice f32(4)\n"
            "load[2] copy 'begin w': r twice f32(4) -> w w f32(4)\n");
}

TEST_F(Load, AFileThatNobodyReadsIsKnownOnly) {
  model(w);
  from_file(w);
  begins(w, node("zeros", "fill", {}, Section::Load, {tensor("zeros", {4}, GALLEY_KIND_TRANSIENT)}));
  EXPECT_EQ(loaded(),
            "load[0] fill 'zeros' -> w zeros f32(4)\n"
            "load[1] copy 'begin w': r zeros f32(4) -> w w f32(4)\n");
}

TEST_F(Load, WhatFollowsFromAParameterFollowsFromWhatItBeginsAs) {
  const galley_tensor c1 = initialized("c1", GALLEY_KIND_CONSTANT, w);
  model(node("sum", "add", {w, c1}));
  begins(w, made("twice", "add", {w, w}));
  EXPECT_EQ(loaded(),
            "load[0] fill 'init w' -> w first w f32(4)\n"
            "load[1] add 'twice': r first w f32(4), r first w f32(4) -> w twice f32(4)\n"
            "load[2] copy 'begin w': r twice f32(4) -> w w f32(4)\n"
            "load[3] hand_copy 'init c1': r w f32(4) -> w c1 f32(4)\n");
}

TEST_F(Load, WhatCanBeginDoesAtOnce) {
  const galley_tensor v = parameter("v");
  model(node("sum", "add", {w, v}));
  const galley_tensor part = made("part", "add", {w, w});
  begins(v, part);
  begins(w, made("rest", "mul", {w, part}));
  EXPECT_EQ(loaded(),
            "load[0] fill 'init w' -> w first w f32(4)\n"
            "load[1] add 'part': r first w f32(4), r first w f32(4) -> w part f32(4)\n"
            "load[2] copy 'begin v': r part f32(4) -> w v f32(4)\n"
            "load[3] mul 'rest': r first w f32(4), r part f32(4) -> w rest f32(4)\n"
            "load[4] copy 'begin w': r rest f32(4) -> w w f32(4)\n");
}

TEST_F(Load, WhatIsMadeOfTheSameComesNext) {
  const galley_tensor v = parameter("v"), of_w = parameter("of w"), of_v = parameter("of v");
  from_file(v);
  model(node("sum", "add", {node("one", "add", {w, of_w}), node("two", "add", {v, of_v})}));
  begins(of_w, made("part of w", "add", {w, w}));
  begins(w, made("less of w", "mul", {w, w}));
  begins(of_v, made("part of v", "add", {v, v}));
  begins(v, made("less of v", "mul", {v, v}));
  EXPECT_EQ(loaded(),
            "load[0] fill 'init w' -> w first w f32(4)\n"
            "load[1] mul 'less of w': r first w f32(4), r first w f32(4) -> w less of w f32(4)\n"
            "load[2] copy 'begin w': r less of w f32(4) -> w w f32(4)\n"
            "load[3] add 'part of w': r first w f32(4), r first w f32(4) -> w part of w f32(4)\n"
            "load[4] copy 'begin of w': r part of w f32(4) -> w of w f32(4)\n"
            "load[5] read 'read first v' entry 'v' -> w first v f32(4), w staging u8(1048576)\n"
            "load[6] mul 'less of v': r first v f32(4), r first v f32(4) -> w less of v f32(4)\n"
            "load[7] copy 'begin v': r less of v f32(4) -> w v f32(4)\n"
            "load[8] add 'part of v': r first v f32(4), r first v f32(4) -> w part of v f32(4)\n"
            "load[9] copy 'begin of v': r part of v f32(4) -> w of v f32(4)\n");
}

TEST_F(Load, WhatOnlyLoadingReadsHasNoMemoryAfterwards) {
  from_file(w);
  const galley_tensor v = initialized("v", GALLEY_KIND_PARAMETER, w);
  model(v);
  EXPECT_EQ(loaded(),
            "load[0] read 'read first w' entry 'w' -> w first w f32(4), w staging u8(1048576)\n"
            "load[1] hand_copy 'init v': r first w f32(4) -> w v f32(4)\n");
  for (const ProgramTensor& t : c->program.tensors) {
    EXPECT_NE(t.name, "w");
    if (t.name == "first w") {
      EXPECT_EQ(t.life, Life::Segment);
    }
  }
  EXPECT_EQ(c->program.parameters, 4);
}

TEST_F(Load, WhatNobodyReadsIsNotLoaded) {
  const galley_tensor v = parameter("v");
  initialized("c1", GALLEY_KIND_CONSTANT, v);
  from_file(v);
  graph.tensor(v).source.aliases = {"also v"};
  model(w);
  EXPECT_EQ(loaded(), "load[0] fill 'init w' -> w w f32(4)\n");
  ASSERT_EQ(c->program.unread.size(), 1u);
  EXPECT_EQ(c->program.unread[0].file, "model");
  EXPECT_EQ(c->program.unread[0].names, (std::vector<std::string>{"v", "also v"}));
}

TEST_F(Load, WhatIsSavedIsKept) {
  const galley_tensor v = parameter("v");
  model(w);
  options.purpose = Purpose::Export;
  EXPECT_EQ(loaded(), "load[0] fill 'init w' -> w w f32(4)\nload[1] fill 'init v' -> w v f32(4)\n");
  draft.exports.values.push_back({v, node("twice", "add", {w, w}, Section::Export)});
  c->program = {};
  c->orders = {};
  EXPECT_EQ(loaded(), "load[0] fill 'init w' -> w w f32(4)\n") << "something else is saved in its place";
}

TEST_F(Load, NothingBeginsAsWhatIsMadeOfIt) {
  const galley_tensor v = initialized("v", GALLEY_KIND_PARAMETER, w);
  model(node("sum", "add", {w, v}));
  begins(w, made("twice", "add", {v, v}));
  EXPECT_EQ(loaded(), "'w' is to begin as what is made from it");
}

/// A format has components, each of which may begin as something.
class LoadPacked : public Load {
 protected:
  LoadPacked() {
    model(w);
    graph.tensor(w).storage.format = "pair";
  }
  void component(uint32_t k, Shape shape, uint32_t dtype) {
    const Graph::As as(graph, {Section::Load});
    GraphTensor t;
    t.name = "value " + std::to_string(k);
    t.shape = std::move(shape);
    t.dtype = dtype;
    t.kind = GALLEY_KIND_FILE;
    t.source.path = "model";
    t.source.name = "packed." + std::to_string(k);
    begins(w, graph.make(std::move(t)).value(), k);
  }
};

TEST_F(LoadPacked, EachComponent) {
  component(1, {1}, GALLEY_F32);
  component(0, {4}, GALLEY_I16);
  EXPECT_EQ(loaded(),
            "load[0] read 'read value 0' entry 'packed.0' -> w value 0 i16(4), w staging u8(1048576)\n"
            "load[1] read 'read value 1' entry 'packed.1' -> w value 1 f32(1), w staging u8(1048576)\n"
            "load[2] copy 'begin w': r value 0 i16(4) -> w w.halves i16(4)\n"
            "load[3] copy 'begin w': r value 1 f32(1) -> w w.scale f32(1)\n");
}

TEST_F(LoadPacked, ItsNumbersArePacked) {
  begins(w, made("twice", "add", {w, w}));
  EXPECT_EQ(loaded(),
            "load[0] fill 'init w' -> w first w f32(4)\n"
            "load[1] add 'twice': r first w f32(4), r first w f32(4) -> w twice f32(4)\n"
            "load[2] pair_pack 'pack w': r twice f32(4) -> w w.halves i16(4), w w.scale f32(1)\n");
}

/// What 16 bits keep of a number is not what nodes read of the tensor: that is its first value.
TEST_F(LoadPacked, NodesReadTheFirstValue) {
  const galley_tensor v = parameter("v");
  model(node("sum", "add", {w, v}));
  begins(v, made("twice", "add", {w, w}));
  EXPECT_EQ(loaded(),
            "load[0] fill 'init w' -> w first w f32(4)\n"
            "load[1] pair_pack 'pack w': r first w f32(4) -> w w.halves i16(4), w w.scale f32(1)\n"
            "load[2] add 'twice': r first w f32(4), r first w f32(4) -> w twice f32(4)\n"
            "load[3] copy 'begin v': r twice f32(4) -> w v f32(4)\n");
}

TEST_F(LoadPacked, WhatIsLeftOfAValue) {
  const galley_tensor v = parameter("v");
  model(node("sum", "add", {w, v}));
  const galley_tensor twice = made("twice", "add", {w, w});
  const Result<galley_tensor> left = [&] {
    const Graph::As as(graph, {Section::Load});
    return pack_and_unpack(graph, *plugins, w, twice);
  }();
  ASSERT_TRUE(left.ok()) << left.error().cause;
  begins(v, *left);
  EXPECT_EQ(loaded(),
            "load[0] fill 'init w' -> w first w f32(4)\n"
            "load[1] pair_pack 'pack w': r first w f32(4) -> w w.halves i16(4), w w.scale f32(1)\n"
            "load[2] add 'twice': r first w f32(4), r first w f32(4) -> w twice f32(4)\n"
            "load[3] pair_pack 'pack twice': r twice f32(4) -> w packed twice.halves i16(4), w packed twice.scale f32(1)\n"
            "load[4] pair_unpack 'unpack w': r packed twice.halves i16(4), r packed twice.scale f32(1) -> w stored twice f32(4)\n"
            "load[5] copy 'begin v': r stored twice f32(4) -> w v f32(4)\n");
}

TEST_F(LoadPacked, AllOfThem) {
  component(0, {4}, GALLEY_I16);
  EXPECT_EQ(loaded(), "'w' has 2 components in format 'pair', and 1 of them begin as something");
}

TEST_F(LoadPacked, AsTheFormatHasThem) {
  component(0, {4}, GALLEY_I16);
  component(1, {2}, GALLEY_F32);
  EXPECT_EQ(loaded(), "component 1 of 'w' is f32(1) in format 'pair', but 'value 1' is f32(2)");
}

TEST_F(LoadPacked, NotWithoutAFormat) {
  graph.tensor(w).storage.format.clear();
  component(0, {4}, GALLEY_I16);
  EXPECT_EQ(loaded(), "'w' is to begin as 'value 0', component 0 of its format, and it is in none");
}

// ---- What the host computes ---------------------------------------------------------------------------------------------------------

/// For a device in whose memory the host cannot reach.
class LoadBeside : public Load {
 protected:
  LoadBeside() { target.memories = {{"device", 64, false, true}, {"pinned", 64, true, false}}; }
};

TEST_F(LoadBeside, TheHostHasCopiesOfWhatTheDeviceHas) {
  model(w);
  from_file(w);
  begins(w, made("rest", "mul", {w, made("part", "decompose", {w})}));
  EXPECT_EQ(loaded(),
            "load[0] read 'read first w' entry 'w' -> w first w f32(4), w staging@1 u8(1048576)\n"
            "load[1] copy 'copy of first w': r first w f32(4) -> w first w on host@1 f32(4)\n"
            "load[2] decompose 'part' on the host: r first w on host@1 f32(4) -> w part on host@1 f32(4)\n"
            "load[3] copy 'copy of part on host': r part on host@1 f32(4) -> w part f32(4)\n"
            "load[4] mul 'rest': r first w f32(4), r part f32(4) -> w rest f32(4)\n"
            "load[5] copy 'begin w': r rest f32(4) -> w w f32(4)\n");
  EXPECT_EQ(verified(), "");
}

TEST_F(LoadBeside, WhatOnlyTheHostTouchesLiesThere) {
  const galley_tensor v = parameter("v");
  model(v);
  from_file(w);
  begins(v, made("second", "decompose", {made("first", "decompose", {w})}));
  EXPECT_EQ(loaded(),
            "load[0] read 'read first w' entry 'w' -> w first w@1 f32(4), w staging@1 u8(1048576)\n"
            "load[1] decompose 'first' on the host: r first w@1 f32(4) -> w first@1 f32(4)\n"
            "load[2] decompose 'second' on the host: r first@1 f32(4) -> w second on host@1 f32(4)\n"
            "load[3] copy 'copy of second on host': r second on host@1 f32(4) -> w second f32(4)\n"
            "load[4] copy 'begin v': r second f32(4) -> w v f32(4)\n");
  EXPECT_EQ(verified(), "");
}

TEST_F(LoadBeside, WhatIsUpdatedInPlaceComesBack) {
  const galley_tensor v = parameter("v"), one = tensor("one", {4}, GALLEY_KIND_TRANSIENT),
                      kept = tensor("kept", {4}, GALLEY_KIND_TRANSIENT);
  model(v);
  node("ones", "fill", {}, Section::Load, {one});
  node("zeros", "fill", {}, Section::Load, {kept});
  begins(v, made("sum", "add", {made("part", "decompose", {one, kept}), kept}));
  EXPECT_EQ(loaded(),
            "load[0] fill 'ones' -> w one f32(4)\n"
            "load[1] fill 'zeros' -> w kept f32(4)\n"
            "load[2] copy 'copy of one': r one f32(4) -> w one on host@1 f32(4)\n"
            "load[3] copy 'copy of kept': r kept f32(4) -> w kept on host@1 f32(4)\n"
            "load[4] decompose 'part' on the host: r one on host@1 f32(4), rw kept on host@1 f32(4) -> w part on host@1 f32(4)\n"
            "load[5] copy 'copy of kept on host': r kept on host@1 f32(4) -> w kept f32(4)\n"
            "load[6] copy 'copy of part on host': r part on host@1 f32(4) -> w part f32(4)\n"
            "load[7] add 'sum': r part f32(4), r kept f32(4) -> w sum f32(4)\n"
            "load[8] copy 'begin v': r sum f32(4) -> w v f32(4)\n");
}

TEST_F(LoadBeside, KernelsAndWorkspacesAreTheProcessors) {
  const galley_tensor v = parameter("v");
  model(node("sum", "add", {w, v}));
  begins(v, made("b", "decompose", {w}));
  begins(w, made("a", "decompose", {w}));
  // For the device, there is a kernel of groups.
  ASSERT_EQ(run({load, order, place, bind, fuse, alias}), "");
  int found = 0;
  for (const Instruction& i : c->program.segment(SegmentKind::Load).code) {
    if (!i.launch() || i.launch()->op() != op("decompose")) continue;
    EXPECT_STREQ(i.launch()->kernel->name, "decompose.cpu");
    ASSERT_NE(i.workspace(), no_tensor);
    const ProgramTensor& workspace = c->program.tensors[static_cast<size_t>(i.workspace())];
    EXPECT_EQ(workspace.memory, 1u);
    EXPECT_EQ(workspace.bytes, 64);
    ++found;
  }
  EXPECT_EQ(found, 2);
  EXPECT_EQ(std::ranges::count(c->program.kernels, Program::Chosen{"decompose", "decompose.cpu", "hand"}), 1);
}

TEST_F(LoadBeside, WithoutAKernelForTheProcessor) {
  model(w);
  begins(w, made("part", "no_decompose", {w}));
  EXPECT_EQ(run({load, order, place, bind}), "no kernel of device 'cpu' (" + cpu_isa() +
                                                 ") does op 'no_decompose' of node 'part' on (4), which the host computes while it loads");
}

TEST_F(Load, ADeviceInWhoseMemoryTheHostReachesNeedsNoCopies) {
  model(w);
  begins(w, made("part", "decompose", {w}));
  EXPECT_EQ(loaded(),
            "load[0] fill 'init w' -> w first w f32(4)\n"
            "load[1] decompose 'part' on the host: r first w f32(4) -> w part f32(4)\n"
            "load[2] copy 'begin w': r part f32(4) -> w w f32(4)\n");
}

TEST_F(Load, TheProcessorIsTheDevice) {
  target.device = "cpu";
  model(w);
  begins(w, made("part", "decompose", {w}));
  EXPECT_EQ(loaded(),
            "load[0] fill 'init w' -> w first w f32(4)\n"
            "load[1] decompose 'part': r first w f32(4) -> w part f32(4)\n"
            "load[2] copy 'begin w': r part f32(4) -> w w f32(4)\n");
}

}  // namespace
}  // namespace galley::hand
