// The plugin's kernels of an op, on the op's cases: on each device and at each level that is here, in every way in which a run may call them.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <span>
#include <thread>

#include "host/exec/checksum.hpp"
#include "host/exec/machine.hpp"
#include "host/plugins/abi.hpp"
#include "host/plugins/host_table.hpp"
#include "host/plugins/isa.hpp"
#include "host/proofs/lone_kernel.hpp"
#include "host/tools/check/cases.hpp"
#include "host/tools/check/rules.hpp"
#include "host/tools/compare/printed.hpp"

namespace galley {
namespace {

/// In which order the emulated GPU runs the threads of a block (galley/emulated/cuda.hpp): as the user says, once this is gone.
class ThreadOrder {
 public:
  explicit ThreadOrder(const char* order) {
    if (const char* mine = std::getenv(kName)) before_ = mine;
    if (order) ::setenv(kName, order, 1);
  }
  ThreadOrder(const ThreadOrder&) = delete;
  ThreadOrder& operator=(const ThreadOrder&) = delete;
  ~ThreadOrder() {
    if (before_) ::setenv(kName, before_->c_str(), 1);
    else ::unsetenv(kName);
  }

 private:
  static constexpr const char* kName = "GALLEY_CUDA_ORDER";
  std::optional<std::string> before_;
};

/// How a kernel is run once more: nothing of it may change a byte.
struct Again {
  LaunchWay way;
  int threads;        ///< of the processor; 0: as many as usual
  BlockOrder blocks;  ///< of what the kernel divides among threads
  const char* order;  ///< of the threads of an emulated block; null: the usual one
  const char* text;
  const char* rule;
};
constexpr const char* kBarrier = ": a barrier is missing, or two write one place";
const std::vector<Again>& ways_on(const CheckDevice& device) {
  static const std::vector<Again> on_any = {
      {{.place = 1}, 1, BlockOrder::Free, nullptr, "at other addresses and with another number of threads", rules::kBytes},
      {{}, 3, BlockOrder::Free, nullptr, "with three threads", rules::kBytes},
      {{}, 16, BlockOrder::Free, nullptr, "with sixteen threads", rules::kBytes},
      {{}, 1, BlockOrder::Reverse, nullptr, "with the blocks of its work in reverse", rules::kBlockOrder},
      {{.beside = true}, 0, BlockOrder::Free, nullptr, "with another node prepared meanwhile", rules::kPrepare},
      {{.launches = 3}, 0, BlockOrder::Free, nullptr, "in a later launch of the same operands", rules::kBytes},
      {{.edge = Edge::After}, 0, BlockOrder::Free, nullptr, "with nothing after its operands", rules::kBytes},
      {{.edge = Edge::Before}, 0, BlockOrder::Free, nullptr, "with nothing before its operands", rules::kBytes}};
  static const std::vector<Again> on_emulated = {
      on_any[0],
      on_any[4],
      on_any[5],
      {{}, 0, BlockOrder::Free, "reverse", "with the threads of a block in reverse (GALLEY_CUDA_ORDER=reverse)", rules::kBytes},
      {{}, 0, BlockOrder::Free, "7", "with the threads of a block in another order (GALLEY_CUDA_ORDER=7)", rules::kBytes},
      {{}, 0, BlockOrder::Free, "11", "with the threads of a block in another order (GALLEY_CUDA_ORDER=11)", rules::kBytes}};
  return device.emulated ? on_emulated : on_any;
}

/// So long two sessions try to be in a kernel at once.
constexpr std::chrono::milliseconds kMeeting(3000);

/// A kernel where it runs.
struct Placed {
  const galley_kernel* kernel;
  const CheckDevice* device;
  Target target;
  std::string name;  ///< "kernel 'gelu.cpu' for x86-64-v3"
};

class KernelCheck {
 public:
  KernelCheck(const CheckContext& context, const galley_op& op, const std::vector<CheckDevice>& devices, TestLog& log)
      : context_(context), op_(op), devices_(devices), log_(log), ops_([&plugins = context.plugins](std::string_view name) {
          return plugins.op(name).table;
        }) {}

