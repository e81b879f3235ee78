// checksum: of the bytes of a weight (galley/checksum.h), which is how the proof of training sees that frozen weights stay and trained
// ones move.
#include <algorithm>
#include <bit>

#include "galley/checksum.h"
#include "ops/check.hpp"

namespace galley::models::checksum_op {
namespace {

using namespace sdk;

void shape(const Node& n, Shapes& out) {
  if (n.in(0).dtype != GALLEY_U8) wrong(n, "x has to be U8");
  const int64_t run = n.i("run", 0), step = n.i("step", 0);
  if (run < 0 || (run > 0 && (step < run || n.i("first", -1) < 0)))
    wrong(n, "run = " + std::to_string(run) + ", step = " + std::to_string(step) + "; runs are of a part, and a step is no shorter");
  out.set(0, GALLEY_I32, {2});
}

void reference(const Node& n) {
  const uint8_t* x = n.read<uint8_t>(0);
  const int64_t bytes = count(n.in(0)), first = n.i("first", -1), run = n.i("run", 0), step = n.i("step", 0);
  uint64_t sum = first < 0 ? galley_checksum_mix(static_cast<uint64_t>(bytes), 0) : 0;
  for (int64_t i = 0; i < bytes; i += 8) {
    uint64_t word = 0;
    for (int64_t k = i; k < std::min(i + 8, bytes); ++k) word |= static_cast<uint64_t>(x[k]) << (k - i) * 8;
    const int64_t at = run > 0 ? i / 8 / run * step + i / 8 % run : i / 8;
    sum += galley_checksum_mix(word, static_cast<uint64_t>(at + std::max<int64_t>(first, 0)) + 1);
  }
  n.write<int32_t>(0)[0] = std::bit_cast<int32_t>(static_cast<uint32_t>(sum));
  n.write<int32_t>(0)[1] = std::bit_cast<int32_t>(static_cast<uint32_t>(sum >> 32));
}

Op checksum(
    "checksum",
    "y = the checksum of x's bytes, its low and its high half; where x is a part of a tensor, what it adds to the tensor's; x U8, y "
    "I32 (2)");
const bool added = add(checksum.flags(GALLEY_OP_PRIVATE)
                           .input("x", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
                           .output("y", GALLEY_ROLE_WHOLE)
                           .integer("first", -1, "of a part: the word of the tensor with which it begins; -1: x is all of it")
                           .integer("run", 0, "of a part: so many words lie together in the tensor; 0: all of them do")
                           .integer("step", 0, "words of the tensor from the begin of a run to that of the next")
                           .infer<shape>()
                           .reference<reference>()
                           .test("one", {{GALLEY_U8, {1}, 0, 255}})
                           .test("word", {{GALLEY_U8, {8}, 0, 255}})
                           .test("odd", {{GALLEY_U8, {4099}, 0, 255}})
                           .test("part", {{GALLEY_U8, {300003}, 0, 255}}, Attrs().i("first", 12345))
                           .test("first", {{GALLEY_U8, {4096}, 0, 255}}, Attrs().i("first", 0))
                           .test("runs", {{GALLEY_U8, {300000}, 0, 255}}, Attrs().i("first", 12).i("run", 12).i("step", 36))
                           .test("long_runs", {{GALLEY_U8, {320000}, 0, 255}}, Attrs().i("first", 0).i("run", 20000).i("step", 40000))
                           .test("zeros", {{GALLEY_U8, {640}, 0, 0}})
                           .test("blocks", {{GALLEY_U8, {300003}, 0, 255}}));

}  // namespace
}  // namespace galley::models::checksum_op
