// Linear layers on CUDA: by cuBLASLt (cuda/gemm.hpp), and by tiles what that does not take (cuda_tiles.cu). Operands in F32 are multiplied
// in F32, unless a node asks for TF32; those in BF16 and F16 on tensor cores. Gradients of weights are added to what is there in the same
// pass, also where that is F32.
//
// Several products in one launch: q, k and v, gate and up, LoRA's thin ones, and gradients of the weights that share an input. Those of one
// form are one call where cuBLASLt can make them at once, the others follow each other. Each has the bytes that it has alone.
//
// A weight in a format is unpacked into the workspace before its product (cuda/coded.hpp). The bytes are those of a weight that is stored
// so.
//
// A thin product with the sum after it, an adapter's B: it is added to the other term where the sum lies in its place, else to a copy of
// it. cuBLASLt rounds it with the sum, or before that, too; so in 16 bit its bytes may differ from those of the two nodes.
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

/// The sum after a thin product, in a chain.
struct Sum {
  static void check(const Node& product, const Node& sum) {
    const bool first = sdk::same_operand(product.out(0), sum.in(0)), second = sdk::same_operand(product.out(0), sum.in(1));
    if (first == second || !(product.out(0).flags & GALLEY_OPERAND_NO_MEMORY)) unsupported("a product that others read");
    if (product.accumulates(0) || sum.accumulates(0) || sum.f("alpha", 1) != 1) unsupported("a sum of more");
    if (columns(product.in(0)) > 256 || 2 * columns(product.in(0)) > columns(product.out(0)))
      unsupported("only thin products go into a sum");
    if (other(product, sum).dtype != sum.out(0).dtype || product.out(0).dtype != sum.out(0).dtype) unsupported("a sum of several dtypes");
  }
  static const galley_operand& other(const Node& product, const Node& sum) {
    return sum.in(sdk::same_operand(product.out(0), sum.in(0)) ? 1 : 0);
  }
};

template <class Choice, size_t links = 1>
class Products {
 public:
  static void query(const Nodes& nodes, const galley_target& target, galley_kernel_plan& plan) {
    int64_t unpacked = 0, library = 0;
    for (const Set& set : sets(nodes, target)) {
      plan.priority = std::max(plan.priority, static_cast<int64_t>(set.way));
      unpacked = std::max(unpacked, set.bytes());
      if (set.way == Way::Library) library = std::max(library, Gemm::workspace_bytes(set.products.front(), set.products.size(), target));
    }
    plan.workspace_bytes = library + (unpacked ? unpacked + kWorkspaceAlignment : 0);
    // As the kernels that the products have alone: these give way to several in one launch, and others that ask for more do not.
    if (!Choice::alone && nodes.size() == 1) plan.priority = -1;
  }

  /// Numbers of weights in formats lie at the begin of the workspace, those of one set after each other; a set uses the room of the one
  /// before.
  Products(const Nodes& nodes, const galley_kernel_setup& setup) {
    for (size_t i = 1; links == 2 && i < nodes.size(); i += 2)
      if (Sum::other(nodes[i - 1], nodes[i]).data != nodes[i].out(0).data) copied_.push_back(copy_of(nodes[i - 1], nodes[i]));
    std::vector<Set> all = sets(nodes, *setup.target);
    int64_t unpacked = 0;
    for (const Set& set : all) unpacked = std::max(unpacked, set.bytes());
    galley_kernel_setup rest = setup;
    if (unpacked) {
      rest.workspace = aligned_workspace(setup.workspace) + unpacked;
      rest.workspace_bytes -= unpacked + kWorkspaceAlignment;
    }
    for (Set& set : all) {
      Made& made = made_.emplace_back();
      char* to = unpacked ? aligned_workspace(setup.workspace) : nullptr;
      for (size_t i = 0; i < set.products.size(); ++i) {
        if (!set.weights[i]) continue;
        set.products[i].b = to;
        made.unpacked.push_back({set.weights[i], to});
        to += set.weights[i].bytes();
      }
      if (set.way == Way::Tiles) made.tiles = set.products;
      else made.library.emplace_back(set.name, set.products, rest);
    }
  }

