#include "host/proofs/reference.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "host/base/json.hpp"
#include "host/exec/checksum.hpp"
#include "host/exec/convert.hpp"
#include "host/exec/read_rows.hpp"
#include "host/plugins/library.hpp"
#include "host/proofs/check.hpp"

namespace galley {
namespace {

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.7g", value);
  return text;
}

/// Returns the numbers in another dtype, rounded once.
std::vector<std::byte> in_dtype(std::vector<std::byte> bytes, uint32_t from, uint32_t to, int64_t count) {
  if (from == to) return bytes;
  std::vector<double> numbers(static_cast<size_t>(count));
  convert(numbers.data(), GALLEY_F64, bytes.data(), from, count);
  bytes.resize(static_cast<size_t>(count * galley_dtype_bytes(to)));
  convert(bytes.data(), to, numbers.data(), GALLEY_F64, count);
  return bytes;
}

int64_t rows_of(const std::optional<Numbers>& n) {
  const int64_t columns = !n || n->shape.empty() ? 1 : n->shape.back();
  return n ? n->count() / std::max<int64_t>(columns, 1) : 1;
}

}  // namespace

Reference::Reference(const Program& program, const Plan& plan, Machine& machine, ReferenceOptions options)
    : program_(program),
      plan_(plan),
      machine_(machine),
      options_(std::move(options)),
      held_(program.tensors.size()),
      host_writes_(program.tensors.size(), false) {
  for (size_t t = 0; t < held_.size(); ++t) held_[t].bytes.assign(static_cast<size_t>(program.tensors[t].bytes), std::byte{0});
  const auto host = [&](TensorId t) {
    if (t != no_tensor) host_writes_[static_cast<size_t>(t)] = true;
  };
  for (const TensorId t : {program.window, program.corpus, program.staging}) host(t);
  for (const SegmentKind kind : {SegmentKind::Window, SegmentKind::Micro, SegmentKind::Eval, SegmentKind::Sample, SegmentKind::Next})
    for (const TensorId t : program.written_by_host(kind)) host(t);
  for (const Trained& t : program.trained) parameters_.insert(t.parameter);
  for (const Instruction& code : program.segment(SegmentKind::Micro).code)
    if (code.recomputed && !code.rounded && code.launch())
      for (const LaunchNode& node : code.launch()->nodes) cloned_.insert(node.name);
  find_sources();
}

/// Constants are what lives for the run, is made of something that does, and is neither trained nor a state nor read from a file.
void Reference::find_sources() {
  std::set<TensorId> others;
  for (const auto& [name, t] : program_.resume) others.insert(t);
  others.insert(program_.frozen.begin(), program_.frozen.end());
  for (const TensorId t : {program_.scalars, program_.readback, program_.checksums}) others.insert(t);
  for (const SegmentKind kind : {SegmentKind::Load, SegmentKind::Refresh, SegmentKind::Update}) {
    std::map<TensorId, std::set<TensorId>> through;
    for (const Instruction& code : program_.segment(kind).code) {
      // What lies between the links of a chain is an input of the first one that is updated, or has no memory and no constant to it.
      const auto follow = [&](std::span<const Operand> inputs, std::span<const Operand> outputs) {
        std::set<TensorId> from;
        for (const Operand& o : inputs) {
          if (!o.present() || host_writes_[static_cast<size_t>(o.tensor)] || o.tensor == program_.scalars) continue;
          if (tensor(o.tensor).life == Life::Run) from.insert(o.tensor);
          else if (const auto at = through.find(o.tensor); at != through.end()) from.insert(at->second.begin(), at->second.end());
        }
        for (const Operand& o : outputs) {
          if (!o.present()) continue;
          if (tensor(o.tensor).life != Life::Run) through[o.tensor].insert(from.begin(), from.end());
          else if (!from.empty() && !others.contains(o.tensor) && (kind == SegmentKind::Load || loaded_from_.contains(o.tensor)))
            (kind == SegmentKind::Load ? loaded_from_ : made_from_)[o.tensor].insert(from.begin(), from.end());
        }
      };
      if (code.action() == Action::Copy) follow(code.inputs, code.outputs);
      if (code.launch())
        for (const LaunchNode& node : code.launch()->nodes) follow(code.inputs_of(node), code.outputs_of(node));
    }
  }
}

