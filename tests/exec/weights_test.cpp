#include "host/exec/weights.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "tests/exec/small.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;
using safetensors::Dtype;
using small::Builder;
using small::Running;
using Floats = std::vector<float>;

struct Saved {
  std::string name;
  Dtype dtype;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

template <class T>
Saved tensor(const std::string& name, Dtype dtype, std::vector<int64_t> shape, std::vector<T> values) {
  Saved out{name, dtype, std::move(shape), std::vector<std::byte>(values.size() * sizeof(T))};
  std::memcpy(out.bytes.data(), values.data(), out.bytes.size());
  return out;
}

fs::path save(const std::vector<Saved>& tensors) {
  const fs::path path = small::scratch() / "model.safetensors";
  std::vector<safetensors::Item> items;
  for (const Saved& t : tensors) items.push_back({t.name, t.dtype, t.shape});
  auto writer = safetensors::Writer::create(path, items);
  for (const safetensors::Item& item : writer->items())
    for (const Saved& t : tensors) EXPECT_TRUE(t.name != item.name || writer->write(t.name, t.bytes).ok());
  EXPECT_TRUE(writer->finish().ok());
  return path;
}

Floats numbers(size_t n) {
  Floats out(n);
  for (size_t i = 0; i < n; ++i) out[i] = 0.25f * static_cast<float>(i) - 3;
  return out;
}

// A model of two tensors, (3, 2) and (2).
struct TwoTensors {
  explicit TwoTensors(const fs::path& file) {
    w = b.tensor("w", {3, 2});
    v = b.tensor("v", {2});
    b.read_file(file, "layer.w", w);
    Read& read = std::get<Read>(b.read_file(file, "layer.v", v).what);
    read.aliases = {"layer.gamma", "gamma"};
    read.hint = "untie them";
  }
  Builder b;
  TensorId w, v;
};

std::string refusal(const std::vector<Saved>& tensors, const std::vector<std::string>& ignored = {}) {
  TwoTensors model(save(tensors));
  const Status status = check_files(model.b.program, ignored);
  if (status.ok()) return "";
  EXPECT_EQ(status.error().exit, Exit::Recipe);
  return fs::path(status.error().cause).filename().string() + (status.error().hint.empty() ? "" : " / " + status.error().hint);
}

const Saved w = tensor("layer.w", Dtype::F32, {3, 2}, numbers(6));
const Saved v = tensor("layer.v", Dtype::F32, {2}, numbers(2));

TEST(CheckFiles, TakesWhatFits) {
  EXPECT_EQ(refusal({w, v}), "");
  EXPECT_EQ(refusal({w, tensor("layer.gamma", Dtype::F16, {2}, std::vector<uint16_t>{0, 0})}), "")
      << "an alternative name, a dtype that converts";
}

TEST(CheckFiles, NamesWhatDoesNot) {
  EXPECT_EQ(refusal({w, tensor("layer.b", Dtype::F32, {2}, numbers(2))}),
            "model.safetensors: 1 of the model's 2 tensors are missing: 'layer.v' / did you mean 'layer.b'?");
  EXPECT_EQ(refusal({w, v, tensor("head.w", Dtype::F32, {1}, numbers(1))}),
            "model.safetensors: 1 of 3 tensors are unknown to the model: 'head.w' / the configuration may be another model's; training "
            "without them would not train this model");
  EXPECT_EQ(refusal({tensor("layer.w", Dtype::F32, {2, 3}, numbers(6)), v}),
            "model.safetensors: tensor 'layer.w' is F32 (2, 3), the model has F32 (3, 2) / the file belongs to another configuration");
  EXPECT_EQ(refusal({w, tensor("layer.v", Dtype::I32, {2}, numbers(2))}),
            "model.safetensors: tensor 'layer.v' is I32 (2), which cannot be read as F32");
}

TEST(CheckFiles, SaysTheNextStepWhereItIsKnown) {
  EXPECT_EQ(refusal({w}), "model.safetensors: 1 of the model's 2 tensors are missing: 'layer.v' / untie them");
}

TEST(CheckFiles, APatternOfManyStarsTakesNoTime) {
  const Saved extra = tensor("layer." + std::string(3000, 'a'), Dtype::F32, {1}, numbers(1));
  std::string pattern = "layer.";
  for (int i = 0; i < 30; ++i) pattern += "*a";
  EXPECT_NE(refusal({w, v, extra}, {pattern + "*b"}), "");
  EXPECT_EQ(refusal({w, v, extra}, {pattern}), "");
}

TEST(CheckFiles, IgnoresWhatTheCallerSays) {
  const Saved extra = tensor("layer.0.rotary.inv_freq", Dtype::F32, {1}, numbers(1));
  EXPECT_NE(refusal({w, v, extra}), "");
  EXPECT_EQ(refusal({w, v, extra}, {"layer.*.inv_freq"}), "");
  EXPECT_NE(refusal({w, v, extra}, {"layer.*.bias"}), "");
  EXPECT_NE(refusal({w, v, extra}, {"rotary"}), "");
}

TEST(CheckFiles, KnowsWhatTheProgramDoesNotNeed) {
  const Saved extra = tensor("layer.u", Dtype::F32, {1}, numbers(1));
  TwoTensors model(save({w, v, extra}));
  EXPECT_FALSE(check_files(model.b.program, {}).ok());
  const std::string file = model.b.program.segment(SegmentKind::Load).code[0].read()->file;
  model.b.program.unread = {{file, {"layer.u", "u"}}};
  EXPECT_TRUE(check_files(model.b.program, {}).ok());
  model.b.program.unread = {{"another.safetensors", {"layer.u"}}};
  EXPECT_FALSE(check_files(model.b.program, {}).ok());
}

TEST(CheckFiles, AFileThatIsNotThere) {
  TwoTensors model(small::scratch() / "nothing.safetensors");
  const Status status = check_files(model.b.program, {});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().exit, Exit::Recipe);
}

