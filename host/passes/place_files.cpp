// The segments that begin and end a run: every parameter, state and constant from its file or initializer; every saved tensor into its
// file.
#include <algorithm>
#include <filesystem>

#include "galley/op.h"
#include "host/passes/packed.hpp"
#include "host/passes/place.hpp"

namespace galley {

std::vector<ProgramTensor> Placer::component_tensors(galley_tensor id) const {
  std::vector<ProgramTensor> out;
  for (const TensorId c : components_.at(id)) out.push_back(program_.tensors[static_cast<size_t>(c)]);
  return out;
}

std::string Placer::suffix(galley_tensor id, size_t component) const {
  return program_.tensors[static_cast<size_t>(components_.at(id)[component])].name.substr(graph_.tensor(id).name.size());
}

Status Placer::initialize(galley_tensor id, const Operand& value) {
  const GraphTensor& t = graph_.tensor(id);
  AttrList attrs = t.attrs;
  std::vector<Operand> inputs;
  for (const galley_tensor in : t.initializer_inputs) inputs.push_back(TRY(read(in)));
  const std::string name = "init " + t.name;
  const galley_op* from = c_.roles.fill;
  if (t.initializer.empty()) attrs.set("value", 0.0);
  else from = TRY(op(t.initializer, name));
  if (inputs.empty()) {
    attrs.set("seed", static_cast<int64_t>(c_.options.seed));
    attrs.set("stream", t.name);
  }
  Status made = emit_op(from, name, std::move(inputs), {value}, std::move(attrs));
  if (made || t.use == no_use) return made;
  return plugin_error(who(t.use) + ": " + made.error().cause, made.error().hint);
}

/// From the tensor's file: its numbers, or with a suffix a component.
void Placer::read_file(const GraphTensor& t, const std::string& suffix, const Operand& to) {
  Instruction i;
  i.action = Action::Read;
  i.name = "read " + t.name + suffix;
  i.outputs = {with_access(to, GALLEY_WRITE), with_access(all_of(program_.staging), GALLEY_WRITE)};
  i.file = t.source;
  for (const std::string& name : source_names(t)) i.aliases.push_back(name + suffix);
  i.entry = i.aliases.front();
  i.aliases.erase(i.aliases.begin());
  i.hint = t.source_hint;
  code().push_back(std::move(i));
}

Status Placer::load() {
  kind_ = SegmentKind::Load;
  local_.clear();
  PackedFiles files;
  // In the order of making: an initializer's inputs were made before its tensor.
  for (galley_tensor id = 1; id <= graph_.tensor_count(); ++id) {
    const GraphTensor& t = graph_.tensor(id);
    if (t.slice_of || t.numbers_of || t.unused ||
        (t.kind != GALLEY_KIND_PARAMETER && t.kind != GALLEY_KIND_STATE && t.kind != GALLEY_KIND_CONSTANT))
      continue;
    const std::vector<Operand> components = TRY(stage(id, {}, false));
    const bool reads = !t.source.empty();
    if (reads && !t.storage.empty() && TRY(files.hold(t, component_tensors(id)))) {
      for (size_t k = 0; k < components.size(); ++k) read_file(t, suffix(id, k), components[k]);
    } else if (reads && t.kept_dtype) {
      read_file(t, "", components.front());
    } else {
      const Operand value = TRY(numbers_of(id, {}, components, false));
      if (reads) read_file(t, "", value);
      else TRY_STATUS(initialize(id, value));
      TRY_STATUS(pack(id, {}, value, components));
    }
    TRY_STATUS(put_back(id, {}, components));
  }
  if (!steps()) return ok();
  AttrList zero;
  zero.set("value", 0.0);
  return emit_op(c_.roles.fill, "init step scalars", {}, {all_of(program_.scalars)}, zero);
}

Status Placer::refresh(SegmentKind kind) {
  if (kind != kind_) local_.clear();
  kind_ = kind;
  std::vector<bool> changes(graph_.tensor_count() + 1, false);
  for (galley_tensor id = 1; id <= graph_.tensor_count(); ++id) {
    const GraphTensor& t = graph_.tensor(id);
    changes[id] = t.kind == GALLEY_KIND_STATE || (t.parameter_kind() && t.trainable());
    if (t.kind != GALLEY_KIND_CONSTANT || t.unused) continue;
    for (const galley_tensor in : t.initializer_inputs) changes[id] = changes[id] || changes[base(in)];
    if (!changes[id] || t.numbers_of) continue;
    const std::vector<Operand> components = TRY(stage(id, {}, false));
    const Operand value = TRY(numbers_of(id, {}, components, false));
    TRY_STATUS(initialize(id, value));
    TRY_STATUS(pack(id, {}, value, components));
    TRY_STATUS(put_back(id, {}, components));
  }
  return ok();
}

/// In which a parameter's numbers are kept: of one in a packed format F32, since its numbers are computed.
uint32_t Placer::kept_dtype(galley_tensor id) const {
  const GraphTensor& t = graph_.tensor(id);
  const bool numbers = t.storage.empty() || c_.plugins.format(t.storage).table->flags & GALLEY_FORMAT_PLAIN;
  return numbers ? program_.tensors[static_cast<size_t>(components_.at(id).front())].dtype : t.dtype;
}

/// One dtype for all that a file holds, so that config.json can name it. A master is never rounded by itself: where a trained parameter is
/// kept in F32, so is the file. Else it is the 16-bit dtype in which more than half of the numbers are kept; a norm or an embedding that is
/// kept in F32 beside them came from a file in 16 bit, as a rule.
uint32_t Placer::file_dtype(const std::vector<galley_tensor>& saved) const {
  if (c_.options.export_dtype) return c_.options.export_dtype;
  std::map<uint32_t, int64_t> numbers;
  int64_t all = 0;
  for (const galley_tensor id : saved) {
    const uint32_t dtype = kept_dtype(id);
    if (dtype == GALLEY_F32 && graph_.tensor(id).trainable()) return GALLEY_F32;
    numbers[dtype] += graph_.tensor(id).count();
    all += graph_.tensor(id).count();
  }
  for (const uint32_t dtype : {GALLEY_BF16, GALLEY_F16})
    if (2 * numbers[dtype] > all) return dtype;
  return GALLEY_F32;
}

/// The value to save, after the nodes that make it and have not run.
Result<Operand> Placer::exported(galley_tensor id, const std::map<galley_tensor, galley_tensor>& values, std::set<galley_node>* done) {
  const auto it = values.find(id);
  if (it == values.end()) {
    // What is kept in 16 bit is rounded, or widened, on its way into the file.
    if (const GraphTensor& t = graph_.tensor(id); t.storage.empty()) return TRY(stage(id, {}, true)).front();
    return plain(id) ? locate(id) : read(id);
  }
  std::vector<galley_node> order, pending = {graph_.tensor(it->second).producer};
  while (!pending.empty()) {
    const galley_node n = pending.back();
    pending.pop_back();
    if (!n || graph_.node(n).section != Section::Export || !done->insert(n).second) continue;
    order.push_back(n);
    for (const galley_tensor in : graph_.node(n).inputs)
      if (in) pending.push_back(graph_.tensor(in).producer);
  }
  std::sort(order.begin(), order.end());
  for (const galley_node n : order) TRY_STATUS(emit(whole(graph_.node(n))));
  return plain(it->second) ? locate(it->second) : read(it->second);
}

/// A file that has to be a folder as well would be found out when the last step is over.
Status Placer::check_files(const SavedNames& saved) const {
  std::map<std::string, std::string> files;  // with whose they are
  for (const auto& [place, id] : saved) files.try_emplace(place.first, "tensor '" + graph_.tensor(id).name + "'");
  for (const Document& d : graph_.documents) files.try_emplace(d.file, "a document of " + who(d.use));
  for (const auto& [file, whose] : files)
    for (std::filesystem::path folder = std::filesystem::path(file).parent_path(); !folder.empty(); folder = folder.parent_path())
      if (const auto at = files.find(folder.string()); at != files.end())
        return plugin_error(whose + " is to be saved in '" + file + "', but " + at->second + " is to be saved as '" + at->first + "'",
                            "a file cannot be a folder as well");
  return ok();
}

Status Placer::export_tensors() {
  kind_ = SegmentKind::Export;
  local_.clear();
  std::map<galley_tensor, galley_tensor> values;
  for (const ExportedValue& e : graph_.exported) values[e.parameter] = e.value;
  std::map<std::string, std::vector<galley_tensor>> files;
  for (const galley_tensor id : graph_.saved()) files[graph_.file_of(id)].push_back(id);
  std::map<std::string, uint32_t> dtypes;
  for (const auto& [file, saved] : files) dtypes[file] = file_dtype(saved);
  std::set<galley_node> done;
  SavedNames saved;
  for (const galley_tensor id : graph_.saved()) {
    const GraphTensor& t = graph_.tensor(id);
    const auto write = [&](const Operand& value, const std::string& entry, uint32_t dtype) -> Status {
      Instruction i;
      i.action = Action::Write;
      i.name = "write " + entry;
      i.inputs = {with_access(value, GALLEY_READ)};
      i.file = graph_.file_of(id);
      i.entry = entry;
      const auto [first, fresh] = saved.try_emplace({i.file, entry}, id);
      if (!fresh) {
        const auto named = [&](const GraphTensor& x) { return "'" + x.name + "'" + (x.use == no_use ? "" : " of " + who(x.use)); };
        return plugin_error("two tensors are to be saved as '" + entry + "' in '" + i.file + "': " + named(graph_.tensor(first->second)) +
                                " and " + named(t),
                            "a file holds a name once: give them names of their own in it");
      }
      i.file_dtype = dtype;
      code().push_back(std::move(i));
      return ok();
    };
    const std::string entry = t.file_name.empty() ? t.name : t.file_name;
    if (!graph_.exported_in_format.contains(id) || values.contains(id)) {
      TRY_STATUS(write(TRY(exported(id, values, &done)), entry, dtypes.at(graph_.file_of(id))));
      continue;
    }
    const std::vector<Operand> components = TRY(stage(id, {}, true));
    for (size_t k = 0; k < components.size(); ++k) TRY_STATUS(write(components[k], entry + suffix(id, k), components[k].dtype));
  }
  return check_files(saved);
}

}  // namespace galley