std::string Reference::writer_text(const Write& write) const {
  return write.index < 0 ? "the host" : place_text(program_, write.segment, static_cast<size_t>(write.index));
}

/// Who wrote last where byte `offset` of a tensor lies, since then.
std::string Reference::overlap_text(TensorId t, int64_t offset, int64_t since) const {
  const int64_t at = plan_.placements[static_cast<size_t>(t)].offset + offset;
  const Write* last = nullptr;
  for (auto write = writes_.rbegin(); write != writes_.rend() && write->clock > since; ++write) {
    if (write->tensor == t || write->tensor == no_tensor || tensor(write->tensor).memory != tensor(t).memory) continue;
    const int64_t begin = plan_.placements[static_cast<size_t>(write->tensor)].offset;
    if (at < begin || at >= begin + tensor(write->tensor).bytes) continue;
    last = &*write;
    break;
  }
  return last ? ": '" + tensor(last->tensor).name + "' lies there too, which " + writer_text(*last) + " has written" : "";
}

/// Without staging, whose bytes belong to the program.
Result<std::vector<std::byte>> Reference::peek(TensorId t, int64_t offset, int64_t bytes) {
  std::vector<std::byte> out(static_cast<size_t>(bytes));
  TRY_STATUS(machine_.synchronize());
  if (const std::byte* at = machine_.host_address(t, offset)) std::copy_n(at, bytes, out.begin());
  else TRY_STATUS(machine_.read_arena(tensor(t).memory, plan_.placements[static_cast<size_t>(t)].offset + offset, out));
  return out;
}

/// What the host has written is what it is now.
Status Reference::take_host(TensorId t) {
  if (t == no_tensor || held(t).bytes.empty()) return ok();
  std::vector<std::byte> now = TRY(peek(t, 0, std::ssize(held(t).bytes)));
  const bool changes = now != held(t).bytes || held(t).written == 0;
  held(t).bytes = std::move(now);
  writes_.push_back({clock_, SegmentKind::Load, -1, no_tensor, t, true});
  held(t).made.write(0, static_cast<int64_t>(held(t).bytes.size()), static_cast<int64_t>(writes_.size()));
  held(t).written = clock_;
  if (changes) held(t).changed = clock_;
  return ok();
}

Status Reference::begin(SegmentKind kind) {
  segment_begin_ = ++clock_;
  const bool window = kind == SegmentKind::Window || (kind == SegmentKind::Micro && program_.segment(SegmentKind::Window).code.empty());
  if (window) window_begin_ = clock_;
  for (size_t t = 0; t < held_.size(); ++t) {
    const Life life = program_.tensors[t].life;
    if (life == Life::Segment || (life == Life::Window && window) || (life == Life::Texts && kind == SegmentKind::Caches))
      held_[t].made = {};
  }
  for (const TensorId t : program_.written_by_host(kind)) TRY_STATUS(take_host(t));
  if (kind == SegmentKind::Refresh)  // a state has been loaded
    for (const auto& [name, t] : program_.resume) TRY_STATUS(take_host(t));
  if (kind == SegmentKind::Micro) originals_.clear();
  return ok();
}