// A device whose memory the host cannot reach: the processor's, with that said of it.
const galley_device& walled(bool is_lazy) {
  static galley_memory_class memory = {sizeof(galley_memory_class), 1, "host", 64, GALLEY_MEMORY_COMPUTES};
  static galley_memory_class reachable = {sizeof(galley_memory_class), 1, "spill", 64, GALLEY_MEMORY_HOST_ACCESS};
  static const galley_memory_class* memories[] = {&memory, &reachable};
  static galley_device devices[2];
  galley_device& out = devices[is_lazy];
  out = small::device(is_lazy);
  out.memories = memories;
  return out;
}

struct Way {
  bool wall;
  bool lazy;
  Poison poison;
};
class Reading : public testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(All, Reading,
                         testing::Values(Way{false, false, Poison::No}, Way{false, true, Poison::Yes}, Way{true, false, Poison::No},
                                         Way{true, true, Poison::No}, Way{true, false, Poison::Yes}));

TEST_P(Reading, ConvertsThroughStaging) {
  const Floats f32 = numbers(100);
  std::vector<double> f64(f32.begin(), f32.end());
  std::vector<uint16_t> bf16;
  for (const float x : f32) bf16.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16));
  const std::vector<uint8_t> packed = {1, 2, 250};
  const fs::path file = save({tensor("a", Dtype::F32, {10, 10}, f32), tensor("b", Dtype::F64, {100}, f64),
                              tensor("c", Dtype::BF16, {100}, bf16), tensor("d", Dtype::U8, {3}, packed)});
  Builder b;
  const TensorId a = b.tensor("a", {10, 10}), wide = b.tensor("b", {100}), c = b.tensor("c", {100}),
                 d = b.tensor("d", {3}, Life::Run, 0, GALLEY_U8);
  const TensorId twice = b.tensor("twice", {100}), after = b.tensor("after", {100});
  b.program.staging = b.tensor("staging", {64}, Life::Run, 1, GALLEY_U8);
  b.read_file(file, "a", a);
  b.read_file(file, "b", wide);
  b.kernel(SegmentKind::Load, small::add, {b.read(wide), b.read(wide)}, {b.write(twice)});
  b.read_file(file, "c", c).outputs.push_back(b.write(b.program.staging));
  b.read_file(file, "c", wide);  // over what a kernel has just read
  b.read_file(file, "d", d);
  b.kernel(SegmentKind::Load, small::add, {b.read(c), b.read(c)}, {b.write(after)});
  const Plan plan = b.plan();
  const Target target = small::target();
  const galley_device& device = GetParam().wall ? walled(GetParam().lazy) : small::device(GetParam().lazy);
  auto executor = Executor::create(b.program, plan, target, device, {.watching = watching(GetParam().poison)});
  ASSERT_TRUE(executor.ok()) << executor.error().cause;
  const Status loaded = (*executor)->load();
  ASSERT_TRUE(loaded.ok()) << loaded.error().cause;
  Floats doubled, got(100);
  for (const float x : f32) doubled.push_back(2 * x);
  const auto get = [&](TensorId t) {
    EXPECT_TRUE((*executor)->machine().get(t, 0, std::as_writable_bytes(std::span(got))).ok());
    return got;
  };
  EXPECT_EQ(get(a), f32);
  EXPECT_EQ(get(wide), f32);
  EXPECT_EQ(get(twice), doubled);
  EXPECT_EQ(get(after), doubled);
  std::vector<uint8_t> bytes(3);
  EXPECT_TRUE((*executor)->machine().get(d, 0, std::as_writable_bytes(std::span(bytes))).ok());
  EXPECT_EQ(bytes, packed);
  EXPECT_EQ((*executor)->address(a) == nullptr, GetParam().wall && GetParam().poison == Poison::No);
}

