// The plugin's kernels of an op, on the op's cases: on each device and at each level that is here, in every way in which a run may call them.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "host/exec/checksum.hpp"
#include "host/plugins/abi.hpp"
#include "host/tools/check/cases.hpp"
#include "host/tools/check/chains.hpp"
#include "host/tools/check/kernel_runs.hpp"
#include "host/tools/check/rules.hpp"
#include "host/tools/compare/printed.hpp"

namespace galley {
namespace {

/// So long two sessions try to be in a kernel at once.
constexpr std::chrono::milliseconds kMeeting(3000);

class KernelCheck {
 public:
  KernelCheck(const CheckContext& context, const galley_op& op, const std::vector<CheckDevice>& devices, TestLog& log)
      : context_(context),
        op_(op),
        log_(log),
        runs_(context, op.name, devices, log),
        ops_([&plugins = context.plugins](std::string_view name) { return plugins.op(name).table; }) {}

  Status run() {
    uint32_t done = 0;
    for (; done < op_.n_cases && !runs_.late(2); ++done) TRY_STATUS(check_case(*op_.cases[done]));
    if (done < op_.n_cases) log_.no_time(std::to_string(op_.n_cases - done) + " of " + std::to_string(op_.n_cases) + " cases");
    if (left_out_ > 0) log_.no_time(std::to_string(left_out_) + " times a case in another size, in 16 bit or with ties");
    if (hurried_ > 0) log_.no_time(std::to_string(hurried_) + " runs in all ways");
    runs_.end("case of '" + std::string(op_.name) + "'");
    return ok();
  }

 private:
  Status check_case(const galley_op_case& example) {
    const std::string name = example.node->name;
    runs_.begin("case '" + name + "'");
    std::mt19937_64 random(context_.seed ^ checksum(std::string(op_.name) + "\n" + name));
    const LoneNode node = TRY(LoneNode::of(&op_, example, random));
    std::vector<OtherSize> nodes = {{node, "", true}};
    for (LoneNode& other : in_16_bit(node)) nodes.push_back({std::move(other), "in 16 bit", true});
    for (OtherSize& other : with_ties(context_.plugins, node, example, random)) nodes.push_back(std::move(other));
    for (OtherSize& other : other_sizes(node, example, random))
      if (other.fits) nodes.push_back(std::move(other));
    for (const auto& [of, what, fits] : nodes) {
      if (!what.empty() && (!fits || !takes(of))) continue;
      if (!what.empty() && runs_.late()) {
        ++left_out_;
        continue;
      }
      const Result<Values> outputs = outputs_of(of, ops_);
      if (!outputs) continue;  // the op's own test says what is wrong
      for (const Placed& p : runs_.placed())
        if (!runs_.ended(*p.device)) TRY_STATUS(check_kernel(p, of, *outputs, what));
    }
    return ok();
  }

  Status check_kernel(const Placed& p, const LoneNode& node, const Values& outputs, const std::string& what) {
    if (what.empty()) TRY_STATUS(runs_.check_formats(p, {node, outputs}));
    if (what.empty() && !check_query(p, node, outputs)) return ok();
    const LoneLaunch launch(node, outputs);
    const std::optional<KernelRun> ran = TRY(runs_.run(p, launch, what));
    if (!ran) return ok();
    const KernelRun& first = *ran;
    TRY_STATUS(runs_.check_numbers(p, launch, first, what, "", rules::kKernel));
    if (!what.empty()) {  // another size or dtype: the edges tell most
      for (const Again& way : ways_on(*p.device))
        if (way.way.edge != Edge::None && !TRY(runs_.same_again(p, launch, first, way, what))) return ok();
      return ok();
    }
    for (const Again& way : ways_on(*p.device)) {
      if (runs_.late()) break;
      if (!TRY(runs_.same_again(p, launch, first, way, what))) return ok();
    }
    if (runs_.late()) return ++hurried_, ok();
    for (const int at : {1, 2}) {
      if (!(p.kernel->flags & GALLEY_KERNEL_GROUPS)) break;
      if (!TRY(runs_.same_again(p, launch, first, in_group(at), what))) return ok();
    }
    if (!p.device->emulated) TRY_STATUS(two_at_once(p, launch, first));
    for (const auto& [way, there, sentence, rule] :
         {std::tuple{LaunchWay{.adds = true}, adds_into(node, outputs), ", where it adds to an output", rules::kAdds},
          std::tuple{LaunchWay{.in_place = true}, reuses_inputs(node, outputs), ", where an output lies in its input's buffer",
                     rules::kAlias}}) {
      if (!there) continue;
      const KernelRun other = TRY(KernelRuns::run(p, launch, way));
      if (!other.refused.empty()) continue;
      if (!other.failed.empty()) return runs_.failed(p, what, other.failed + sentence);
      TRY_STATUS(runs_.check_numbers(p, launch, other, what, sentence, rule));
      log_.held(p.name + (way.adds ? ", adding" : ", in place"));
    }
    return ok();
  }

