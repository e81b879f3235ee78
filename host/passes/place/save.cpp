#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "galley/format.h"
#include "galley/op.h"
#include "host/passes/copy.hpp"
#include "host/passes/exported.hpp"
#include "host/passes/makers.hpp"
#include "host/passes/place/emitter.hpp"
#include "host/passes/place/exchanges.hpp"
#include "host/passes/place/files.hpp"
#include "host/plugins/library.hpp"

namespace galley {
namespace {

/// In which a parameter's numbers are kept: of one in a packed format F32, since its numbers are computed.
Result<uint32_t> kept_dtype(const Compilation& c, const GraphTensor& t) {
  if (t.storage.format.empty()) return t.storage.kept_dtype ? t.storage.kept_dtype : t.dtype;
  if (!(c.plugins.format(t.storage.format).table->flags & GALLEY_FORMAT_PLAIN)) return t.dtype;
  return TRY(components_of(c.plugins, t, t.shape)).front().dtype;
}

/// One dtype for all that a file holds, so that config.json can name it. A master is never rounded by itself: where a trained parameter is
/// kept in F32, so is the file. Else it is the 16-bit dtype in which more than half of the numbers are kept; a norm or an embedding that is
/// kept in F32 beside them came from a file in 16 bit, as a rule.
///
/// A model that something was merged into keeps the dtype of the files from which it came.
///
/// Beside the model, a strategy may save a matrix of another shape in the place of a tensor: an adapter as the difference of two, each of
/// which is large. Rounding it by itself would take most of what was trained; so that file stays in F32.
Result<uint32_t> file_dtype(const Compilation& c, const std::string& file, const std::vector<galley_tensor>& saved,
                            const std::map<galley_tensor, galley_tensor>& values) {
  const auto is_other = [&](galley_tensor id) {
    const auto value = values.find(id);
    return value != values.end() && c.graph.tensor(value->second).shape != c.graph.tensor(id).shape;
  };
  if (file != kModelFile && std::ranges::any_of(saved, is_other)) return uint32_t{GALLEY_F32};
  if (c.options.export_dtype) return c.options.export_dtype;
  // What was trained apart is merged into weights that are not: PEFT's merge keeps the dtype that these came in.
  const auto merged = [&](galley_tensor id) { return values.contains(id) && !c.graph.tensor(id).changes(); };
  if (file == kModelFile && std::ranges::any_of(saved, merged))
    if (const uint32_t base = c.options.base_dtype()) return base;
  std::map<uint32_t, int64_t> numbers;
  int64_t all = 0;
  for (const galley_tensor id : saved) {
    const GraphTensor& t = c.graph.tensor(id);
    const uint32_t dtype = TRY(kept_dtype(c, t));
    if (dtype == GALLEY_F32 && t.changes()) return uint32_t{GALLEY_F32};
    numbers[dtype] += t.count();
    all += t.count();
  }
  for (const uint32_t dtype : {GALLEY_BF16, GALLEY_F16})
    if (2 * numbers[dtype] > all) return uint32_t{dtype};
  return uint32_t{GALLEY_F32};
}

/// The names in each file, with whose they are. A name or a file that is there twice would be found out when the last step is over.
class SavedNames {
 public:
  explicit SavedNames(const Compilation& c) : c_(c) {}

  Status add(const std::string& file, const std::string& entry, const GraphTensor& t) {
    const auto [first, fresh] = saved_.try_emplace({file, entry}, t.id);
    if (fresh) return ok();
    return plugin_error(
        "two tensors are to be saved as '" + entry + "' in '" + file + "': " + owned(c_.graph.tensor(first->second)) + " and " + owned(t),
        "a file holds a name once: give them names of their own in it");
  }

  /// No file has to be a folder as well.
  Status check_folders() const {
    std::map<std::string, std::string> files;
    for (const auto& [place, id] : saved_) files.try_emplace(place.first, "tensor '" + c_.graph.tensor(id).name + "'");
    for (const Document& d : c_.draft.exports.documents) files.try_emplace(d.file, "a document of " + label(c_.strategies, d.use));
    for (const auto& [file, whose] : files)
      for (std::filesystem::path folder = std::filesystem::path(file).parent_path(); !folder.empty(); folder = folder.parent_path())
        if (const auto at = files.find(folder.string()); at != files.end())
          return plugin_error(whose + " is to be saved in '" + file + "', but " + at->second + " is to be saved as '" + at->first + "'",
                              "a file cannot be a folder as well");
    return ok();
  }

 private:
  std::string owned(const GraphTensor& t) const {
    return "'" + t.name + "'" + (t.use == no_use ? "" : " of " + label(c_.strategies, t.use));
  }

  const Compilation& c_;
  std::map<std::pair<std::string, std::string>, galley_tensor> saved_;
};

/// The nodes of the export graph that make values to be saved.
class Values {
 public:
  Values(const Compilation& c, const Homes& homes, Emitter& emitter)
      : c_(c), homes_(homes), emitter_(emitter), makers_(c.draft, {Section::Evaluate, Section::Export}), values_(c.draft.saved_values()) {}
  /// Whether another tensor's value is saved in the place of the tensor.
  bool contains(galley_tensor t) const { return values_.contains(t); }

  const std::map<galley_tensor, galley_tensor>& all() const { return values_; }

