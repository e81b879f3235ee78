// Where tensors lie, and what is done before and after a node whose tensors lie elsewhere or in a format.
#include <unistd.h>

#include <filesystem>

#include "host/base/safetensors.hpp"
#include "tests/passes/hand.hpp"

namespace galley::hand {
namespace {

class Place : public Hand {
 protected:
  Place() {
    x = input("x");
    w = parameter("w");
  }
  galley_tensor loss(galley_tensor of) { return node("l", "loss", {of}, Section::Forward, {*draft.scalars.get(GALLEY_SCALAR_LOSS)}); }
  /// y = x · w, trained, with a step that updates w in place.
  void trained() {
    loss(node("y", "mul", {x, w}));
    train({w});
    options.purpose = Purpose::Train;
    options.exports = false;
    ASSERT_EQ(cause(differentiate(*c)), "");
    node("s", "step", {w, graph.tensor(w).gradient}, Section::Update, {});
  }
  const ProgramTensor& tensor_called(const std::string& name) const {
    for (const ProgramTensor& t : c->program.tensors)
      if (t.name == name) return t;
    ADD_FAILURE() << name << " is not in the program";
    static const ProgramTensor none;
    return none;
  }
  galley_tensor x, w;
};

TEST_F(Place, AnInstructionForEachItemAndNoKernelYet) {
  loss(node("y", "mul", {x, w}));
  train({w});
  ASSERT_EQ(run({differentiate, order, place}), "");
  EXPECT_EQ(code(SegmentKind::Load), "load[0] fill 'init w' -> w w f32(4)\n");
  EXPECT_EQ(code(SegmentKind::Micro),
            "micro[0] mul 'y': r x f32(4), r w f32(4) -> w y f32(4)\n"
            "micro[1] loss 'l': r y f32(4) -> w step scalars+640 f64(1)\n"
            "micro[2] mul 'l.mul.3': r y f32(4), r y f32(4) -> w l.mul.3 f32(4)\n"
            "micro[3] mul 'y.mul.4': r l.mul.3 f32(4), r x f32(4) -> w grad.w f32(4)\n");
  for (const Instruction& i : c->program.segment(SegmentKind::Micro).code) EXPECT_TRUE(!i.launch() || !i.launch()->kernel);
  EXPECT_EQ(c->micro.begin, (std::vector<uint32_t>{0, 1, 2, 3, 4}));
}

TEST_F(Place, LivesAndOwners) {
  loss(node("y", "mul", {x, w}));
  train({w});
  ASSERT_EQ(run({differentiate, order, place}), "");
  const auto is = [&](const char* name, Owner owner, Life life) {
    EXPECT_EQ(tensor_called(name).owner, owner) << name;
    EXPECT_EQ(tensor_called(name).life, life) << name;
  };
  is("x", Owner::Data, Life::Run);
  is("w", Owner::Weights, Life::Run);
  is("grad.w", Owner::Gradients, Life::Window);
  is("y", Owner::Activations, Life::Segment);
  EXPECT_EQ(c->program.trained.size(), 1u);
  EXPECT_EQ(c->program.resume.size(), 1u);
  EXPECT_TRUE(c->program.frozen.empty());
}

TEST_F(Place, LaterMicroBatchesAddToGradients) {
  loss(node("y", "mul", {x, w}));
  train({w});
  c->decisions.micro_batches = 2;
  ASSERT_EQ(run({differentiate, order, place}), "");
  const Operand& gradient = c->program.segment(SegmentKind::Micro).code.back().outputs[0];
  EXPECT_EQ(gradient.access, uint32_t{GALLEY_WRITE});
  EXPECT_EQ(gradient.later, uint32_t{GALLEY_ACCUMULATE});
}

TEST_F(Place, AnOpThatCannotAddIsRefusedWhereItMust) {
  // `wide` only writes.
  loss(node("y", "mul", {x, w}));
  train({w});
  c->decisions.micro_batches = 2;
  ASSERT_EQ(cause(differentiate(*c)), "");
  node("again", "wide", {x}, Section::Backward, {graph.tensor(w).gradient});
  EXPECT_EQ(run({order, place}), "op 'wide' of 'again' cannot add into 'grad.w', which it must");
}

TEST_F(Place, WhatLiesElsewhereIsBroughtAndTakenBack) {
  graph.tensor(w).storage.placement = "spill";
  trained();
  ASSERT_EQ(run({order, place}), "");
  EXPECT_EQ(tensor_called("w").memory, 1u);
  EXPECT_EQ(code(SegmentKind::Load),
            "load[0] fill 'init w' -> w staged w f32(4)\n"
            "load[1] copy 'copy of staged w': r staged w f32(4) -> w w@1 f32(4)\n");
  EXPECT_EQ(code(SegmentKind::Update),
            "update[0] copy 'copy of w': r w@1 f32(4) -> w staged w f32(4)\n"
            "update[1] step 's': rw staged w f32(4), r grad.w f32(4)\n"
            "update[2] copy 'copy of staged w': r staged w f32(4) -> w w@1 f32(4)\n");
}

/// A gradient that two nodes add to, elsewhere.
TEST_F(Place, AMasterElsewhereIsBroughtOnceForItsUpdateAndItsCopy) {
  trained();
  graph.tensor(w).storage.placement = "spill";
  const galley_tensor half = tensor("half", {4}, GALLEY_KIND_CONSTANT);
  graph.tensor(half).dtype = GALLEY_BF16;
  c->roles.copy = plugins->op("hand_copy").table;
  graph.tensor(half).initial = {"hand_copy", {w}, {}};
  graph.tensor(half).initial.attrs.set("dtype", std::string("bf16"));
  node("r", "square", {half}, Section::Update);
  ASSERT_EQ(run({order, place}), "");
  size_t in = 0, out = 0, halves = 0;
  for (const Instruction& i : c->program.segment(SegmentKind::Update).code) {
    const auto name = [&](const Operand& o) { return c->program.tensors[static_cast<size_t>(o.tensor)].name; };
    if (i.action() == Action::Copy) (name(i.inputs[0]) == "w" ? in : out) += 1;
    if (i.name == "init half") ++halves;
  }
  EXPECT_EQ(in, 1u);
  EXPECT_EQ(out, 1u);
  EXPECT_EQ(halves, 1u);
}

TEST_F(Place, GradientsElsewhereAreAddedUpWhereKernelsCompute) {
  loss(node("y", "mul", {node("z", "mul", {x, w}), w}));
  train({w});
  options.purpose = Purpose::Train;
  options.exports = options.evaluates = false;
  ASSERT_EQ(cause(differentiate(*c)), "");
  const galley_tensor gradient = graph.tensor(w).gradient;
  graph.tensor(gradient).storage.placement = "spill";
  node("s", "step", {w, gradient}, Section::Update, {});
  const auto touching = [&](SegmentKind kind) {
    std::string out, text = code(kind);
    for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1)
      if (const std::string line = text.substr(at, text.find('\n', at) - at); line.find("grad.w") != std::string::npos)
        out += line.substr(line.find("] ") + 2) + "\n";
    return out;
  };
  ASSERT_EQ(run({order, place}), "");
  EXPECT_EQ(touching(SegmentKind::Micro),
            "mul 'y.mul.6': r l.mul.4 f32(4), r z f32(4) -> w sum of grad.w f32(4)\n"
            "mul 'z.mul.7': r y.mul.5 f32(4), r x f32(4) -> a sum of grad.w f32(4)\n"
            "copy 'copy of sum of grad.w': r sum of grad.w f32(4) -> w grad.w@1 f32(4)\n");
  EXPECT_EQ(touching(SegmentKind::Update),
            "copy 'copy of grad.w': r grad.w@1 f32(4) -> w staged grad.w f32(4)\n"
            "step 's': rw w f32(4), r staged grad.w f32(4)\n");
  c->decisions.micro_batches = 2;
  c->program = {};
  c->micro = {};
  ASSERT_EQ(run({place}), "");
  EXPECT_EQ(touching(SegmentKind::Micro),
            "copy 'copy of grad.w' if the lane goes on: r grad.w@1 f32(4) -> w sum of grad.w f32(4)\n"
            "mul 'y.mul.6': r l.mul.4 f32(4), r z f32(4) -> w/a sum of grad.w f32(4)\n"
            "mul 'z.mul.7': r y.mul.5 f32(4), r x f32(4) -> a sum of grad.w f32(4)\n"
            "copy 'copy of sum of grad.w': r sum of grad.w f32(4) -> w grad.w@1 f32(4)\n");
}

TEST_F(Place, WhatTheHostReadsAndWritesLiesWhereItCan) {
  target.memories = {{"device", 64, false, true}, {"file", 64, false, false}, {"pinned", 64, true, false}};
  options.window_bytes = [](int64_t) { return 128; };
  options.corpus_bytes = 10;
  trained();
  ASSERT_EQ(run({order, place}), "");
  for (const char* name : {"staging", "window_buffers", "corpus"}) EXPECT_EQ(tensor_called(name).memory, 2u) << name;
  for (const char* name : {"w", "x", "step scalars"}) EXPECT_EQ(tensor_called(name).memory, 0u) << name;
}

TEST_F(Place, CopiesRunBesideComputingWhereThereIsAQueueForThem) {
  target.queues = {Queue::Compute, Queue::In, Queue::Out};
  graph.tensor(w).storage.placement = "spill";
  trained();
  ASSERT_EQ(run({order, place}), "");
  EXPECT_EQ(code(SegmentKind::Update),
            "update[0] record event 5 'record'\n"
            "update[1] wait queue 1 event 5 'wait'\n"
            "update[2] copy queue 1 event 6 'copy of w': r w@1 f32(4) -> w staged w f32(4)\n"
            "update[3] wait event 6 'wait'\n"
            "update[4] step 's': rw staged w f32(4), r grad.w f32(4)\n"
            "update[5] record event 7 'record'\n"
            "update[6] wait queue 2 event 7 'wait'\n"
            "update[7] copy queue 2 event 8 'copy of staged w': r staged w f32(4) -> w w@1 f32(4)\n"
            "update[8] wait event 8 'wait'\n");
}

/// Parts of an update: what the link carries in a millisecond, in multiples of what stays together.
class PlaceParts : public Place {
 protected:
  std::string update(const std::string& op, Shape shape, double bandwidth, const std::string& storage = "") {
    const galley_tensor big = parameter("big", shape), in = input("in", shape);
    graph.tensor(big).storage.placement = "spill";
    graph.tensor(big).storage.format = storage;
    target.memories[1].in_bandwidth = bandwidth;
    loss(node("y", "mul", {in, big}));
    train({big});
    options.purpose = Purpose::Train;
    options.exports = false;
    EXPECT_EQ(cause(differentiate(*c)), "");
    std::vector<galley_tensor> inputs = {big, graph.tensor(big).gradient};
    if (op == "step_by_element") inputs.push_back(*draft.scalars.get(GALLEY_SCALAR_LOSS_SEED));
    node("s", op.c_str(), inputs, Section::Update, {});
    EXPECT_EQ(run({order, place}), "");
    return code(SegmentKind::Update);
  }
};

TEST_F(PlaceParts, OfElements) {
  const std::string text = update("step_by_element", {15, 10}, 3e5);
  const std::string scalar =
      text.substr(text.find("r step scalars"), text.find('\n', text.find("r step scalars")) - text.find("r step scalars"));
  EXPECT_EQ(text,
            "update[0] copy 'copy of big': r big@1 f32(64) -> w staged big f32(64)\n"
            "update[1] step_by_element 's': rw staged big f32(64), r grad.big f32(64), " +
                scalar +
                "\n"
                "update[2] copy 'copy of staged big': r staged big f32(64) -> w big@1 f32(64)\n"
                "update[3] copy 'copy of big': r big@1+256 f32(64) -> w staged big f32(64)\n"
                "update[4] step_by_element 's': rw staged big f32(64), r grad.big+256 f32(64), " +
                scalar +
                "\n"
                "update[5] copy 'copy of staged big': r staged big f32(64) -> w big@1+256 f32(64)\n"
                "update[6] copy 'copy of big': r big@1+512 f32(22) -> w staged big f32(22)\n"
                "update[7] step_by_element 's': rw staged big f32(22), r grad.big+512 f32(22), " +
                scalar +
                "\n"
                "update[8] copy 'copy of staged big': r staged big f32(22) -> w big@1+512 f32(22)\n");
}

TEST_F(PlaceParts, OfRows) {
  EXPECT_EQ(update("step_by_row", {5, 10}, 1e5),
            "update[0] copy 'copy of big': r big@1 f32(2,10) -> w staged big f32(2,10)\n"
            "update[1] step_by_row 's': rw staged big f32(2,10), r grad.big f32(2,10)\n"
            "update[2] copy 'copy of staged big': r staged big f32(2,10) -> w big@1 f32(2,10)\n"
            "update[3] copy 'copy of big': r big@1+80 f32(2,10) -> w staged big f32(2,10)\n"
            "update[4] step_by_row 's': rw staged big f32(2,10), r grad.big+80 f32(2,10)\n"
            "update[5] copy 'copy of staged big': r staged big f32(2,10) -> w big@1+80 f32(2,10)\n"
            "update[6] copy 'copy of big': r big@1+160 f32(1,10) -> w staged big f32(1,10)\n"
            "update[7] step_by_row 's': rw staged big f32(1,10), r grad.big+160 f32(1,10)\n"
            "update[8] copy 'copy of staged big': r staged big f32(1,10) -> w big@1+160 f32(1,10)\n");
}

TEST_F(PlaceParts, OfBlocksOfAFormat) {
  const std::string text = update("step_by_element", {20, 20}, 3e5, "tiles");
  const auto lines = [&](const std::string& part) {
    std::string out;
    for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1)
      if (const std::string line = text.substr(at, text.find('\n', at) - at); line.find(part) != std::string::npos)
        out += line.substr(line.find(": ") + 2) + "\n";
    return out;
  };
  // Of 48 and of 64 numbers.
  EXPECT_EQ(lines("'copy of big.halves'"),
            "r big.halves@1 i16(192) -> w staged big.halves i16(192)\n"
            "r big.halves@1+384 i16(192) -> w staged big.halves i16(192)\n"
            "r big.halves@1+768 i16(16) -> w staged big.halves i16(16)\n");
  EXPECT_EQ(lines("'copy of big.scale'"),
            "r big.scale@1 f32(4) -> w staged big.scale f32(4)\n"
            "r big.scale@1+16 f32(4) -> w staged big.scale f32(4)\n"
            "r big.scale@1+32 f32(1) -> w staged big.scale f32(1)\n");
  EXPECT_EQ(lines("'pack big'"),
            "r unpacked big f32(192) -> w staged big.halves i16(192), w staged big.scale f32(4)\n"
            "r unpacked big f32(192) -> w staged big.halves i16(192), w staged big.scale f32(4)\n"
            "r unpacked big f32(16) -> w staged big.halves i16(16), w staged big.scale f32(1)\n");
  EXPECT_EQ(lines("'copy of staged big.scale'"),
            "r staged big.scale f32(4) -> w big.scale@1 f32(4)\n"
            "r staged big.scale f32(4) -> w big.scale@1+16 f32(4)\n"
            "r staged big.scale f32(1) -> w big.scale@1+32 f32(1)\n");
  EXPECT_NE(lines("'s'").find("rw unpacked big f32(192), r grad.big+768 f32(192)"), std::string::npos) << lines("'s'");
}

