// What the host refuses of a plugin's calls to the graph's verbs. A refusal says what is wrong and leaves the graph as it was.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "galley/cpp/plugin.hpp"
#include "host/graph/axes.hpp"
#include "host/passes/verbs/handle.hpp"
#include "host/plugins/abi.hpp"
#include "tests/passes/hand.hpp"

namespace galley {
namespace {

void same_as_a(const sdk::Node& n, sdk::Shapes& out) { out.like(0, n.in(0)); }

/// join: y = a and b · bare: the same, without a shape rule.
const galley_op* op(std::string_view name) {
  static sdk::Op join("join", "y = a and b"), bare("bare", "y = a");
  static const galley_op* const tables[] = {
      join.input("a", GALLEY_ROLE_ROWS)
          .input("b", GALLEY_ROLE_ROWS, GALLEY_OPERAND_OPTIONAL)
          .output("y", GALLEY_ROLE_ROWS)
          .infer<same_as_a>()
          .table(),
      bare.input("a", GALLEY_ROLE_ROWS).output("y", GALLEY_ROLE_ROWS).table(),
  };
  for (const galley_op* table : tables)
    if (table->name == name) return table;
  return nullptr;
}

constexpr galley_tensor nowhere = 999;  // no tensor of any graph here
constexpr galley_tensor untouched = 12345;

class Verbs : public testing::Test {
 protected:
  /// A call that is refused, and what the plugin is told.
  struct Case {
    const char* about;
    std::function<galley_status(galley_error*)> call;
    std::string text;
    std::string hint = {};
  };
  /// A good description, spoiled in one place.
  template <class Desc>
  struct Spoiled {
    const char* about;
    std::function<void(Desc&)> spoil;
    std::string text;
  };

  Verbs()
      : draft(
            op,
            [] {
              return std::vector<std::string>{"join", "bare"};
            },
            Extents{2, 4}) {
    parameter = tensor("p", {4}, GALLEY_KIND_PARAMETER);
    input = tensor("x", {2, 4}, GALLEY_KIND_INPUT);
    number = tensor("n", {1}, GALLEY_KIND_STATE);
  }

  galley_tensor tensor(const std::string& name, Shape shape, uint32_t kind, uint32_t dtype = GALLEY_F32) {
    GraphTensor t;
    t.name = name;
    t.shape = std::move(shape);
    t.kind = kind;
    t.dtype = dtype;
    return graph.make(std::move(t)).value();
  }

  void expect_refused(const std::vector<Case>& cases) {
    for (const Case& c : cases) {
      SCOPED_TRACE(c.about);
      const size_t tensors = graph.tensor_count(), nodes = graph.node_count(), slots = draft.scalars.slots.size();
      handle.refused.reset();
      galley_error error = GALLEY_ERROR_INIT;
      EXPECT_EQ(c.call(&error), GALLEY_INVALID);
      EXPECT_EQ(error.code, GALLEY_INVALID);
      EXPECT_EQ(error.text, c.text);
      EXPECT_EQ(error.hint, c.hint);
      EXPECT_TRUE(handle.refused && handle.refused->cause == c.text) << "remembered, if the plugin's own call fails now";
      EXPECT_EQ(graph.tensor_count(), tensors);
      EXPECT_EQ(graph.node_count(), nodes);
      EXPECT_EQ(draft.scalars.slots.size(), slots);
    }
  }

  /// Of a verb that hands out a tensor.
  template <class Call>
  static std::function<galley_status(galley_error*)> handing_out(Call call) {
    return [call](galley_error* error) {
      galley_tensor out = untouched;
      const galley_status status = call(&out, error);
      EXPECT_EQ(out, untouched);
      return status;
    };
  }

  galley_tensor_desc tensor_desc() const {
    auto desc = new_struct<galley_tensor_desc>();
    desc.name = "t";
    desc.shape = shape_;
    desc.rank = 2;
    desc.dtype = GALLEY_F32;
    desc.kind = GALLEY_KIND_STATE;
    return desc;
  }
  galley_node_desc node_desc() const {
    auto desc = new_struct<galley_node_desc>();
    desc.op = "join";
    desc.inputs = &input;
    desc.n_inputs = 1;
    desc.n_outputs = 1;
    return desc;
  }

  void expect_refused(const std::vector<Spoiled<galley_tensor_desc>>& cases) {
    for (const auto& c : cases) {
      galley_tensor_desc desc = tensor_desc();
      c.spoil(desc);
      expect_refused(
          {Case{c.about, handing_out([&](galley_tensor* out, galley_error* e) { return verbs.tensor_make(handle.get(), &desc, out, e); }),
                c.text}});
    }
  }
  void expect_refused(const std::vector<Spoiled<galley_node_desc>>& cases) {
    for (const auto& c : cases) {
      galley_node_desc desc = node_desc();
      c.spoil(desc);
      expect_refused({Case{c.about,
                           [&](galley_error* e) {
                             galley_tensor out[3] = {0, 0, untouched};
                             const galley_status status = verbs.node_make(handle.get(), &desc, out, e);
                             EXPECT_EQ(out[0], 0u);
                             EXPECT_EQ(out[2], untouched);
                             return status;
                           },
                           c.text}});
    }
  }

