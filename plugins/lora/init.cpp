// How A and B begin where they hold what a weight is, and how they are saved.
//
// PiSSA (Meng, Wang, Zhang 2024, arXiv:2404.02948): B·A is what the largest singular values of W make, and W begins without it:
//   W ≈ U S Vᵀ, B = U √(S / scale), A = √(S / scale) Vᵀ, W begins as W − scale · B·A
// OLoRA (Büyükakyüz 2024, arXiv:2406.01775): the same with the first columns of Q and rows of R of W = Q·R.
// LoftQ (Li, Yu, Liang, He, Karampatziakis, Chen, Zhao 2023, arXiv:2310.08659): B·A is the principal part of what a weight loses where it
// is stored in few bits, and the weight begins as Q. From B·A = 0 on, several times:
//   Q = stored(W − scale · B·A), scale · B·A = the principal part of W − Q
#include "init.hpp"

namespace {

using namespace galley::sdk;
using namespace galley::lora;

void principal_shape(const Node& node, Shapes& out) {
  const galley_operand& w = node.in(0);
  const int64_t rank = node.i("rank", 0);
  if (w.dtype != GALLEY_F32 && w.dtype != GALLEY_BF16 && w.dtype != GALLEY_F16)
    invalid(std::string(node.name()) + ": w has to hold numbers");
  if (w.rank != 2) invalid(std::string(node.name()) + ": w is " + shape_text(w) + "; it has to be a matrix");
  if (node.has(1) && (shape_text(node.in(1)) != shape_text(w) || node.in(1).dtype != GALLEY_F32))
    invalid(std::string(node.name()) + ": less is " + shape_text(node.in(1)) + "; it has to be F32 and have the shape of w, " +
            shape_text(w));
  const bool transposed = node.i("transposed", 0) != 0;
  const int64_t n = w.shape[transposed ? 1 : 0], k = w.shape[transposed ? 0 : 1];
  if (rank < 1 || rank > std::min(n, k))
    invalid("rank " + std::to_string(rank) + " is more than a weight of " + shape_text(w) + " has",
            "take a smaller rank, or init = \"default\"");
  out.set(0, GALLEY_F32, {n, rank});
  out.set(1, GALLEY_F32, {rank, k});
}

void principal_reference(const Node& node) {
  const galley_operand &b = node.out(0), &a = node.out(1);
  const auto weight = [&](uint32_t i) {
    return Weight<double>(node.read<double>(i), b.shape[0], a.shape[1], node.i("transposed", 0) != 0);
  };
  const Weight<double> w = weight(0);
  if (node.has(1)) begin(node, Rest(w, weight(1)), node.write<double>(0), node.write<double>(1));
  else begin(node, w, node.write<double>(0), node.write<double>(1));
}

Op lora_principal("lora_principal", "B (N, rank), A (rank, K): the principal part of W, or of W − less, (N, K) or transposed (K, N)");
const bool principal_added =
    add(lora_principal.flags(GALLEY_OP_PRIVATE | GALLEY_OP_LOAD_ON_HOST)
            .input("w", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT | GALLEY_OPERAND_ANY_DTYPE)
            .input("less", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT | GALLEY_OPERAND_OPTIONAL)
            .output("b", GALLEY_ROLE_WHOLE)
            .output("a", GALLEY_ROLE_WHOLE)
            .attr("rank", GALLEY_ATTR_I64, GALLEY_ATTR_REQUIRED, "how many singular values, or columns of Q")
            .number("scale", 1, "B·A is the part divided by it")
            .integer("transposed", 0, "1: the weight is (K, N)")
            .string("how", "svd", "\"svd\", or \"qr\"")
            .integer("iterations", 0, "of the fast singular value decomposition; 0: the exact one")
            .attr("stream", GALLEY_ATTR_STRING, 0, "keys the random numbers of the fast one; without it, the node's name does")
            .infer<principal_shape>()
            .reference<principal_reference>()
            .test("svd", {{GALLEY_F32, {13, 9}}, {0, {}}}, Attrs().i("rank", 3).f("scale", 2))
            .test("svd transposed", {{GALLEY_F32, {9, 33}}, {0, {}}}, Attrs().i("rank", 2).i("transposed", 1))
            .test("svd wide", {{GALLEY_F32, {40, 200}}, {0, {}}}, Attrs().i("rank", 5))
            .test("all of it", {{GALLEY_F32, {7, 5}}, {0, {}}}, Attrs().i("rank", 5))
            .test("all of a wide one", {{GALLEY_F32, {7, 16}}, {0, {}}}, Attrs().i("rank", 7).f("scale", 3))
            .test("all of a square one", {{GALLEY_F32, {9, 9}}, {0, {}}}, Attrs().i("rank", 9))
            .test("more vectors than a wide one has rows", {{GALLEY_F32, {40, 90}}, {0, {}}}, Attrs().i("rank", 20))
            .test("more than one transposed has", {{GALLEY_F32, {90, 40}}, {0, {}}}, Attrs().i("rank", 20).i("transposed", 1))
            .test("qr", {{GALLEY_F32, {13, 9}}, {0, {}}}, Attrs().i("rank", 4).s("how", "qr"))
            .test("qr transposed", {{GALLEY_F32, {33, 70}}, {0, {}}}, Attrs().i("rank", 4).s("how", "qr").i("transposed", 1))
            .test("a rest", {{GALLEY_F32, {13, 9}}, {GALLEY_F32, {13, 9}, -.3, .3}}, Attrs().i("rank", 3).f("scale", 2))
            .test("a rest, transposed", {{GALLEY_F32, {33, 70}}, {GALLEY_F32, {33, 70}}}, Attrs().i("rank", 4).i("transposed", 1))
            .test("fast", {{GALLEY_F32, {40, 60}}, {0, {}}}, Attrs().i("rank", 4).i("iterations", 4)));

// ---- What is saved ---------------------------------------------------------------------------------------------------------------------

void both_shape(const Node& node, Shapes& out) {
  const galley_operand &a = node.in(0), &b = node.in(1);
  const bool columns = node.i("columns", 0) != 0;
  if (a.dtype != GALLEY_F32 || b.dtype != GALLEY_F32) invalid(std::string(node.name()) + ": a and b have to be F32");
  if (a.rank != 2 || b.rank != 2 || a.shape[columns ? 0 : 1] != b.shape[columns ? 0 : 1])
    invalid(std::string(node.name()) + ": " + shape_text(a) + " and " + shape_text(b) + " do not fit beside each other");
  if (columns) out.set(0, GALLEY_F32, {a.shape[0], a.shape[1] + b.shape[1]});
  else out.set(0, GALLEY_F32, {a.shape[0] + b.shape[0], a.shape[1]});
}

void both_reference(const Node& node) {
  const galley_operand &a = node.in(0), &b = node.in(1);
  const double factor = node.f("factor", 1);
  double* to = node.write<double>(0);
  const bool columns = node.i("columns", 0) != 0;
  for (int64_t r = 0; r < (columns ? a.shape[0] : 1); ++r) {
    const int64_t of_a = columns ? a.shape[1] : count(a), of_b = columns ? b.shape[1] : count(b);
    for (int64_t i = 0; i < of_a; ++i) *to++ = node.read<double>(0)[r * of_a + i];
    for (int64_t i = 0; i < of_b; ++i) *to++ = factor * node.read<double>(1)[r * of_b + i];
  }
}

Op lora_both("lora_both", "a and factor · b below each other, or beside each other");
const bool both_added =
    add(lora_both.flags(GALLEY_OP_PRIVATE)
            .input("a", GALLEY_ROLE_WHOLE)
            .input("b", GALLEY_ROLE_WHOLE)
            .output("y", GALLEY_ROLE_WHOLE)
            .integer("columns", 0, "1: beside each other")
            .number("factor", 1, "of b")
            .infer<both_shape>()
            .reference<both_reference>()
            .test("rows", {{GALLEY_F32, {3, 35}}, {GALLEY_F32, {5, 35}}})
            .test("columns", {{GALLEY_F32, {130, 3}}, {GALLEY_F32, {130, 4}}}, Attrs().i("columns", 1).f("factor", -1)));

}  // namespace
