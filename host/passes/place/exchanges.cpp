#include "host/passes/place/exchanges.hpp"

namespace galley {

namespace {

AttrList along(const std::string& axis, int64_t ranks, int64_t stride) {
  AttrList attrs;
  attrs.set("axis", axis);
  attrs.set("ranks", ranks);
  if (stride > 1) attrs.set("stride", stride);
  return attrs;
}

}  // namespace

AttrList sum_attrs(const Program& program) { return along("data", program.groups(), program.together); }

AttrList sum_of_neighbours(const Program& program) { return along(program.together_axis, program.together, 1); }

AttrList sum_of_sharers(const Program& program) { return along(program.sharers_axis, program.sharers, program.together); }

AttrList sum_of_groups(const Program& program) {
  return along("groups of " + program.sharers_axis, program.groups() / program.sharers, program.sharers * program.together);
}

AttrList parts_attrs(const Program& program, const Cut& cut, const Component& described) {
  AttrList attrs = sum_of_sharers(program);
  attrs.set("rank", cut.rank);
  std::vector<int64_t> ends;
  for (const int64_t end : cut.ends) ends.push_back(element_at(cut, described, end));
  attrs.set("ends", std::move(ends));
  attrs.set("start", cut.start);
  return attrs;
}

Result<Operand> turned(const Compilation& c, SegmentCode& code, const GraphTensor& t, const Operand& matrix) {
  const Operand out = code.temporary("turned " + t.name, matrix.dtype, {matrix.shape[1], matrix.shape[0]}, t.use);
  TRY_STATUS(code.op(c.roles.transpose, "turn " + t.name, {matrix}, {out}, {}));
  return out;
}

Status gather(Compilation& c, SegmentCode& code, const Cut& cut, const Component& described, const Operand& part, const Operand& whole) {
  AttrList attrs = parts_attrs(c.program, cut, described);
  attrs.set("shape", whole.shape);
  return code.op(c.roles.all_gather, "gather " + code.tensor(part.tensor).name, {part}, {whole}, std::move(attrs));
}

Status gather_here(Compilation& c, SegmentCode& code, const Cut& cut, const Component& described, const Operand& whole) {
  if (!divides(cut, described)) return ok();
  return code.op(c.roles.all_gather_here, "gather " + code.tensor(whole.tensor).name, {whole}, {}, parts_attrs(c.program, cut, described));
}

Operand own_part(const Cut& cut, const Component& described, const Operand& whole) {
  const NumberRange own = cut.own();
  if (own.count == 0 || !divides(cut, described)) return {};
  Operand out = whole;
  const int64_t first = element_at(cut, described, own.first);
  out.offset += first * galley_dtype_bytes(out.dtype);
  out.shape = {element_at(cut, described, own.first + own.count) - first};
  return out;
}

}  // namespace galley
