// The ways to multiply, and their kernels: of single nodes, of several products in one launch, and of products with the activation after
// them. A product in a group or in a chain is made by the way that is chosen for it alone, in the same tasks: it has the same bits.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "cpu/lanes.hpp"
#include "ops/linear/activation.hpp"
#include "ops/linear/roles.hpp"

namespace galley::cpu {

/// A product cut into tasks.
class Product {
 public:
  virtual ~Product() = default;
  /// `memory`: of this lane, on a cache line.
  virtual void task(int64_t task, int64_t lane, void* memory) const = 0;
};

/// What a way to multiply asks for, or why it does not take a product.
struct Offer {
  const char* refusal = nullptr;
  int64_t tasks = 0, lane_bytes = 0;
};

/// The links of a chain. The first of two has no memory but the lane's. Sum: of two, the second is a sum.
enum class Links { One, Two, Sum };

struct Way {
  int64_t priority;
  Offer (*offer)(const sdk::Node& node, const galley_target& target, Links links);
  std::unique_ptr<Product> (*make)(const sdk::Node& node, const galley_target& target, int64_t n_lanes,
                                   const std::optional<Activation>& activation);
};

/// All that there are on this level.
inline std::vector<const Way*>& ways() {
  static std::vector<const Way*> all;
  return all;
}

/// Lanes and their memory.
inline int64_t workspace_of(int64_t n_lanes, int64_t lane_bytes) { return n_lanes * round_up(lane_bytes, 64) + 64; }
inline int64_t lanes_of(const galley_target& target, int64_t tasks) { return std::clamp<int64_t>(target.threads, 1, tasks); }

/// Each product by the way that the host chooses for it alone.
struct Best {
  static constexpr bool alone = false;  // a single node has a kernel of its own
  static const Way& way(const sdk::Node& node, const galley_target& target) {
    const Way* best = nullptr;
    for (const Way* way : ways()) {
      if (best && best->priority >= way->priority) continue;
      const Offer offer = way->offer(node, target, Links::One);
      if (!offer.refusal && workspace_of(lanes_of(target, offer.tasks), offer.lane_bytes) <= target.workspace_budget) best = way;
    }
    if (!best) sdk::unsupported("no way to multiply takes this product");
    return *best;
  }
};
template <const Way& only>
struct Only {
  static constexpr bool alone = true;
  static const Way& way(const sdk::Node&, const galley_target&) { return only; }
};

/// Products in one launch.
template <class Choice, Links links>
class Launch {
 public:
  static void query(const sdk::Nodes& nodes, const galley_target& target, galley_kernel_plan& plan) {
    const Launch launch(nodes, target);
    plan.workspace_bytes = workspace_of(launch.lanes_, launch.lane_bytes_);
    // As the kernels that the products have alone: these give way to several in one launch, and others that ask for more do not.
    plan.priority = Choice::alone || nodes.size() > 1 ? launch.priority_ : -1;
  }

  Launch(const sdk::Nodes& nodes, const galley_kernel_setup& setup) : Launch(nodes, *setup.target) {
    memory_ = reinterpret_cast<char*>(on_a_line(setup.workspace));
    for (size_t i = 0; i < members_.size(); ++i) {
      std::optional<Activation> activation;
      if (links == Links::Two) activation.emplace(nodes[2 * i], nodes[2 * i + 1]);
      members_[i].product = members_[i].way->make(nodes[i * step], *setup.target, lanes_, activation);
    }
  }

  void run() const {
    in_lanes(lanes_, members_.back().end, [this](int64_t task, int64_t lane) {
      const Member* m = members_.data();
      int64_t begin = 0;
      for (; task >= m->end; ++m) begin = m->end;
      m->product->task(task - begin, lane, memory_ + lane * lane_bytes_);
    });
  }

 private:
  static constexpr size_t step = links == Links::Two ? 2 : 1;
  struct Member {
    const Way* way;
    int64_t end;  ///< of its tasks
    std::unique_ptr<Product> product;
  };

  Launch(const sdk::Nodes& nodes, const galley_target& target) {
    int64_t end = 0;
    for (size_t i = 0; i < nodes.size(); i += step) {
      if (links == Links::Two) Activation::check(nodes[i], nodes[i + 1]);
      const Way& chosen = Choice::way(nodes[i], target);
      const Offer offer = chosen.offer(nodes[i], target, links == Links::Two && Activation::is_sum(nodes[i + 1]) ? Links::Sum : links);
      if (offer.refusal) sdk::unsupported(offer.refusal);
      members_.push_back({&chosen, end += offer.tasks, nullptr});
      priority_ = std::max(priority_, chosen.priority);
      lane_bytes_ = std::max(lane_bytes_, round_up(offer.lane_bytes, 64));
    }
    lanes_ = lanes_of(target, end);
  }

  std::vector<Member> members_;
  int64_t lanes_ = 0, lane_bytes_ = 0, priority_ = 0;
  char* memory_ = nullptr;
};

/// Registers a way, and its kernels of single nodes by these names: of linear, linear_dx and linear_dw. The first two may have a weight in
/// a format.
template <const Way& way>
bool add_way(const char* const (&names)[3]) {
  ways().push_back(&way);
  constexpr const char* ops[] = {"linear", "linear_dx", "linear_dw"};
  for (int i = 0; i < 3; ++i)
    sdk::add(sdk::nodes_kernel<Launch<Only<way>, Links::One>>(names[i], ops[i], "cpu", i < 2 ? GALLEY_KERNEL_FORMATS : 0));
  return true;
}

}  // namespace galley::cpu
