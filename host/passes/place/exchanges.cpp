#include "host/passes/place/exchanges.hpp"

namespace galley {

AttrList sum_attrs(const Program& program) {
  AttrList attrs;
  attrs.set("axis", "data");
  attrs.set("ranks", program.groups());
  if (program.together > 1) attrs.set("stride", program.together);
  return attrs;
}

AttrList sum_of_neighbours(const Program& program) {
  AttrList attrs;
  attrs.set("axis", program.together_axis);
  attrs.set("ranks", program.together);
  return attrs;
}

AttrList sum_of_sharers(const Program& program) {
  AttrList attrs;
  attrs.set("axis", program.sharers_axis);
  attrs.set("ranks", program.sharers);
  if (program.together > 1) attrs.set("stride", program.together);
  return attrs;
}

AttrList sum_of_groups(const Program& program) {
  AttrList attrs;
  attrs.set("axis", "groups of " + program.sharers_axis);
  attrs.set("ranks", program.groups() / program.sharers);
  attrs.set("stride", program.sharers * program.together);
  return attrs;
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