  void run(galley_queue* queue) const {
    for (const Copy& c : copied_)
      launch(detail::map_numbers<detail::SameNumber>, map_grid(c.count), queue, c.from, c.to, c.count, detail::SameNumber());
    for (const Made& made : made_) {
      for (const Unpacked& u : made.unpacked) u.weight.unpack(u.to, queue);
      for (const LibraryProducts& products : made.library) products.run(queue);
      for (const Matmul& product : made.tiles) multiply_by_tiles(product, queue);
    }
  }

 private:
  /// What is made together.
  struct Set {
    Way way;
    const char* name;  ///< of its first node
    std::vector<Matmul> products;
    std::vector<Coded> weights;  ///< of each
    /// Of numbers that are there at one time.
    int64_t bytes() const {
      int64_t out = 0;
      for (const Coded& weight : weights) out += weight.bytes();
      return out;
    }
  };
  struct Made {
    std::vector<Unpacked> unpacked;
    std::vector<LibraryProducts> library;  ///< one, or none
    std::vector<Matmul> tiles;
  };
  static std::vector<Set> sets(const Nodes& nodes, const galley_target& target) {
    std::vector<Set> out;
    for (size_t i = 0; i < nodes.size(); i += links) {
      const Node& node = nodes[i];
      Matmul p = product_of(node);
      if constexpr (links == 2) {
        Sum::check(node, nodes[i + 1]);
        p.c = nodes[i + 1].out(0).data;
        p.adds = true;
      }
      const Way way = Choice::way(p, target);
      const auto together = std::find_if(out.begin(), out.end(), [&](const Set& set) {
        const Matmul& q = set.products.front();
        return way == Way::Library && set.way == way && Gemm::batches(p) && Gemm::batches(q) && Gemm::same_form(p, q);
      });
      const Coded weight(node.in(1));
      if (weight && way == Way::Tiles && !Gemm::refusal(p, target)) unsupported("cublaslt is faster, whoever unpacks its weight");
      Set& set = together == out.end() ? out.emplace_back(Set{way, node.name(), {}, {}}) : *together;
      set.products.push_back(p);
      set.weights.push_back(weight);
    }
    return out;
  }

  struct Copy {
    Reader from;
    Writer to;
    int64_t count;
  };
  static Copy copy_of(const Node& product, const Node& sum) {
    const galley_operand& from = Sum::other(product, sum);
    Copy out = {{}, Writer(sum, 0), count(from)};
    out.from.data = from.data;
    out.from.dtype = from.dtype;
    return out;
  }

  std::vector<Copy> copied_;
  std::vector<Made> made_;
};

using Library = Products<OnlyLibrary>;
using Tiled = Products<OnlyTiles>;
using Several = Products<Best>;
using Added = Products<Best, 2>;

constexpr uint64_t formats = GALLEY_KERNEL_FORMATS, groups = GALLEY_KERNEL_GROUPS;

const bool added =
    add(nodes_kernel<Library>("linear.cublaslt", "linear", formats)) &&
    add(nodes_kernel<Library>("linear_dx.cublaslt", "linear_dx", formats)) &&
    add(nodes_kernel<Library>("linear_dw.cublaslt", "linear_dw", 0)) && add(nodes_kernel<Tiled>("linear.tiles", "linear", formats)) &&
    add(nodes_kernel<Tiled>("linear_dx.tiles", "linear_dx", formats)) && add(nodes_kernel<Tiled>("linear_dw.tiles", "linear_dw", 0)) &&
    add(nodes_kernel<Several>("linear.several", "linear", formats | groups)) &&
    add(nodes_kernel<Several>("linear_dx.several", "linear_dx", formats | groups)) &&
    add(nodes_kernel<Several>("linear_dw.several", "linear_dw")) && add(nodes_kernel<Added>("linear_add.several", "linear>add"));

}  // namespace
}  // namespace galley::cuda
