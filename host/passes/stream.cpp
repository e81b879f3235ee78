// Updates of tensors that lie where nothing computes, in pieces: while one piece is updated, the next one comes and the last one goes. GPT-2
// 124M with its optimizer states in a second memory needs 903 MB of the first one in pieces, and 1,192 MB as a whole (golden plans).
#include <algorithm>
#include <numeric>

#include "galley/format.h"
#include "galley/op.h"
#include "host/passes/place.hpp"

namespace galley {
namespace {

/// A piece is what the link carries in so long: enough to hide what beginning a copy costs (some 10 µs), short enough for many pieces of a
/// large tensor.
constexpr double kPieceSeconds = 1e-3;
/// Elements: pieces begin where vectors do.
constexpr int64_t kPieceMultiple = 64;
/// Of one update: a program stays small however slow a link is.
constexpr int64_t kMostPieces = 256;

/// The least common multiple, or `most` if it is larger.
int64_t multiple_of(int64_t a, int64_t b, int64_t most) {
  const int64_t factor = a / std::gcd(a, b);
  return factor > most / b ? most : factor * b;
}

int64_t columns(const Shape& shape) { return shape.empty() ? 1 : shape.back(); }

/// Elements that stay together; 0: the op needs the whole tensor.
int64_t grain_of(const galley_op* op, const Shape& shape) {
  switch (op->grain) {
    case GALLEY_GRAIN_ELEMENT: return 1;
    case GALLEY_GRAIN_BLOCK: return op->grain_block;
    case GALLEY_GRAIN_ROW: return columns(shape);
    default: return 0;
  }
}

}  // namespace

/// Whether pieces of so many numbers have components of their own: whole elements, in the shapes that the format gives a tensor of a piece's
/// shape. What is packed with random bits has to draw them by what comes before the piece.
Result<bool> Placer::splits(galley_tensor id, int64_t numbers, bool rows) const {
  const GraphTensor& of = tensors_[base(id)];
  if (of.storage.empty()) return true;
  const galley_format& format = *c_.plugins.format(of.storage).table;
  const galley_operand_rule* packed = input_rule(TRY(op(format.pack_op, of.name)), 0);
  if (format.flags & GALLEY_FORMAT_STOCHASTIC && (!packed || packed->role != GALLEY_ROLE_ROWS)) return false;
  const std::vector<Component> whole = TRY(components_of(of, of.shape));
  for (const int64_t count : {of.count(), numbers, of.count() % numbers}) {
    if (!count) continue;
    const std::vector<Component> piece = TRY(components_of(of, count == of.count() ? of.shape : Range{0, count, rows}.shape(of.shape)));
    if (piece.size() != whole.size()) return false;
    for (size_t k = 0; k < piece.size(); ++k) {
      const int64_t each = whole[k].numbers;
      if (each < 1 || numbers % each || piece[k].numbers != each || piece[k].tensor.dtype != whole[k].tensor.dtype ||
          elements(piece[k].tensor.shape) != (count + each - 1) / each)
        return false;
    }
  }
  return true;
}

/// Pieces are multiples of the op's grain and of the blocks of the formats. Operands in rows have one shape; of the others none is a sum
/// over rows. A format may have pieces as rows only.
Result<Placer::Pieces> Placer::pieces_of(const Item& item) const {
  const galley_op* op = item.node->op;
  if (item.node->section != Section::Update || op->flags & GALLEY_OP_RANDOM) return Pieces();
  const Shape* shape = nullptr;
  double most = 0;
  std::vector<galley_tensor> in_rows;
  const auto takes_pieces = [&](const Ref& r, const galley_operand_rule* rule) -> Result<bool> {
    if (!r.tensor) return true;
    const GraphTensor &t = tensors_[r.tensor], &of = tensors_[base(r.tensor)];
    if (!rule || r.rows >= 0) return false;
    if (rule->role != GALLEY_ROLE_ROWS) return rule->role == GALLEY_ROLE_WHOLE && plain(r.tensor);
    if (shape && *shape != t.shape) return false;
    shape = &t.shape;
    in_rows.push_back(r.tensor);
    if (of.placement.empty()) return true;
    const MemoryClass& memory = c_.target.memories[TRY(memory_of(of))];
    int64_t bytes = 0;
    for (const TensorId c : components_.at(of.id)) bytes += program_.tensors[static_cast<size_t>(c)].bytes;
    const double carried =
        kPieceSeconds * std::min(memory.in_bandwidth, memory.out_bandwidth) * static_cast<double>(t.count()) / static_cast<double>(bytes);
    most = most > 0 ? std::min(most, carried) : carried;
    return true;
  };
  for (size_t k = 0; k < item.inputs.size(); ++k)
    if (!TRY(takes_pieces(item.inputs[k], input_rule(op, k)))) return Pieces();
  for (size_t k = 0; k < item.outputs.size(); ++k)
    if (!TRY(takes_pieces(item.outputs[k], output_rule(op, k)))) return Pieces();
  const int64_t all = shape ? elements(*shape) : 0, grain = shape ? grain_of(op, *shape) : 0;
  if (grain <= 0 || all == 0 || most <= 0) return Pieces();
  most = std::max(most, static_cast<double>(all) / static_cast<double>(kMostPieces));
  if (most >= static_cast<double>(all)) return Pieces();

  for (const bool rows : {false, true}) {
    if (!rows && op->grain == GALLEY_GRAIN_ROW) continue;
    int64_t multiple = multiple_of(grain, rows ? columns(*shape) : kPieceMultiple, all);
    for (const galley_tensor t : in_rows) {
      if (const GraphTensor& of = tensors_[base(t)]; !of.storage.empty())
        for (const Component& c : TRY(components_of(of, of.shape)))
          if (c.numbers > 0) multiple = multiple_of(multiple, c.numbers, all);
    }
    const int64_t piece = std::max(multiple, static_cast<int64_t>(most) / multiple * multiple);
    bool each = piece < all;
    for (size_t k = 0; each && k < in_rows.size(); ++k) each = TRY(splits(in_rows[k], piece, rows));
    if (each) return Pieces{piece, all, rows};
  }
  return Pieces();
}

Shape Placer::Range::shape(const Shape& whole) const {
  if (all()) return whole;
  return rows ? Shape{count / whole.back(), whole.back()} : Shape{count};
}

int64_t Placer::Range::first_row(const Shape& whole) const { return rows ? first / whole.back() : first; }

/// A piece of an update has all of what is not in rows.
Placer::Range Placer::range_for(const galley_operand_rule* rule, const Range& range) {
  return rule && rule->role == GALLEY_ROLE_ROWS ? range : Range();
}

Operand Placer::range_of(Operand operand, const Range& range) {
  if (range.all()) return operand;
  operand.offset += range.first * galley_dtype_bytes(operand.dtype);
  operand.shape = range.shape(operand.shape);
  return operand;
}

}  // namespace galley
