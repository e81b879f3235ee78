#include "host/proofs/describe.hpp"

#include <gtest/gtest.h>

#include "tests/plan/little.hpp"

namespace galley {
namespace {

TEST(Dump, OneLineAnInstruction) {
  Little l;
  l.program.micro_batches = 2;
  const TensorId weight = l.tensor("weight", 100, Life::Run, 0, Owner::Weights),
                 gradient = l.tensor("gradient", 100, Life::Window, 0, Owner::Gradients), x = l.tensor("x", 50),
                 away = l.tensor("away", 50, Life::Segment, 1), space = l.tensor("space", 8), idle = l.tensor("idle", 8);
  l.program.tensors[static_cast<size_t>(gradient)].strategy = "lora (recipe.lua:9)";
  Instruction& read = l.op(SegmentKind::Load, "read weight", {}, {l.w(weight)});
  read.what = Read{"somewhere/model.safetensors", "w", {}, "", {}};
  Instruction& forward = l.op(SegmentKind::Micro, "forward", {l.r(weight), Operand()}, {l.w(x)});
  forward.launch()->workspace = space;
  forward.launch()->nodes[0].first_row = 8;
  forward.recomputed = true;
  l.sync(SegmentKind::Micro, Action::Record, 0, 1);
  l.sync(SegmentKind::Micro, Action::Wait, 1, 1);
  l.copy(SegmentKind::Micro, "offload", x, away, 1, 2);
  l.sync(SegmentKind::Micro, Action::Wait, 0, 2);
  l.op(SegmentKind::Micro, "backward", {l.part(x, 10, 20, GALLEY_READ), l.rw(weight)}, {l.wa(gradient)});
  const Plan plan = make_plan(l.program, little_target());
  EXPECT_EQ(describe(l.program, plan, SegmentKind::Load), "load[0] read 'read weight' entry 'w' -> w weight@0+0 f32(100)\n");
  EXPECT_EQ(describe(l.program, plan, SegmentKind::Micro),
            "micro[0] kernel 'forward' again row 8: r weight@0+0 f32(100), - -> w x@0+896 f32(50) | space@0+1152 32 bytes\n"
            "micro[1] record event 1 'record'\n"
            "micro[2] wait queue 1 event 1 'wait'\n"
            "micro[3] copy queue 1 event 2 'offload': r x@0+896 f32(50) -> w away@1+0 f32(50)\n"
            "micro[4] wait event 2 'wait'\n"
            "micro[5] kernel 'backward': r x@0+936 f32(20), rw weight@0+0 f32(100) -> w/a gradient@0+448 f32(100)\n");
  EXPECT_EQ(describe(l.program, plan, SegmentKind::Update), "");
  (void)idle;
  EXPECT_EQ(describe_tensors(l.program, plan),
            "0 unused idle f32(8) activations segment\n"
            "0 [0, 400) moments 0 to 6 weight f32(100) weights run\n"
            "0 [448, 848) moments 1 to 6 gradient f32(100) gradients window lora (recipe.lua:9)\n"
            "0 [896, 1096) moments 1 to 6 x f32(50) activations segment\n"
            "0 [1152, 1184) moments 1 to 1 space f32(8) activations segment\n"
            "1 [0, 200) moments 3 to 5 away f32(50) activations segment\n");
}

}  // namespace
}  // namespace galley
