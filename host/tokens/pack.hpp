// Packs documents into rows.
//
// A document of n tokens has n − 1 positions (a token whose successor is known); its last token is only a label. Rows of S positions are
// made in one of these ways:
//
//   best-fit    a document of more than S positions is cut into pieces of S; the rests are put together, longest first, each into the row
//               that it fills best (best-fit decreasing; Ding et al. 2024, arXiv:2404.10830), so that hardly a position is padding and no
//               piece is cut twice. Which ones share a row changes no number of the model, because no document sees another
//   sequential  documents one after another, in their order, cut where a row ends
//   none        one document, or one piece of a long one, in each row
//
// A piece without a label that counts is left out: it would train nothing. Blocks of kBlock pieces are packed by themselves, which bounds
// the memory.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "host/base/result.hpp"

namespace galley {

/// A range of tokens in the stream: `length` positions, whose labels are tokens begin + 1 … begin + length; `counted` of them count.
struct Piece {
  uint64_t begin = 0;
  uint32_t length = 0, counted = 0;
};

enum class Packing : uint8_t { BestFit, Sequential, None };
/// Says what becomes of a document of more than S positions: pieces of S; its first S; its first ones up to the end of the last run of
/// labels that count (a reply) that ends among them, or S if none does; nothing.
enum class Overlong : uint8_t { Split, Truncate, Turn, Drop };

struct PackOptions {
  uint64_t length = 0;  ///< S
  Packing packing = Packing::BestFit;
  Overlong overlong = Overlong::Split;
  bool by_length = false;  ///< None: rows of a block in the order of their length
};

/// Takes documents in order and makes rows. One thread at a time.
class Packer {
 public:
  static constexpr size_t kBlock = size_t{1} << 18;

  struct Facts {
    uint64_t rows = 0, pieces = 0, positions = 0, counted = 0;
    uint64_t idle = 0;     ///< documents of which nothing that fits counts
    uint64_t cut = 0;      ///< positions left out because they did not fit
    uint64_t dropped = 0;  ///< documents left out because they did not fit
  };
  using Row = std::function<Status(std::span<const Piece> pieces)>;
  /// Returns how many labels of a piece count. Is called in rising order of `begin`.
  using Count = std::function<Result<uint64_t>(uint64_t begin, uint64_t length)>;

  /// `reply`: for Overlong::Turn, the positions of [begin, begin + length) up to the end of the last run of labels that count that ends
  /// among them; 0: none does.
  Packer(const PackOptions& options, Row row, Count count, Count reply = {})
      : options_(options), row_(std::move(row)), count_(std::move(count)), reply_(std::move(reply)) {}
  /// Adds the document of tokens [begin, begin + tokens).
  Status add(uint64_t begin, uint64_t tokens);
  /// Must be called after the last document.
  Status finish();
  const Facts& facts() const { return facts_; }

 private:
  Status give(std::span<const Piece> pieces);
  Status give_open();
  Status give_block();

  PackOptions options_;
  Row row_;
  Count count_, reply_;
  Facts facts_;
  std::vector<Piece> open_;   // Sequential: the row at hand
  uint64_t filled_ = 0;       // of it
  std::vector<Piece> block_;  // pieces that have no row yet
};

}  // namespace galley
