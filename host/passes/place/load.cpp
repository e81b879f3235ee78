#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "galley/op.h"
#include "host/passes/constants.hpp"
#include "host/passes/copy.hpp"
#include "host/passes/makers.hpp"
#include "host/passes/packed.hpp"
#include "host/passes/place/emitter.hpp"
#include "host/passes/place/exchanges.hpp"
#include "host/passes/place/files.hpp"
#include "host/passes/place/pieces.hpp"
#include "host/plan/outline.hpp"

namespace galley {
namespace {

using For = Staging::For;

/// What an op without inputs draws by.
void add_random(const Compilation& c, const std::string& stream, AttrList* attrs) {
  attrs->set("seed", static_cast<int64_t>(c.options.seed));
  if (!attrs->find("stream")) attrs->set("stream", stream);
}

/// Returns the read of a tensor's numbers, or of a component, from its file.
Instruction read_file(const Compilation& c, const SegmentCode& code, const GraphTensor& t, const Component& component, const Operand& to) {
  std::vector<std::string> names;
  for (const std::string& name : source_names(t)) names.push_back(name_in_file(component, name));
  Instruction i;
  i.what = Read{t.source.path, names.front(), {names.begin() + 1, names.end()}, t.source.hint, t.source.form, t.source.added_rows};
  if (t.part) std::get<Read>(i.what).whole = t.whole(), std::get<Read>(i.what).runs = t.runs();
  i.name = "read " + t.name + component.suffix;
  i.outputs = {with_access(to, GALLEY_WRITE), with_access(code.all_of(c.program.staging), GALLEY_WRITE)};
  return i;
}

/// Lets the read of a component read the part that begins with an element only.
Instruction part_of(Instruction read, const Component& component, int64_t first) {
  std::get<Read>(read.what).whole = component.shape;
  std::get<Read>(read.what).runs.first = first;
  return read;
}

/// Makes this process's part of what an op draws of a whole tensor, which is there only meanwhile. Columns are taken as rows.
Status draw_part(Compilation& c, SegmentCode& code, const GraphTensor& t, const galley_op* op, const AttrList& attrs, const Operand& part) {
  const bool columns = t.part->dimension > 0;
  Operand whole = code.temporary("whole " + t.name, t.dtype, t.whole(), t.use);
  TRY_STATUS(code.op(op, "init whole " + t.name, {}, {whole}, attrs));
  if (columns) whole = TRY(turned(c, code, t, whole));
  whole.shape[0] = t.shape[t.part->dimension];
  whole.offset += t.part->first * elements(Shape(whole.shape.begin() + 1, whole.shape.end())) * galley_dtype_bytes(t.dtype);
  return code.op(columns ? c.roles.transpose : c.roles.copy, "init " + t.name, {whole}, {part}, {});
}

/// Makes a tensor by its initializer, which reads `inputs`, or of zeros: its numbers where kernels compute, then the tensor as it lies.
Status initialize(Compilation& c, SegmentCode& code, Staging& staging, galley_tensor id, std::vector<Operand> inputs) {
  const GraphTensor& t = c.graph.tensor(id);
  // Zeros are the same in each part.
  const Cut* const cut = t.initial.op.empty() ? c.cuts.of(id) : nullptr;
  const TensorPiece piece = cut ? TensorPiece{cut->own().first, cut->own().count, cut->rows} : TensorPiece();
  if (piece.count == 0) return ok();
  const std::vector<Operand> components = TRY(staging.bring(id, piece, For::Writing));
  const Operand value = TRY(staging.numbers(id, piece, components, For::Writing));
  AttrList attrs = t.initial.attrs;
  const std::string name = "init " + t.name;
  const galley_op* from = c.roles.fill;
  if (t.initial.op.empty()) attrs.set("value", 0.0);
  else from = TRY(op_named(c.plugins, t.initial.op, name));
  if (inputs.empty()) add_random(c, t.name, &attrs);
  const bool draws = t.part && inputs.empty() && from != c.roles.fill;
  Status made = draws ? draw_part(c, code, t, from, attrs, value) : code.op(from, name, std::move(inputs), {value}, std::move(attrs));
  if (!made && t.use != no_use) return plugin_error(label(c.strategies, t.use) + ": " + made.error().cause, made.error().hint);
  TRY_STATUS(std::move(made));
  TRY_STATUS(staging.pack(id, piece, value, components));
  return staging.put_back(id, piece, components);
}

/// Returns whether a constant is a copy of what is divided between processes.
bool copies_parts(const Compilation& c, const GraphTensor& t) {
  const galley_tensor copied = copied_by(c, t);
  return copied && c.cuts.of(copied) && t.storage.placement.empty() && t.storage.format.empty();
}

/// Makes such a constant: its own part. Where each process has all of it, they exchange their parts; `made` says that the own one is in its
/// place already.
Status copy_parts(Compilation& c, const Homes& homes, SegmentCode& code, Staging& staging, const GraphTensor& t, bool made) {
  const galley_tensor of = copied_by(c, t);
  const Cut& cut = *c.cuts.of(of);
  const TensorPiece own = homes.own(cut);
  const Component& described = homes.described(t.id).front();
  const Operand home = code.all_of(homes.home(t.id));
  if (made) return gather_here(c, code, cut, described, home);
  const bool whole = !c.cuts.of(t.id);
  const Operand part = whole ? code.temporary("own part of " + t.name, t.dtype, own.shape(t.shape), t.use) : home;
  if (own.count > 0) {
    const std::vector<Operand> components = TRY(staging.bring(of, own, For::Reading));
    const Operand numbers = TRY(staging.numbers(of, own, components, For::Reading));
    TRY_STATUS(code.op(c.roles.copy, "init " + t.name, {numbers}, {part}, t.initial.attrs));
  }
  return whole ? gather(c, code, cut, described, part, home) : ok();
}

/// The segment that begins a run. What a tensor is made from comes before it, and no earlier than that.
class Loading {
 public:
  Loading(Compilation& c, const Homes& homes)
      : c_(c), graph_(c.graph), homes_(homes), emitter_(c, homes, SegmentKind::Load), makers_(c.draft, {Section::Load}) {
    for (const auto& [t, values] : c_.draft.beginnings)
      for (const auto& [component, beginning] : values) {
        begun_by_[beginning.value].push_back(t);
        std::vector<galley_tensor> read;
        for (const galley_node n : makers_.of(beginning.value, {}, &read)) needs_node_[n].push_back(t);
        for (const galley_tensor in : read) needs_file_[in].push_back(t);
      }
  }