  Status run() {
    for (const CheckDevice& device : devices_) gather(device);
    uint32_t done = 0;
    for (; done < op_.n_cases && !late(2); ++done) TRY_STATUS(check_case(*op_.cases[done]));
    if (done < op_.n_cases)
      log_.unchecked(std::to_string(op_.n_cases - done) + " of " + std::to_string(op_.n_cases) + " cases: there was no time (--seconds)");
    if (hurried_ > 0) log_.unchecked(std::to_string(hurried_) + " runs in all ways: there was no time (--seconds)");
    for (const Placed& p : placed_)
      if (!taken_.contains(p.name)) log_.unchecked(p.name + ": it takes no case of '" + op_.name + "' here");
    return ok();
  }

 private:
  /// The plugin's kernels of the op for a device, at each level of it that is here.
  void gather(const CheckDevice& device) {
    std::set<std::string> levels = {device.target.isa};
    bool several = false;  // libraries of levels, of which each is named
    for (const KernelLibrary& library : context_.plugin.manifest.kernel_libraries)
      if (library.device == device.target.device && !library.isa.empty()) {
        several = true;
        if (isa_rank(library.isa, device.target.isa)) levels.insert(library.isa);
        else if (same_kind(library.isa, device.target.isa)) log_.unchecked("kernels for " + library.isa + ": this machine lacks it");
      }
    std::set<const galley_kernel*> seen;
    for (const std::string& isa : levels)
      for (const Registered<galley_kernel>& found : context_.plugins.kernels(op_.name, device.target.device, isa)) {
        if (found.plugin != &context_.plugin || !seen.insert(found.table).second) continue;
        Placed& p =
            placed_.emplace_back(found.table, &device, device.target, std::string("kernel '") + found.table->name + "'" + device.label);
        p.target.isa = isa;
        if (several && device.label.empty()) p.name += " for " + isa;
      }
  }

  Status check_case(const galley_op_case& example) {
    case_ = example.node->name;
    std::mt19937_64 random(context_.seed ^ checksum(std::string(op_.name) + "\n" + case_));
    const LoneNode node = TRY(LoneNode::of(&op_, example, random));
    std::vector<OtherSize> nodes = {{node, "", true}};
    for (LoneNode& other : in_other_dtypes(node)) nodes.push_back({std::move(other), "in 16 bit", true});
    for (OtherSize& other : other_sizes(node, example, random))
      if (other.fits) nodes.push_back(std::move(other));
    for (const auto& [of, what, fits] : nodes) {
      if (!what.empty() && (late(1) || !fits || !takes(of))) continue;
      const Result<Values> outputs = outputs_of(of, ops_);
      if (!outputs) continue;  // the op's own test says what is wrong
      for (const Placed& p : placed_)
        if (!lost_.contains(p.device)) TRY_STATUS(check_kernel(p, of, *outputs, what));
    }
    return ok();
  }

  /// Whether the test has taken so many times the time that it has.
  bool late(double times) const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count() > times * context_.seconds;
  }
  /// Whether the shape rule takes a node.
  bool takes(const LoneNode& node) const {
    const NodeParts parts(node, {});
    std::vector<galley_shape> shapes(op_.n_outputs, new_struct<galley_shape>());
    std::vector<galley_shape*> pointers;
    for (galley_shape& s : shapes) pointers.push_back(&s);
    return !op_.infer || call_plugin(caller_of(&op_, op_.name), "infer", [&](galley_error* error) {
                           return op_.infer(op_.self, &parts.view(), pointers.data(), error);
                         }).ok();
  }

