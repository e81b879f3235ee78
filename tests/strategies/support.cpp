#include "tests/strategies/support.hpp"

#include <cstdlib>
#include <cstring>

#include "galley/cpp/half.hpp"

namespace galley::test {
namespace {

template <class T>
void convert(const std::vector<double>& values, std::vector<std::byte>* out) {
  out->resize(values.size() * sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    const T x = static_cast<T>(values[i]);
    std::memcpy(out->data() + i * sizeof(T), &x, sizeof(T));
  }
}
template <class T>
void convert_back(const std::vector<std::byte>& bytes, std::vector<double>* out) {
  for (size_t i = 0; i < out->size(); ++i) {
    T x = {};
    std::memcpy(&x, bytes.data() + i * sizeof(T), sizeof(T));
    (*out)[i] = static_cast<double>(x);
  }
}

// Numbers of 16 bit that convert as the others do.
template <class T>
struct Half {
  T value = {};
  Half() = default;
  explicit Half(double x) { sdk::from_float(static_cast<float>(x), value); }
  explicit operator double() const { return static_cast<double>(sdk::to_float(value)); }
};

template <class Call>
void with_type(uint32_t dtype, const Call& call) {
  switch (dtype) {
    case GALLEY_F64: return call(double());
    case GALLEY_F32: return call(float());
    case GALLEY_BF16: return call(Half<sdk::Bf16>());
    case GALLEY_F16: return call(Half<sdk::F16>());
    case GALLEY_I64: return call(int64_t());
    case GALLEY_I32: return call(int32_t());
    default: FAIL() << "dtype " << dtype;
  }
}

Use use_of(const std::string& name, Table options) { return {name, std::move(options), {"recipe.lua", 3}, {}}; }

}  // namespace

Plugins& plugins() {
  static const std::unique_ptr<Plugins> all = [] {
    const char* folder = std::getenv("GALLEY_BINARY");
    const fs::path binary = folder ? folder : ".";
    const fs::path folders[] = {binary / "plugins", binary / "tests" / "plugins"};
    return Plugins::scan(folders, [](const std::string& line) { ADD_FAILURE() << line; });
  }();
  return *all;
}

std::unique_ptr<const LoadedStrategy> strategy(const std::string& name, Table options) {
  auto made = LoadedStrategy::create(plugins(), use_of(name, std::move(options)));
  EXPECT_TRUE(made.ok()) << made.error().cause;
  return made.ok() ? std::move(made).value() : nullptr;
}

std::string refusal(const std::string& name, Table options) {
  const auto made = LoadedStrategy::create(plugins(), use_of(name, std::move(options)));
  return made.ok() ? "" : made.error().cause;
}

Value list(std::initializer_list<const char*> names) {
  List out;
  for (const char* name : names) out.push_back(Value(std::string(name)));
  return Value(std::move(out));
}
Value list(std::initializer_list<double> numbers) {
  List out;
  for (const double x : numbers) out.push_back(Value(x));
  return Value(std::move(out));
}

// ---- NodeRun --------------------------------------------------------------------------------------------------------------------

/// The node as the op or a kernel sees it, with bytes after it.
struct NodeRun::View {
  std::deque<std::string> names;
  std::deque<std::vector<std::byte>> bytes;
  std::deque<galley_operand> operands;
  std::vector<const galley_operand*> inputs, outputs;
  galley_node_view view = {};
};

NodeRun::NodeRun(const std::string& op, sdk::Attrs attrs) : op_(plugins().op(op).table), attrs_(std::move(attrs)) {
  if (!op_) throw std::runtime_error("no plugin provides op " + op);
}

NodeRun& NodeRun::in(uint32_t dtype, std::vector<int64_t> shape, std::vector<double> values) {
  inputs_.push_back({dtype, std::move(shape), std::move(values)});
  return *this;
}
NodeRun& NodeRun::absent() {
  inputs_.push_back({});
  return *this;
}

std::string NodeRun::infer() {
  View v;
  for (const Tensor& t : inputs_) {
    v.operands.push_back(sdk::operand(nullptr, t.shape.data(), static_cast<uint32_t>(t.shape.size()), t.dtype, GALLEY_READ));
    v.inputs.push_back(t.dtype ? &v.operands.back() : nullptr);
  }
  v.view = sdk::fresh<galley_node_view>();
  v.view.op = op_->name;
  v.view.name = "node";
  v.view.inputs = v.inputs.data();
  v.view.attrs = attrs_.data();
  v.view.n_inputs = static_cast<uint32_t>(v.inputs.size());
  v.view.n_attrs = attrs_.count();
  std::vector<galley_shape> shapes(op_->n_outputs + 1);
  std::vector<galley_shape*> pointers;
  for (galley_shape& s : shapes) pointers.push_back(&s);
  galley_error error = GALLEY_ERROR_INIT;
  if (op_->infer(op_->self, &v.view, pointers.data(), &error) != GALLEY_OK) return error.text;
  outputs_.clear();
  for (uint32_t i = 0; i < op_->n_outputs; ++i) {
    Tensor t{shapes[i].dtype, {shapes[i].extents, shapes[i].extents + shapes[i].rank}, {}};
    int64_t n = 1;
    for (const int64_t extent : t.shape) n *= extent;
    t.values.resize(static_cast<size_t>(n));
    outputs_.push_back(std::move(t));
  }
  return "";
}

NodeRun& NodeRun::before(uint32_t dtype, std::vector<int64_t> shape) {
  inputs_.push_back({dtype, std::move(shape), {}, true});
  return *this;
}

namespace {

uint32_t in_memory(uint32_t dtype, bool as_double) {
  return as_double && (dtype == GALLEY_F32 || dtype == GALLEY_BF16 || dtype == GALLEY_F16) ? GALLEY_F64 : dtype;
}

}  // namespace

void NodeRun::place(View& v, const View* before, Numbers numbers) const {
  const auto add = [&](const Tensor& t, uint32_t access) -> const galley_operand* {
    if (!t.dtype) return nullptr;
    if (t.before) return before->inputs.front();
    const uint32_t dtype = in_memory(t.dtype, numbers == Numbers::Double);
    std::vector<std::byte>& data = v.bytes.emplace_back();
    with_type(dtype, [&](auto x) { convert<decltype(x)>(t.values, &data); });
    const std::string& name = v.names.emplace_back(std::to_string(v.names.size()) + (before ? " behind" : ""));
    v.operands.push_back(sdk::operand(data.data(), t.shape.data(), static_cast<uint32_t>(t.shape.size()), dtype, access, name.c_str()));
    return &v.operands.back();
  };
  for (size_t i = 0; i < inputs_.size(); ++i)
    v.inputs.push_back(add(inputs_[i], op_->inputs[i]->flags & GALLEY_OPERAND_INOUT ? GALLEY_READ_WRITE : GALLEY_READ));
  for (const Tensor& t : outputs_) v.outputs.push_back(add(t, GALLEY_WRITE));
  v.view = {sizeof(galley_node_view),
            1,
            op_->name,
            "node",
            v.inputs.data(),
            v.outputs.data(),
            attrs_.data(),
            static_cast<uint32_t>(v.inputs.size()),
            static_cast<uint32_t>(v.outputs.size()),
            attrs_.count(),
            0,
            GALLEY_NODE_TRAINING,
            0,
            0,
            -1};
}

void NodeRun::read_back(const View& v, Numbers numbers) {
  size_t at = 0;
  for (std::vector<Tensor>* tensors : {&inputs_, &outputs_})
    for (Tensor& t : *tensors)
      if (t.dtype && !t.before)
        with_type(in_memory(t.dtype, numbers == Numbers::Double), [&](auto x) { convert_back<decltype(x)>(v.bytes[at++], &t.values); });
}

void NodeRun::run(const std::vector<NodeRun*>& nodes, Numbers numbers, const galley_kernel* kernel) {
  std::deque<View> views;
  std::vector<const galley_node_view*> all;
  for (const NodeRun* node : nodes) {
    View* const before = views.empty() ? nullptr : &views.back();
    node->place(views.emplace_back(), before, numbers);
    all.push_back(&views.back().view);
  }
  galley_error error = GALLEY_ERROR_INIT;
  if (kernel) {
    auto target = sdk::fresh<galley_target>();
    target.device = "cpu";
    target.isa = "";
    target.threads = 1;
    target.workspace_budget = 1 << 20;
    auto plan = sdk::fresh<galley_kernel_plan>();
    auto setup = sdk::fresh<galley_kernel_setup>();
    setup.target = &target;
    std::vector<double> workspace;
    void* state = nullptr;
    const auto n = static_cast<uint32_t>(all.size());
    ASSERT_EQ(kernel->query(kernel->self, all.data(), n, &target, &plan, &error), GALLEY_OK) << error.text;
    workspace.resize(static_cast<size_t>(plan.workspace_bytes + 7) / 8);
    setup.workspace = workspace.data();
    ASSERT_EQ(kernel->prepare(kernel->self, all.data(), n, &setup, &state, &error), GALLEY_OK) << error.text;
    EXPECT_EQ(kernel->enqueue(state, nullptr, &error), GALLEY_OK) << error.text;
    kernel->release(state);
  } else {
    ASSERT_EQ(nodes[0]->op_->reference(nodes[0]->op_->self, all[0], &error), GALLEY_OK) << error.text;
  }
  for (size_t i = 0; i < nodes.size(); ++i) nodes[i]->read_back(views[i], numbers);
}

void NodeRun::reference() { run({this}, Numbers::Double, nullptr); }

void NodeRun::kernel(const std::string& isa) { run_kernel(op_->name, {this}, isa); }

void NodeRun::together(const std::string& op, const std::vector<NodeRun*>& nodes) { run_kernel(op, nodes, ""); }

void NodeRun::run_kernel(const std::string& op, const std::vector<NodeRun*>& nodes, const std::string& isa) {
  auto found = plugins().kernels(op, "cpu", isa);
  std::erase_if(found, [](const auto& k) { return k.table->flags & GALLEY_KERNEL_FORMATS; });  // those take no plain operands
  ASSERT_EQ(found.size(), 1u) << op << " for " << isa;
  run(nodes, Numbers::Own, found[0].table);
}

// ---- GraphFixture -----------------------------------------------------------------------------------------------------------------

GraphFixture::GraphFixture()
    : draft([](std::string_view name) { return plugins().op(name).table; }, [] { return plugins().op_names(); }, Extents{2, 8}) {
  draft.run.target.emplace(Target());
}

galley_tensor GraphFixture::parameter(const std::string& name, Shape shape, uint64_t flags) {
  GraphTensor t;
  t.name = name;
  t.shape = std::move(shape);
  t.kind = GALLEY_KIND_PARAMETER;
  t.flags = flags;
  return graph.make(std::move(t)).value();
}

galley_tensor GraphFixture::node(const std::string& op, const std::string& name, std::vector<galley_tensor> inputs, AttrList attrs) {
  std::vector<galley_tensor> outputs;
  const auto made = graph.append(op, name, std::move(inputs), std::move(attrs), &outputs);
  EXPECT_TRUE(made.ok()) << made.error().cause;
  return outputs.empty() ? 0 : outputs[0];
}

std::string GraphFixture::rewrite(const LoadedStrategy& s, Section section) {
  GraphHandle handle = {draft, &plugins(), &s};
  graph.author.use = 0;
  owner = s.name();
  graph.author.section = section;
  const galley_rewrite& table = *s.rewrite();
  const Status status = call_plugin(s.caller(), "rewrite", [&](galley_error* error) {
    if (section == Section::Export) return table.save(s.instance(), GraphHandle::export_verbs(), handle.get(), error);
    if (section == Section::Window) return table.window(s.instance(), GraphHandle::verbs(), handle.get(), error);
    return table.model(s.instance(), GraphHandle::model_verbs(), handle.get(), error);
  });
  graph.author.use = no_use;
  if (status && section == Section::Forward) graph.sort(Section::Forward);
  return status ? "" : status.error().cause;
}

std::string GraphFixture::build(const LoadedStrategy& s, galley_tensor parameter, galley_tensor gradient) {
  GraphHandle handle = {draft, &plugins(), &s};
  graph.author.use = 0;
  graph.author.section = Section::Update;
  std::string said;
  for (const uint32_t stage : {GALLEY_STAGE_CHECK, GALLEY_STAGE_CLIP, GALLEY_STAGE_GRADIENT, GALLEY_STAGE_STEP, GALLEY_STAGE_AFTER}) {
    if (!(s.update()->stages & stage) || !said.empty()) continue;
    galley_update_call call = {sizeof call, 1, stage, GALLEY_PURPOSE_TRAIN, &parameter, &gradient, parameter ? 1u : 0u, 0};
    graph.author.stage = stage;
    const Status status = call_plugin(s.caller(), "build", [&](galley_error* error) {
      return s.update()->build(s.instance(), GraphHandle::update_verbs(), handle.get(), &call, error);
    });
    if (!status) said = status.error().cause;
  }
  graph.author.use = no_use;
  graph.author.stage = 0;
  return said;
}

std::string GraphFixture::claim(const LoadedStrategy& s, galley_tensor t, uint32_t kind, uint32_t facet, Claimed* out, bool trainable) {
  GraphHandle handle = {draft, &plugins(), &s};
  const std::string name = t ? graph.tensor(t).name : "the run";
  galley_subject subject = {};
  subject.size = sizeof subject;
  subject.revision = 1;
  subject.kind = kind;
  subject.name = name.c_str();
  subject.owner = t && graph.tensor(t).use != no_use ? owner.c_str() : "";
  subject.tensor = t;
  subject.parameter = kind == GALLEY_SUBJECT_PARAMETER ? t : 0;
  subject.trainable = trainable;
  const galley_subject* const subjects[] = {&subject};
  galley_claim_call call = {};
  call.size = sizeof call;
  call.revision = 1;
  call.facet = facet;
  call.subjects = subjects;
  call.n_subjects = 1;
  call.context = out;
  call.claim = [](void* context, uint64_t, const galley_claim_value* value, galley_error*) {
    *static_cast<Claimed*>(context) = {value->strength, value->number, value->text ? value->text : ""};
    return galley_status{GALLEY_OK};
  };
  *out = {};
  const Status status = call_plugin(s.caller(), "claim", [&](galley_error* error) {
    return s.claim()->claim(s.instance(), GraphHandle::reader(), handle.get(), &call, error);
  });
  return status ? "" : status.error().cause;
}

}  // namespace galley::test