  const galley_graph_verbs& verbs = *GraphHandle::verbs();
  const galley_graph_reader& reader = *GraphHandle::reader();
  std::unique_ptr<Plugins> plugins = Plugins::scan(hand::folders());
  Draft draft;
  Graph& graph = draft.graph;
  GraphHandle handle = {draft, plugins.get()};
  /// One with an option that is a number, for the tests in which a strategy's call runs.
  const std::unique_ptr<const LoadedStrategy> strategy = LoadedStrategy::create(*plugins, {"peaks", {}, {"hand.lua", 3}, {}}).value();
  galley_tensor parameter = 0, input = 0, number = 0;

 private:
  const int64_t shape_[2] = {2, 4};
};

TEST_F(Verbs, MakeATensorOnlyOfAWholeDescription) {
  const int64_t deep[GALLEY_MAX_RANK + 1] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
  const galley_attr* const no_attr = nullptr;
  using Desc = galley_tensor_desc;
  expect_refused(std::vector<Spoiled<Desc>>{
      {"too small", [](Desc& d) { d.size = 8; }, "the description of a tensor has 8 bytes; the least that this version reads is 112"},
      {"no name", [](Desc& d) { d.name = nullptr; }, "a tensor without a name"},
      {"an empty name", [](Desc& d) { d.name = ""; }, "a tensor without a name"},
      {"too many extents", [&](Desc& d) { d.rank = GALLEY_MAX_RANK + 1, d.shape = deep; }, "tensor 't': rank 9"},
      {"no extents", [](Desc& d) { d.shape = nullptr; }, "tensor 't': rank 2"},
      {"no dtype", [](Desc& d) { d.dtype = 0; }, "tensor 't': unknown dtype 0"},
      {"a dtype of the future", [](Desc& d) { d.dtype = 77; }, "tensor 't': unknown dtype 77"},
      {"inputs without a table", [](Desc& d) { d.initializer = "join", d.n_initializer_inputs = 1; },
       "tensor 't': inputs of an initializer are missing"},
      {"attributes without a table", [](Desc& d) { d.n_attrs = 2; }, "tensor 't': 2 attributes and no table of them"},
      {"an attribute that is null", [&](Desc& d) { d.attrs = &no_attr, d.n_attrs = 1; }, "tensor 't': attribute 1 is null"},
      {"of no tensor", [](Desc& d) { d.parameter = nowhere; }, "tensor 't' is said to belong to what is no parameter"},
      {"of an input", [&](Desc& d) { d.parameter = input; }, "tensor 't' is said to belong to what is no parameter"},
      {"a name that is taken", [](Desc& d) { d.name = "p"; }, "two tensors of the name 'p'"},
      {"a name of two lines", [](Desc& d) { d.name = "../p\n"; }, "tensor '../p\\n' has a control character in its name"},
      {"a name in a file of two lines", [](Desc& d) { d.file_name = "p\n"; },
       "tensor 't': its name in a file, 'p\\n', has a control character"},
  });
  galley_tensor_desc good = tensor_desc();
  good.parameter = parameter;
  galley_tensor made = 0;
  galley_error error = GALLEY_ERROR_INIT;
  EXPECT_EQ(verbs.tensor_make(handle.get(), &good, &made, &error), GALLEY_OK) << error.text;
  EXPECT_EQ(graph.find("t"), made);
}

TEST_F(Verbs, DescribeTheRun) {
  galley_run_info info = {sizeof(galley_run_info), 1, 0, 0, 0, 0, nullptr, 0, nullptr, 0, 0, nullptr, 0, 0};
  galley_error error = GALLEY_ERROR_INIT;
  EXPECT_EQ(reader.run(handle.get(), &info, &error), GALLEY_INVALID);
  EXPECT_STREQ(error.text, "the graph is made for no run");
  Target target;
  target.memories = {{"near"}, {"far"}};
  draft.run.target.emplace(target);
  draft.run.steps = 7;
  draft.run.purpose = GALLEY_PURPOSE_TRAIN;
  draft.run.model_files = "/models/one";
  ASSERT_EQ(reader.run(handle.get(), &info, &error), GALLEY_OK) << error.text;
  EXPECT_EQ(info.rows, graph.rows());
  EXPECT_EQ(info.length, graph.length());
  EXPECT_EQ(info.steps, 7);
  EXPECT_EQ(info.micro_batches, 0);
  EXPECT_EQ(info.flags, 0u);
  EXPECT_EQ(info.purpose, GALLEY_PURPOSE_TRAIN);
  EXPECT_STREQ(info.model, "/models/one");
  ASSERT_EQ(info.target->n_memories, 2u);
  EXPECT_STREQ(info.target->memories[1]->name, "far");
  // A plugin that knows only the beginning of the struct gets that.
  galley_run_info old = {GALLEY_RUN_INFO_MIN_SIZE, 1, 0, 0, 0, 0, nullptr, 99, "as before", 77, 0, nullptr, 0, 0};
  ASSERT_EQ(reader.run(handle.get(), &old, &error), GALLEY_OK);
  EXPECT_EQ(old.rows, graph.rows());
  EXPECT_EQ(old.flags, 0u);
  EXPECT_EQ(old.purpose, 77u);  // beyond its size
  EXPECT_STREQ(old.model, "as before");
  // Of one whose size was never set, nothing is written.
  for (const uint32_t size : {0u, GALLEY_RUN_INFO_MIN_SIZE - 8, GALLEY_MAX_SIZE + 1}) {
    galley_run_info unset = {size, 1, 0, 0, 0, 0, nullptr, 99, nullptr, 0, 0, nullptr, 0, 0};
    EXPECT_EQ(reader.run(handle.get(), &unset, &error), GALLEY_INVALID);
    EXPECT_NE(std::string(error.text).find("the struct that is to be filled has " + std::to_string(size) + " bytes"), std::string::npos)
        << error.text;
    EXPECT_EQ(unset.flags, 99u);
  }
}

TEST_F(Verbs, MakeANodeOnlyOfAWholeDescription) {
  galley_attr nameless = {sizeof(galley_attr), 1, "", nullptr, GALLEY_ATTR_I64, 0, 0};
  const galley_attr* const attrs[] = {&nameless};
  using Desc = galley_node_desc;
  expect_refused(std::vector<Spoiled<Desc>>{
      {"too small", [](Desc& d) { d.size = 8; }, "the description of a node has 8 bytes; the least that this version reads is 64"},
      {"of the future", [](Desc& d) { d.revision = 2; }, "the description of a node has revision 2; this version knows revision 1"},
      {"an unknown flag", [](Desc& d) { d.flags = 4; }, "the description of a node has flags that this version does not know: 4"},
      {"no op", [](Desc& d) { d.op = nullptr; }, "a node without an op"},
      {"an empty op", [](Desc& d) { d.op = ""; }, "a node without an op"},
      {"too many outputs", [](Desc& d) { d.n_outputs = 2; }, "op 'join' has 2 outputs; the op has 1"},
      {"inputs without a table", [](Desc& d) { d.inputs = nullptr; }, "a node of op 'join' without its table of operands"},
      {"attributes without a table", [](Desc& d) { d.n_attrs = 2; }, "a node of op 'join': 2 attributes and no table of them"},
      {"a nameless attribute", [&](Desc& d) { d.attrs = attrs, d.n_attrs = 1; }, "a node of op 'join': attribute 1 has no name"},
      {"no shape rule", [](Desc& d) { d.op = "bare"; }, "bare has no shape rule"},
  });
  const galley_node_desc good = node_desc();
  expect_refused({
      {"no description", [&](galley_error* e) { return verbs.node_make(handle.get(), nullptr, nullptr, e); },
       "the description of a node is null"},
      {"outputs without a table", [&](galley_error* e) { return verbs.node_make(handle.get(), &good, nullptr, e); },
       "a node of op 'join' without its table of operands"},
  });
  galley_tensor out = nowhere;
  expect_refused({{"an output from elsewhere", [&](galley_error* e) { return verbs.node_make(handle.get(), &good, &out, e); },
                   "join: an output that is no tensor of this graph"}});
  EXPECT_EQ(out, nowhere);
  out = 0;
  galley_error error = GALLEY_ERROR_INIT;
  EXPECT_EQ(verbs.node_make(handle.get(), &good, &out, &error), GALLEY_OK) << error.text;
  EXPECT_EQ(graph.tensor(out).producer, 1u);
}

TEST_F(Verbs, ForwardNodesHaveNamesOfTheirOwn) {
  galley_node_desc desc = node_desc();
  desc.name = "y";
  galley_tensor out = 0;
  galley_error error = GALLEY_ERROR_INIT;
  ASSERT_EQ(verbs.node_make(handle.get(), &desc, &out, &error), GALLEY_OK) << error.text;
  out = 0;
  expect_refused({{"again", [&](galley_error* e) { return verbs.node_make(handle.get(), &desc, &out, e); },
                   "two forward nodes of the name 'y'", "random numbers are keyed by it: each node needs one of its own"}});
  const Graph::As backward(graph, {Section::Backward});
  EXPECT_EQ(verbs.node_make(handle.get(), &desc, &out, &error), GALLEY_OK) << "a node of backward may be called as another one";
}

TEST_F(Verbs, ReadOnlyWhatIsThere) {
  auto t = new_struct<galley_tensor_info>();
  auto n = new_struct<galley_node_info>();
  expect_refused({
      {"tensor 0", [&](galley_error* e) { return reader.tensor_get(handle.get(), 0, &t, e); }, "no tensor 0"},
      {"tensor 999", [&](galley_error* e) { return reader.tensor_get(handle.get(), nowhere, &t, e); }, "no tensor 999"},
      {"node 0", [&](galley_error* e) { return reader.node_get(handle.get(), 0, &n, e); }, "no node 0"},
      {"node 1", [&](galley_error* e) { return reader.node_get(handle.get(), 1, &n, e); }, "no node 1"},
      {"no name", handing_out([&](galley_tensor* out, galley_error* e) { return reader.tensor_find(handle.get(), nullptr, out, e); }),
       "a tensor is looked for without a name"},
  });
  EXPECT_EQ(t.name, nullptr);
  EXPECT_EQ(n.op, nullptr);
}

TEST_F(Verbs, HandOutOnlyScalarsThatExist) {
  const auto scalar = [&](uint32_t which) {
    return handing_out([&, which](galley_tensor* out, galley_error* e) { return verbs.scalar(handle.get(), which, out, e); });
  };
  expect_refused({{"0", scalar(0), "no step scalar 0"}, {"one of the future", scalar(99), "no step scalar 99"}});
}

TEST_F(Verbs, HandOutOptionsToStrategiesOnly) {
  const auto option = [&](const char* name) {
    return handing_out([&, name](galley_tensor* out, galley_error* e) { return verbs.option(handle.get(), name, out, e); });
  };
  const Graph::As as(graph, {Section::Update, 0});
  expect_refused({{"nobody's call", option("share"), "option 'share' asked for outside of a strategy's call"}});
  handle.strategy = strategy.get();
  expect_refused({{"no number", option("strength"), "hand.lua:3: peaks asks for its option 'strength' as a number, and it has none"}});
  galley_tensor share = 0;
  galley_error error = GALLEY_ERROR_INIT;
  EXPECT_EQ(verbs.option(handle.get(), "share", &share, &error), GALLEY_OK) << error.text;
  EXPECT_EQ(graph.find("option.0.share"), share);
  EXPECT_EQ(draft.scalars.slots.back().option, "peaks.share");
}

TEST_F(Verbs, RatesBelongToParameters) {
  handle.strategy = strategy.get();
  const Graph::As as(graph, {Section::Update, 0});
  const auto rate = [&](galley_tensor t) {
    return handing_out(
        [&, t](galley_tensor* out, galley_error* e) { return GraphHandle::update_verbs()->rate(handle.get(), "share", t, out, e); });
  };
  const auto scale = [&](galley_tensor t, double factor) {
    return [&, t, factor](galley_error* e) { return GraphHandle::model_verbs()->scale_rate(handle.get(), t, factor, e); };
  };
  const std::string cannot = "scale_rate: the rate of 'p' cannot be multiplied by ";
  expect_refused({
      {"rate of none", rate(0), "rate: no such parameter"},
      {"rate of what is not there", rate(nowhere), "rate: no such parameter"},
      {"rate of an input", rate(input), "rate: no such parameter"},
      {"scaled, of none", scale(0, 0.5), "scale_rate: no such parameter"},
      {"scaled, of what is not there", scale(nowhere, 0.5), "scale_rate: no such parameter"},
      {"scaled, of an input", scale(input, 0.5), "scale_rate: no such parameter"},
      {"by less than nothing", scale(parameter, -1), cannot + "-1.000000"},
      {"by infinity", scale(parameter, std::numeric_limits<double>::infinity()), cannot + "inf"},
      {"by no number", scale(parameter, std::nan("")), cannot + "nan"},
  });
  galley_tensor lr = 0;
  galley_error error = GALLEY_ERROR_INIT;
  ASSERT_EQ(GraphHandle::model_verbs()->scale_rate(handle.get(), parameter, 0.5, &error), GALLEY_OK) << error.text;
  ASSERT_EQ(GraphHandle::update_verbs()->rate(handle.get(), "share", parameter, &lr, &error), GALLEY_OK) << error.text;
  EXPECT_EQ(draft.scalars.slots.back().factor, 0.5) << "what was refused does not count";
  expect_refused({{"too late", scale(parameter, 0.5), "scale_rate: the update of 'p' has been built",
                   "call it before the optimizer asks for the rate"}});
}

TEST_F(Verbs, DivideAParameterOfTheModelIntoEqualParts) {
  draft.run.axes = std::make_shared<const Axes>(4, 3, 2, "tensor");
  const galley_tensor weight = tensor("weight", {8, 16}, GALLEY_KIND_PARAMETER), odd = tensor("odd", {7, 16}, GALLEY_KIND_PARAMETER),
                      thin = tensor("thin", {8, 4}, GALLEY_KIND_PARAMETER), cube = tensor("cube", {2, 8, 8}, GALLEY_KIND_PARAMETER),
                      added = tensor("added", {8, 16}, GALLEY_KIND_PARAMETER);
  graph.tensor(added).use = 0;
  const auto divide = [&](galley_tensor t, uint32_t dimension, const char* axis = "tensor") {
    return [&, t, dimension, axis](galley_error* e) { return GraphHandle::model_verbs()->divide(handle.get(), t, axis, dimension, e); };
  };
  const std::string no_axis = "divide: the run has no axis ", later = " along which processes compute together",
                    name_it = "name it in the recipe: ranks = { tensor = 2 }",
                    leave = "leave it to all processes, or take another number of them";
  expect_refused({
      {"none", divide(0, 0), "divide: no such parameter"},
      {"what is not there", divide(nowhere, 0), "divide: no such parameter"},
      {"an input", divide(input, 0), "divide: '" + graph.tensor(input).name + "' is no parameter of the model", leave},
      {"what a strategy has added", divide(added, 0), "divide: 'added' is no parameter of the model", leave},
      {"along nothing", divide(weight, 0, nullptr), no_axis + "''" + later, name_it},
      {"along another axis", divide(weight, 0, "rows"), no_axis + "'rows'" + later, name_it},
      {"among groups", divide(weight, 0, "data"), no_axis + "'data'" + later, name_it},
      {"more dimensions than it has", divide(weight, 2), "divide: 'weight' is f32(8,16), and has no rows or columns of that number", leave},
      {"columns of no matrix", divide(cube, 1), "divide: 'cube' is f32(2,8,8), and has no rows or columns of that number", leave},
      {"unequal parts", divide(odd, 0), "divide: 'odd' is f32(7,16), of which 2 processes along 'tensor' have no equal parts", leave},
      {"small runs", divide(thin, 1), "divide: a part of 'thin' is f32(8,2), and what lies together in it is no multiple of 4 numbers",
       "take fewer processes"},
  });
  EXPECT_EQ(graph.tensor(thin).shape, (Shape{8, 4}));
  EXPECT_FALSE(graph.tensor(thin).part);
  galley_error error = GALLEY_ERROR_INIT;
  ASSERT_EQ(divide(weight, 1)(&error), GALLEY_OK) << error.text;
  auto info = new_struct<galley_tensor_info>();
  ASSERT_EQ(GraphHandle::reader()->tensor_get(handle.get(), weight, &info, &error), GALLEY_OK) << error.text;
  ASSERT_TRUE(info.part);
  EXPECT_EQ(std::string(info.part->axis), "tensor");
  EXPECT_EQ(std::vector({info.shape[0], info.shape[1]}), (std::vector<int64_t>{8, 8}));
  EXPECT_EQ(std::vector({int64_t{info.part->dimension}, info.part->whole, info.part->first}), (std::vector<int64_t>{1, 16, 8}));
  const Runs runs = graph.tensor(weight).runs();
  EXPECT_EQ(std::vector({runs.at(0), runs.at(7), runs.at(8), runs.at(63)}), (std::vector<int64_t>{8, 15, 24, 127}));
  EXPECT_EQ(std::vector({runs.together(0, 64), runs.together(3, 64), runs.together(60, 2)}), (std::vector<int64_t>{8, 5, 2}));
  expect_refused({{"twice", divide(weight, 0), "divide: 'weight' is divided along 'tensor' already", leave}});
  draft.run.axes = std::make_shared<const Axes>(1, 0, 1, "tensor");
  ASSERT_EQ(divide(odd, 0)(&error), GALLEY_OK) << "one process has all";
  EXPECT_FALSE(graph.tensor(odd).part);
}

TEST_F(Verbs, ReportOneNumberUnderAPlainName) {
  const galley_tensor count = tensor("count", {1}, GALLEY_KIND_STATE, GALLEY_I32);
  const auto report = [&](galley_tensor t, const char* name) {
    return [&, t, name](galley_error* e) { return GraphHandle::update_verbs()->report(handle.get(), t, name, e); };
  };
  const auto no_name = [](const std::string& name) {
    return "report: '" + name + "' is no name of a metric: lower-case letters, digits, '_', '.' and '/'";
  };
  expect_refused({
      {"none", report(0, "m"), "report: no tensor 0"},
      {"what is not there", report(nowhere, "m"), "report: no tensor 999"},
      {"many numbers", report(parameter, "m"), "report: 'p' is not one F32 or F64 number"},
      {"an integer", report(count, "m"), "report: 'count' is not one F32 or F64 number"},
      {"no name", report(number, nullptr), no_name("")},
      {"an empty name", report(number, ""), no_name("")},
      {"an upper-case name", report(number, "lossA"), no_name("lossA")},
      {"a name with a quote", report(number, "a\"b"), no_name("a\"b")},
  });
  EXPECT_TRUE(draft.signals.reports.empty());
  galley_error error = GALLEY_ERROR_INIT;
  EXPECT_EQ(GraphHandle::update_verbs()->report(handle.get(), number, "group_1/a.b", &error), GALLEY_OK) << error.text;
}

TEST_F(Verbs, TensorsAreSavedInAFolderOfTheRun) {
  const std::string must_lie = " must lie in a folder of the run: \"adapter/adapter_model.safetensors\"";
  const std::string own = "which is the run's own: a plugin saves in 'model', in 'adapter' or in a folder of its own";
  const std::string long_name = "a/" + std::string(256, 'x');
  const std::string aside = " has a name that ends in '.tmp-' and 16 digits, as that of what is written aside does";
  std::vector<Spoiled<galley_tensor_desc>> cases;
  for (const auto& [file, text] :
       std::vector<std::pair<const char*, std::string>>{{"", must_lie},
                                                        {"x.safetensors", must_lie},
                                                        {"metrics.jsonl", must_lie},
                                                        {"/tmp/x.safetensors", must_lie},
                                                        {"../x.safetensors", must_lie},
                                                        {"adapter/../../x.safetensors", must_lie},
                                                        {"adapter/./x.safetensors", must_lie},
                                                        {"./adapter/x.safetensors", must_lie},
                                                        {"adapter//x.safetensors", must_lie},
                                                        {"adapter/", must_lie},
                                                        {"state/step-00000002/state.safetensors", " lies in 'state', " + own},
                                                        {"model/model.safetensors", " is written by Galley itself: choose another name"},
                                                        {"adapter/config.json", " must end in '.safetensors'"},
                                                        {"adapter/x.safetensors.tmp", " must end in '.safetensors'"},
                                                        {"adapter/x.safetensors.tmp-0123456789abcdef", aside},
                                                        {"adapter.tmp-0123456789abcdef/x.safetensors", aside},
                                                        {long_name.c_str(), " has a name of 256 bytes; 255 is the most"}})
    cases.push_back({file, [file = file](galley_tensor_desc& d) { d.file = file, d.kind = GALLEY_KIND_PARAMETER; },
                     "tensor 't': its file '" + std::string(file) + "'" + text});
  cases.push_back({"two lines", [](galley_tensor_desc& d) { d.file = "a/x\n.safetensors", d.kind = GALLEY_KIND_PARAMETER; },
                   "tensor 't': its file 'a/x\\n.safetensors' has a control character in its name"});
  expect_refused(cases);
  for (const char* file : {"adapter/adapter_model.safetensors", "model/extra.safetensors", "own/deep/er.safetensors"}) {
    galley_tensor_desc good = tensor_desc();
    good.name = good.file = file;
    good.kind = GALLEY_KIND_PARAMETER;
    galley_tensor made = 0;
    galley_error error = GALLEY_ERROR_INIT;
    EXPECT_EQ(verbs.tensor_make(handle.get(), &good, &made, &error), GALLEY_OK) << error.text;
  }
}

TEST_F(Verbs, DocumentsLieInAFolderOfTheRun) {
  const auto document = [&](const char* file, const char* text = "{}") {
    return [&, file, text](galley_error* e) { return GraphHandle::export_verbs()->document(handle.get(), file, text, e); };
  };
  const auto must_lie = [](const std::string& file) {
    return "document '" + file + "' must lie in a folder of the run: \"adapter/adapter_config.json\"";
  };
  expect_refused({
      {"no text", document("a/b.json", nullptr), "document 'a/b.json' has no text"},
      {"no file", document(nullptr), must_lie("")},
      {"no folder", document("b.json"), must_lie("b.json")},
      {"an absolute path", document("/b.json"), must_lie("/b.json")},
      {"only a folder", document("a/"), must_lie("a/")},
      {"above the run", document("../b.json"), must_lie("../b.json")},
      {"the run's own folder", document("./b.json"), must_lie("./b.json")},
      {"beside the folder", document("a/../b.json"), must_lie("a/../b.json")},
      {"the resume state", document("state/b.json"),
       "document 'state/b.json' lies in 'state', which is the run's own: a plugin saves in 'model', in 'adapter' or in a folder of its "
       "own"},
      {"the model's own", document("model/config.json"), "document 'model/config.json' is written by Galley itself: choose another name"},
      {"as tensors", document("a/b.safetensors"), "document 'a/b.safetensors' ends in '.safetensors', as only tensors' files do"},
  });
  EXPECT_TRUE(draft.exports.documents.empty());
  galley_error error = GALLEY_ERROR_INIT;
  EXPECT_EQ(GraphHandle::export_verbs()->document(handle.get(), "a/b.json", "{}", &error), GALLEY_OK) << error.text;
}

TEST_F(Verbs, ExportAParameterAsWhatHasItsShape) {
  const galley_tensor merged = tensor("merged", {4}, GALLEY_KIND_TRANSIENT);
  const auto export_as = [&](galley_tensor from, galley_tensor to) {
    return [&, from, to](galley_error* e) { return GraphHandle::export_verbs()->export_as(handle.get(), from, to, e); };
  };
  expect_refused({
      {"none", export_as(0, merged), "export_as: no such tensor"},
      {"what is not there", export_as(nowhere, merged), "export_as: no such tensor"},
      {"as none", export_as(parameter, 0), "export_as: no such tensor"},
      {"as what is not there", export_as(parameter, nowhere), "export_as: no such tensor"},
      {"a state", export_as(number, number), "export_as: 'n' is no parameter"},
      {"as another shape", export_as(parameter, input), "export_as: 'x' has not the shape of 'p'"},
  });
  EXPECT_TRUE(draft.exports.values.empty());
  galley_error error = GALLEY_ERROR_INIT;
  EXPECT_EQ(GraphHandle::export_verbs()->export_as(handle.get(), parameter, merged, &error), GALLEY_OK) << error.text;
}

TEST_F(Verbs, BeginAsWhatTheLoadPartMakes) {
  const auto begin_as = [&](galley_tensor t, galley_tensor value, uint32_t component = GALLEY_BEGIN_NUMBERS) {
    return [&, t, component, value](galley_error* e) { return GraphHandle::load_verbs()->begin_as(handle.get(), t, component, value, e); };
  };
  const galley_tensor elsewhere = tensor("elsewhere", {4}, GALLEY_KIND_TRANSIENT);
  const Graph::As as(graph, {Section::Load, 0});
  draft.run.model_files = "model";
  galley_tensor_desc desc = tensor_desc();
  desc.name = "f";
  desc.rank = 1;
  const int64_t shape[] = {4};
  desc.shape = shape;
  desc.kind = GALLEY_KIND_FILE;
  desc.source_name = "f";
  galley_tensor file = 0, made = 0, wide = 0;
  galley_error error = GALLEY_ERROR_INIT;
  ASSERT_EQ(verbs.tensor_make(handle.get(), &desc, &file, &error), GALLEY_OK) << error.text;
  EXPECT_EQ(graph.tensor(file).source.path, "model");
  galley_node_desc node = node_desc();
  ASSERT_EQ(verbs.node_make(handle.get(), &node, &wide, &error), GALLEY_OK) << error.text;
  node.inputs = &parameter;
  ASSERT_EQ(verbs.node_make(handle.get(), &node, &made, &error), GALLEY_OK) << error.text;
  expect_refused({
      {"none", begin_as(0, made), "begin_as: no such tensor"},
      {"as what is not there", begin_as(parameter, nowhere), "begin_as: no such tensor"},
      {"an input", begin_as(input, wide), "begin_as: 'x' is neither a parameter nor a state"},
      {"as what lasts", begin_as(parameter, number), "begin_as: 'n' neither lies in a file nor is made by a node of the load part"},
      {"as what is made elsewhere", begin_as(parameter, elsewhere),
       "begin_as: 'elsewhere' neither lies in a file nor is made by a node of the load part"},
      {"as another shape", begin_as(parameter, wide), "begin_as: 'join.1' is f32(2,4), and 'p' is f32(4)"},
      {"a component of none", begin_as(parameter, made, 8), "begin_as: 'p' has no component 8"},
  });
  EXPECT_TRUE(draft.beginnings.empty());
  EXPECT_EQ(GraphHandle::load_verbs()->begin_as(handle.get(), parameter, GALLEY_BEGIN_NUMBERS, made, &error), GALLEY_OK) << error.text;
  EXPECT_EQ(GraphHandle::load_verbs()->begin_as(handle.get(), number, 0, wide, &error), GALLEY_OK) << error.text;
  expect_refused({
      {"twice", begin_as(parameter, file), "begin_as: 'p' begins as 'join.2' already"},
      {"numbers and a component", begin_as(parameter, file, 0), "begin_as: 'p' begins as 'join.2' already"},
  });
}

TEST_F(Verbs, WhatIsStoredIsAskedWhileLoading) {
  const auto pack_and_unpack = [&](galley_tensor of, galley_tensor value) {
    return handing_out([&, of, value](galley_tensor* out, galley_error* e) {
      return GraphHandle::load_verbs()->pack_and_unpack(handle.get(), of, value, out, e);
    });
  };
  graph.tensor(parameter).storage.format = "pair";
  const Graph::As as(graph, {Section::Load, 0});
  expect_refused({
      {"of none", pack_and_unpack(0, parameter), "pack_and_unpack: no such parameter"},
      {"of what is not there", pack_and_unpack(nowhere, parameter), "pack_and_unpack: no such parameter"},
      {"of a state", pack_and_unpack(number, number), "pack_and_unpack: no such parameter"},
      {"nothing", pack_and_unpack(parameter, 0), "pack_and_unpack: no such tensor"},
      {"another shape", pack_and_unpack(parameter, number), "pack_and_unpack: 'n' is f32(1), and 'p' is f32(4)"},
  });
  galley_tensor out = 0;
  galley_error error = GALLEY_ERROR_INIT;
  EXPECT_EQ(GraphHandle::load_verbs()->pack_and_unpack(handle.get(), parameter, parameter, &out, &error), GALLEY_OK) << error.text;
  EXPECT_EQ(type_text(graph.tensor(out)), "f32(4)");
  const GraphNode& unpack = graph.node(graph.tensor(out).producer);
  EXPECT_STREQ(unpack.op->name, "pair_unpack");
  EXPECT_EQ(graph.node(graph.tensor(unpack.inputs[0]).producer).inputs, std::vector<galley_tensor>{parameter});
  graph.tensor(parameter).storage.format.clear();
  expect_refused({{"of what is in no format", pack_and_unpack(parameter, parameter), "pack_and_unpack: 'p' is in no format"}});
}

TEST_F(Verbs, FilesAreReadWhileLoading) {
  using Desc = galley_tensor_desc;
  const auto file = [](Desc& d) { d.kind = GALLEY_KIND_FILE, d.source_name = "f", d.source = "other.safetensors"; };
  expect_refused(std::vector<Spoiled<Desc>>{{"too early", file, "tensor 't': what lies in a file is made while loading"}});
  const Graph::As as(graph, {Section::Load, 0});
  expect_refused(std::vector<Spoiled<Desc>>{
      {"a state", [](Desc&) {}, "tensor 't': parameters, states, caches and constants are not made while loading"},
      {"no name", [&](Desc& d) { file(d), d.source_name = nullptr; },
       "tensor 't': what lies in a file has its name there, and no initializer"},
      {"an initializer", [&](Desc& d) { file(d), d.initializer = "join"; },
       "tensor 't': what lies in a file has its name there, and no initializer"},
  });
  Desc own = tensor_desc();
  file(own);
  own.source = nullptr;
  expect_refused({{"of a random model",
                   handing_out([&](galley_tensor* out, galley_error* e) { return verbs.tensor_make(handle.get(), &own, out, e); }),
                   "tensor 't' is to be read from the model's files, but the model begins with random numbers",
                   "name a model's folder, without init = \"random\""}});
}

TEST_F(Verbs, EvaluateAParameterAsAStateOfItsShape) {
  const galley_tensor mean = tensor("mean", {4}, GALLEY_KIND_STATE), other = tensor("other", {4}, GALLEY_KIND_STATE);
  const auto eval_as = [&](galley_tensor from, galley_tensor to) {
    return [&, from, to](galley_error* e) { return GraphHandle::update_verbs()->eval_as(handle.get(), from, to, e); };
  };
  expect_refused({
      {"none", eval_as(0, mean), "eval_as: no such tensor"},
      {"as what is not there", eval_as(parameter, nowhere), "eval_as: no such tensor"},
      {"a state", eval_as(mean, mean), "eval_as: 'mean' is no parameter"},
      {"as another shape", eval_as(parameter, number), "eval_as: 'n' has not the shape of 'p'"},
  });
  const galley_tensor made = tensor("made", {4}, GALLEY_KIND_TRANSIENT), half = tensor("half", {4}, GALLEY_KIND_STATE);
  graph.tensor(half).dtype = GALLEY_F16;
  galley_error error = GALLEY_ERROR_INIT;
  {
    const Graph::As as(graph, {Section::Update, 0, -1, 0, "", GALLEY_STAGE_AFTER});
    EXPECT_EQ(GraphHandle::update_verbs()->eval_as(handle.get(), parameter, mean, &error), GALLEY_OK) << error.text;
  }
  EXPECT_TRUE(draft.evaluated.empty()) << "that is said for evaluation";
  const Graph::As as(graph, {Section::Evaluate, 0, -1, 0, "", GALLEY_STAGE_AFTER});
  expect_refused({
      {"as what no node has made", eval_as(parameter, made),
       "eval_as: 'made' is neither a state nor made by a node for GALLEY_PURPOSE_EVAL"},
      {"as another dtype", eval_as(parameter, half), "eval_as: 'half' is f16, not f32"},
  });
  EXPECT_TRUE(draft.evaluated.empty());
  EXPECT_EQ(GraphHandle::update_verbs()->eval_as(handle.get(), parameter, mean, &error), GALLEY_OK) << error.text;
  expect_refused({{"twice", eval_as(parameter, other), "eval_as: 'mean' stands for 'p' already"}});
}

TEST_F(Verbs, StopOnlyByOneInteger) {
  const galley_tensor flag = tensor("flag", {1}, GALLEY_KIND_STATE);
  graph.tensor(flag).dtype = GALLEY_I32;
  const auto stop_if = [&](galley_tensor t, const char* cause) {
    return [&, t, cause](galley_error* e) { return GraphHandle::update_verbs()->stop_if(handle.get(), t, cause, nullptr, e); };
  };
  expect_refused({
      {"none", stop_if(nowhere, "why"), "stop_if: no such tensor"},
      {"a number", stop_if(number, "why"), "stop_if: 'n' is not one I32 number"},
      {"several", stop_if(parameter, "why"), "stop_if: 'p' is not one I32 number"},
      {"no cause", stop_if(flag, nullptr), "stop_if: no cause is given"},
      {"an empty cause", stop_if(flag, ""), "stop_if: no cause is given"},
  });
  EXPECT_TRUE(draft.signals.stops.empty());
  galley_error error = GALLEY_ERROR_INIT;
  EXPECT_EQ(GraphHandle::update_verbs()->stop_if(handle.get(), flag, "why", nullptr, &error), GALLEY_OK) << error.text;
  expect_refused(
      {{"an end without a reason", [&](galley_error* e) { return GraphHandle::update_verbs()->end_if(handle.get(), flag, nullptr, e); },
        "end_if: no cause is given"}});
  EXPECT_EQ(GraphHandle::update_verbs()->end_if(handle.get(), flag, "why", &error), GALLEY_OK) << error.text;
  ASSERT_EQ(draft.signals.stops.size(), 2u);
  EXPECT_FALSE(draft.signals.stops[0].done);
  EXPECT_TRUE(draft.signals.stops[1].done);
}

TEST_F(Verbs, KeysOfTheConfiguration) {
  const auto config = [&](const char* key, const char* json) {
    return [&, key, json](galley_error* e) { return GraphHandle::export_verbs()->config_set(handle.get(), key, json, e); };
  };
  expect_refused({
      {"no key", config(nullptr, "1"), "config: no key"},
      {"no value", config("bits", nullptr), "config: 'bits' has no value"},
  });
  galley_error error = GALLEY_ERROR_INIT;
  EXPECT_EQ(GraphHandle::export_verbs()->config_set(handle.get(), "bits", "{", &error), GALLEY_INVALID);
  EXPECT_TRUE(draft.exports.config.empty());
  EXPECT_EQ(GraphHandle::export_verbs()->config_set(handle.get(), "bits", "4", &error), GALLEY_OK) << error.text;
  expect_refused({{"another value", config("bits", "8"), "config: 'bits' is set to 4 already, not 8"}});
}

TEST_F(Verbs, WhatIsSavedInAFormatIsAParameter) {
  const auto in_format = [&](galley_tensor t) {
    return [&, t](galley_error* e) { return GraphHandle::export_verbs()->export_stored(handle.get(), t, e); };
  };
  expect_refused({{"none", in_format(nowhere), "export_stored: no such parameter"},
                  {"a state", in_format(number), "export_stored: no such parameter"}});
  galley_error error = GALLEY_ERROR_INIT;
  EXPECT_EQ(GraphHandle::export_verbs()->export_stored(handle.get(), parameter, &error), GALLEY_OK) << error.text;
}

TEST_F(Verbs, ExportOnlyByAKnownChoice) {
  expect_refused({{"one of the future", [&](galley_error* e) { return GraphHandle::export_verbs()->export_model(handle.get(), 3, e); },
                   "export_model: no such choice 3"}});
  EXPECT_EQ(draft.exports.model, GALLEY_EXPORT_BOTH);
}

TEST_F(Verbs, IgnoreOnlyByAPattern) {
  expect_refused(
      {{"none", [&](galley_error* e) { return GraphHandle::model_verbs()->ignore(handle.get(), nullptr, e); }, "ignore: no pattern"}});
  EXPECT_TRUE(draft.ignored_files.empty());
}

}  // namespace
}  // namespace galley