  SegmentCode& code() { return emitter_.code(); }

  /// A parameter, state or constant, and whatever begins as what is made of the same: so that nothing is kept until its turn.
  Status with_others(galley_tensor t) {
    TRY_STATUS(tensor(t));
    while (!others_.empty()) {
      const galley_tensor next = others_.front();
      others_.pop_front();
      TRY_STATUS(tensor(next));
    }
    return ok();
  }

  /// What is in a file that is read, and nobody needs.
  Status know_unread() {
    for (galley_tensor t = 1; t <= graph_.tensor_count(); ++t)
      if (const GraphTensor& x = graph_.tensor(t); x.unused && !x.source.path.empty()) TRY_STATUS(know_unread(x));
    return ok();
  }

 private:
  /// That a file has this tensor, which this process does not read.
  Status know_unread(const GraphTensor& x) {
    Program::Unread known = {x.source.path, source_names(x)};
    if (!x.storage.format.empty())
      for (const Component& component : TRY(components_of(c_.plugins, x, x.shape)))
        for (const std::string& name : source_names(x)) known.names.push_back(name_in_file(component, name));
    c_.program.unread.push_back(std::move(known));
    return ok();
  }

  Status tensor(galley_tensor t) {
    const GraphTensor& x = graph_.tensor(t);
    if (!lasts(x.kind) || x.slice.of || x.unused || done_.contains(t) || c_.caches_anew.contains(t)) return ok();
    if (x.storage.numbers_of) return tensor(x.storage.numbers_of);
    if (!under_way_.insert(t).second) return strategy_error(c_.strategies, x.use, "'" + x.name + "' is to begin as what is made from it");
    if (const auto values = c_.draft.beginnings.find(t); values != c_.draft.beginnings.end()) {
      for (const auto& [component, beginning] : values->second) TRY_STATUS(transient(beginning.value));
      TRY_STATUS(begin(t));
    } else if (copies_parts(c_, x)) {
      TRY_STATUS(tensor(x.initial.inputs[0]));
      TRY_STATUS(copy_parts(c_, homes_, code(), emitter_.staging(), x, false));
    } else if (x.source.path.empty()) {
      std::vector<Operand> inputs;
      for (const galley_tensor in : x.initial.inputs) inputs.push_back(TRY(numbers(in)));
      TRY_STATUS(initialize(c_, code(), emitter_.staging(), t, std::move(inputs)));
    } else {
      TRY_STATUS(read(t));
    }
    done_.insert(t);
    return ok();
  }

  /// The numbers of a tensor that is there when the run begins, or of the load part.
  Result<Operand> numbers(galley_tensor t) {
    if (!lasts(graph_.tensor(t).kind)) {
      TRY_STATUS(transient(t));
      return emitter_.operand(t);
    }
    TRY_STATUS(tensor(t));
    return emitter_.staging().read(t);
  }