/// A constant is as new as what it is made of. What an update in this segment has changed, others in it still read as it was.
Status Reference::check_fresh(TensorId t, SegmentKind kind) {
  const auto from = loaded_from_.find(t);
  if (from == loaded_from_.end() || kind == SegmentKind::Load || kind == SegmentKind::Refresh || kind == SegmentKind::Update) return ok();
  if (const auto again = made_from_.find(t); again != made_from_.end() && again->second != from->second)
    return plugin_error("reads '" + tensor(t).name + "', which is made again from something else than it was loaded from");
  for (const TensorId source : from->second) {
    const Held& of = held(source);
    if (of.changed > held(t).written && of.changed < segment_begin_)
      return plugin_error("reads '" + tensor(t).name + "', which is stale: it was made before '" + tensor(source).name + "' changed");
  }
  return ok();
}

Status Reference::check_read(const Operand& o, SegmentKind kind) {
  Held& of = held(o.tensor);
  std::vector<Stamped> pieces;
  of.made.read(o.offset, o.offset + o.bytes(), pieces);
  const std::vector<std::byte> now = TRY(peek(o.tensor, o.offset, o.bytes()));
  for (const Stamped& piece : pieces) {
    if (!piece.stamp) {
      const Life life = tensor(o.tensor).life;
      const char* when = life == Life::Run      ? ""
                         : life == Life::Window ? " in this window"
                         : life == Life::Texts  ? " since texts began"
                                                : " in this segment";
      return plugin_error("reads '" + tensor(o.tensor).name + "', which nothing has written" + when);
    }
    Write& write = writes_[static_cast<size_t>(piece.stamp - 1)];
    write.read = true;
    if (o.value != no_tensor && write.value != no_tensor && o.value != write.value)
      return plugin_error("reads '" + tensor(o.tensor).name + "', but another value has taken its place: " + writer_text(write) +
                          " has written it");
    const auto begin = static_cast<size_t>(piece.begin - o.offset), end = static_cast<size_t>(piece.end - o.offset);
    const auto expected = std::span(of.bytes).subspan(static_cast<size_t>(piece.begin), end - begin);
    const auto [found, kept] =
        std::mismatch(now.begin() + static_cast<std::ptrdiff_t>(begin), now.begin() + static_cast<std::ptrdiff_t>(end), expected.begin());
    if (kept == expected.end()) continue;
    const int64_t byte = found - now.begin() + o.offset;
    return plugin_error("finds other bytes in '" + tensor(o.tensor).name + "', from element " +
                        std::to_string(byte / galley_dtype_bytes(tensor(o.tensor).dtype)) + " on, than " + writer_text(write) +
                        " left there" + overlap_text(o.tensor, byte, write.clock));
  }
  return check_fresh(o.tensor, kind);
}

Status Reference::before(SegmentKind kind, size_t index, bool later) {
  ++clock_;
  const Instruction& code = program_.segment(kind).code[index];
  if (code.read()) return ok();
  for (const auto* operands : {&code.inputs, &code.outputs})
    for (const Operand& o : *operands) {
      const uint32_t access = later ? o.later : o.access;
      if (o.present() && (access & GALLEY_READ) && !(o.inner && operands == &code.inputs) && o.bytes() > 0) TRY_STATUS(check_read(o, kind));
    }
  return ok();
}

void Reference::keep(const Operand& o, std::span<const std::byte> bytes, SegmentKind kind, size_t index, int64_t made) {
  Held& of = held(o.tensor);
  const auto at = of.bytes.begin() + static_cast<std::ptrdiff_t>(o.offset);
  const bool changes = of.written == 0 || !std::equal(bytes.begin(), bytes.end(), at);
  std::copy(bytes.begin(), bytes.end(), at);
  writes_.push_back({clock_, kind, static_cast<int32_t>(index), o.value, o.tensor, false});
  of.made.write(o.offset, o.offset + o.bytes(), static_cast<int64_t>(writes_.size()));
  of.written = clock_;
  if (changes) of.changed = std::max(of.changed, made);
}

