// The graph by itself: making, appending, replacing, sorting.
#include "host/graph/graph.hpp"

#include <gtest/gtest.h>

#include <set>

#include "galley/cpp/plugin.hpp"

namespace galley {
namespace {

void like_first(const sdk::Node& n, sdk::Shapes& out) { out.like(0, n.in(0)); }

const galley_op* join_op() {
  static sdk::Op op("join", "y = a and b");
  static const galley_op* table = op.input("a", GALLEY_ROLE_ROWS)
                                      .input("b", GALLEY_ROLE_ROWS, GALLEY_OPERAND_OPTIONAL)
                                      .output("y", GALLEY_ROLE_ROWS)
                                      .infer<like_first>()
                                      .table();
  return table;
}

const galley_op* scaled_op() {
  static sdk::Op op("scaled", "y = alpha · a");
  static const galley_op* table = op.input("a", GALLEY_ROLE_ROWS)
                                      .output("y", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ANY_DTYPE)
                                      .attr("alpha", GALLEY_ATTR_F64, GALLEY_ATTR_REQUIRED, "the factor")
                                      .attr("shifts", GALLEY_ATTR_F64, GALLEY_ATTR_LIST, "of rows")
                                      .integer("rows", 1, "together")
                                      .infer<like_first>()
                                      .table();
  return table;
}

const galley_op* bare_op() {
  static sdk::Op op("bare", "y = a, without a shape rule");
  static const galley_op* table = op.input("a", GALLEY_ROLE_ROWS).output("y", GALLEY_ROLE_ROWS).table();
  return table;
}

class Graphs : public testing::Test {
 protected:
  Graphs()
      : graph(
            [](std::string_view name) {
              return name == "scaled" ? scaled_op() : name == "join" ? join_op() : name == "bare" ? bare_op() : nullptr;
            },
            [] {
              return std::vector<std::string>{"join", "bare"};
            },
            Extents{2, 4}) {}
  galley_tensor input(const std::string& name) {
    GraphTensor t;
    t.name = name;
    t.shape = {2, 4};
    t.kind = GALLEY_KIND_INPUT;
    return graph.make(std::move(t)).value();
  }
  galley_tensor join(const std::string& name, galley_tensor a, galley_tensor b = 0) {
    std::vector<galley_tensor> out;
    EXPECT_TRUE(graph.append("join", name, {a, b}, {}, &out).ok());
    return out.at(0);
  }
  std::string order(Section s) const {
    std::string out;
    for (const galley_node n : graph.section(s)) out += (out.empty() ? "" : " ") + graph.node(n).name;
    return out;
  }
  Graph graph;
};

TEST_F(Graphs, RefusesWhatNoMemoryHolds) {
  GraphTensor t;
  t.name = "t";
  t.shape = {int64_t{1} << 30, int64_t{1} << 30};
  EXPECT_FALSE(graph.make(t).ok());
  t.shape = {-1};
  EXPECT_FALSE(graph.make(t).ok());
  t.shape = Shape(9, 1);
  EXPECT_NE(graph.make(t).error().cause.find("rank 9"), std::string::npos);
}

TEST_F(Graphs, NamesOfWhatLastsAreUnique) {
  input("x");
  GraphTensor t;
  t.name = "x";
  t.kind = GALLEY_KIND_STATE;
  EXPECT_FALSE(graph.make(t).ok());
}

TEST_F(Graphs, RefusesMissingAndSurplusInputs) {
  const galley_tensor x = input("x");
  std::vector<galley_tensor> out;
  EXPECT_FALSE(graph.append("join", "n", {0}, {}, &out).ok());
  EXPECT_FALSE(graph.append("join", "n", {x, x, x}, {}, &out).ok());
  EXPECT_FALSE(graph.append("join", "n", {99}, {}, &out).ok());
  EXPECT_NE(graph.append("jion", "n", {x}, {}, &out).error().hint.find("join"), std::string::npos);
}

TEST_F(Graphs, RefusesAttributesThatTheOpDoesNotDeclare) {
  const galley_tensor x = input("x");
  const auto refusal = [&](const auto& set) {
    AttrList attrs;
    set(attrs);
    std::vector<galley_tensor> out;
    const auto made = graph.append("scaled", "n", {x}, std::move(attrs), &out);
    return made.ok() ? "" : made.error().cause;
  };
  const std::vector<double> two = {1, 2};
  EXPECT_EQ(refusal([](AttrList& a) { a.set("alpha", 0.5); }), "");
  EXPECT_EQ(refusal([](AttrList& a) { a.set("alpha", int64_t{2}); }), "") << "an integer is a number";
  EXPECT_EQ(refusal([&](AttrList& a) { a.set("alpha", 0.5), a.set("shifts", two), a.set("dtype", std::string("f32")); }), "");
  EXPECT_EQ(refusal([](AttrList&) {}), "scaled: the attribute 'alpha' is missing");
  EXPECT_EQ(refusal([](AttrList& a) { a.set("alhpa", 0.5); }), "scaled has no attribute 'alhpa': did you mean 'alpha'?");
  EXPECT_EQ(refusal([](AttrList& a) { a.set("alpha", 0.5), a.set("tf32", int64_t{1}); }), "scaled has no attribute 'tf32'");
  EXPECT_EQ(refusal([](AttrList& a) { a.set("alpha", std::string("1")); }),
            "scaled: the attribute 'alpha' is string, and the op declares F64");
  EXPECT_EQ(refusal([&](AttrList& a) { a.set("alpha", two); }), "scaled: the attribute 'alpha' is 2 × F64, and the op declares F64");
  EXPECT_EQ(refusal([](AttrList& a) { a.set("alpha", 0.5), a.set("rows", 1.0); }),
            "scaled: the attribute 'rows' is F64, and the op declares I64");
}

TEST_F(Graphs, RefusesOutputsFromElsewhere) {
  const galley_tensor x = input("x");
  const size_t tensors = graph.tensor_count();
  std::vector<galley_tensor> out = {tensors + 1};
  const auto made = graph.append("join", "n", {x}, {}, &out);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().cause, "join: an output that is no tensor of this graph");
  EXPECT_EQ(graph.tensor_count(), tensors);
  EXPECT_EQ(graph.node_count(), 0u);
  EXPECT_EQ(order(Section::Forward), "");
}

TEST_F(Graphs, WithoutAShapeRuleOutputsAreGiven) {
  const galley_tensor x = input("x"), y = input("y");
  std::vector<galley_tensor> out = {0};
  const auto made = graph.append("bare", "n", {x}, {}, &out);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().cause, "bare has no shape rule");
  EXPECT_EQ(graph.node_count(), 0u);
  out = {y};
  EXPECT_TRUE(graph.append("bare", "n", {x}, {}, &out).ok());
}