  /// Another session calls the kernel all the while, with other numbers.
  Status two_at_once(const Placed& p, const LoneLaunch& launch, const KernelRun& first) {
    LoneNode other = *launch.links.front().node;
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
      for (; !over; ++theirs)
        (void)run_kernel(*p.kernel, {other, *launch.links.front().outputs}, p.target, *p.device->table, {.place = 1, .launches = launches});
    });
    set_compute_threads(1);
    // On a busy machine one of them may be done before the other begins: each waits between the parts of its work, until they have met a few times.
    set_block_order(BlockOrder::Late);
    Result<KernelRun> ran = KernelRun();
    bool differs = false;
    const auto until = std::chrono::steady_clock::now() + kMeeting;
    for (bool again = true; again;
         again = ran && ran->failed.empty() && !differs && theirs < 3 && std::chrono::steady_clock::now() < until) {
      ran = run_kernel(*p.kernel, launch, p.target, *p.device->table, {.launches = launches});
      differs = ran && !first.varies && (ran->bytes != first.bytes || ran->unsteady);
    }
    over = true;
    second.join();
    set_block_order(BlockOrder::Free);
    set_compute_threads(static_cast<int>(p.device->target.threads));
    if (!ran) return ran.error();
    if (!ran->failed.empty()) return runs_.failed(p, "", ran->failed + ", in two sessions at once");
    if (differs) runs_.find(p, "", " leaves other bytes while another session calls it with other numbers", rules::kShared);
    return ok();
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
    if (seconds > .1) return runs_.find(p, "", printed(": query takes %.2f s", seconds), rules::kQueryTime), false;
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
        return runs_.find(p, "", ": query says something else when it is asked again", rules::kPure), false;
    const galley_kernel_plan nothing = new_struct<galley_kernel_plan>();
    if (first.status != GALLEY_OK) {
      if (std::memcmp(&first.plan, &nothing, sizeof nothing) != 0)
        runs_.find(p, "", ": query refuses, and has changed its answer", rules::kOnError);
      else if (first.status != GALLEY_UNSUPPORTED)
        runs_.find(p, "",
                   printed(": query fails with status %d where it does not take a node: ", static_cast<int>(first.status)) + first.text,
                   rules::kUnsupported);
      else if (first.text.empty()) runs_.find(p, "", ": query refuses a node without a word", rules::kText);
      return false;
    }
    const int64_t room = p.target.memories.empty() ? 0 : p.target.memories.front().capacity;
    if (room > 0 && first.plan.workspace_bytes + first.plan.constants_bytes > room)
      return runs_.find(p, "",
                        ": query asks for " + std::to_string(first.plan.workspace_bytes + first.plan.constants_bytes) +
                            " bytes, more than the device has",
                        rules::kBudget),
             false;
    const Answer small = ask(p, parts.view(), view.get(), true);
    const auto* const after = reinterpret_cast<const unsigned char*>(&small.plan) + GALLEY_KERNEL_PLAN_MIN_SIZE;
    if (std::any_of(after, after + sizeof small.plan - GALLEY_KERNEL_PLAN_MIN_SIZE, [](unsigned char c) { return c != 0x5a; }))
      runs_.find(p, "", ": query writes beyond the answer of an older host", rules::kSizes);
    check_flags(p, node, outputs, view);
    check_other_node(p, node, outputs, view);
    return true;
  }

  void check_flags(const Placed& p, const LoneNode& node, const Values& outputs, const TargetView& view) {
    const auto refused = [&](const Answer& said, const std::string& whose) {
      if (said.status == GALLEY_UNSUPPORTED && !said.text.empty()) return;
      runs_.find(p, "",
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
      runs_.find(p, "", printed(": query fails with status %d for operands in F64: ", static_cast<int>(said.status)) + said.text,
                 rules::kUnsupported);
    else if (said.status == GALLEY_UNSUPPORTED && said.text.empty())
      runs_.find(p, "", ": query refuses operands in F64 without a word", rules::kText);
    else if (said.status != GALLEY_OK && std::memcmp(&said.plan, &nothing, sizeof nothing) != 0)
      runs_.find(p, "", ": query refuses operands in F64, and has changed its answer", rules::kOnError);
  }

  const CheckContext& context_;
  const galley_op& op_;
  TestLog& log_;
  KernelRuns runs_;
  OpLookup ops_;
  int64_t hurried_ = 0;   ///< kernels with a case that was not run in all ways
  int64_t left_out_ = 0;  ///< other sizes, dtypes and numbers of a case that were not run
};

}  // namespace

Status check_kernels(const CheckContext& context, const std::string& op, TestLog& log) {
  const std::vector<CheckDevice> devices = TRY(check_devices(context.plugins, context.plugin));
  if (op.find('>') != std::string::npos) return check_chain(context, op, devices, log);
  const Registered<galley_op> found = context.plugins.op(op);
  if (!found) return log.unchecked("no plugin here has its op"), ok();
  if (found.table->n_cases == 0 || !found.table->reference)
    return log.unchecked("the op declares no test cases, or has no reference"), ok();
  return KernelCheck(context, *found.table, devices, log).run();
}

}  // namespace galley