/// Nobody makes something for nobody: what can be added to is not overwritten before it has been read. Of the step scalars, those of this
/// window or segment.
Status Reference::check_lost(const Operand& o, const galley_operand_rule& rule, SegmentKind kind) {
  if (!(rule.flags & GALLEY_OPERAND_ACCUMULATES)) return ok();
  const bool scalar = o.tensor == program_.scalars;
  // Of the step scalars, those that are sums: others have a value until somebody writes another.
  if (scalar ? rule.role != GALLEY_ROLE_REDUCED : tensor(o.tensor).life == Life::Run || tensor(o.tensor).life == Life::Texts) return ok();
  const int64_t since = infers(kind) ? segment_begin_ : window_begin_;
  std::vector<Stamped> pieces;
  held(o.tensor).made.read(o.offset, o.offset + o.bytes(), pieces);
  for (const Stamped& piece : pieces) {
    if (!piece.stamp) continue;
    const Write& write = writes_[static_cast<size_t>(piece.stamp - 1)];
    if (write.read || (scalar && (write.clock < since || tensor(write.tensor).life != Life::Run))) continue;
    if (scalar && program_.segment(write.segment).code[static_cast<size_t>(std::max(write.index, 0))].action() != Action::Launch) continue;
    if (o.value != no_tensor && write.value != no_tensor && o.value != write.value) continue;  // it has taken over the bytes
    return plugin_error("overwrites '" + tensor(o.tensor).name + "', to which it has to add: what " + writer_text(write) +
                        " has written there is lost before anybody has read it");
  }
  return ok();
}

/// In a step that is to be skipped, parameters stay.
Status Reference::check_skipped(const Operand& o, std::span<const std::byte> now, SegmentKind kind) {
  if ((kind != SegmentKind::Update && kind != SegmentKind::Micro) || !parameters_.contains(o.tensor)) return ok();
  const auto slot =
      std::find_if(program_.slots.begin(), program_.slots.end(), [](const ScalarSlot& s) { return s.which == GALLEY_SCALAR_APPLY; });
  if (slot == program_.slots.end()) return ok();
  int32_t apply = 1;
  std::memcpy(&apply, held(program_.scalars).bytes.data() + slot->offset, sizeof apply);
  if (apply || std::ranges::equal(now, bytes_of(o))) return ok();
  return plugin_error("changes '" + tensor(o.tensor).name + "' in a step that is to be skipped (apply is 0)");
}

Status Reference::after(SegmentKind kind, size_t index, bool later) {
  const Instruction& code = program_.segment(kind).code[index];
  switch (code.action()) {
    case Action::Launch: return after_kernel(code, kind, index, later);
    case Action::Copy: {
      const Operand &from = code.inputs[0], &to = code.outputs[0];
      const std::vector<std::byte> now = TRY(peek(to.tensor, to.offset, to.bytes()));
      if (!std::ranges::equal(now, bytes_of(from)))
        return plugin_error("'" + tensor(to.tensor).name + "' is not a copy of '" + tensor(from.tensor).name + "'");
      // What is put back has changed where it was worked on: others may have read it there since.
      const bool put_back = tensor(from.tensor).life == Life::Segment && tensor(to.tensor).life == Life::Run;
      keep(to, now, kind, index, put_back ? held(from.tensor).changed : clock_);
      ++options_.report->copies;
      return ok();
    }
    case Action::Read: return after_read(code, kind, index);
    case Action::Write: {
      const Operand& from = code.inputs[0];
      const auto bytes = bytes_of(from);
      exported_.emplace_back(&code, in_dtype({bytes.begin(), bytes.end()}, from.dtype, code.write()->dtype, elements(from.shape)));
      return ok();
    }
    default: return ok();
  }
}