  /// The node with what it reads in the dtype that it computes in, or in any, in 16 bit.
  std::vector<LoneNode> in_other_dtypes(const LoneNode& node) const {
    std::vector<LoneNode> out;
    for (const uint32_t dtype : {GALLEY_BF16, GALLEY_F16}) {
      LoneNode other = node;
      bool changed = false;
      for (size_t i = 0; i < other.inputs.size(); ++i) {
        auto& n = other.inputs[i];
        if (!n || n->dtype != GALLEY_F32 || !(input_rule(&op_, i)->flags & (GALLEY_OPERAND_COMPUTE | GALLEY_OPERAND_ANY_DTYPE))) continue;
        const std::vector<double> numbers = n->floats;
        n->dtype = dtype;
        if (!numbers.empty()) n->set(numbers);
        changed = true;
      }
      if (changed) out.push_back(std::move(other));
    }
    return out;
  }

  void find(const Placed& p, const std::string& what, const std::string& sentence, const char* rule, double size = INFINITY) {
    if (!found_.insert(p.name + rule).second) return;  // once of a kernel: the other cases say the same
    log_.find({"case '" + case_ + "'" + (what.empty() ? "" : ", " + what), p.name + sentence, rule, size});
  }

  Status check_kernel(const Placed& p, const LoneNode& node, const Values& outputs, const std::string& what) {
    if (what.empty() && !check_query(p, node, outputs)) return ok();
    const KernelRun first = TRY(run_on(p, node, outputs, nullptr));
    if (!first.refused.empty()) return ok();
    taken_.insert(p.name);
    log_.held(p.name);
    if (!first.failed.empty()) return failed(p, what, first.failed);
    TRY_STATUS(check_numbers(p, node, outputs, first, what, "", rules::kKernel));
    if (!what.empty()) {  // another size or dtype: the edges tell most
      for (const Again& way : ways_on(*p.device))
        if (way.way.edge != Edge::None && !TRY(same_again(p, node, outputs, first, way, what))) return ok();
      return ok();
    }
    for (const Again& way : ways_on(*p.device)) {
      if (late(1)) break;
      if (!TRY(same_again(p, node, outputs, first, way, what))) return ok();
    }
    if (late(1)) return ++hurried_, ok();
    for (const int at : {1, 2}) {
      if (!(p.kernel->flags & GALLEY_KERNEL_GROUPS)) break;
      const Again group = {{.place = 1, .group = at}, 0, BlockOrder::Free, nullptr, "with another node in its launch", rules::kBytes};
      if (!TRY(same_again(p, node, outputs, first, group, what))) return ok();
    }
    if (!p.device->emulated) TRY_STATUS(two_at_once(p, node, outputs, first));
    for (const auto& [way, there, sentence, rule] :
         {std::tuple{LaunchWay{.adds = true}, adds_into(node, outputs), ", where it adds to an output", rules::kAdds},
          std::tuple{LaunchWay{.in_place = true}, reuses_inputs(node, outputs), ", where an output lies in its input's buffer",
                     rules::kAlias}}) {
      if (!there) continue;
      const KernelRun other = TRY(run_on_way(p, node, outputs, way));
      if (!other.refused.empty()) continue;
      if (!other.failed.empty()) return failed(p, what, other.failed + sentence);
      TRY_STATUS(check_numbers(p, node, outputs, other, what, sentence, rule));
      log_.held(p.name + (way.adds ? ", adding" : ", in place"));
    }
    return ok();
  }

  Status check_numbers(const Placed& p, const LoneNode& node, const Values& outputs, const KernelRun& run, const std::string& what,
                       const std::string& how, const char* rule) {
    if (op_.flags & GALLEY_OP_ROUNDS) return ok();
    const KernelError error = TRY(kernel_error(node, outputs, run));
    if (error.share > 1)
      find(p, (what.empty() ? "" : what + ", ") + error.operand,
           how + ": element " + std::to_string(error.worst.element) +
               printed(" is %.7g, the reference says %.7g ± %.2g, so the error is %.2g times its bound", error.worst.got,
                       error.worst.expected, error.worst.bound, error.share),
           rule, error.share);
    return ok();
  }