  /// The numbers to save of a tensor, after the nodes that make them.
  Result<Operand> of(galley_tensor id) {
    const Operand own = TRY(of_process(id));
    return c_.graph.tensor(id).part ? joined(c_.graph.tensor(id), own) : own;
  }
  /// Where a value of the same shape is saved in the place of a weight that is not trained, and that is there: that weight. What begins as
  /// other numbers than the model's does not say what was trained.
  Result<std::optional<Operand>> before(galley_tensor id) {
    const auto it = values_.find(id);
    const GraphTensor& t = c_.graph.tensor(id);
    if (it == values_.end() || t.changes() || !homes_.contains(id) || c_.graph.tensor(it->second).shape != t.shape)
      return std::optional<Operand>();
    const auto begun = c_.draft.beginnings.find(id);
    if (begun != c_.draft.beginnings.end() && begun->second.contains(GALLEY_BEGIN_NUMBERS)) return std::optional<Operand>();
    return std::optional<Operand>(TRY(numbers(id)));
  }
  /// The numbers of a tensor, after the nodes that make them.
  Result<Operand> made(galley_tensor t) {
    for (const galley_node n : makers_.of(t, done_)) TRY_STATUS(make(c_.graph.node(n)));
    return numbers(t);
  }

 private:
  /// What this process has of the numbers to save.
  Result<Operand> of_process(galley_tensor id) {
    if (const auto it = values_.find(id); it != values_.end()) return made(it->second);
    // What is kept in 16 bit is rounded, or widened, on its way into the file.
    if (c_.graph.tensor(id).storage.format.empty()) return TRY(emitter_.staging().bring(id, {}, Staging::For::Reading)).front();
    return numbers(id);
  }
  /// The whole of what a strategy has divided, of the parts that neighbours give each other. Columns are exchanged as rows.
  Result<Operand> joined(const GraphTensor& t, Operand part) {
    SegmentCode& code = emitter_.code();
    const bool columns = t.part->dimension > 0;
    if (columns) part = TRY(turned(c_, code, t, part));
    Shape shape = part.shape;
    shape[0] = t.part->whole;
    AttrList attrs = sum_of_neighbours(c_.program);
    attrs.set("rank", c_.program.place());
    std::vector<int64_t> ends;
    for (int64_t k = 1; k <= c_.program.together; ++k) ends.push_back(k * t.count());
    attrs.set("ends", std::move(ends));
    attrs.set("shape", shape);
    const Operand whole = code.temporary("whole " + t.name, part.dtype, shape, t.use);
    TRY_STATUS(code.op(c_.roles.all_gather, "gather " + t.name, {part}, {whole}, std::move(attrs)));
    return columns ? turned(c_, code, t, whole) : whole;
  }
  Result<Operand> numbers(galley_tensor t) { return homes_.plain(t) ? emitter_.operand(t) : emitter_.staging().read(t); }

  Status make(const GraphNode& node) {
    Item item = whole(node);
    for (Ref& r : item.inputs) r.tensor = makers_.read(node, r.tensor);
    done_.insert(node.id);
    return emitter_.item(item);
  }

  const Compilation& c_;
  const Homes& homes_;
  Emitter& emitter_;
  const Makers makers_;
  const std::map<galley_tensor, galley_tensor> values_;  ///< by the tensor in whose place they are saved
  std::set<galley_node> done_;
};

Instruction write_file(const Operand& value, const std::string& file, const std::string& entry, uint32_t dtype) {
  Instruction i;
  i.what = Write{file, entry, dtype};
  i.name = "write " + entry;
  i.inputs = {with_access(value, GALLEY_READ)};
  return i;
}

}  // namespace

Status place_export(Compilation& c, const Homes& homes) {
  const Graph& graph = c.graph;
  Emitter emitter(c, homes, SegmentKind::Export);
  Values values(c, homes, emitter);
  SavedNames names(c);
  std::map<std::string, std::vector<galley_tensor>> files;
  for (const galley_tensor id : c.draft.exports.saved(graph)) files[graph.tensor(id).saved.path()].push_back(id);
  std::map<std::string, uint32_t> dtypes;
  for (const auto& [file, saved] : files) dtypes[file] = TRY(file_dtype(c, file, saved, values.all()));
  for (const galley_tensor id : c.draft.exports.saved(graph)) {
    const GraphTensor& t = graph.tensor(id);
    const std::string file = t.saved.path(), entry = t.saved.name.empty() ? t.name : t.saved.name;
    if (!c.draft.exports.in_format.contains(id) || values.contains(id)) {
      const Operand value = TRY(values.of(id));
      TRY_STATUS(names.add(file, entry, t));
      Instruction write = write_file(value, file, entry, dtypes.at(file));
      if (c.options.purpose == Purpose::Export && galley_dtype_bytes(dtypes.at(file)) < galley_dtype_bytes(value.dtype))
        if (const auto before = TRY(values.before(id))) write.inputs.push_back(with_access(*before, GALLEY_READ));
      emitter.code().add(std::move(write));
      continue;
    }
    const std::vector<Operand> components = TRY(emitter.staging().bring(id, {}, Staging::For::Reading));
    for (size_t k = 0; k < components.size(); ++k) {
      if (!homes.described(id)[k].in_files) continue;
      const std::string name = name_in_file(homes.described(id)[k], entry);
      TRY_STATUS(names.add(file, name, t));
      emitter.code().add(write_file(components[k], file, name, components[k].dtype));
    }
  }
  for (const ExportedTensor& extra : c.draft.exports.tensors) {
    const ExportedPlace at(extra.name);
    if (!at.is_written(c.draft)) continue;
    const GraphTensor& t = graph.tensor(extra.value);
    const std::string file = at.of_format() ? kModelFile : at.file;
    TRY_STATUS(names.add(file, at.entry, t));
    const Operand value = TRY(t.parameter_kind() ? values.of(extra.value) : values.made(extra.value));
    emitter.code().add(write_file(value, file, at.entry, at.of_format() ? t.dtype : dtypes.at(file)));
  }
  return names.check_folders();
}

}  // namespace galley
