#include "host/tools/check/chains.hpp"

#include <deque>
#include <random>
#include <set>

#include "host/exec/checksum.hpp"
#include "host/tools/check/cases.hpp"
#include "host/tools/check/kernel_runs.hpp"
#include "host/tools/check/rules.hpp"

namespace galley {
namespace {

/// The case's node, in whose input `place` lies what `made` is like, and others in sizes and dtypes that go with it. Numbers are drawn from the
/// case's ranges.
LoneNode after(const LoneNode& node, const galley_op_case& example, size_t place, const Numbers& made, std::mt19937_64& random) {
  LoneNode out = node;
  const Shape& was = node.inputs[place]->shape;
  const bool computes = input_rule(node.op, place)->flags & GALLEY_OPERAND_COMPUTE;
  const auto extent = [&](int64_t n) {
    if (n == was.back()) return made.shape.back();
    for (size_t d = 0; was.size() == made.shape.size() && d < was.size(); ++d)
      if (n == was[d]) return made.shape[d];
    return n;
  };
  for (size_t i = 0; i < out.inputs.size(); ++i) {
    auto& n = out.inputs[i];
    if (!n || i == place) continue;
    Shape shape = n->shape;
    if (shape == was) shape = made.shape;
    else
      for (int64_t& d : shape) d = extent(d);
    const bool same_dtype = n->floating() && computes && (input_rule(node.op, i)->flags & GALLEY_OPERAND_COMPUTE);
    const uint32_t dtype = same_dtype ? made.dtype : n->dtype;
    if (shape == n->shape && dtype == n->dtype) continue;
    n = Numbers::of(dtype, shape);
    n->draw(example.low[i], example.high[i], random);
  }
  out.inputs[place] = made;
  return out;
}

class ChainCheck {
 public:
  ChainCheck(const CheckContext& context, const std::string& chain, std::vector<const galley_op*> ops,
             const std::vector<CheckDevice>& devices, TestLog& log)
      : ops_(std::move(ops)),
        log_(log),
        runs_(context, chain, devices, log),
        lookup_([&plugins = context.plugins](std::string_view name) { return plugins.op(name).table; }),
        random_(context.seed ^ checksum(chain)) {}

  Status run() {
    for (uint32_t c = 0; c < ops_.front()->n_cases; ++c) {
      if (runs_.late()) {
        log_.no_time("chains that begin with another case");
        break;
      }
      const galley_op_case& example = *ops_.front()->cases[c];
      const LoneNode node = TRY(LoneNode::of(ops_.front(), example, random_));
      std::vector<LoneNode> nodes = in_16_bit(node);
      nodes.insert(nodes.begin(), node);
      for (LoneNode& first : nodes)
        if (takes(first)) TRY_STATUS(go_on(std::move(first), 0, "case '" + std::string(example.node->name) + "'"));
    }
    runs_.end("chain of cases of its ops");
    return ok();
  }

 private:
  struct Link {
    LoneNode node;
    Values outputs;
    size_t reads;
  };

  /// The node is a link; `reads`: of its inputs the one that the link before makes.
  Status go_on(LoneNode node, size_t reads, const std::string& where) {
    Result<Values> outputs = outputs_of(node, lookup_);
    if (!outputs) return ok();  // the op's own test says what is wrong
    links_.push_back({std::move(node), std::move(*outputs), reads});
    const Status status = links_.size() == ops_.size() ? check(where) : follow(where);
    links_.pop_back();
    return status;
  }

  /// Goes on with a case of the next op for each choice of its attributes.
  Status follow(const std::string& where) {
    const Link& last = links_.back();
    const Numbers* made = nullptr;
    if (!last.outputs.empty()) made = last.outputs.front() ? &*last.outputs.front() : nullptr;
    else if (updates_input(last.node.op, 0)) made = &*last.node.inputs.front();
    const galley_op* const op = ops_[links_.size()];
    if (!made || made->shape.empty()) return ok();
    std::set<std::string> attrs;  // one of each
    for (uint32_t c = 0; c < op->n_cases; ++c) {
      const galley_op_case& example = *op->cases[c];
      const LoneNode node = TRY(LoneNode::of(op, example, random_));
      if (attrs.contains(node.attrs.key())) continue;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (!node.inputs[i] || !node.inputs[i]->floating() || node.inputs[i]->shape.empty() || updates_input(op, i)) continue;
        LoneNode next = after(node, example, i, *made, random_);
        if (!takes(next)) continue;
        TRY_STATUS(go_on(std::move(next), i, where + ", case '" + example.node->name + "' of '" + op->name + "'"));
        attrs.insert(node.attrs.key());
        break;
      }
    }
    return ok();
  }

  Status check(const std::string& where) {
    runs_.begin(where);
    std::vector<LoneLaunch::Link> links;
    for (const Link& link : links_) links.push_back({&link.node, &link.outputs, link.reads});
    for (const bool kept : {false, true})
      for (const Placed& p : runs_.placed())
        if (!runs_.ended(*p.device) && !runs_.late())
          TRY_STATUS(check_kernel(p, {links, kept}, kept ? "with memory between its links" : ""));
    return ok();
  }

  Status check_kernel(const Placed& p, const LoneLaunch& launch, const std::string& what) {
    TRY_STATUS(runs_.check_formats(p, launch));
    const std::optional<KernelRun> first = TRY(runs_.run(p, launch, what));
    if (!first) return ok();
    TRY_STATUS(runs_.check_numbers(p, launch, *first, what, "", rules::kKernel));
    std::vector<Again> ways = ways_on(*p.device);
    if (!in_all_ways_.insert(p.name + what).second)  // the edges tell most
      std::erase_if(ways, [](const Again& way) { return way.way.edge == Edge::None; });
    else if (p.kernel->flags & GALLEY_KERNEL_GROUPS) ways.insert(ways.end(), {in_group(1), in_group(2)});
    for (const Again& way : ways)
      if (!TRY(runs_.same_again(p, launch, *first, way, what))) break;
    return ok();
  }

  std::vector<const galley_op*> ops_;
  TestLog& log_;
  KernelRuns runs_;
  OpLookup lookup_;
  std::mt19937_64 random_;
  std::deque<Link> links_;             // that are built
  std::set<std::string> in_all_ways_;  // kernels, with and without memory between links
};

}  // namespace

Status check_chain(const CheckContext& context, const std::string& chain, const std::vector<CheckDevice>& devices, TestLog& log) {
  std::vector<const galley_op*> ops;
  for (size_t begin = 0; begin <= chain.size();) {
    const size_t end = std::min(chain.find('>', begin), chain.size());
    const std::string name = chain.substr(begin, end - begin);
    const galley_op* const op = context.plugins.op(name).table;
    if (!op) return log.unchecked("no plugin here has the op '" + name + "'"), ok();
    if (op->n_cases == 0 || !op->reference) return log.unchecked("the op '" + name + "' declares no test cases, or has no reference"), ok();
    ops.push_back(op);
    begin = end + 1;
  }
  return ChainCheck(context, chain, std::move(ops), devices, log).run();
}

}  // namespace galley
