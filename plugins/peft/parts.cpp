#include "peft/parts.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "galley/cpp/files.hpp"
#include "galley/cpp/half.hpp"

namespace galley::peft {
namespace {

using namespace sdk;

constexpr const char* kFile = "adapter/adapter_model.safetensors";
constexpr uint64_t kTable = GALLEY_TENSOR_EMBEDDING, kHead = GALLEY_TENSOR_HEAD;

/// With bias = "all", PEFT saves the biases of a module that is trained whole again, under the names of its own wrapper.
std::string without_word(std::string name, const std::string& word) {
  const size_t at = name.find(word);
  return at == std::string::npos ? "" : name.replace(at, word.size(), ".");
}

/// A tensor's numbers, and what they are rounded to.
struct Numbers {
  std::string dtype, bytes;
  size_t count() const { return bytes.size() / (dtype == "F32" ? 4 : 2); }
  float at(size_t i) const {
    if (dtype == "F32") return number<float>(i);
    return dtype == "BF16" ? to_float(number<Bf16>(i)) : to_float(number<F16>(i));
  }
  template <class T>
  T number(size_t i) const {
    T out;
    std::memcpy(&out, bytes.data() + i * sizeof(T), sizeof(T));
    return out;
  }
};

/// Of a file or of a model's folder, which may leave out the first words of a name; without bytes if it is not there, or holds no numbers.
Numbers numbers_in(const std::string& path, const std::string& name) {
  for (const FileTensor& t : read_tensors(path))
    if ((t.name == name || ends_with(name, "." + t.name)) && (t.dtype == "F32" || t.dtype == "BF16" || t.dtype == "F16")) {
      std::map<std::string, std::string> found = read_contents(path, t.name.c_str(), t.bytes);
      return {t.dtype, std::move(found[t.name])};
    }
  return {};
}

/// But for the rounding of the narrower one of two dtypes. What cannot be compared is the same.
bool same_numbers(const std::string& path, const std::string& name, const std::string& model, const std::string& parameter) {
  const Numbers a = numbers_in(path, name), b = numbers_in(model, parameter);
  if (a.bytes.empty() || b.bytes.empty() || a.count() != b.count()) return true;
  if (a.dtype == b.dtype) return a.bytes == b.bytes;
  for (size_t i = 0; i < a.count(); ++i)
    if (const float x = a.at(i), y = b.at(i); !(std::abs(x - y) <= 0x1p-8f * std::max(std::abs(x), std::abs(y)) + 0x1p-24f)) return false;
  return true;
}

bool is_tied(uint64_t flags) { return (flags & (kTable | kHead)) == (kTable | kHead); }

}  // namespace

AdapterFile::AdapterFile(const std::string& path_) : path(path_) {
  for (FileTensor& t : read_tensors(path)) tensors[t.name] = std::move(t.shape);
  if (tensors.empty()) invalid("'" + path + "' holds no tensors");
}

galley_tensor Parts::make(const std::string& name, const std::vector<int64_t>& shape, uint64_t flags, const Begin& begin) {
  galley_tensor_desc d = Graph::described(name, GALLEY_KIND_PARAMETER, GALLEY_F32, shape);
  d.file = kFile;
  d.file_name = name.c_str();
  d.flags = flags;
  if (file_.there() && !(begin.optional && !file_.tensors.count(name))) {
    const auto stored = file_.tensors.find(name);
    if (stored == file_.tensors.end()) invalid("'" + file_.path + "' has no '" + name + "'");
    if (stored->second != shape)
      invalid("'" + file_.path + "': '" + name + "' is " + shape_text(stored->second) + "; this model takes " + shape_text(shape));
    d.source = file_.path.c_str();
    d.source_name = name.c_str();
    d.flags &= ~static_cast<uint64_t>(GALLEY_TENSOR_LATE_GRADIENT);
    used_.insert(name);
  } else if (begin.op) {
    d.initializer = begin.op;
    d.attrs = begin.attrs.data();
    d.n_attrs = begin.attrs.count();
    d.initializer_inputs = begin.from.data();
    d.n_initializer_inputs = static_cast<uint32_t>(begin.from.size());
  }
  return graph_.make(d);
}

galley_tensor Parts::own(const std::string& name, galley_tensor of, uint64_t flags, bool optional) {
  const galley_tensor_info info = graph_.info(of);
  return make(name, {info.shape, info.shape + info.rank}, flags, {"copy", {of}, {}, optional});
}

std::vector<std::string> Parts::take_modules(std::vector<std::string>* all) {
  std::set<std::string> names, saved;
  const std::vector<Owned> parameters = owned_parameters(graph_);
  for (const Owned& o : parameters) {
    names.insert(o.modules.begin(), o.modules.end());
    const std::string module = o.modules.empty() ? "" : saved_with_(o.modules.back());
    if (module.empty()) continue;
    saved.insert(module);
    const uint64_t flags = graph_.info(o.parameter).flags;
    const bool tied = is_tied(flags);
    const galley_tensor taken = own(prefixed(o.name), o.parameter, tied ? flags & ~(o.of_tied_head ? kTable : kHead) : flags);
    if (tied) replace_tied(o, taken);
    else graph_.replace(o.parameter, taken);
  }
  all->assign(names.begin(), names.end());
  return {saved.begin(), saved.end()};
}

/// Of a table that the head shares with the embedding, one of the two.
void Parts::replace_tied(const Owned& o, galley_tensor taken) {
  for (galley_node n = graph_.next_node(0); n; n = graph_.next_node(n)) {
    const galley_node_info node = graph_.GraphReader::node(n);
    for (uint32_t i = 0; i < node.n_inputs; ++i)
      if (node.inputs[i] == o.parameter && ((node.op_flags & GALLEY_OP_LINEAR) != 0) == o.of_tied_head) graph_.set_input(n, i, taken);
  }
}

void Parts::take_biases(const std::vector<const Module*>& adapted, Biases which) {
  std::map<galley_tensor, std::string> taken;
  for (const Module* m : adapted)
    if (m->bias) taken[m->bias] = prefixed(m->name) + ".base_layer.bias";
  for (galley_tensor t = which == Biases::All ? graph_.next_tensor(0) : 0; t; t = graph_.next_tensor(t)) {
    const galley_tensor_info info = graph_.info(t);
    const std::string name = info.name;
    if (info.kind == GALLEY_KIND_PARAMETER && ends_with(name, ".bias") && name.rfind("base_model.", 0) != 0 && !taken.count(t) &&
        saved_with_(name.substr(0, name.size() - 5)).empty())
      taken[t] = prefixed(name);
  }
  // With "lora_only", files of some versions of PEFT have no biases: they are the model's.
  for (const auto& [bias, name] : taken) graph_.replace(bias, own(name, bias, graph_.info(bias).flags, which == Biases::Adapted));
}

void Parts::leave(const std::string& name) {
  if (!file_.tensors.count(name)) return;
  used_.insert(name);
  graph_.ignore(name);
}

void Parts::check_all_used(const std::vector<Module>& modules, const char* strategy) {
  for (const auto& [name, stored] : file_.tensors) {
    if (used_.count(name)) continue;
    if (used_.count(without_word(name, ".modules_to_save.")) || used_.count(without_word(name, ".original_module."))) {
      graph_.ignore(name);
      continue;
    }
    if (!is_left_model(name, stored, modules)) refuse_left(name, "which " + std::string(strategy) + " does not use", "");
    graph_.ignore(name);
  }
}

void Parts::refuse_left(const std::string& name, const std::string& why, const std::string& hint) const {
  invalid("'" + file_.path + "' has '" + name + "', " + why, hint.c_str());
}

/// Whether a tensor of the file is one of the model's, as PEFT saves embeddings and heads beside an adapter, with the same numbers.
bool Parts::is_left_model(const std::string& name, const std::vector<int64_t>& stored, const std::vector<Module>& modules) {
  galley_tensor weight = 0;
  for (const Module& m : modules)
    if (name == prefixed(m.name) + ".base_layer.weight" || (m.head && name == prefixed(m.name) + ".weight")) weight = m.weight;
  for (const Owned& o : weight ? std::vector<Owned>() : owned_parameters(graph_))
    if (prefixed(o.name) == name && graph_.info(o.parameter).flags & (kTable | kHead)) weight = o.parameter;
  if (!weight) return false;
  const galley_tensor_info w = graph_.info(weight);
  const std::vector<int64_t> expected(w.shape, w.shape + w.rank);
  if (stored != expected)
    invalid("'" + file_.path + "': '" + name + "' is " + shape_text(stored) + ", but the model's is " + shape_text(expected) +
            "; the adapter belongs to a model with another vocabulary");
  const galley_run_info run = graph_.run();
  if (run.model && *run.model && !same_numbers(file_.path, name, run.model, w.name))
    refuse_left(name, "and its numbers are not those of '" + std::string(w.name) + "' in the model '" + run.model + "'",
                "an adapter that was saved with a changed embedding or head belongs to a model with it: save that model with PEFT's "
                "get_base_model() and name it; or if nothing of it was trained, save the adapter with save_embedding_layers=False");
  return true;
}

bool is_foreign(const galley_subject& subject, const char* strategy) {
  return std::string(subject.name).rfind("base_model.", 0) == 0 && !galley_same_text(subject.owner, strategy);
}

bool has_own(const GraphReader& graph, const std::string& end) {
  for (galley_tensor t = graph.next_tensor(0); t; t = graph.next_tensor(t))
    if (const galley_tensor_info info = graph.info(t);
        info.kind == GALLEY_KIND_PARAMETER && ends_with(info.name, end) && !without_prefix(info.name).empty())
      return true;
  return false;
}

bool trains_model(const GraphReader& graph) {
  bool trained = false;
  for (galley_tensor t = graph.next_tensor(0); t; t = graph.next_tensor(t)) {
    const galley_tensor_info info = graph.info(t);
    trained = trained || (info.kind == GALLEY_KIND_PARAMETER && info.flags & GALLEY_TENSOR_TRAINABLE &&
                          std::string(info.name).rfind("base_model.", 0) != 0);
  }
  return trained;
}

void save(Graph& graph) { graph.export_model(trains_model(graph) ? GALLEY_EXPORT_BOTH : GALLEY_EXPORT_OWN); }

void merge_taken(Graph& graph, const std::vector<const char*>& own) {
  for (galley_tensor t = graph.next_tensor(0); t; t = graph.next_tensor(t)) {
    std::string name = without_prefix(graph.info(t).name);
    if (graph.info(t).kind != GALLEY_KIND_PARAMETER || name.empty()) continue;
    if (std::any_of(own.begin(), own.end(), [&](const char* word) { return name.find(word) != std::string::npos; })) continue;
    const std::string base = ".base_layer.";
    if (const size_t at = name.find(base); at != std::string::npos) name.erase(at, base.size() - 1);
    const galley_tensor of = graph.find(name);
    if (!of || is_tied(graph.info(of).flags)) refuse_tied("'" + name + "', which the adapter has trained apart,");
    graph.export_as(of, t);
  }
}

void refuse_tied(const std::string& what) {
  invalid("'merge' would change the embedding too: " + what + " shares its weight with it; leave out 'merge', or the target");
}

}  // namespace galley::peft