  Result<bool> same_again(const Placed& p, const LoneNode& node, const Values& outputs, const KernelRun& first, const Again& way,
                          const std::string& what) {
    const KernelRun again = TRY(run_on(p, node, outputs, &way));
    if (!again.failed.empty()) {
      TRY_STATUS(failed(p, what, again.failed + ", " + way.text));
      return false;
    }
    if (!again.refused.empty() || first.varies) return true;
    if (again.left > 1024 && p.device->label.empty())
      find(p, what, printed(": each launch leaves %.1f KiB of memory", static_cast<double>(again.left) / 1024), rules::kNoMemory);
    if (again.goes_on) find(p, what, " goes on writing after it has come back", rules::kAfter);
    if (again.bytes == first.bytes && !again.unsteady) return true;
    find(p, what, std::string(" leaves other bytes ") + way.text + (way.order ? kBarrier : ""), way.rule);
    return false;
  }

  /// Another session calls the kernel all the while, with other numbers.
  Status two_at_once(const Placed& p, const LoneNode& node, const Values& outputs, const KernelRun& first) {
    LoneNode other = node;
    int64_t numbers = 1;
    double factor = .5;
    for (auto& n : other.inputs) {
      if (n) numbers += n->count();
      for (size_t i = 0; n && i < n->floats.size(); ++i) n->floats[i] *= factor;
      factor *= .75;  // of each operand another one: a quotient of two of them is another, too
    }
    const int launches = static_cast<int>(std::clamp<int64_t>((int64_t{1} << 21) / numbers, 4, 50));
    std::atomic<bool> over = false;
    std::atomic<int> theirs = 0;
    std::thread second([&] {
      set_compute_threads(1);
      for (; !over; ++theirs) (void)run_kernel(*p.kernel, other, outputs, p.target, *p.device->table, {.place = 1, .launches = launches});
    });
    set_compute_threads(1);
    // On a busy machine one of them may be done before the other begins: each waits between the parts of its work, until they have met a few times.
    set_block_order(BlockOrder::Late);
    Result<KernelRun> ran = KernelRun();
    bool differs = false;
    const auto until = std::chrono::steady_clock::now() + kMeeting;
    for (bool again = true; again;
         again = ran && ran->failed.empty() && !differs && theirs < 3 && std::chrono::steady_clock::now() < until) {
      ran = run_kernel(*p.kernel, node, outputs, p.target, *p.device->table, {.launches = launches});
      differs = ran && !first.varies && (ran->bytes != first.bytes || ran->unsteady);
    }
    over = true;
    second.join();
    set_block_order(BlockOrder::Free);
    set_compute_threads(static_cast<int>(p.device->target.threads));
    if (!ran) return ran.error();
    if (!ran->failed.empty()) return failed(p, "", ran->failed + ", in two sessions at once");
    if (differs) find(p, "", " leaves other bytes while another session calls it with other numbers", rules::kShared);
    return ok();
  }

  /// Runs a kernel in the usual way, or once more in another.
  Result<KernelRun> run_on(const Placed& p, const LoneNode& node, const Values& outputs, const Again* again) {
    const ThreadOrder order(again ? again->order : nullptr);
    if (again) set_block_order(again->blocks);
    Placed other = p;
    if (again && again->threads > 0 && p.device->label.empty())
      other.target.threads = again->threads == 1 && p.target.threads == 1 ? 2 : again->threads;
    Result<KernelRun> out = run_on_way(other, node, outputs, again ? again->way : LaunchWay());
    set_block_order(BlockOrder::Free);
    return out;
  }
  static Result<KernelRun> run_on_way(const Placed& p, const LoneNode& node, const Values& outputs, const LaunchWay& way) {
    set_compute_threads(static_cast<int>(p.target.threads));
    Result<KernelRun> out = run_kernel(*p.kernel, node, outputs, p.target, *p.device->table, way);
    set_compute_threads(static_cast<int>(p.device->target.threads));
    return out;
  }

  Status failed(const Placed& p, const std::string& what, const std::string& sentence) {
    find(p, what, ": " + sentence, sentence.find("prepare") == std::string::npos ? rules::kWork : rules::kPrepare);
    // What a GPU did wrong stays wrong for all that follows.
    if (p.device->label.empty() || works(*p.device)) return ok();
    lost_.insert(p.device);
    log_.unchecked("kernels" + p.device->label + " after " + p.name + ": it has ended the device");
    return ok();
  }