std::string load_error(const Saved& saved, uint32_t dtype) {
  const fs::path file = save({saved});
  Builder b;
  const TensorId t = b.tensor("t", saved.shape, Life::Run, 0, dtype);
  b.program.staging = b.tensor("staging", {64}, Life::Run, 0, GALLEY_U8);
  b.read_file(file, saved.name, t);
  Running r(b);
  const Status status = r.executor->load();
  if (status.ok()) return "";
  EXPECT_EQ(status.error().exit, Exit::Recipe);
  return status.error().cause.substr(status.error().cause.rfind("tensor '"));
}

// check_files finds it earlier, unless the file changes in between.
TEST(ReadingWeights, ATensorThatIsNotThereIsNamed) {
  TwoTensors model(save({w}));
  model.b.program.staging = model.b.tensor("staging", {64}, Life::Run, 0, GALLEY_U8);
  Running r(model.b);
  const Status status = r.executor->load();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().exit, Exit::Recipe);
  EXPECT_EQ(fs::path(status.error().cause).filename(), "model.safetensors: tensor 'layer.v' is missing");
  EXPECT_EQ(status.error().hint, "untie them");
}

/// What loading says of a tensor that the file has under two names.
std::string twice(const Saved& a, const Saved& b) {
  const fs::path file = save({a, b});
  Builder builder;
  const TensorId t = builder.tensor("t", a.shape, Life::Run, 0, GALLEY_F32);
  builder.program.staging = builder.tensor("staging", {64}, Life::Run, 0, GALLEY_U8);
  Read& read = std::get<Read>(builder.read_file(file, a.name, t).what);
  read.aliases = {"none of this name", b.name};
  read.hint = "untie them";
  EXPECT_TRUE(check_files(builder.program, {}).ok());
  Running r(builder);
  const Status status = r.executor->load();
  if (status.ok()) return "";
  EXPECT_EQ(status.error().exit, Exit::Recipe);
  EXPECT_EQ(status.error().hint, "untie them");
  return fs::path(status.error().cause).filename();
}

TEST(ReadingWeights, ATensorUnderTwoNamesIsTheSame) {
  Floats f = numbers(200'000);  // more than one piece
  const Saved embed = tensor("embed", Dtype::F32, {100, 2000}, f);
  EXPECT_EQ(twice(embed, tensor("head", Dtype::F32, {100, 2000}, f)), "");
  EXPECT_EQ(twice(embed, tensor("head", Dtype::F64, {100, 2000}, std::vector<double>(f.begin(), f.end()))), "") << "in another dtype";
  f[131'072] += 0.5f;
  EXPECT_EQ(twice(embed, tensor("head", Dtype::F32, {100, 2000}, f)),
            "model.safetensors: tensors 'embed' and 'head' differ at [65, 1072]: 32765 and 32765.5, and the model has one for both");
}

TEST(ReadingWeights, FindsNumbersThatAreNone) {
  Floats f = numbers(60);
  f[47] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(load_error(tensor("t", Dtype::F32, {5, 12}, f), GALLEY_F32), "tensor 't', element [3, 11]: NaN");
  EXPECT_EQ(load_error(tensor("t", Dtype::F32, {5, 12}, f), GALLEY_BF16), "tensor 't', element [3, 11]: NaN");
  f[30] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(load_error(tensor("t", Dtype::F32, {5, 12}, f), GALLEY_F32), "tensor 't', element [2, 6]: -infinity");
}

TEST(ReadingWeights, FindsNumbersThatDoNotFit) {
  Floats f = numbers(60);
  f[47] = 70000;
  EXPECT_EQ(load_error(tensor("t", Dtype::F32, {60}, f), GALLEY_BF16), "");
  EXPECT_EQ(load_error(tensor("t", Dtype::F32, {60}, f), GALLEY_F16), "tensor 't', element [47]: 70000 does not fit F16");
}

}  // namespace
}  // namespace galley
