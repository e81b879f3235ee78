#include "peft/parts.hpp"

#include <algorithm>

#include "galley/cpp/files.hpp"

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
  if (file_.there()) {
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

galley_tensor Parts::own(const std::string& name, galley_tensor of, uint64_t flags) {
  const galley_tensor_info info = graph_.info(of);
  return make(name, {info.shape, info.shape + info.rank}, flags, {"copy", {of}, {}});
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
  for (const auto& [bias, name] : taken) graph_.replace(bias, own(name, bias, graph_.info(bias).flags));
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
    const auto base =
        std::find_if(modules.begin(), modules.end(), [n = name](const Module& m) { return n == prefixed(m.name) + ".base_layer.weight"; });
    if (base == modules.end()) invalid("'" + file_.path + "' has '" + name + "', which " + strategy + " does not use");
    const galley_tensor_info w = graph_.info(base->weight);
    const std::vector<int64_t> expected(w.shape, w.shape + w.rank);
    if (stored != expected)
      invalid("'" + file_.path + "': '" + name + "' is " + shape_text(stored) + ", but the model's is " + shape_text(expected) +
              "; the adapter belongs to a model with another vocabulary");
    graph_.ignore(name);
  }
}

bool is_foreign(const galley_subject& subject, const char* strategy) {
  return std::string(subject.name).rfind("base_model.", 0) == 0 && !galley_same_text(subject.owner, strategy);
}

void save(Graph& graph) {
  bool trained = false;  // of the model itself, beside the adapter
  for (galley_tensor t = graph.next_tensor(0); t; t = graph.next_tensor(t)) {
    const galley_tensor_info info = graph.info(t);
    trained = trained || (info.kind == GALLEY_KIND_PARAMETER && info.flags & GALLEY_TENSOR_TRAINABLE &&
                          std::string(info.name).rfind("base_model.", 0) != 0);
  }
  graph.export_model(trained ? GALLEY_EXPORT_BOTH : GALLEY_EXPORT_OWN);
}

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
