#include "host/proofs/describe.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>

namespace galley {
namespace {

const char* access_name(uint32_t access) {
  switch (access) {
    case GALLEY_READ: return "r";
    case GALLEY_WRITE: return "w";
    case GALLEY_READ_WRITE: return "rw";
    case GALLEY_ACCUMULATE: return "a";
    default: return "?";
  }
}

class Dump {
 public:
  Dump(const Program& program, const Plan* plan) : program_(program), plan_(plan) {}

  std::string place(TensorId id, int64_t offset) const {
    const ProgramTensor& tensor = program_.tensors[static_cast<size_t>(id)];
    std::string text = tensor.name;
    if (plan_ || tensor.memory) text += "@" + std::to_string(tensor.memory);
    if (plan_) return text + "+" + std::to_string(plan_->placements[static_cast<size_t>(id)].offset + offset);
    return offset ? text + "+" + std::to_string(offset) : text;
  }
  std::string operand(const Operand& o, bool micro) const {
    if (!o.present() && o.inner) return "between " + dtype_text(o.dtype) + shape_text(o.shape);
    if (!o.present()) return o.format ? "as " + o.format->name : "-";
    std::string access = o.inner && o.access == GALLEY_READ ? "between" : access_name(o.access);
    if (micro && program_.micro_batches > 1 && o.later != o.access) access += std::string("/") + access_name(o.later);
    return access + " " + place(o.tensor, o.offset) + " " + dtype_text(o.dtype) + shape_text(o.shape);
  }
  std::string line(const Instruction& code, bool micro) const {
    const Launch* launch = code.launch();
    const bool one = !launch || launch->nodes.size() == 1;
    std::string text = action_names[code.what.index()];
    if (launch && launch->kernel) text = launch->kernel->name;
    else if (launch && launch->op()) text = launch->op()->name;
    if (code.queue != 0) text += " queue " + std::to_string(code.queue);
    if (code.event != 0) text += " event " + std::to_string(code.event);
    text += " '" + code.name + "'";
    if (code.recomputed) text += " again";
    if (launch && launch->on_host) text += " on the host";
    if (code.when != When::Always) text += std::string(" if ") + when_names[static_cast<size_t>(code.when)];
    if (launch && one && launch->nodes[0].first_row) text += " row " + std::to_string(launch->nodes[0].first_row);
    if (code.read() || code.write()) text += " entry '" + (code.read() ? code.read()->entry : code.write()->entry) + "'";
    auto list = [&](std::span<const Operand> operands) {
      std::string items;
      for (const Operand& o : operands) items += (items.empty() ? "" : ", ") + operand(o, micro);
      return items;
    };
    auto operands = [&](std::span<const Operand> inputs, std::span<const Operand> outputs) {
      return (inputs.empty() ? "" : ": " + list(inputs)) + (outputs.empty() ? "" : " -> " + list(outputs));
    };
    if (one) text += operands(code.inputs, code.outputs);
    for (const TensorId own : {code.workspace(), code.constants()})
      if (own != no_tensor)
        text += " | " + place(own, 0) + " " + std::to_string(program_.tensors[static_cast<size_t>(own)].bytes) + " bytes";
    for (size_t k = 0; !one && k < launch->nodes.size(); ++k) {
      const LaunchNode& node = launch->nodes[k];
      text += "\n  " + std::string(node.op->name) + " '" + node.name + "'" + operands(code.inputs_of(node), code.outputs_of(node));
    }
    return text;
  }

 private:
  const Program& program_;
  const Plan* plan_;  ///< null: not planned yet
};

}  // namespace

namespace {

std::string describe(const Program& program, const Plan* plan, SegmentKind kind) {
  const Dump dump(program, plan);
  std::string text;
  const auto& code = program.segment(kind).code;
  for (size_t i = 0; i < code.size(); ++i)
    text += std::string(segment_names[static_cast<size_t>(kind)]) + "[" + std::to_string(i) + "] " +
            dump.line(code[i], kind == SegmentKind::Micro) + "\n";
  return text;
}

}  // namespace

std::string describe(const Program& program, const Plan& plan, SegmentKind kind) { return describe(program, &plan, kind); }
std::string describe(const Program& program, SegmentKind kind) { return describe(program, nullptr, kind); }

std::string describe_tensors(const Program& program, const Plan& plan) {
  static constexpr std::array<const char*, 3> lives = {"run", "window", "segment"};
  std::vector<size_t> order(program.tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t x, size_t y) {
    auto key = [&](size_t t) { return std::tuple(program.tensors[t].memory, plan.placements[t].offset, plan.placements[t].first); };
    return key(x) < key(y);
  });
  std::string text;
  for (const size_t t : order) {
    const ProgramTensor& tensor = program.tensors[t];
    const Placement& at = plan.placements[t];
    text += std::to_string(tensor.memory) + " ";
    if (at.first < 0) text += "unused";
    else
      text += "[" + std::to_string(at.offset) + ", " + std::to_string(at.offset + tensor.bytes) + ") moments " + std::to_string(at.first) +
              " to " + std::to_string(at.last);
    text += " " + tensor.name + " " + dtype_text(tensor.dtype) + shape_text(tensor.shape) + " " +
            owner_names[static_cast<size_t>(tensor.owner)] + " " + lives[static_cast<size_t>(tensor.life)];
    text += (tensor.strategy.empty() ? "" : " " + tensor.strategy) + "\n";
  }
  return text;
}

}  // namespace galley