TEST_F(Graphs, WhoAppendsIsWritten) {
  const galley_tensor x = input("x");
  galley_tensor y = 0;
  {
    const Graph::As as(graph, {Section::Update, 3, 7, 0, "before."});
    y = join("", x);
  }
  const GraphNode& node = graph.node(graph.tensor(y).producer);
  EXPECT_EQ(node.section, Section::Update);
  EXPECT_EQ(node.use, 3);
  EXPECT_EQ(node.block, 7);
  EXPECT_EQ(node.name, "before.join.1");
  EXPECT_EQ(graph.author.section, Section::Forward);
  EXPECT_EQ(graph.author.use, no_use);
}

TEST_F(Graphs, ReplaceSparesWhatItIsMadeFrom) {
  const galley_tensor x = input("x"), a = join("a", x), b = join("b", a);
  const galley_tensor c = join("c", a);
  ASSERT_TRUE(graph.replace(a, c).ok());
  EXPECT_EQ(graph.node(graph.tensor(b).producer).inputs[0], c);
  EXPECT_EQ(graph.node(graph.tensor(c).producer).inputs[0], a);
}

// As an adapter does with each layer in turn, and in any order of the layers: only readers of `from` change that do not make `to`.
TEST_F(Graphs, ReplaceManyTimesInADeepGraph) {
  constexpr int kLayers = 40;
  const galley_tensor x = input("x");
  std::vector<galley_tensor> layers = {x};
  for (int i = 0; i < kLayers; ++i) layers.push_back(join("l" + std::to_string(i), layers.back()));
  for (const int start : {0, 1})
    for (int i = kLayers - 1 - start; i > 0; i -= 2) {
      const auto at = static_cast<size_t>(i);
      const galley_tensor made = join("a" + std::to_string(i), layers[at], join("b" + std::to_string(i), layers[at - 1]));
      const galley_node reader = graph.tensor(layers[at + 1]).producer;
      ASSERT_TRUE(graph.replace(layers[at], made).ok());
      EXPECT_EQ(graph.node(reader).inputs[0], made);
      EXPECT_EQ(graph.node(graph.tensor(made).producer).inputs[0], layers[at]);
    }
  // What is made of a layer far after spares the whole way there.
  const galley_tensor last = layers.back(), far = join("far", layers[5], last), beside = join("beside", layers[5]);
  const galley_node on_the_way = graph.tensor(layers[6]).producer;
  const galley_tensor before = graph.node(on_the_way).inputs[0];
  ASSERT_TRUE(graph.replace(layers[5], far).ok());
  EXPECT_EQ(graph.node(on_the_way).inputs[0], before);
  EXPECT_EQ(graph.node(graph.tensor(beside).producer).inputs[0], far);
  EXPECT_EQ(graph.node(graph.tensor(far).producer).inputs[0], layers[5]);
  graph.sort(Section::Forward);
  std::set<galley_node> done;
  for (const galley_node n : graph.section(Section::Forward)) {
    for (const galley_tensor t : graph.node(n).inputs) {
      const galley_node producer = t ? graph.tensor(t).producer : 0;
      EXPECT_TRUE(!producer || done.contains(producer)) << graph.node(n).name;
    }
    done.insert(n);
  }
}

