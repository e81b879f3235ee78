// Growth of the ABI, the plugins' half: an op or a kernel that is given a struct which says more than its SDK knows refuses it, instead of
// computing something else. Every op and every kernel of the tree, with each reserved bit of each struct that it is given, in turn.
#include <gtest/gtest.h>

#include <deque>
#include <set>
#include <string>
#include <vector>

#include "galley/cpp/node.hpp"
#include "tests/models/harness.hpp"

namespace galley::test {
namespace {

/// A node as a host of another version could make it: a copy in which everything can be changed.
class Said {
 public:
  explicit Said(const galley_node_view* from) : view(*from) {
    view.inputs = copies(from->inputs, from->n_inputs, &inputs_);
    view.outputs = copies(from->outputs, from->n_outputs, &outputs_);
    view.attrs = attributes(from->attrs, from->n_attrs, &attrs_);
  }
  Said(const Said&) = delete;

  /// visit(what, its struct's revision, its flags, those that are known).
  template <class Visit>
  void each(const Visit& visit) {
    visit("the node", &view.revision, &view.flags, GALLEY_NODE_KNOWN);
    for (galley_operand& o : operands)
      visit("operand '" + std::string(o.name ? o.name : "") + "'", &o.revision, &o.flags, GALLEY_OPERAND_FLAGS_KNOWN);
    for (galley_attr& a : attrs) visit("attribute '" + std::string(a.name) + "'", &a.revision, &a.flags, 0);
  }

  galley_node_view view;
  std::deque<galley_operand> operands;
  std::deque<galley_attr> attrs;

 private:
  using Operands = std::vector<const galley_operand*>;
  const galley_attr* const* attributes(const galley_attr* const* from, uint32_t n, std::vector<const galley_attr*>* out) {
    for (uint32_t i = 0; i < n; ++i) out->push_back(&attrs.emplace_back(*from[i]));
    return out->data();
  }
  const galley_operand* const* copies(const galley_operand* const* from, uint32_t n, Operands* out) {
    for (uint32_t i = 0; i < n; ++i) {
      if (!from[i]) {
        out->push_back(nullptr);
        continue;
      }
      galley_operand& o = operands.emplace_back(*from[i]);
      o.components = copies(from[i]->components, from[i]->n_components, &nested_.emplace_back());
      o.attrs = attributes(from[i]->attrs, from[i]->n_attrs, &nested_attrs_.emplace_back());
      out->push_back(&o);
    }
    return out->data();
  }
  Operands inputs_, outputs_;
  std::vector<const galley_attr*> attrs_;
  std::deque<Operands> nested_;
  std::deque<std::vector<const galley_attr*>> nested_attrs_;
};

/// The same of a target.
class SaidTarget {
 public:
  explicit SaidTarget(const galley_target& from) : target(from) {
    target.peaks = copies(from.peaks, from.n_peaks, &peaks_, &peak_pointers_);
    target.memories = copies(from.memories, from.n_memories, &memories_, &memory_pointers_);
    target.libraries = copies(from.libraries, from.n_libraries, &libraries_, &library_pointers_);
  }
  SaidTarget(const SaidTarget&) = delete;
  template <class Visit>
  void each(const Visit& visit) {
    visit("the target", &target.revision, &target.flags, GALLEY_TARGET_KNOWN);
    for (galley_peak& p : peaks_) visit("a peak", &p.revision, &p.flags, 0);
    for (galley_target_memory& m : memories_) visit("a memory", &m.revision, &m.flags, 0);
    for (galley_library& l : libraries_) visit("a library", &l.revision, &l.flags, 0);
  }
  galley_target target;