/// What the file says, rounded once.
Status Reference::after_read(const Instruction& code, SegmentKind kind, size_t index) {
  const Operand& to = code.outputs[0];
  const Read& from = *code.read();
  const tensor_files::Reader reader = TRY(tensor_files::Reader::open(from.file));
  const tensor_files::Entry* entry = reader.find(from.entry);
  for (size_t i = 0; !entry && i < from.aliases.size(); ++i) entry = reader.find(from.aliases[i]);
  if (!entry) return plugin_error("the file has no '" + from.entry + "'");
  std::vector<std::byte> in_file(entry->bytes);
  if (from.whole.empty()) {
    const uint64_t rows = from.added_rows > 0 ? static_cast<uint64_t>(entry->shape[0]) : 1;
    in_file.resize(entry->bytes + static_cast<uint64_t>(from.added_rows) * (entry->bytes / rows));
    TRY_STATUS(read_rows(reader, *entry, from, 0, in_file));
  } else {
    in_file.resize(static_cast<size_t>(elements(to.shape) * galley_dtype_bytes(dtype_of(entry->dtype))));
    TRY_STATUS(read_elements(reader, *entry, from, 0, in_file));
  }
  const std::vector<std::byte> wanted = in_dtype(std::move(in_file), dtype_of(entry->dtype), to.dtype, elements(to.shape));
  const std::vector<std::byte> now = TRY(peek(to.tensor, to.offset, to.bytes()));
  if (now != wanted) return plugin_error("'" + tensor(to.tensor).name + "' is not what '" + from.entry + "' of the file is");
  keep(to, now, kind, index, clock_);
  ++options_.report->files;
  return ok();
}

std::span<const std::byte> Reference::Kernel::now(const Operand& o) const {
  for (const auto& [operand, bytes] : written)
    if (operand == &o) return bytes;
  return {};
}

Status Reference::after_kernel(const Instruction& code, SegmentKind kind, size_t index, bool later) {
  const Launch& launch = *code.launch();
  Kernel kernel = {kind, later, {}, {}};
  for (const Operand& o : code.inputs)
    if (o.present() && (kernel.access(o) & GALLEY_WRITE)) kernel.written.emplace_back(&o, TRY(peek(o.tensor, o.offset, o.bytes())));
  for (const Operand& o : code.outputs)
    if (o.present()) kernel.written.emplace_back(&o, TRY(peek(o.tensor, o.offset, o.bytes())));
  for (const auto& [o, now] : kernel.written) TRY_STATUS(check_skipped(*o, now, kind));
  if (options_.scope.trace) {
    Checksum sum;
    for (const auto& [o, now] : kernel.written) sum.add(now);
    options_.scope.trace->written.push_back({place_text(program_, kind, index) + (code.strategy.empty() ? "" : " of " + code.strategy) +
                                                 ", kernel '" + launch.kernel->name + "' of plugin '" + plugin_of(launch.kernel) + "',",
                                             sum.value()});
  }
  const galley_op* none = launch.op() ? without_reference(launch) : nullptr;
  const std::span nodes(launch.nodes.data(), launch.op() ? launch.nodes.size() : 0);
  for (const LaunchNode& node : nodes)
    for (size_t k = 0; k < node.outputs.count && k < node.op->n_outputs; ++k)
      if (const Operand& o = code.outputs_of(node)[k]; o.present() && kernel.access(o) == GALLEY_WRITE)
        TRY_STATUS(check_lost(o, *node.op->outputs[k], kind));
  for (const LaunchNode& node : nodes)
    if (kind == SegmentKind::Load) TRY_STATUS(check_promise(code, node, kernel));
  if (!launch.op() || none) {
    ++options_.report->without[none ? none->name : launch.kernel->op];
  } else if (!options_.scope.computes || options_.scope.computes(code)) {
    ++options_.report->segments[segment_names[static_cast<size_t>(kind)]];
    const bool exchanges = options_.exchange && code.exchanges();
    const Reading read = [&](const Operand& o) -> Result<Numbers> {
      return exchanges ? TRY(of_all(code, o)) : Numbers::of(o, bytes_of(o));
    };
    const int ways = can_move(code) ? kMoved : 0;
    for (int way = 0; way <= ways; ++way) kernel.ways.push_back(TRY(evaluate(code, program_.length, read, options_.formats, way)));
    for (size_t n = 0; n < nodes.size(); ++n) TRY_STATUS(check_node(code, nodes[n], n, kernel));
    for (size_t n = 0; n < nodes.size() && kind == SegmentKind::Micro && !code.recomputed; ++n)
      if (options_.scope.rules && nodes[n].op->gradient && !exchanges) TRY_STATUS(check_rule(nodes[n], kernel.ways[0][n].inputs));
  }
  for (const auto& [o, now] : kernel.written) keep(*o, now, kind, index, clock_);
  return ok();
}