// A plugin may append a node before the one that makes what it reads. `replace` has to find both on the way to `from`.
TEST_F(Graphs, ReplaceSparesWhatWasAppendedBeforeItsInput) {
  const galley_tensor x = input("x"), a = join("a", x), b = join("b", a);
  const Graph::As as(graph, {Section::Forward, 0});
  GraphTensor t;
  t.name = "later";
  t.shape = {2, 4};
  const galley_tensor later = graph.make(std::move(t)).value();
  const galley_tensor to = join("to", later);
  std::vector<galley_tensor> out = {later};
  const galley_node writer = graph.append("join", "later", {a, 0}, {}, &out).value();
  ASSERT_TRUE(graph.replace(a, to).ok());
  EXPECT_EQ(graph.node(writer).inputs[0], a);
  EXPECT_EQ(graph.node(graph.tensor(b).producer).inputs[0], to);
}

TEST_F(Graphs, WhatIsReplacedIsDropped) {
  GraphTensor p;
  p.name = "p";
  p.shape = {2, 4};
  p.kind = GALLEY_KIND_PARAMETER;
  const galley_tensor x = input("x"), w = graph.make(std::move(p)).value(), scaled = join("scaled", w);
  const galley_tensor y = join("y", x, scaled), z = join("z", y);
  join("watched", x);  // nobody has ever read it
  ASSERT_TRUE(graph.replace(y, join("other", x)).ok());
  graph.sort(Section::Forward);
  graph.drop_unread(Section::Forward);
  EXPECT_EQ(order(Section::Forward), "other z watched");
  EXPECT_TRUE(graph.replaced(w));
  EXPECT_FALSE(graph.replaced(x));
  EXPECT_FALSE(graph.replaced(z)) << "it never had a reader";
  std::vector<galley_tensor> out;
  EXPECT_EQ(graph.append("join", "late", {y}, {}, &out).error().cause, "join reads 'y' of the node 'y', which has been replaced");
  join("y", x);  // its name is free
}

TEST_F(Graphs, WhatSomebodyElseReadsIsKept) {
  const galley_tensor x = input("x"), y = join("y", x), z = join("z", y);
  join("end", z);
  graph.marks.output = y;
  ASSERT_TRUE(graph.replace(z, join("other", x)).ok());
  graph.sort(Section::Forward);
  graph.drop_unread(Section::Forward);
  EXPECT_EQ(order(Section::Forward), "y other end");
}

TEST_F(Graphs, RewireOneInput) {
  const galley_tensor x = input("x"), a = join("a", x), b = join("b", a, a);
  const galley_node n = graph.tensor(b).producer;
  const galley_tensor c = join("c", a);
  ASSERT_TRUE(graph.rewire(n, 1, c).ok());
  EXPECT_EQ(graph.node(n).inputs, (std::vector<galley_tensor>{a, c}));
  graph.sort(Section::Forward);
  EXPECT_EQ(order(Section::Forward), "a c b");
  const auto refused = [&](galley_node node, size_t input_, galley_tensor to) {
    const Status status = graph.rewire(node, input_, to);
    return status.ok() ? "" : status.error().cause;
  };
  const galley_tensor d = join("d", b), e = join("e", d);
  EXPECT_EQ(refused(n, 0, e), "set_input: 'e' is made from what 'b' writes");
  EXPECT_EQ(refused(n, 0, b), "set_input: 'b' is made from what 'b' writes");
  EXPECT_EQ(refused(n, 2, a), "set_input: 'b' has no input 2");
  EXPECT_EQ(refused(99, 0, a), "set_input: no such node");
  EXPECT_EQ(refused(n, 0, 999), "set_input: no such tensor");
  GraphTensor wide = graph.tensor(x);
  wide.name = "wide";
  wide.dtype = GALLEY_F64;
  EXPECT_EQ(refused(n, 0, graph.make(wide).value()), "set_input: 'wide' has not the shape and dtype of 'a', which 'b' reads");
  const Graph::As as(graph, {Section::Export});
  EXPECT_EQ(refused(n, 0, x), "set_input: 'b' is no node of the graph that is being built");
}

TEST_F(Graphs, SortPutsProducersFirst) {
  const galley_tensor x = input("x"), a = join("a", x);
  join("b", a);
  const galley_tensor late = join("late", x);
  ASSERT_TRUE(graph.replace(a, join("c", a, late)).ok());
  graph.sort(Section::Forward);
  EXPECT_EQ(order(Section::Forward), "a late c b");
}

}  // namespace
}  // namespace galley
