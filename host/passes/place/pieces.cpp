// GPT-2 124M with its optimizer states in a second memory needs 903 MB of the first one in pieces, and 1,192 MB as a whole (golden plans).
#include "host/passes/place/pieces.hpp"

#include <algorithm>
#include <numeric>

#include "galley/format.h"
#include "galley/op.h"

namespace galley {

int64_t multiple_of(int64_t a, int64_t b, int64_t most) {
  const int64_t factor = a / std::gcd(a, b);
  return factor > most / b ? most : factor * b;
}

int64_t grain_of(const galley_op* op, const Shape& shape) {
  switch (op->grain) {
    case GALLEY_GRAIN_ELEMENT: return 1;
    case GALLEY_GRAIN_BLOCK: return op->grain_block;
    case GALLEY_GRAIN_ROW: return shape.empty() ? 1 : shape.back();
    default: return 0;
  }
}

Result<bool> splits(Compilation& c, const GraphTensor& of, int64_t numbers, bool rows) {
  if (of.storage.format.empty()) return true;
  const galley_format& format = *c.plugins.format(of.storage.format).table;
  if (!format.pack_op) return false;
  const galley_operand_rule* packed = input_rule(TRY(op_named(c.plugins, format.pack_op, of.name)), 0);
  if (format.flags & GALLEY_FORMAT_STOCHASTIC && (!packed || packed->role != GALLEY_ROLE_ROWS)) return false;
  const std::vector<Component> whole = TRY(components_of(c.plugins, of, of.shape));
  for (const int64_t count : {of.count(), numbers, of.count() % numbers}) {
    if (!count) continue;
    const std::vector<Component> piece =
        TRY(components_of(c.plugins, of, count == of.count() ? of.shape : TensorPiece{0, count, rows}.shape(of.shape)));
    if (piece.size() != whole.size()) return false;
    for (size_t k = 0; k < piece.size(); ++k) {
      const int64_t each = whole[k].numbers;
      if (each < 1 || numbers % each || piece[k].numbers != each || piece[k].dtype != whole[k].dtype ||
          elements(piece[k].shape) != (count + each - 1) / each)
        return false;
    }
  }
  return true;
}

namespace {

int64_t columns(const Shape& shape) { return shape.empty() ? 1 : shape.back(); }

/// A piece is what the link carries in so long: enough to hide what beginning a copy costs (some 10 µs), short enough for many pieces of a
/// large tensor.
constexpr double kPieceSeconds = 1e-3;
/// Elements: pieces begin where vectors do.
constexpr int64_t kPieceMultiple = 64;
/// Of one update: a program stays small however slow a link is.
constexpr int64_t kMostPieces = 256;

/// The operands of an update that go by rows.
struct ByRows {
  const Shape* shape = nullptr;           ///< all have this one
  std::vector<const GraphTensor*> homes;  ///< the tensors whose numbers they have
  double carried = 0;                     ///< numbers that the slowest link carries in kPieceSeconds; 0: none of them needs a link
};

/// Adds an operand; false: an update that has it is not split. Operands by rows have one shape; of the others none is a sum over rows.
bool add_operand(const Compilation& c, const Homes& homes, const Ref& r, const galley_operand_rule* rule, ByRows* by_rows) {
  if (!r.tensor) return true;
  const GraphTensor &t = homes.tensors()[r.tensor], &of = homes.tensors()[homes.base(r.tensor)];
  if (!rule || r.rows >= 0) return false;
  if (rule->role != GALLEY_ROLE_ROWS) return rule->role == GALLEY_ROLE_WHOLE && homes.plain(r.tensor);
  if (by_rows->shape && *by_rows->shape != t.shape) return false;
  by_rows->shape = &t.shape;
  by_rows->homes.push_back(&of);
  if (of.storage.placement.empty()) return true;
  const Cut* const cut = homes.cut(r.tensor);
  const int64_t numbers = cut ? cut->own().count : t.count();
  const auto tensor = [&](TensorId id) -> const ProgramTensor& { return c.program.tensors[static_cast<size_t>(id)]; };
  const MemoryClass& memory = c.target.memories[tensor(homes.home(of.id)).memory];
  int64_t bytes = 0;
  for (const TensorId component : homes.components(of.id)) bytes += tensor(component).bytes;
  const double carried =
      kPieceSeconds * std::min(memory.in_bandwidth, memory.out_bandwidth) * static_cast<double>(numbers) / static_cast<double>(bytes);
  by_rows->carried = by_rows->carried > 0 ? std::min(by_rows->carried, carried) : carried;
  return true;
}

/// The numbers of a piece: a multiple of the op's grain and of the blocks of the formats, near to `most`. 0: there are no such pieces.
Result<int64_t> numbers_of_piece(Compilation& c, const ByRows& by_rows, int64_t grain, bool rows, double most) {
  const int64_t all = elements(*by_rows.shape);
  int64_t multiple = multiple_of(grain, rows ? columns(*by_rows.shape) : kPieceMultiple, all);
  for (const GraphTensor* of : by_rows.homes) {
    if (of->storage.format.empty()) continue;
    for (const Component& component : TRY(components_of(c.plugins, *of, of->shape)))
      if (component.numbers > 0) multiple = multiple_of(multiple, component.numbers, all);
  }
  const int64_t piece = std::max(multiple, static_cast<int64_t>(most) / multiple * multiple);
  if (piece >= all) return 0;
  for (const GraphTensor* of : by_rows.homes)
    if (!TRY(splits(c, *of, piece, rows))) return 0;
  return piece;
}

}  // namespace

Result<Pieces> pieces_of(Compilation& c, const Homes& homes, const Item& item) {
  const galley_op* op = item.node->op;
  if (item.node->section != Section::Update || op->flags & GALLEY_OP_RANDOM) return Pieces();
  ByRows by_rows;
  for (size_t k = 0; k < item.inputs.size(); ++k)
    if (!add_operand(c, homes, item.inputs[k], input_rule(op, k), &by_rows)) return Pieces();
  for (size_t k = 0; k < item.outputs.size(); ++k)
    if (!add_operand(c, homes, item.outputs[k], output_rule(op, k), &by_rows)) return Pieces();
  const int64_t all = by_rows.shape ? elements(*by_rows.shape) : 0, grain = by_rows.shape ? grain_of(op, *by_rows.shape) : 0;
  if (grain <= 0 || all == 0 || by_rows.carried <= 0) return Pieces();
  const double most = std::max(by_rows.carried, static_cast<double>(all) / static_cast<double>(kMostPieces));
  if (most >= static_cast<double>(all)) return Pieces();
  // A list has pieces of any length; a format may have components for whole rows only. The own part of a list may begin within a row.
  const Cut* const cut = c.cuts.of_node(item.node->id);
  for (const bool rows : {false, true}) {
    if (!rows && op->grain == GALLEY_GRAIN_ROW) continue;
    if (rows && cut && !cut->rows && cut->own().count < all) continue;
    if (const int64_t numbers = TRY(numbers_of_piece(c, by_rows, grain, rows, most))) return Pieces{numbers, all, rows};
  }
  return Pieces();
}

}  // namespace galley