Result<Numbers> Reference::of_all(const Instruction& exchange, const Operand& o) {
  const std::span<const std::byte> own = bytes_of(o);
  const std::vector<std::string> of_run = TRY(options_.exchange({reinterpret_cast<const char*>(own.data()), own.size()}));
  const AlongAxis axis = along_axis(exchange);
  std::string joined;
  for (int64_t j = 0; j < axis.ranks; ++j) joined += of_run[static_cast<size_t>(axis.member(program_.rank, j))];
  const std::span bytes(reinterpret_cast<const std::byte*>(joined.data()), joined.size());
  Operand all = o;
  all.shape = {static_cast<int64_t>(bytes.size()) / galley_dtype_bytes(o.dtype)};
  Numbers out = Numbers::of(all, bytes);
  out.shape = o.shape;
  return out;
}

Status Reference::check_node(const Instruction& code, const LaunchNode& node, size_t number, const Kernel& kernel) {
  for (size_t k = 0; k < node.inputs.count; ++k)
    if (const Operand& o = code.inputs_of(node)[k]; (o.present() || o.format) && !o.inner && (kernel.access(o) & GALLEY_WRITE))
      TRY_STATUS(check_numbers(code, node, o, k, kernel, number));
  for (size_t k = 0; k < node.outputs.count; ++k)
    if (const Operand& o = code.outputs_of(node)[k]; o.present()) TRY_STATUS(check_numbers(code, node, o, k, kernel, number));
  return ok();
}

/// One node of each kind: its op, attributes and shapes. The numbers are the run's, a little aside of where they are, so that none lies on
/// an edge, as zeros of a new adapter do.
Status Reference::check_rule(const LaunchNode& node, const Values& inputs) {
  constexpr double kAside = 1e-3, kMostFlops = 4e7;
  constexpr int64_t kMostNumbers = 1'000'000;
  LoneNode lone;
  lone.op = node.op;
  lone.name = node.name;
  for (const galley_attr* attr : node.attrs.view())  // the host differentiates in F32, and casts afterwards
    if (!galley_same_text(attr->name, "dtype") && !galley_same_text(attr->name, "tf32")) lone.attrs.set(*attr);
  lone.flags = node.flags;
  lone.first_row = node.first_row;
  lone.length = program_.length;
  lone.block = node.block;
  std::string kind = std::string(node.op->name) + lone.attrs.key();
  std::mt19937_64 random(checksum(node.name));
  int64_t numbers = 0;
  double products = 1;
  for (size_t i = 0; i < inputs.size(); ++i) {
    lone.inputs.push_back(inputs[i]);
    kind += inputs[i] ? shape_text(inputs[i]->shape) : "-";
    if (!inputs[i]) continue;
    numbers += inputs[i]->count();
    products = std::max(products, static_cast<double>(inputs[i]->count()) * (i == 1 ? static_cast<double>(rows_of(inputs[0])) : 1));
    Numbers& n = *lone.inputs.back();
    if (!n.floating()) continue;
    n.dtype = GALLEY_F32;
    const galley_operand_rule* rule = input_rule(node.op, i);
    if (!rule || rule->flags & GALLEY_OPERAND_NO_GRADIENT) continue;
    double size = 0;
    for (const double x : n.floats) size += std::isfinite(x) ? x * x : 0;
    size = size > 0 ? std::sqrt(size / static_cast<double>(n.floats.size())) : 1;
    for (double& x : n.floats) x += kAside * size * std::uniform_real_distribution(-1.0, 1.0)(random);
  }
  if (!rules_.insert(kind).second) return ok();
  if (numbers > kMostNumbers || products > kMostFlops) {
    options_.report->no_rule[node.op->name] = "it has too many numbers here";
    return ok();
  }
  const GradientCheck check = TRY(check_gradient(lone, Depth::Once, options_.ops, random));
  if (!check.unchecked.empty()) options_.report->no_rule[node.op->name] = check.unchecked;
  else ++options_.report->rules[node.op->name];
  if (check.faults.empty()) return ok();
  options_.report->fault = ReferenceReport::Fault::Rule;
  const GradientFault& fault = check.faults.front();
  return plugin_error("plugin '" + plugin_of(node.op) + "': the gradient rule of op '" + node.op->name + "', node '" + node.name + "'" +
                      (fault.input.empty() ? "" : ", " + fault.input) + ": " + fault.sentence);
}