  /// Whether the device can still be used.
  static bool works(const CheckDevice& device) {
    const Program nothing;
    Plan plan;
    plan.classes.resize(device.target.memories.size());
    const Result<std::unique_ptr<Machine>> machine = Machine::open(nothing, plan, device.target, *device.table, HostCopies::No);
    return machine && (*machine)->synchronize().ok();
  }

  struct Answer {
    galley_status status = GALLEY_OK;
    std::string text;
    galley_kernel_plan plan = {};
  };
  /// What query says, of which room[…] bytes after a plan of the smallest size stay as they are.
  Answer ask(const Placed& p, const galley_node_view& view, const galley_target* target, bool small = false) const {
    Answer out;
    out.plan = new_struct<galley_kernel_plan>();
    if (small) {
      std::memset(reinterpret_cast<char*>(&out.plan) + GALLEY_KERNEL_PLAN_MIN_SIZE, 0x5a, sizeof out.plan - GALLEY_KERNEL_PLAN_MIN_SIZE);
      out.plan.size = GALLEY_KERNEL_PLAN_MIN_SIZE;
    }
    galley_error error = GALLEY_ERROR_INIT;
    const galley_node_view* const list[] = {&view};
    const Status called = call_plugin(caller_of(p.kernel, p.kernel->name), std::string("query of ") + p.name, [&](galley_error*) {
      out.status = p.kernel->query(p.kernel->self, list, 1, target, &out.plan, &error);
      return GALLEY_OK;
    });
    out.text = called ? std::string(error.text) : called.error().cause;
    if (!called) out.status = GALLEY_FAILED;
    return out;
  }

  /// The query is pure, quick, keeps to its answer's size, and refuses what it does not understand. False: nothing else can be said.
  bool check_query(const Placed& p, const LoneNode& node, const Values& outputs) {
    using Clock = std::chrono::steady_clock;
    const NodeParts parts(node, outputs);
    const TargetView view(p.target);
    double seconds = INFINITY;
    std::vector<Answer> answers;
    for (int i = 0; i < 3; ++i) {
      const auto begin = Clock::now();
      answers.push_back(ask(p, parts.view(), view.get()));
      seconds = std::min(seconds, std::chrono::duration<double>(Clock::now() - begin).count());
    }
    if (seconds > .1) return find(p, "", printed(": query takes %.2f s", seconds), rules::kQueryTime), false;
    std::vector<Answer> others(4);
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 2; ++t)
      threads.emplace_back([&, t] {
        for (size_t i = t; i < others.size(); i += 2) others[i] = ask(p, parts.view(), view.get());
      });
    for (std::thread& t : threads) t.join();
    answers.insert(answers.end(), others.begin(), others.end());
    const Answer& first = answers.front();
    for (const Answer& other : answers)
      if (other.status != first.status || std::memcmp(&other.plan, &first.plan, sizeof first.plan) != 0)
        return find(p, "", ": query says something else when it is asked again", rules::kPure), false;
    const galley_kernel_plan nothing = new_struct<galley_kernel_plan>();
    if (first.status != GALLEY_OK) {
      if (std::memcmp(&first.plan, &nothing, sizeof nothing) != 0)
        find(p, "", ": query refuses, and has changed its answer", rules::kOnError);
      else if (first.status != GALLEY_UNSUPPORTED)
        find(p, "", printed(": query fails with status %d where it does not take a node: ", static_cast<int>(first.status)) + first.text,
             rules::kUnsupported);
      else if (first.text.empty()) find(p, "", ": query refuses a node without a word", rules::kText);
      return false;
    }
    const int64_t room = p.target.memories.empty() ? 0 : p.target.memories.front().capacity;
    if (room > 0 && first.plan.workspace_bytes + first.plan.constants_bytes > room)
      return find(p, "",
                  ": query asks for " + std::to_string(first.plan.workspace_bytes + first.plan.constants_bytes) +
                      " bytes, more than the device has",
                  rules::kBudget),
             false;
    const Answer small = ask(p, parts.view(), view.get(), true);
    const auto* const after = reinterpret_cast<const unsigned char*>(&small.plan) + GALLEY_KERNEL_PLAN_MIN_SIZE;
    if (std::any_of(after, after + sizeof small.plan - GALLEY_KERNEL_PLAN_MIN_SIZE, [](unsigned char c) { return c != 0x5a; }))
      find(p, "", ": query writes beyond the answer of an older host", rules::kSizes);
    check_flags(p, node, outputs, view);
    check_other_node(p, node, outputs, view);
    return true;
  }