  /// A tensor of the load part: in a file, or made by nodes.
  Status transient(galley_tensor t) {
    if (graph_.tensor(t).kind == GALLEY_KIND_FILE) return file(t);
    std::vector<galley_tensor> read;
    const std::vector<galley_node> nodes = makers_.of(t, emitted_, &read);
    for (const galley_tensor in : read) TRY_STATUS(tensor(in));  // may emit some of the nodes
    for (const galley_node n : nodes)
      if (emitted_.insert(n).second) TRY_STATUS(node(graph_.node(n)));
    return ok();
  }

  Status node(const GraphNode& node) {
    for (const galley_tensor in : node.inputs)
      if (in && graph_.tensor(in).kind == GALLEY_KIND_FILE) TRY_STATUS(file(in));
    TRY_STATUS(emitter_.item(whole(node)));
    if (node.inputs.empty()) add_random(c_, node.name, &code().last().launch()->nodes[0].attrs);
    also(needs_node_, node.id);
    // What can begin now does, so that nothing is kept until its turn.
    for (const galley_tensor t : node.outputs) {
      if (!t || !made_.insert(t).second) continue;
      const auto begun = begun_by_.find(t);
      if (begun == begun_by_.end()) continue;
      for (const galley_tensor b : begun->second)
        if (!graph_.tensor(b).unused) TRY_STATUS(begin(b));
    }
    return ok();
  }

  Status file(galley_tensor t) {
    if (!made_.insert(t).second) return ok();
    code().add(read_file(c_, code(), graph_.tensor(t), {}, emitter_.operand(t)));
    also(needs_file_, t);
    return ok();
  }

  /// What begins as something that is made of this comes next.
  void also(const std::map<uint64_t, std::vector<galley_tensor>>& needs, uint64_t made) {
    if (const auto found = needs.find(made); found != needs.end())
      others_.insert(others_.end(), found->second.begin(), found->second.end());
  }

  /// Puts the values that a tensor begins with in its place, once they are all there.
  Status begin(galley_tensor t) {
    const auto& values = c_.draft.beginnings.at(t);
    if (std::ranges::any_of(values, [&](const auto& v) { return !made_.contains(v.second.value); })) return ok();
    if (!done_.insert(t).second) return ok();
    const std::vector<Operand> components = TRY(emitter_.staging().bring(t, {}, For::Writing));
    if (values.contains(GALLEY_BEGIN_NUMBERS)) {
      const Operand from = emitter_.operand(values.at(GALLEY_BEGIN_NUMBERS).value);
      if (homes_.unpacks(t)) TRY_STATUS(emitter_.staging().pack(t, {}, from, components));
      else TRY_STATUS(copy(t, from, components.front()));
    } else {
      for (const auto& [component, beginning] : values) TRY_STATUS(copy(t, emitter_.operand(beginning.value), components[component]));
    }
    return emitter_.staging().put_back(t, {}, components);
  }

  Status copy(galley_tensor t, const Operand& from, const Operand& to) {
    return code().op(c_.roles.copy, "begin " + graph_.tensor(t).name, {from}, {to}, {});
  }

  /// From the tensor's file, which holds its components or its numbers.
  Status read(galley_tensor id) {
    const GraphTensor& t = graph_.tensor(id);
    Staging& staging = emitter_.staging();
    const bool packed = !t.storage.format.empty() && TRY(files_.hold(t, homes_.described(id)));
    if (const Cut* cut = homes_.cut(id); cut && cut->own().count == 0) return know_unread(t);
    else if (cut && TRY(reads_part(t, *cut, packed))) return read_part(t, *cut, packed);
    const std::vector<Operand> components = TRY(staging.bring(id, {}, For::Writing));
    const std::vector<Component>& described = homes_.described(id);
    if (packed) {
      for (size_t k = 0; k < components.size(); ++k) code().add(read_file(c_, code(), t, described[k], components[k]));
    } else if (t.storage.kept_dtype) {
      code().add(read_file(c_, code(), t, {}, components.front()));
    } else {
      const Operand value = TRY(staging.numbers(id, {}, components, For::Writing));
      code().add(read_file(c_, code(), t, {}, value));
      TRY_STATUS(staging.pack(id, {}, value, components));
    }
    return staging.put_back(id, {}, components);
  }