/// What a format keeps of a tensor that has just been packed.
Status Reference::check_promise(const Instruction& code, const LaunchNode& node, const Kernel& kernel) {
  const std::optional<PackedFormat> format = options_.packed_by ? options_.packed_by(node.op) : std::nullopt;
  if (!format || !format->unpack || !format->unpack->reference || node.inputs.count == 0) return ok();
  const Operand& packed = code.inputs_of(node)[0];
  const FormatPromise* promise = promise_for(format->promises, *node.op, node.attrs);
  if (!promise || !packed.present()) return ok();
  const Numbers was = Numbers::of(packed, bytes_of(packed));
  std::vector<std::optional<Numbers>> components;
  for (const Operand& o : code.outputs_of(node))
    components.push_back(o.present() ? std::optional(Numbers::of(o, kernel.now(o))) : std::nullopt);
  std::vector<Numbers*> inputs;
  inputs.reserve(components.size());
  for (auto& n : components) inputs.push_back(n ? &*n : nullptr);
  Numbers kept = Numbers::of(GALLEY_F32, packed.shape);
  Numbers* const outputs[] = {&kept};
  AttrList attrs = node.attrs;
  attrs.set("dtype", dtype_text(GALLEY_F32));
  TRY_STATUS(call_reference({node.name, format->unpack, attrs}, program_.length, inputs, outputs));
  ++options_.report->promises;
  const std::string broken = broken_promise(*promise, *node.op, node.attrs, was, kept);
  if (broken.empty()) return ok();
  options_.report->fault = ReferenceReport::Fault::Promise;
  options_.report->format = format->name;
  return plugin_error("plugin '" + plugin_of(node.op) + "': format '" + format->name + "' does not keep what its manifest promises: in '" +
                      tensor(packed.tensor).name + "', " + broken);
}

