// Linear layers on CUDA: by cuBLASLt (cuda/gemm.hpp), and by tiles what that does not take (cuda_tiles.cu). Operands in F32 are multiplied
// in F32, unless a node asks for TF32; those in BF16 and F16 on tensor cores. Gradients of weights are added to what is there in the same
// pass, also where that is F32.
//
// Several products in one launch: q, k and v, gate and up, LoRA's thin ones, and gradients of the weights that share an input. Those of one
// form are one call where cuBLASLt can make them at once, the others follow each other. Each has the bytes that it has alone.
#include "ops/linear/cuda_products.hpp"

namespace galley::cuda {
namespace {

enum class Way { Tiles, Library };  // with their priorities

/// Each product by the way that the host chooses for it alone.
struct Best {
  static constexpr bool alone = false;  // a single node has a kernel of its own
  static Way way(const Matmul& p, const galley_target& target) { return Gemm::refusal(p, target) ? Way::Tiles : Way::Library; }
};
struct OnlyLibrary {
  static constexpr bool alone = true;
  static Way way(const Matmul& p, const galley_target& target) {
    if (const char* reason = Gemm::refusal(p, target)) unsupported(reason);
    return Way::Library;
  }
};
struct OnlyTiles {
  static constexpr bool alone = true;
  static Way way(const Matmul&, const galley_target&) { return Way::Tiles; }
};

template <class Choice>
class Products {
 public:
  static void query(const Nodes& nodes, const galley_target& target, galley_kernel_plan& plan) {
    for (const Set& set : sets(nodes, target)) {
      plan.priority = std::max(plan.priority, static_cast<int64_t>(set.way));
      if (set.way == Way::Tiles) continue;
      plan.workspace_bytes = std::max(plan.workspace_bytes, Gemm::workspace_bytes(set.products.front(), set.products.size(), target));
    }
    // As the kernels that the products have alone: these give way to several in one launch, and others that ask for more do not.
    if (!Choice::alone && nodes.size() == 1) plan.priority = -1;
  }

  Products(const Nodes& nodes, const galley_kernel_setup& setup) {
    for (const Set& set : sets(nodes, *setup.target)) {
      if (set.way == Way::Tiles) {
        tiles_.insert(tiles_.end(), set.products.begin(), set.products.end());
      } else {
        gemms_.emplace_back(set.name, set.products, setup);
      }
    }
  }

  void run(galley_queue* queue) const {
    for (const Gemm& gemm : gemms_) gemm.run(queue);
    for (const Matmul& product : tiles_) multiply_by_tiles(product, queue);
  }

 private:
  /// What is made together.
  struct Set {
    Way way;
    const char* name;  ///< of its first node
    std::vector<Matmul> products;
  };
  static std::vector<Set> sets(const Nodes& nodes, const galley_target& target) {
    std::vector<Set> out;
    for (const Node& node : nodes) {
      const Matmul p = product_of(node);
      const Way way = Choice::way(p, target);
      const auto together = std::find_if(out.begin(), out.end(), [&](const Set& set) {
        const Matmul& q = set.products.front();
        return way == Way::Library && set.way == way && Gemm::batches(p) && Gemm::batches(q) && Gemm::same_form(p, q);
      });
      if (together == out.end()) out.push_back({way, node.name(), {p}});
      else together->products.push_back(p);
    }
    return out;
  }

  std::vector<Gemm> gemms_;
  std::vector<Matmul> tiles_;
};

using Library = Products<OnlyLibrary>;
using Tiled = Products<OnlyTiles>;
using Several = Products<Best>;

const bool added =
    add(nodes_kernel<Library>("linear.cublaslt", "linear", 0)) && add(nodes_kernel<Library>("linear_dx.cublaslt", "linear_dx", 0)) &&
    add(nodes_kernel<Library>("linear_dw.cublaslt", "linear_dw", 0)) && add(nodes_kernel<Tiled>("linear.tiles", "linear", 0)) &&
    add(nodes_kernel<Tiled>("linear_dx.tiles", "linear_dx", 0)) && add(nodes_kernel<Tiled>("linear_dw.tiles", "linear_dw", 0)) &&
    add(nodes_kernel<Several>("linear.several", "linear")) && add(nodes_kernel<Several>("linear_dx.several", "linear_dx")) &&
    add(nodes_kernel<Several>("linear_dw.several", "linear_dw"));

}  // namespace
}  // namespace galley::cuda