TEST_F(PlaceParts, OfRowsWhereAFormatHasNoOthers) {
  const std::string text = update("step_by_element", {30, 10}, 3e5, "rows");
  EXPECT_NE(text.find("'pack big': r unpacked big f32(12,10) -> w staged big.halves i16(12,10), w staged big.scale f32(12)"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("'copy of big.scale': r big.scale@1+96 f32(6) -> w staged big.scale f32(6)"), std::string::npos) << text;
}

TEST_F(PlaceParts, AFormatWithAScaleOfAllHasNone) {
  const std::string text = update("step_by_element", {20, 20}, 3e5, "pair");
  EXPECT_NE(text.find("'pack big': r unpacked big f32(20,20)"), std::string::npos) << text;
}

TEST_F(PlaceParts, AFormatWhoseRandomBitsDoNotKnowOfPartsHasNone) {
  const std::string text = update("step_by_element", {20, 20}, 3e5, "drawn");
  EXPECT_NE(text.find("'pack big': r unpacked big f32(20,20), r "), std::string::npos) << text;
}

TEST_F(PlaceParts, ATensorThatFitsIntoOneIsWhole) {
  const std::string text = update("step_by_element", {15, 10}, 1e6);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << text;
}

TEST_F(PlaceParts, AnOpThatNeedsTheWholeTensorGetsIt) {
  const std::string text = update("step", {15, 10}, 3e5);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << text;
}

TEST_F(Place, AMemoryClassThatIsNotThere) {
  graph.tensor(w).storage.placement = "attic";
  trained();
  EXPECT_EQ(run({order, place}), "'w': no memory class 'attic'");
}

TEST_F(Place, WhatIsStoredIsUnpackedForWhoCannotReadIt) {
  graph.tensor(w).storage.format = "pair";
  loss(node("y", "mul", {x, w}));
  options.purpose = Purpose::Evaluate;
  ASSERT_EQ(run({order, place}), "");
  EXPECT_EQ(tensor_called("w.halves").dtype, uint32_t{GALLEY_I16});
  EXPECT_EQ(tensor_called("w.scale").bytes, 4);
  EXPECT_EQ(code(SegmentKind::Load),
            "load[0] fill 'init w' -> w unpacked w f32(4)\n"
            "load[1] pair_pack 'pack w': r unpacked w f32(4) -> w w.halves i16(4), w w.scale f32(1)\n");
  EXPECT_EQ(code(SegmentKind::Eval),
            "eval[0] pair_unpack 'unpack w': r w.halves i16(4), r w.scale f32(1) -> w unpacked w f32(4)\n"
            "eval[1] mul 'y': r x f32(4), r unpacked w f32(4) -> w y f32(4)\n"
            "eval[2] loss 'l': r y f32(4) -> w step scalars+640 f64(1)\n");
}

TEST_F(Place, AFormatAndItsOpsSayTheSame) {
  w = parameter("big", {100});
  graph.tensor(w).storage.format = "short";
  loss(node("y", "mul", {input("xs", {100}), w}));
  options.purpose = Purpose::Evaluate;
  EXPECT_EQ(
      run({order, place}),
      "format 'short' of plugin 'hand': 'pack big' (op 'tiles_pack' of plugin 'hand') writes f32(3) as 'scale', but 'big.scale' is f32(2)");
}

TEST_F(Place, NoTwoComponentsHaveOneSuffix) {
  graph.tensor(w).storage.format = "twins";
  loss(node("y", "mul", {x, w}));
  options.purpose = Purpose::Evaluate;
  EXPECT_EQ(run({order, place}), "format 'twins' of plugin 'hand': components 1 and 2 of 'w' have one suffix, '.halves'");
}

TEST_F(Place, AnInitializerMakesItsTensor) {
  loss(node("y", "mul", {x, w}));
  options.purpose = Purpose::Evaluate;
  graph.tensor(w).initial.op = "too_long";
  EXPECT_EQ(run({order, place}), "'init w' (op 'too_long' of plugin 'hand') writes f32(5) as 'y', but 'w' is f32(4)");
  graph.tensor(w).initial.op = "refuses";
  c->program = {};
  EXPECT_EQ(run({place}), "'init w' (op 'refuses' of plugin 'hand') is not what its op takes: init w: no value is given");
}

TEST_F(Place, NoTwoTensorsOfTheResumeStateHaveOneName) {
  graph.tensor(w).storage.format = "pair";
  tensor("w.scale", {4}, GALLEY_KIND_STATE);
  trained();
  EXPECT_EQ(run({order, place}), "two tensors of the resume state are called 'w.scale': 'w' and 'w.scale'");
}

/// Saved beside the model: in these files, under these names.
class PlaceSaved : public Place {
 protected:
  std::string saved(List files, List names) {
    use("saves", {{"files", std::move(files)}, {"names", std::move(names)}});
    use("steps", {});
    options.purpose = Purpose::Train;
    options.evaluates = false;
    loss(node("y", "mul", {x, w}));
    if (const std::string wrong = cause(rewrite(*c)); !wrong.empty()) return wrong;
    train({w});
    return run({differentiate, export_model, order, place});
  }
};

TEST_F(PlaceSaved, NamesInAFileOccurOnce) {
  EXPECT_EQ(saved({"a/a.safetensors", "a/a.safetensors"}, {"v", "v"}),
            "two tensors are to be saved as 'v' in 'a/a.safetensors': 'saved 0' of saves (hand.lua:3) and 'saved 1' of saves (hand.lua:3)");
}

TEST_F(PlaceSaved, OrInTwoFiles) { EXPECT_EQ(saved({"a/a.safetensors", "a/b.safetensors"}, {"v", "v"}), ""); }

TEST_F(PlaceSaved, AFileIsNoFolder) {
  EXPECT_EQ(saved({"a/a.safetensors", "a/a.safetensors/b.safetensors"}, {"u", "v"}),
            "tensor 'saved 1' is to be saved in 'a/a.safetensors/b.safetensors', but tensor 'saved 0' is to be saved as 'a/a.safetensors'");
}

TEST_F(Place, AFileThatIsPackedIsReadAsItIs) {
  const std::filesystem::path file = std::filesystem::temp_directory_path() / ("galley-place-" + std::to_string(getpid()) + ".safetensors");
  const auto load = [&](std::vector<safetensors::Item> items) {
    auto writer = safetensors::Writer::create(file, items);
    for (const safetensors::Item& item : writer->items()) {
      const std::vector<std::byte> zeros(*tensor_files::tensor_bytes(item.dtype, item.shape));
      EXPECT_TRUE(writer->write(item.name, zeros).ok());
    }
    EXPECT_TRUE(writer->finish().ok());
    c->program = {};
    const std::string wrong = run({place});
    std::filesystem::remove(file);
    return wrong.empty() ? code(SegmentKind::Load) : wrong.substr(wrong.find("tensor '"));
  };
  GraphTensor& t = graph.tensor(w);
  t.storage.format = "pair";
  t.source.path = file;
  t.source.name = "a.w";
  t.source.aliases = {"b.w"};
  loss(node("y", "mul", {x, w}));
  options.purpose = Purpose::Evaluate;
  ASSERT_EQ(run({order}), "");
  using safetensors::Dtype;
  const std::string packed =
      "load[0] read 'read w.halves' entry 'a.w.halves' -> w w.halves i16(4), w staging u8(1048576)\n"
      "load[1] read 'read w.scale' entry 'a.w.scale' -> w w.scale f32(1), w staging u8(1048576)\n";
  EXPECT_EQ(load({{"a.w.halves", Dtype::I16, {4}}, {"a.w.scale", Dtype::F32, {1}}}), packed);
  EXPECT_EQ(load({{"b.w.halves", Dtype::I16, {4}}, {"b.w.scale", Dtype::F32, {1}}}), packed) << "under another name";
  EXPECT_EQ(load({{"a.w", Dtype::F32, {4}}}),
            "load[0] read 'read w' entry 'a.w' -> w unpacked w f32(4), w staging u8(1048576)\n"
            "load[1] pair_pack 'pack w': r unpacked w f32(4) -> w w.halves i16(4), w w.scale f32(1)\n");
  EXPECT_EQ(load({{"a.w", Dtype::F32, {4}}, {"a.w.scale", Dtype::F32, {1}}}),
            "tensor 'a.w.halves', I16 (4), is missing; the file has other components of 'w' in format 'pair'");
  EXPECT_EQ(load({{"a.w.halves", Dtype::I16, {4}}, {"a.w.scale", Dtype::F32, {}}}),
            "tensor 'a.w.scale' is F32 (), but in format 'pair' it is F32 (1)");
}

TEST_F(Place, AKernelThatReadsTheFormatGetsTheComponents) {
  graph.tensor(w).storage.format = "pair";
  graph.tensor(w).storage.placement = "spill";
  trained();
  ASSERT_EQ(run({order, place}), "");
  EXPECT_EQ(code(SegmentKind::Update),
            "update[0] copy 'copy of w.halves': r w.halves@1 i16(4) -> w staged w.halves i16(4)\n"
            "update[1] copy 'copy of w.scale': r w.scale@1 f32(1) -> w staged w.scale f32(1)\n"
            "update[2] step 's': as pair, r grad.w f32(4), rw staged w.halves i16(4), rw staged w.scale f32(1)\n"
            "update[3] copy 'copy of staged w.halves': r staged w.halves i16(4) -> w w.halves@1 i16(4)\n"
            "update[4] copy 'copy of staged w.scale': r staged w.scale f32(1) -> w w.scale@1 f32(1)\n");
}

TEST_F(Place, AKernelThatReadsOneFormatGetsTheOtherUnpacked) {
  const galley_tensor v = parameter("v");
  for (const galley_tensor t : {w, v}) graph.tensor(t).storage.format = "pair";
  loss(node("y", "mul", {x, w}));
  train({w});
  options.purpose = Purpose::Train;
  options.exports = options.evaluates = false;
  ASSERT_EQ(cause(differentiate(*c)), "");
  node("s", "step", {w, v}, Section::Update, {});
  ASSERT_EQ(run({order, place}), "");
  EXPECT_EQ(code(SegmentKind::Update),
            "update[0] pair_unpack 'unpack v': r v.halves i16(4), r v.scale f32(1) -> w unpacked v f32(4)\n"
            "update[1] step 's': as pair, r unpacked v f32(4), rw w.halves i16(4), rw w.scale f32(1)\n");
}

TEST_F(Place, ChunksOfRowsAreRangesOfTheirTensors) {
  const galley_tensor rows = input("rows", {6, 2}), v = parameter("v", {6, 2});
  const galley_tensor hidden = node("hidden", "mul", {rows, v}), logits = node("logits", "add", {hidden, hidden});
  loss(logits);
  graph.marks.hidden = hidden;
  graph.marks.logits = logits;
  train({v});
  options.head_rows = 3;
  ASSERT_EQ(run({differentiate, order, place}), "");
  EXPECT_EQ(code(SegmentKind::Micro),
            "micro[0] mul 'hidden': r rows f32(6,2), r v f32(6,2) -> w hidden f32(6,2)\n"
            "micro[1] add 'logits': r hidden f32(3,2), r hidden f32(3,2) -> w logits f32(3,2)\n"
            "micro[2] loss 'l': r logits f32(3,2) -> w step scalars+640 f64(1)\n"
            "micro[3] mul 'l.mul.4': r logits f32(3,2), r logits f32(3,2) -> w l.mul.4 f32(3,2)\n"
            "micro[4] add 'logits.add.5': r l.mul.4 f32(3,2), r l.mul.4 f32(3,2) -> w logits.add.5 f32(3,2)\n"
            "micro[5] add 'logits' row 3: r hidden+24 f32(3,2), r hidden+24 f32(3,2) -> w logits f32(3,2)\n"
            "micro[6] loss 'l' row 3: r logits f32(3,2) -> a step scalars+640 f64(1)\n"
            "micro[7] mul 'l.mul.4' row 3: r logits f32(3,2), r logits f32(3,2) -> w l.mul.4 f32(3,2)\n"
            "micro[8] add 'logits.add.5' row 3: r l.mul.4 f32(3,2), r l.mul.4 f32(3,2) -> w logits.add.5+24 f32(3,2)\n"
            "micro[9] mul 'hidden.mul.6': r logits.add.5 f32(6,2), r rows f32(6,2) -> w grad.v f32(6,2)\n");
}

}  // namespace
}  // namespace galley::hand