/// Operand k of the node, an output or an input that it has updated.
Status Reference::check_numbers(const Instruction& code, const LaunchNode& node, const Operand& o, size_t k, const Kernel& kernel,
                                size_t number) {
  const bool output = k < node.outputs.count && &o == &code.outputs_of(node)[k], adds = output && kernel.access(o) == GALLEY_ACCUMULATE;
  const Launch& launch = *code.launch();
  const Expected expected = expected_of(code, kernel.ways, number, k, output);
  const Reading now = [&](const Operand& part) -> Result<Numbers> {
    const auto bytes = kernel.now(part);
    return Numbers::of(part, bytes.empty() ? bytes_of(part) : bytes);
  };
  const Numbers got = o.format ? TRY(unpacked(code, o, program_.length, now, options_.formats)) : TRY(now(o));
  std::optional<Numbers> was;
  if (adds && got.floating()) was = Numbers::of(o, bytes_of(o));
  const Worst worst = TRY(compare(code, o, program_.length, got, expected, was ? &*was : nullptr, options_.formats));
  ReferenceReport::Count& count = options_.report->compared[{op_text(launch), o.dtype}];
  ++count.outputs;
  count.numbers += got.count();
  if (worst.share > count.worst || count.at.empty()) {
    count.worst = worst.share;
    count.at = std::string(segment_names[static_cast<size_t>(kernel.segment)]) + " '" + node.name + "'";
  }
  if (worst.share > 1) {
    const double before = was ? was->floats[static_cast<size_t>(worst.element)] : 0;
    return plugin_error("plugin '" + plugin_of(launch.kernel) + "': '" + node.name + "' " +
                        (!output ? "updates '"
                         : adds  ? "adds to '"
                                 : "writes '") +
                        (o.present() ? tensor(o.tensor).name : o.format->name) + "', element " + std::to_string(worst.element) + " of " +
                        dtype_text(o.dtype) + shape_text(o.shape) + ", as " + number_text(worst.got) + "; the reference of op '" +
                        node.op->name + "' says " + number_text(worst.expected + before) + beyond(worst));
  }
  const bool cloned = output && kernel.segment == SegmentKind::Micro && got.floating() && cloned_.contains(node.name);
  return cloned ? check_clone(code, node, o, k, *expected.numbers, expected.moved, expected.rounding) : ok();
}

/// What is recomputed is what forward has made: that is within the bound of the reference, too.
Status Reference::check_clone(const Instruction& code, const LaunchNode& node, const Operand& o, size_t k, const Numbers& expected,
                              std::span<const Numbers* const> moved, Rounding rounding) {
  const auto key = std::pair(node.name, k);
  if (!code.recomputed) {
    originals_[key] = TRY(peek(o.tensor, o.offset, o.bytes()));
    return ok();
  }
  const auto original = originals_.find(key);
  if (original == originals_.end()) {
    // In forward it may have been a link of a chain that leaves nothing in memory.
    for (const Instruction& other : program_.segment(SegmentKind::Micro).code)
      if (!other.recomputed && other.launch())
        for (const LaunchNode& made : other.launch()->nodes)
          if (made.name == node.name) return ok();
    return plugin_error("'" + node.name + "' is to be made again, but nothing in forward has that name");
  }
  if (original->second.size() != static_cast<size_t>(o.bytes())) return ok();
  const Worst apart = compare(Numbers::of(o, original->second), expected, moved, nullptr, rounding);
  if (apart.share <= 2) return ok();
  return plugin_error("'" + node.name + "' makes '" + tensor(o.tensor).name + "' again, but element " + std::to_string(apart.element) +
                      " is " + number_text(apart.expected) + ", and was " + number_text(apart.got) + " in forward");
}

Status Reference::fed(TensorId input, int64_t offset) {
  ++clock_;
  const int64_t size = tensor(input).bytes;
  if (size > 0 && TRY(peek(input, 0, size)) != TRY(peek(program_.window, offset, size)))
    return plugin_error("input '" + tensor(input).name + "' is not what the window holds");
  return ok();
}

Status Reference::exported(const std::filesystem::path& directory) {
  for (const auto& [code, bytes] : exported_) {
    const auto& write = *code->write();
    const tensor_files::Reader reader = TRY(tensor_files::Reader::open(directory / write.file));
    const tensor_files::Entry* entry = reader.find(write.entry);
    std::vector<std::byte> found(entry ? entry->bytes : 0);
    if (entry) TRY_STATUS(reader.read(*entry, found));
    if (!entry || dtype_of(entry->dtype) != write.dtype || found != bytes)
      return plugin_error("'" + write.entry + "' in " + write.file + " is not what '" + tensor(code->inputs[0].tensor).name + "' held");
    ++options_.report->files;
  }
  exported_.clear();
  return ok();
}

}  // namespace galley
