// What holds of every op, and what ops say when they are used wrongly.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <sstream>

#include "galley/cpp/exchange.hpp"
#include "tests/models/harness.hpp"

namespace galley::test {
namespace {

TEST(Ops, HaveCasesReferencesAndKernels) {
  std::set<std::string> names;
  for (const galley_op* op : models().ops) {
    EXPECT_TRUE(names.insert(op->name).second) << "two ops are called " << op->name;
    EXPECT_GT(op->n_cases, 0u) << op->name << " has no case";
    EXPECT_TRUE(op->infer) << op->name << " has no shape rule";
    EXPECT_TRUE(op->reference) << op->name << " has no reference";
    EXPECT_TRUE(op->summary && *op->summary) << op->name << " has no summary";
    for (uint32_t i = 0; i < op->n_outputs; ++i) EXPECT_LT(op->outputs[i]->alias, static_cast<int32_t>(op->n_inputs)) << op->name;
    for (const Level& level : models().levels) {
      bool found = false;
      for (const galley_kernel* kernel : level.kernels) found = found || kernel->op == std::string(op->name);
      EXPECT_TRUE(found || !level.needs(*op)) << op->name << " has no kernel at " << level.isa;
    }
  }
  for (const Level& level : models().levels)
    for (const galley_kernel* kernel : level.kernels) {
      std::istringstream links(kernel->op);  // of a chain: "add>rms_norm"
      for (std::string op; std::getline(links, op, '>');)
        EXPECT_TRUE(names.contains(op)) << kernel->name << " is for an op that there is not: " << op;
    }
}

const galley_attr_rule* declared(const galley_op* op, const char* name) {
  for (uint32_t i = 0; i < op->n_attrs; ++i)
    if (galley_same_text(op->attrs[i]->name, name)) return op->attrs[i];
  return nullptr;
}

TEST(Ops, DeclareTheAttributesOfTheirCases) {
  const std::set<std::string> hosts = {"dtype", "tf32", "stream", "seed", "axis"};
  for (const galley_op* op : models().ops)
    for (uint32_t c = 0; c < op->n_cases; ++c)
      for (uint32_t a = 0; a < op->cases[c]->node->n_attrs; ++a) {
        const galley_attr& attr = *op->cases[c]->node->attrs[a];
        const galley_attr_rule* rule = declared(op, attr.name);
        EXPECT_TRUE(rule || hosts.contains(attr.name)) << op->name << ": " << attr.name;
        if (!rule) continue;
        EXPECT_TRUE(rule->type == attr.type || (rule->type == GALLEY_ATTR_F64 && attr.type == GALLEY_ATTR_I64))
            << op->name << ": " << attr.name;
        EXPECT_TRUE(rule->summary && *rule->summary) << op->name << ": " << attr.name << " has no summary";
      }
}

// What an op declares as the default is what its shape rule and its reference take where the attribute is absent.
TEST(Ops, DefaultsAreWhatHoldsWithoutTheAttribute) {
  std::mt19937_64 random(11);
  int compared = 0;
  for (const galley_op* op : models().ops)
    for (uint32_t c = 0; c < op->n_cases; ++c) {
      const galley_node_view& node = *op->cases[c]->node;
      Problem without = Problem::draw(op, *op->cases[c], random), with = without;
      std::vector<const galley_attr*> attrs(node.attrs, node.attrs + node.n_attrs);
      for (uint32_t i = 0; i < op->n_attrs; ++i)
        if (op->attrs[i]->otherwise && !galley_attr_find(&node, op->attrs[i]->name)) attrs.push_back(op->attrs[i]->otherwise);
      if (attrs.size() == node.n_attrs) continue;
      with.attrs = attrs.data();
      with.n_attrs = static_cast<uint32_t>(attrs.size());
      with.infer();
      run_reference(without);
      run_reference(with);
      ASSERT_EQ(with.outputs.size(), without.outputs.size());
      for (size_t i = 0; i < with.outputs.size(); ++i) {
        ASSERT_EQ(with.outputs[i].has_value(), without.outputs[i].has_value()) << op->name << ", case " << node.name;
        if (!with.outputs[i]) continue;
        EXPECT_EQ(with.outputs[i]->shape, without.outputs[i]->shape) << op->name << ", case " << node.name;
        EXPECT_TRUE(with.outputs[i]->values == without.outputs[i]->values) << op->name << ", case " << node.name;
      }
      for (size_t i = 0; i < with.inputs.size(); ++i)  // updated in place
        EXPECT_TRUE(!with.inputs[i] || with.inputs[i]->values == without.inputs[i]->values) << op->name << ", case " << node.name;
      ++compared;
    }
  EXPECT_GT(compared, 50);
}

// The text with which a shape rule refuses the inputs.
std::string refusal(const char* op, std::vector<std::optional<Tensor>> inputs, const std::vector<const galley_attr*>& attrs = {}) {
  Problem p;
  p.op = models().op(op);
  p.name = "h.0.node";
  p.inputs = std::move(inputs);
  p.attrs = attrs.data();
  p.n_attrs = static_cast<uint32_t>(attrs.size());
  try {
    p.infer();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

std::optional<Tensor> f32(std::vector<int64_t> shape) { return Tensor{GALLEY_F32, std::move(shape), {}}; }
std::optional<Tensor> i32(std::vector<int64_t> shape) { return Tensor{GALLEY_I32, std::move(shape), {}}; }

struct Number {
  Number(const char* name, int64_t value_) : value(value_), attr{sizeof(galley_attr), 1, name, &value, GALLEY_ATTR_I64, 1, 0} {}
  int64_t value;
  galley_attr attr;
};

TEST(Ops, RefuseWrongShapesWithNodeAndShapes) {
  EXPECT_EQ(refusal("layer_norm", {f32({2, 4}), f32({3}), {}}), "h.0.node: layer_norm: w is (3); it has to be (4)");
  EXPECT_EQ(refusal("swiglu", {f32({2, 4}), f32({2, 3})}), "h.0.node: swiglu: gate is (2, 4), but up is (2, 3)");
  EXPECT_EQ(refusal("embedding", {f32({2}), f32({3, 4})}), "h.0.node: embedding: ids has to be I32");
  EXPECT_EQ(refusal("cross_entropy", {f32({2, 3, 9}), i32({2, 2})}),
            "h.0.node: cross_entropy: labels is (2, 2); it needs one value for each of the 6 rows of logits (2, 3, 9)");
  const Number group("group", 3), heads("heads", 2), head_dim("head_dim", 4);
  EXPECT_EQ(refusal("rms_norm", {f32({2, 8}), {}}, {&group.attr}), "h.0.node: rms_norm: spans of 3 do not divide the rows of x (2, 8)");
  EXPECT_EQ(refusal("rope", {f32({2, 12}), i32({2}), f32({5, 4})}, {&heads.attr, &head_dim.attr}),
            "h.0.node: rope: rows of x (2, 12) are not heads · head_dim = 2 · 4");
  EXPECT_EQ(refusal("fill", {}), "h.0.node: fill: there is no tensor to fill, and no attribute 'shape' that says how large one is");
}

TEST(Ops, RefuseWrongDtypesWithNodeAndNames) {
  const auto in = [](uint32_t dtype, std::vector<int64_t> shape) { return std::optional(Tensor{dtype, std::move(shape), {}}); };
  EXPECT_EQ(refusal("linear", {in(GALLEY_BF16, {2, 4}), f32({3, 4}), {}}), "h.0.node: linear: x is BF16, but w is F32");
  EXPECT_EQ(refusal("linear_dw", {in(GALLEY_F16, {2, 4}), in(GALLEY_BF16, {2, 3})}), "h.0.node: linear_dw: dy is F16, but x is BF16");
  EXPECT_EQ(refusal("add", {f32({4}), in(GALLEY_F16, {4})}), "h.0.node: add: a is F32, but b is F16");
  EXPECT_EQ(refusal("cross_entropy", {in(GALLEY_BF16, {2, 9}), i32({2})}), "h.0.node: cross_entropy: logits has to be F32");
  EXPECT_EQ(refusal("layer_norm", {in(GALLEY_F64, {2, 4}), {}, {}}), "h.0.node: layer_norm: x has to be F32, BF16 or F16");
  const std::string wanted = "f64";
  const galley_attr dtype = {sizeof(galley_attr), 1, "dtype", wanted.c_str(), GALLEY_ATTR_STRING, 3, 0};
  EXPECT_EQ(refusal("gelu", {f32({2, 4})}, {&dtype}), "h.0.node: dtype = 'f64'; it has to be f32, bf16 or f16");
}

TEST(Ops, RefuseCachesIn8BitWithoutTheirScales) {
  const auto in = [](uint32_t dtype, std::vector<int64_t> shape) { return std::optional(Tensor{dtype, std::move(shape), {}}); };
  const auto codes = in(GALLEY_I8, {2, 9, 70}), few = in(GALLEY_BF16, {2, 9, 2}), scales = in(GALLEY_BF16, {2, 9, 3});
  EXPECT_EQ(refusal("cache_rows", {codes, f32({2, 1, 70}), i32({2}), {}}),
            "h.0.node: cache_rows: cache is (2, 9, 70); beside x (2, 1, 70) it has to be (2, 1 or more, 70) in the dtype of x, or, with "
            "scales, I8");
  EXPECT_EQ(refusal("cache_rows", {codes, f32({2, 1, 70}), i32({2}), few}),
            "h.0.node: cache_rows: scales are (2, 9, 2); beside cache (2, 9, 70) they have to be (2, 9, 3) in BF16");
  const Number heads("heads", 2);
  const auto attention = [&](const std::optional<Tensor>& k, const std::optional<Tensor>& of_v) {
    return refusal("cached_attention", {f32({2, 1, 70}), k, codes, {}, {}, {}, {}, i32({2}), scales, of_v}, {&heads.attr});
  };
  EXPECT_EQ(attention(codes, scales), "");
  EXPECT_EQ(attention(codes, {}), "h.0.node: cached_attention: v_scales belong to v in I8, and only to it");
  EXPECT_EQ(attention(f32({2, 9, 70}), scales), "h.0.node: cached_attention: k_scales belong to k in I8, and only to it");
}

// A text as an attribute.
struct Text {
  Text(const char* name, const char* value)
      : attr{sizeof(galley_attr), 1, name, value, GALLEY_ATTR_STRING, static_cast<uint32_t>(std::string_view(value).size()), 0} {}
  galley_attr attr;
};

TEST(Ops, RefuseWrongAttributesByName) {
  const Number heads("heads", 6), head_dim("head_dim", 2), cycle("cycle", 4), turning("turning", 2), positions("positions", 3);
  EXPECT_EQ(refusal("rope", {f32({2, 12}), i32({2}), f32({5, 2})}, {&heads.attr, &head_dim.attr, &cycle.attr, &turning.attr}),
            "h.0.node: rope: of each 4 of 6 heads 2 turn; cycle has to divide heads, and turning to be 1 to cycle");
  const Text longrope("type", "longrope"), other("type", "ntk"), softplus("activation", "softplus");
  EXPECT_EQ(refusal("rope_table", {}, {&positions.attr, &head_dim.attr, &longrope.attr}),
            "h.0.node: rope_table: 0 numbers in 'factors'; there has to be one for each of the 1 pairs");
  EXPECT_EQ(refusal("rope_table", {}, {&positions.attr, &head_dim.attr, &other.attr}),
            "h.0.node: rope_table: type = 'ntk'; known are 'default', 'linear', 'llama3', 'yarn', 'longrope' and 'dynamic'");
  EXPECT_EQ(refusal("swiglu", {f32({2, 4}), f32({2, 4})}, {&softplus.attr}),
            "h.0.node: swiglu: activation = 'softplus'; known are 'silu', 'gelu', 'gelu_tanh', 'relu' and 'sigmoid'");
  EXPECT_EQ(refusal("swiglu", {f32({2, 5}), {}}),
            "h.0.node: swiglu: gate is (2, 5); without up, its last extent has to be even: gate and up side by side");
  EXPECT_EQ(refusal("softcap", {f32({2, 5})}), "h.0.node: softcap: cap = 0.000000; it has to be above 0");
}

// The text with which a kernel refuses what its operands hold.
std::string failure(Problem p) {
  set_threads(2);
  p.name = "h.0.node";
  p.infer();
  const Level& level = models().levels.back();
  const Execution r = execute(level.kernel(p.op->name), level.isa, p);
  return r.status == GALLEY_INVALID ? r.text : "not refused";
}

TEST(Ops, RefuseExchangesOfPartsThatDoNotFit) {
  const auto said = [](const char* op, std::vector<std::optional<Tensor>> inputs, sdk::Attrs attrs) {
    return refusal(op, std::move(inputs), {attrs.data(), attrs.data() + attrs.count()});
  };
  const auto parts = [](int64_t ranks, int64_t rank, std::vector<int64_t> ends, int64_t start = 0) {
    return sdk::Attrs().i("ranks", ranks).i("rank", rank).i("start", start).list("ends", std::move(ends));
  };
  EXPECT_EQ(said("all_reduce", {f32({3})}, sdk::Attrs().i("ranks", 0)), "h.0.node: all_reduce: ranks = 0; an axis has at least 1");
  for (const char* op : {"all_reduce", "all_reduce_here"})
    EXPECT_EQ(said(op, {f32({3})}, sdk::Attrs().i("ranks", 2).i("stride", 0)),
              std::string("h.0.node: ") + op + ": stride = 0; it has to be 1 or more");
  for (const char* op : {"reduce_scatter", "all_gather", "all_gather_here"})
    EXPECT_EQ(said(op, {f32({12})}, parts(2, 0, {12, 12}).i("stride", -2)),
              std::string("h.0.node: ") + op + ": stride = -2; it has to be 1 or more");
  EXPECT_EQ(said("all_reduce_here", {Tensor{GALLEY_U8, {3}, {}}}, sdk::Attrs().i("ranks", 2)),
            "h.0.node: all_reduce_here: x has to be F32, F64, BF16, F16 or I32");
  EXPECT_EQ(said("all_reduce_here", {Tensor{GALLEY_BF16, {3}, {}}}, sdk::Attrs().i("ranks", 2)), "");
  EXPECT_EQ(said("reduce_scatter", {f32({3, 4})}, parts(2, 0, {5, 12})), "");
  EXPECT_EQ(said("reduce_scatter", {f32({3, 4})}, parts(0, 0, {})), "h.0.node: reduce_scatter: ranks = 0; an axis has at least 1");
  EXPECT_EQ(said("reduce_scatter", {f32({3, 4})}, parts(2, 2, {5, 12})), "h.0.node: reduce_scatter: rank = 2 is none of 2 ranks");
  EXPECT_EQ(said("reduce_scatter", {f32({3, 4})}, parts(2, 0, {5, 12}, -1)),
            "h.0.node: reduce_scatter: start = -1; it has to be 0 or more");
  EXPECT_EQ(said("reduce_scatter", {f32({3, 4})}, parts(2, 0, {12})),
            "h.0.node: reduce_scatter: ends of 1 parts; there is one part for each of 2 ranks");
  EXPECT_EQ(said("reduce_scatter", {f32({3, 4})}, parts(3, 0, {5, 4, 12})), "h.0.node: reduce_scatter: part 1 ends at 4, before it begins");
  EXPECT_EQ(said("reduce_scatter", {f32({3, 4})}, parts(2, 0, {5, 13})),
            "h.0.node: reduce_scatter: x is (3, 4); by its last end, the whole has 13 elements");
  EXPECT_EQ(said("all_gather", {f32({7})}, parts(2, 0, {5, 12}, 1)), "");
  EXPECT_EQ(said("all_gather", {f32({7})}, parts(2, 0, {5, 12})),
            "h.0.node: all_gather: x is (7); by its ends, this rank's part has 5 elements");
  EXPECT_EQ(said("all_gather", {f32({5})}, parts(2, 0, {5, 12}).list("shape", {3, 5})),
            "h.0.node: all_gather: shape = (3, 5); by its last end, the whole has 12 elements");
  EXPECT_EQ(said("all_gather_here", {f32({5})}, parts(2, 0, {5, 12})),
            "h.0.node: all_gather_here: y is (5); by its last end, the whole has 12 elements");
}

/// A node of a group of so many ranks, as the rank of that number has it in a run.
sdk::Group group_in_run(sdk::Attrs attrs, int64_t rank_of_run, int64_t ranks_of_run) {
  auto node = sdk::fresh<galley_node_view>();
  node.op = "all_reduce";
  node.name = "h.0.node";
  node.attrs = attrs.data();
  node.n_attrs = attrs.count();
  return {sdk::Node(&node), rank_of_run, ranks_of_run};
}

TEST(Ops, GroupsOfAnAxisDivideTheRun) {
  for (const int64_t run : {1, 2, 12, 24})
    for (int64_t ranks = 1; ranks <= run; ++ranks)
      for (int64_t stride = 1; ranks * stride <= run; ++stride) {
        if (run % (ranks * stride)) continue;
        std::set<std::vector<int64_t>> groups;
        for (int64_t r = 0; r < run; ++r) {
          const sdk::Group g = group_in_run(sdk::Attrs().i("ranks", ranks).i("stride", stride), r, run);
          EXPECT_EQ(g.places(), ranks);
          EXPECT_EQ(g.member(g.place()), r);
          EXPECT_EQ(g.is_whole_run(), ranks == run);
          std::vector<int64_t> members;
          for (int64_t p = 0; p < ranks; ++p) members.push_back(g.member(p));
          for (int64_t p = 1; p < ranks; ++p) EXPECT_EQ(members[static_cast<size_t>(p)], members[static_cast<size_t>(p - 1)] + stride);
          groups.insert(members);
        }
        EXPECT_EQ(static_cast<int64_t>(groups.size()), run / ranks);
        std::set<int64_t> all;
        for (const auto& members : groups) all.insert(members.begin(), members.end());
        EXPECT_TRUE(static_cast<int64_t>(all.size()) == run && *all.begin() == 0 && *all.rbegin() == run - 1);
      }
  const sdk::Group far = group_in_run(sdk::Attrs().i("ranks", 2).i("stride", 8).i("rank", 1), 11, 16), whole(3, 5);
  EXPECT_TRUE(far.place() == 1 && far.member(0) == 3 && far.member(1) == 11);
  EXPECT_TRUE(whole.places() == 5 && whole.place() == 3 && whole.member(4) == 4 && whole.is_whole_run());
}

TEST(Ops, RefuseGroupsThatDoNotDivideTheRun) {
  const auto said = [](sdk::Attrs attrs, int64_t rank, int64_t ranks) -> std::string {
    try {
      group_in_run(std::move(attrs), rank, ranks);
      return "";
    } catch (const sdk::Failure& failure) {
      return failure.what();
    }
  };
  const auto of = [](int64_t ranks, int64_t stride) { return sdk::Attrs().i("ranks", ranks).i("stride", stride); };
  EXPECT_EQ(said(of(3, 1), 0, 4), "h.0.node: all_reduce is planned for 3 ranks, and the run has 4");
  EXPECT_EQ(said(of(8, 1), 0, 4), "h.0.node: all_reduce is planned for 8 ranks, and the run has 4");
  EXPECT_EQ(said(of(2, 4), 0, 4), "h.0.node: all_reduce is planned for 2 ranks with stride 4, and the run has 4");
  EXPECT_EQ(said(of(2, 3), 0, 4), "h.0.node: all_reduce is planned for 2 ranks with stride 3, and the run has 4");
  EXPECT_EQ(said(of(2, int64_t{1} << 62), 0, 4).find("h.0.node: all_reduce is planned for 2 ranks with stride 4611686018427387904"), 0u);
  EXPECT_EQ(said(of(2, 0), 0, 4), "h.0.node: all_reduce is planned for 2 ranks with stride 0, and the run has 4");
  EXPECT_EQ(said(of(0, 1), 0, 4), "h.0.node: all_reduce is planned for 0 ranks, and the run has 4");
  EXPECT_EQ(said(of(2, 2).i("rank", 1), 3, 4), "");
  EXPECT_EQ(said(of(2, 2).i("rank", 0), 3, 4),
            "h.0.node: all_reduce is planned for rank 0 of its axis, and rank 3 of the run has place 1 there");
}

/// What the reference of an exchange makes in F64 of what all ranks have, one after the other; in the place of x if `y` is empty.
std::vector<double> exchanged(const char* name, std::vector<double> x, int64_t own, std::vector<double> y, const sdk::Attrs& attrs) {
  const auto operand = [&](std::vector<double>& data, const int64_t* shape) {
    auto out = sdk::fresh<galley_operand>();
    out.name = "";
    out.data = data.data();
    out.shape = shape;
    out.rank = 1;
    out.dtype = GALLEY_F64;
    return out;
  };
  const auto count = static_cast<int64_t>(y.size());
  const galley_operand in = operand(x, &own), to = operand(y, &count);
  const galley_operand *const inputs[] = {&in}, *const outputs[] = {&to};
  auto node = sdk::fresh<galley_node_view>();
  node.op = name;
  node.name = "h.0.node";
  node.inputs = inputs;
  node.outputs = outputs;
  node.attrs = attrs.data();
  node.n_inputs = 1;
  node.n_outputs = y.empty() ? 0 : 1;
  node.n_attrs = attrs.count();
  const galley_op* op = models().op(name);
  galley_error error = GALLEY_ERROR_INIT;
  EXPECT_EQ(op->reference(op->self, &node, &error), GALLEY_OK) << error.text;
  return y.empty() ? x : y;
}

// What a reference of one rank would compute of several is no sum, and no whole.
TEST(Ops, ReferencesOfExchangesAreGivenWhatAllRanksHave) {
  // Ranks count along the axis, whatever their numbers in the run are.
  const auto three = [] { return sdk::Attrs().s("axis", "data").i("ranks", 3).i("stride", 4); };
  EXPECT_EQ(exchanged("all_reduce", {1, 2, 10, 20, 100, 200}, 2, {0, 0}, three()), (std::vector<double>{111, 222}));
  const auto parts = [&](int64_t rank) { return three().i("rank", rank).i("start", 1).list("ends", {1, 1, 4}); };
  // Part 0 is that of rank 1, part 1 of rank 2, which has nothing, part 2 of rank 0.
  const std::vector<double> x = {1, 2, 3, 4, 10, 20, 30, 40, 100, 200, 300, 400};
  EXPECT_EQ(exchanged("reduce_scatter", x, 4, {0, 0, 0}, parts(0)), (std::vector<double>{222, 333, 444}));
  EXPECT_EQ(exchanged("reduce_scatter", x, 4, {0}, parts(1)), (std::vector<double>{111}));
  EXPECT_EQ(exchanged("all_gather", {2, 3, 4, 1}, 3, {0, 0, 0, 0}, parts(0)), (std::vector<double>{1, 2, 3, 4}));
  const std::vector<double> here = exchanged("all_gather_here", {-1, 2, 3, 4, 1, -1, -1, -1, -1, -1, -1, -1}, 4, {}, parts(2));
  EXPECT_EQ(std::vector<double>(here.begin(), here.begin() + 4), (std::vector<double>{1, 2, 3, 4}));
}

TEST(Ops, FillTensorsOfAnyDtype) {
  for (const Level& level : models().levels)
    for (const uint32_t dtype : {GALLEY_F64, GALLEY_F32, GALLEY_I64, GALLEY_I32, GALLEY_I8, GALLEY_U8})
      for (const int64_t size : {0, 1, 3, 5000}) {
        Problem p;
        p.op = models().op("fill");
        p.name = "fill";
        p.outputs = {Tensor{dtype, {size}, {}}};
        const double value = 7;
        const galley_attr seven = {sizeof(galley_attr), 1, "value", &value, GALLEY_ATTR_F64, 1, 0};
        const galley_attr* const attrs[] = {&seven};
        p.attrs = attrs;
        p.n_attrs = 1;
        const Execution r = execute(level.kernel("fill"), level.isa, p);
        ASSERT_EQ(r.status, GALLEY_OK) << r.text;
        EXPECT_TRUE(r.intact());
        EXPECT_EQ(unpack(r.outputs[0].data(), dtype, size), std::vector<double>(static_cast<size_t>(size), 7)) << level.isa << " " << dtype;
      }
}

TEST(Ops, RefuseNumbersThatPointNowhere) {
  Problem p;
  p.op = models().op("embedding");
  p.inputs = {Tensor{GALLEY_I32, {3}, {0, 7, 1}}, Tensor{GALLEY_F32, {5, 2}, std::vector<double>(10, 1.0)}};
  EXPECT_EQ(failure(p), "h.0.node: id 7 at row 1 is not in the table of 5 rows");
  p.inputs[0]->values[1] = -1;
  EXPECT_EQ(failure(p), "h.0.node: id -1 at row 1 is not in the table of 5 rows");
  p.first_row = 40;
  EXPECT_EQ(failure(p), "h.0.node: id -1 at row 41 is not in the table of 5 rows");

  Problem loss;
  loss.op = models().op("cross_entropy");
  loss.inputs = {Tensor{GALLEY_F32, {2, 3}, std::vector<double>(6, 0.5)}, Tensor{GALLEY_I32, {2}, {-100, 3}}};
  EXPECT_EQ(failure(loss), "h.0.node: label 3 at row 1 is not one of the 3 classes");
}

// cos and sin at position 100 of the frequencies that transformers' _compute_llama3_parameters gives for Llama 3.2's config.
TEST(Ops, RopeTableStretchesAsLlama3Does) {
  const double theta = 500000, factor = 32, low = 1, high = 4, original = 8192;
  const std::string type = "llama3";
  const Number positions("positions", 101), head_dim("head_dim", 64);
  const auto number = [](const char* name, const double* value) {
    return galley_attr{sizeof(galley_attr), 1, name, value, GALLEY_ATTR_F64, 1, 0};
  };
  const galley_attr t = number("theta", &theta), f = number("factor", &factor), l = number("low_freq_factor", &low),
                    h = number("high_freq_factor", &high), o = number("original_max_position", &original),
                    kind = {sizeof(galley_attr), 1, "type", type.c_str(), GALLEY_ATTR_STRING, static_cast<uint32_t>(type.size()), 0};
  const std::vector<const galley_attr*> attrs = {&positions.attr, &head_dim.attr, &t, &f, &l, &h, &o, &kind};
  Problem p;
  p.op = models().op("rope_table");
  p.name = "table";
  p.attrs = attrs.data();
  p.n_attrs = static_cast<uint32_t>(attrs.size());
  p.infer();
  run_reference(p);
  const auto angle = [&](size_t pair) {
    const double* row = p.outputs[0]->values.data() + size_t{100} * 64;
    return std::atan2(row[32 + pair], row[pair]);
  };
  // Kept (a turn takes 9 positions), between (2,948 and 4,443), divided by 32 (118,143).
  EXPECT_NEAR(angle(1), -2.75491460937, 1e-9);
  EXPECT_NEAR(angle(15), 0.129054792821, 1e-9);
  EXPECT_NEAR(angle(16), 0.0429556796559, 1e-9);
  EXPECT_NEAR(angle(24), 0.00016619674678, 1e-9);
}

// Angles and the size of cos and sin, as transformers' modeling_rope_utils.py has them for head_dim 64 and theta 10,000.
TEST(Ops, RopeTableStretchesAsOthersDo) {
  std::vector<double> factors;
  for (int i = 0; i < 32; ++i) factors.push_back(1 + i);
  const auto expect = [](sdk::Attrs attrs, double size, std::vector<double> angles) {
    attrs.i("positions", 2).i("head_dim", 64);
    Problem p;
    p.op = models().op("rope_table");
    p.name = "table";
    p.attrs = attrs.data();
    p.n_attrs = attrs.count();
    p.infer();
    run_reference(p);
    const double* const row = p.outputs[0]->values.data() + 64;  // position 1
    for (const size_t pair : {size_t{1}, size_t{10}, size_t{20}, size_t{31}}) {
      EXPECT_NEAR(std::hypot(row[pair], row[32 + pair]), size, 1e-12) << pair;
      EXPECT_NEAR(std::atan2(row[32 + pair], row[pair]) / angles.front(), 1, 3e-7) << pair;  // theirs are F32
      angles.erase(angles.begin());
    }
  };
  expect(sdk::Attrs().s("type", "yarn").f("factor", 16).i("original_max_position", 4096), 1.2772588722239782,
         {0.7498942017555237, 0.05623412877321243, 0.0008817889611236751, 8.33450940262992e-06});
  expect(sdk::Attrs()
             .s("type", "yarn")
             .f("factor", 40)
             .i("original_max_position", 4096)
             .f("mscale", 0.7)
             .f("mscale_all_dim", 1)
             .i("truncate", 0),
         0.9191559952044436, {0.7498942017555237, 0.05623412877321243, 0.0007226381567306817, 3.3338035336782923e-06});
  expect(sdk::Attrs().s("type", "dynamic").f("factor", 2).i("original_max_position", 2048).i("seq_len", 6000), 1,
         {0.7126105427742004, 0.033769331872463226, 0.0011403677053749561, 2.7442241844255477e-05});
  expect(sdk::Attrs().s("type", "longrope").f("factor", 32).i("original_max_position", 4096).numbers("factors", factors),
         1.1902380714238083, {0.37494710087776184, 0.005112193524837494, 0.0001505846594227478, 4.16725470131496e-06});
}

}  // namespace
}  // namespace galley::test