 private:
  template <class T>
  const T* const* copies(const T* const* from, uint32_t n, std::deque<T>* all, std::vector<const T*>* pointers) {
    for (uint32_t i = 0; i < n; ++i) pointers->push_back(&all->emplace_back(*from[i]));
    return pointers->data();
  }
  std::deque<galley_peak> peaks_;
  std::deque<galley_target_memory> memories_;
  std::deque<galley_library> libraries_;
  std::vector<const galley_peak*> peak_pointers_;
  std::vector<const galley_target_memory*> memory_pointers_;
  std::vector<const galley_library*> library_pointers_;
};

/// Sets each bit that must be understood and is not, and another revision, and counts what `call` refuses in this way. All of it has to be.
template <class All, class Call>
int refused(All& all, galley_status status, const std::string& who, const Call& call) {
  int count = 0;
  const auto refuses = [&](const std::string& what) {
    ++count;
    EXPECT_EQ(call(), status) << who << " takes " << what;
  };
  all.each([&](const std::string& what, uint32_t* revision, uint64_t* flags, uint64_t known) {
    const uint64_t before = *flags;
    for (int bit = 0; bit < 32; ++bit) {
      if (known >> bit & 1) continue;
      *flags = before | uint64_t{1} << bit;
      refuses(what + " with bit " + std::to_string(bit));
      if (testing::Test::HasFailure()) return;
    }
    *flags = before;
    *revision = 2;
    refuses(what + " of revision 2");
    *revision = 1;
  });
  return count;
}

/// A node with the addresses of nothing: of a function that refuses, nobody reads them.
struct Planned {
  explicit Planned(const Case& c) : random(seed()), problem(Problem::draw(c.op, *c.example, random)) {}
  View view() const {
    return View(problem, std::vector<void*>(problem.inputs.size()), std::vector<void*>(problem.outputs.size()), {}, false);
  }
  std::mt19937_64 random;
  Problem problem;
};

TEST(Understood, EachOpRefusesWhatItDoesNotKnow) {
  std::set<const galley_op*> seen;
  int count = 0;
  for (const Case& c : cases()) {
    if (!seen.insert(c.op).second) continue;
    const Planned planned(c);
    const View view = planned.view();
    Said said(view.node());
    galley_error error = GALLEY_ERROR_INIT;
    std::vector<galley_shape> shapes(std::max<size_t>(1, c.op->n_outputs), sdk::fresh<galley_shape>());
    std::vector<galley_shape*> pointers;
    for (galley_shape& s : shapes) pointers.push_back(&s);
    ASSERT_EQ(c.op->infer(c.op->self, &said.view, pointers.data(), &error), GALLEY_OK) << c.name() << ": " << error.text;
    count += refused(said, GALLEY_INVALID, std::string("the shape rule of ") + c.op->name,
                     [&] { return c.op->infer(c.op->self, &said.view, pointers.data(), &error); });
    if (c.op->reference)
      count += refused(said, GALLEY_INVALID, std::string("the reference of ") + c.op->name,
                       [&] { return c.op->reference(c.op->self, &said.view, &error); });
    galley_cost cost = sdk::fresh<galley_cost>();
    if (c.op->cost)
      count += refused(said, GALLEY_INVALID, std::string("the cost of ") + c.op->name,
                       [&] { return c.op->cost(c.op->self, &said.view, &cost, &error); });
    if (HasFailure()) return;
  }
  EXPECT_GT(seen.size(), 90u);
  EXPECT_GT(count, 10000);
}

TEST(Understood, EachGradientRuleRefusesWhatItDoesNotKnow) {
  int count = 0;
  for (const galley_op* op : models().ops) {
    if (!op->gradient) continue;
    auto call = sdk::fresh<galley_gradient_call>();
    galley_error error = GALLEY_ERROR_INIT;
    for (int bit = 0; bit < 32; ++bit) {
      call.flags = uint64_t{1} << bit;
      EXPECT_EQ(op->gradient(op->self, nullptr, nullptr, &call, &error), GALLEY_INVALID) << op->name << ", bit " << bit;
    }
    call.flags = 0;
    call.revision = 2;
    EXPECT_EQ(op->gradient(op->self, nullptr, nullptr, &call, &error), GALLEY_INVALID) << op->name;
    ++count;
  }
  EXPECT_GT(count, 20);
}

// A kernel that does not know what it is asked about is passed over; one that is given it all the same refuses.
TEST(Understood, EachKernelRefusesWhatItDoesNotKnow) {
  std::set<const galley_kernel*> asked;
  for (const Level& level : models().levels)
    for (const Case& c : cases()) {
      const Planned planned(c);
      const View view = planned.view();
      for (const galley_kernel* kernel : level.kernels) {
        if (std::string(kernel->op) != c.op->name || asked.contains(kernel)) continue;
        Said said(view.node());
        SaidTarget machine(target_for(level.isa));
        const galley_node_view* node = &said.view;
        auto plan = sdk::fresh<galley_kernel_plan>();
        galley_error error = GALLEY_ERROR_INIT;
        const auto query = [&] { return kernel->query(kernel->self, &node, 1, &machine.target, &plan, &error); };
        if (query() != GALLEY_OK) continue;
        asked.insert(kernel);
        const std::string who = std::string(kernel->name) + " at " + level.isa;
        refused(said, GALLEY_UNSUPPORTED, who, query);
        refused(machine, GALLEY_UNSUPPORTED, who, query);
        auto setup = sdk::fresh<galley_kernel_setup>();
        setup.target = &machine.target;
        void* state = nullptr;
        const auto prepare = [&] { return kernel->prepare(kernel->self, &node, 1, &setup, &state, &error); };
        refused(said, GALLEY_INVALID, who + ", preparing,", prepare);
        refused(machine, GALLEY_INVALID, who + ", preparing,", prepare);
        if (HasFailure()) return;
      }
    }
  EXPECT_GT(asked.size(), 100u);
}

}  // namespace
}  // namespace galley::test
