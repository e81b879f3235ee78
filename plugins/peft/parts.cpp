#include "peft/parts.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "galley/cpp/files.hpp"
#include "galley/cpp/half.hpp"
#include "peft/config.hpp"

namespace galley::peft {
namespace {

using namespace sdk;

constexpr const char* kFile = "adapter/adapter_model.safetensors";
// Before the name of a tensor that is saved beside the parameters of a file, in their dtype.
constexpr const char* kInFile = "adapter/adapter_model.safetensors:";
constexpr const char* kInModel = "model/model.safetensors:";
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

std::string module_of_bias(const std::string& name) { return name.substr(0, name.size() - std::strlen(".bias")); }

bool is_tied(uint64_t flags) { return (flags & (kTable | kHead)) == (kTable | kHead); }

/// The name of a model's parameter that an adapter has one of its own for: without prefix, and without PEFT's word for an adapted layer.
std::string taken_name(const std::string& own) {
  std::string name = without_prefix(own);
  const std::string base = ".base_layer.";
  if (const size_t at = name.find(base); at != std::string::npos) name.erase(at, base.size() - 1);
  return name;
}

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
  const auto second = second_.find(name);
  const std::string other = second == second_.end() ? "" : second->second;
  const std::string source = !other.empty() && !file_.tensors.count(name) ? other : name;
  if (file_.there() && !(begin.optional && !file_.tensors.count(source))) {
    const auto stored = file_.tensors.find(source);
    if (stored == file_.tensors.end()) invalid("'" + file_.path + "' has no '" + name + "'");
    if (stored->second != shape)
      invalid("'" + file_.path + "': '" + name + "' is " + shape_text(stored->second) + "; this model takes " + shape_text(shape));
    d.source = file_.path.c_str();
    d.source_name = source.c_str();
    d.flags &= ~static_cast<uint64_t>(GALLEY_TENSOR_LATE_GRADIENT);
    used_.insert(source);
    if (source != other) leave(other);
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
  const std::vector<Owned> parameters = owned_parameters(graph_, file_.tensors);
  for (const Owned& o : parameters) {
    names.insert(o.modules.begin(), o.modules.end());
    refuse_unread(o);
    const std::string module = o.modules.empty() ? "" : saved_with_(o.modules.back());
    if (module.empty()) continue;
    saved.insert(module);
    const uint64_t flags = graph_.info(o.parameter).flags;
    const bool tied = is_tied(flags);
    // Of two names, the second alone where it alone is in the module.
    const bool both = !o.also.empty() && o.name.rfind(module + ".", 0) == 0;
    const std::string name = prefixed(o.also.empty() || both ? o.name : o.also);
    if (both) second_[name] = prefixed(o.also);
    const galley_tensor taken = own(name, o.parameter, tied ? flags & ~(o.of_tied_head ? kTable : kHead) : flags);
    if (tied) replace_tied(o, taken);
    else graph_.replace(o.parameter, taken);
  }
  all->assign(names.begin(), names.end());
  return {saved.begin(), saved.end()};
}

/// T5's table is `shared`, and in transformers what reads it are the modules encoder.embed_tokens and decoder.embed_tokens, with the same
/// weight: a copy of one of the three, as PEFT makes for a module that is trained whole, is not what the others read.
void Parts::refuse_unread(const Owned& o) const {
  if (o.of_tied_head || !(graph_.info(o.parameter).flags & kTable)) return;
  const std::string module = o.modules.empty() ? "" : o.modules.back();
  std::vector<std::string> readers;
  for (galley_node n = graph_.next_node(0); n; n = graph_.next_node(n)) {
    const galley_node_info node = graph_.GraphReader::node(n);
    for (uint32_t i = 0; i < node.n_inputs; ++i)
      if (node.inputs[i] == o.parameter && !(node.op_flags & GALLEY_OP_LINEAR)) readers.emplace_back(node.name);
  }
  if (std::all_of(readers.begin(), readers.end(), [&](const std::string& reader) { return reader == module; })) return;
  std::string all, saved = saved_with_(module);
  for (const std::string& reader : readers) {
    all += (all.empty() ? "'" : "' and '") + reader;
    if (saved.empty()) saved = saved_with_(reader);
  }
  if (!saved.empty())
    invalid("'modules_to_save': '" + saved + "' holds the table '" + o.name + "', which in transformers " + all +
                "' read: no copy of a module, as PEFT makes one, is what all of them read",
            "train the table beside the adapter, use \"freeze\" { except = { \"" + o.name + "\" } }: then the model is saved, too");
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
  std::map<galley_tensor, std::string> also;
  for (const Owned& o : owned_parameters(graph_, file_.tensors)) also[o.parameter] = o.also;
  for (const Module* m : adapted)
    if (m->bias) taken[m->bias] = prefixed(m->name) + ".base_layer.bias";
  for (galley_tensor t = which == Biases::All ? graph_.next_tensor(0) : 0; t; t = graph_.next_tensor(t)) {
    const galley_tensor_info info = graph_.info(t);
    const std::string name = info.name;
    if (info.kind == GALLEY_KIND_PARAMETER && ends_with(name, ".bias") && name.rfind("base_model.", 0) != 0 && !taken.count(t) &&
        saved_with_(name.substr(0, name.size() - 5)).empty() && (also[t].empty() || saved_with_(module_of_bias(also[t])).empty())) {
      taken[t] = prefixed(name);
      if (!also[t].empty()) second_[taken[t]] = prefixed(also[t]);
    }
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
    const std::vector<std::string> words = {".modules_to_save.default.", ".modules_to_save.", ".original_module."};
    if (std::any_of(words.begin(), words.end(), [&](const std::string& word) { return used_.count(without_word(name, word)) != 0; })) {
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
  // Of a module that has trained rows, too, it is called as a part of these.
  const std::string rows = ".token_adapter.base_layer.";
  const size_t at = name.find(rows);
  const std::string plain = at == std::string::npos ? name : name.substr(0, at) + "." + name.substr(at + rows.size());
  galley_tensor weight = 0;
  for (const Module& m : modules)
    if (plain == prefixed(m.name) + ".base_layer.weight" || (m.head && plain == prefixed(m.name) + ".weight")) weight = m.weight;
  for (const Owned& o : weight ? std::vector<Owned>() : owned_parameters(graph_, file_.tensors))
    if (prefixed(o.name) == plain && graph_.info(o.parameter).flags & (kTable | kHead)) weight = o.parameter;
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

void claim_adapter(const sdk::Claims& claims, const char* strategy, const std::set<std::string>& fixed) {
  if (!claims.about(GALLEY_FACET_TRAINABLE)) return;
  for (const sdk::Claim& parameter : claims) {
    const std::string name = parameter.name;
    if (galley_same_text(parameter.owner, strategy)) parameter.strong(fixed.count(name) == 0);
    else if (name.rfind("base_model.", 0) == 0) parameter.strong(0);
    else if (*parameter.owner == '\0') parameter.weak(0);
  }
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

void save(ExportGraph& graph) {
  graph.export_model(trains_model(graph) ? GALLEY_EXPORT_BOTH : GALLEY_EXPORT_OWN);
  // PEFT writes and wants a tensor under each name that transformers' classes have for it.
  for (const Module& m : linear_modules(graph)) {
    const std::string name = m.bias ? taken_name(graph.info(m.bias).name) : "";
    if (!name.empty() && name != m.name + ".bias") graph.export_tensor(kInFile + prefixed(m.name) + ".bias", m.bias);
  }
  document_trained(graph);
}

Merge::Merge(ExportGraph& graph) : graph_(graph), modules_(linear_modules(graph)) { graph_.export_model(GALLEY_EXPORT_MODEL); }

void Merge::weight(const Module& m, galley_tensor value) {
  if (m.tied) untie(m.name, value);
  else graph_.export_as(m.weight, value);
}

void Merge::taken(const std::vector<const char*>& own) {
  for (galley_tensor t = graph_.next_tensor(0); t; t = graph_.next_tensor(t)) {
    const galley_tensor_info info = graph_.info(t);
    if (info.kind != GALLEY_KIND_PARAMETER || without_prefix(info.name).empty()) continue;
    const std::string name = taken_name(info.name), whole = info.name;
    if (std::any_of(own.begin(), own.end(), [&](const char* word) { return whole.find(word) != std::string::npos; })) continue;
    const galley_tensor found = graph_.find(name), of = found || !(info.flags & kHead) ? found : own_head();
    if (!of && ends_with(name, ".weight")) {
      untie(name.substr(0, name.size() - 7), t);
    } else if (!of) {
      graph_.export_tensor(kInModel + name, t);
    } else {
      if (is_tied(graph_.info(of).flags))  // the head reads the table as it was
        for (const Module& m : modules_)
          if (m.tied && !untied_.count(m.name))
            untie(m.name, graph_.node("scale", (m.name + ".untied").c_str(), {of}, Attrs().f("alpha", 1))[0]);
      graph_.export_as(of, t);
    }
  }
}

/// The model's parameter that is its head alone, which files may call otherwise than its module is called; 0: the head is the embedding.
galley_tensor Merge::own_head() const {
  for (galley_tensor t = graph_.next_tensor(0); t; t = graph_.next_tensor(t))
    if (const galley_tensor_info info = graph_.info(t);
        info.kind == GALLEY_KIND_PARAMETER && info.flags & kHead && !(info.flags & kTable) && without_prefix(info.name).empty())
      return t;
  return 0;
}

void Merge::untie(const std::string& head, galley_tensor value) {
  untied_.insert(head);
  graph_.export_tensor(kInModel + head + ".weight", value);
  // T5's key says in transformers whether the decoder's output is scaled; there a head of its own in the file is enough.
  const char* scaled = graph_.config_of("scale_decoder_outputs");
  if (!scaled || std::string(scaled) != "true") graph_.config("tie_word_embeddings", "false");
  // The classes of BERT tie the head's bias as well: cls.predictions.decoder.bias with cls.predictions.bias.
  const std::string bias = head.find('.') == std::string::npos ? "" : head.substr(0, head.rfind('.')) + ".bias";
  if (bias.empty() || graph_.find(prefixed(head) + ".base_layer.bias") || graph_.find(prefixed(head) + ".bias")) return;
  const galley_tensor own = graph_.find(prefixed(bias)), of = own ? own : graph_.find(bias);
  if (of) graph_.export_tensor(kInModel + head + ".bias", of);
}

}  // namespace galley::peft