  /// Whether the own part is read by itself: not if packing it takes numbers of the whole.
  Result<bool> reads_part(const GraphTensor& t, const Cut& cut, bool packed) {
    if (t.storage.format.empty() || cut.owned()) return true;
    if (packed) return std::ranges::all_of(homes_.described(t.id), [](const Component& component) { return component.numbers > 0; });
    return TRY(splits(c_, t, cut.ends.front(), cut.rows));
  }
  Status read_part(const GraphTensor& t, const Cut& cut, bool packed) {
    Staging& staging = emitter_.staging();
    const TensorPiece own = homes_.own(cut);
    const std::vector<Operand> components = TRY(staging.bring(t.id, own, For::Writing));
    const std::vector<Component>& described = homes_.described(t.id);
    const Component numbers = {"", t.dtype, t.shape, 1, "", true};
    if (packed) {
      for (size_t k = 0; k < components.size(); ++k)
        code().add(part_of(read_file(c_, code(), t, described[k], components[k]), described[k], element_at(cut, described[k], own.first)));
    } else {
      const Operand value = t.storage.kept_dtype ? components.front() : TRY(staging.numbers(t.id, own, components, For::Writing));
      code().add(part_of(read_file(c_, code(), t, {}, value), numbers, own.first));
      if (!t.storage.kept_dtype) TRY_STATUS(staging.pack(t.id, own, value, components));
    }
    return staging.put_back(t.id, own, components);
  }

  Compilation& c_;
  const Graph& graph_;
  const Homes& homes_;
  Emitter emitter_;
  const Makers makers_;
  PackedFiles files_;
  std::map<galley_tensor, std::vector<galley_tensor>> begun_by_;            ///< by value
  std::map<uint64_t, std::vector<galley_tensor>> needs_node_, needs_file_;  ///< by node, and by tensor of a file: see `also`
  std::deque<galley_tensor> others_;
  std::set<galley_tensor> under_way_, done_, made_;
  std::set<galley_node> emitted_;
};

/// Gives the launches of ops with GALLEY_OP_LOAD_ON_HOST to the host, unless the device is the processor. Of what the device has, or gets,
/// the host has a copy at that time. What only the host and files touch lies where the host reaches it.
void compute_on_host(Compilation& c, SegmentCode& code) {
  const uint32_t host = c.target.host_memory();
  std::vector<Instruction> placed = std::exchange(c.program.segment(code.kind()).code, {});
  std::set<TensorId> by_host, by_device;
  for (Instruction& i : placed) {
    Launch* const launch = i.launch();
    if (launch) launch->on_host = launch->op()->flags & GALLEY_OP_LOAD_ON_HOST && !c.target.is_processor();
    if (!i.read()) visit_touched(i, [&](TensorId t) { (launch && launch->on_host ? by_host : by_device).insert(t); });
  }
  for (const TensorId t : by_host)
    if (ProgramTensor& made = c.program.tensors[static_cast<size_t>(t)]; !by_device.contains(t) && made.life == Life::Segment)
      made.memory = host;
  for (Instruction& i : placed) {
    std::vector<std::pair<Operand, Operand>> back;
    if (i.launch() && i.launch()->on_host)
      for (auto* operands : {&i.inputs, &i.outputs})
        for (Operand& o : *operands) {
          if (!o.present() || code.tensor(o.tensor).memory == host) continue;
          const Operand there = o;
          const auto& [name, strategy] = std::pair(code.tensor(o.tensor).name, code.tensor(o.tensor).strategy);
          o.tensor = add_tensor(c.program, {name + " on host", o.dtype, o.shape, 0, host, Owner::Workspace, Life::Segment, strategy});
          o.offset = 0;
          if (o.access & GALLEY_READ) code.copy(there, o);
          if (o.access & GALLEY_WRITE) back.emplace_back(o, there);
        }
    code.add(std::move(i));
    for (const auto& [from, to] : back) code.copy(from, to);
  }
}

}  // namespace

Status place_load(Compilation& c, const Homes& homes) {
  Loading loading(c, homes);
  for (galley_tensor t = 1; t <= c.graph.tensor_count(); ++t) TRY_STATUS(loading.with_others(t));
  TRY_STATUS(loading.know_unread());
  compute_on_host(c, loading.code());
  if (!c.steps()) return ok();
  AttrList zero;
  zero.set("value", 0.0);
  return loading.code().op(c.roles.fill, "init step scalars", {}, {loading.code().all_of(c.program.scalars)}, zero);
}

Status place_refresh(Compilation& c, const Homes& homes, SegmentCode& code, const std::set<galley_tensor>& made) {
  Staging staging(c, homes, code);
  const std::vector<bool> changing = changing_tensors(c.graph);
  for (galley_tensor id = 1; id <= c.graph.tensor_count(); ++id) {
    const GraphTensor& t = c.graph.tensor(id);
    if (t.kind != GALLEY_KIND_CONSTANT || t.unused || !changing[id] || t.storage.numbers_of) continue;
    const bool parts = copies_parts(c, t);
    if (parts) TRY_STATUS(copy_parts(c, homes, code, staging, t, made.contains(id)));
    if (parts || made.contains(id)) continue;
    std::vector<Operand> inputs;
    for (const galley_tensor in : t.initial.inputs) inputs.push_back(TRY(staging.read(in)));
    TRY_STATUS(initialize(c, code, staging, id, std::move(inputs)));
  }
  return ok();
}

}  // namespace galley