  void check_flags(const Placed& p, const LoneNode& node, const Values& outputs, const TargetView& view) {
    const auto refused = [&](const Answer& said, const std::string& whose) {
      if (said.status == GALLEY_UNSUPPORTED && !said.text.empty()) return;
      find(p, "",
           ": query " +
               (said.status == GALLEY_OK            ? std::string("takes")
                : said.status != GALLEY_UNSUPPORTED ? "fails, and does not say GALLEY_UNSUPPORTED, for"
                                                    : "refuses without a word") +
               " a node with an unknown flag of " + whose,
           said.status == GALLEY_UNSUPPORTED ? rules::kText : rules::kQueryFlags);
    };
    for (const NodeParts::Flag flag : {NodeParts::Flag::Node, NodeParts::Flag::Operand, NodeParts::Flag::Attribute}) {
      NodeParts parts(node, outputs);
      if (parts.set(flag)) refused(ask(p, parts.view(), view.get()), NodeParts::name(flag));
    }
    const NodeParts parts(node, outputs);
    galley_target other = *view.get();
    other.flags |= kUnknownFlag;
    refused(ask(p, parts.view(), &other), "the target");
  }

  /// A node whose operands are in a dtype that no kernel knows is refused, and not failed.
  void check_other_node(const Placed& p, const LoneNode& node, const Values& outputs, const TargetView& view) {
    LoneNode other = node;
    Values made = outputs;
    for (Values* list : {&other.inputs, &made})
      for (auto& n : *list)
        if (n && n->floating()) n->dtype = GALLEY_F64;
    const NodeParts parts(other, made);
    const Answer said = ask(p, parts.view(), view.get());
    const galley_kernel_plan nothing = new_struct<galley_kernel_plan>();
    if (said.status != GALLEY_OK && said.status != GALLEY_UNSUPPORTED)
      find(p, "", printed(": query fails with status %d for operands in F64: ", static_cast<int>(said.status)) + said.text,
           rules::kUnsupported);
    else if (said.status == GALLEY_UNSUPPORTED && said.text.empty())
      find(p, "", ": query refuses operands in F64 without a word", rules::kText);
    else if (said.status != GALLEY_OK && std::memcmp(&said.plan, &nothing, sizeof nothing) != 0)
      find(p, "", ": query refuses operands in F64, and has changed its answer", rules::kOnError);
  }

  const CheckContext& context_;
  const galley_op& op_;
  const std::vector<CheckDevice>& devices_;
  TestLog& log_;
  OpLookup ops_;
  std::string case_;
  std::vector<Placed> placed_;
  std::set<std::string> taken_;
  std::set<std::string> found_;
  std::set<const CheckDevice*> lost_;  ///< those that a kernel has ended
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  int64_t hurried_ = 0;  ///< kernels with a case that was not run in all ways
};

}  // namespace

Status check_kernels(const CheckContext& context, const std::string& op, TestLog& log) {
  const std::vector<CheckDevice> devices = TRY(check_devices(context.plugins, context.plugin));
  if (op.find('>') != std::string::npos) return log.unchecked("it does a chain, and no op says cases of one"), ok();
  const Registered<galley_op> found = context.plugins.op(op);
  if (!found) return log.unchecked("no plugin here has its op"), ok();
  if (found.table->n_cases == 0 || !found.table->reference)
    return log.unchecked("the op declares no test cases, or has no reference"), ok();
  return KernelCheck(context, *found.table, devices, log).run();
}

}  // namespace galley
