#include "host/proofs/proofs.hpp"

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace galley {
namespace {

/// Of the plugins that have been loaded.
std::optional<PackedFormat> packed_by(Plugins& plugins, const galley_op* op) {
  for (const auto& plugin : plugins.all()) {
    if (!plugin->library || plugin->manifest.promises.empty()) continue;
    for (const galley_format* format : plugin->library->formats) {
      if (!format->pack_op || !galley_same_text(format->pack_op, op->name) || plugins.op(op->name).table != op) continue;
      PackedFormat out = {format->name, plugins.op(format->unpack_op).table, {}};
      for (const FormatPromise& promise : plugin->manifest.promises)
        if (promise.format == format->name) out.promises.push_back(&promise);
      return out;
    }
  }
  return std::nullopt;
}

ReferenceOptions reference_options(const Proofs& proofs, Plugins& plugins) {
  ReferenceOptions out;
  out.report = proofs.reference;
  out.scope = proofs.scope;
  out.exchange = proofs.exchange;
  out.ops = [&plugins](std::string_view name) { return plugins.op(name).table; };
  out.formats = [&plugins](const std::string& name) -> FormatOps {
    const auto found = plugins.format(name);
    if (!found) return {};
    const auto op = [&](const char* text) { return text ? plugins.op(text).table : nullptr; };
    const bool nearest = !(found.table->flags & GALLEY_FORMAT_STOCHASTIC);
    return {nearest ? op(found.table->pack_op) : nullptr, op(found.table->unpack_op)};
  };
  out.packed_by = [&plugins](const galley_op* op) { return packed_by(plugins, op); };
  return out;
}

}  // namespace

Watching watching(Poison poison, const ReferenceOptions& reference) {
  Watching out;
  // Reference mode around poison: an instruction counts once, however often it runs.
  if (reference.report)
    out.by.emplace_back([reference](const Program& program, const Plan& plan, Machine& machine) {
      return std::make_unique<Reference>(program, plan, machine, reference);
    });
  if (poison == Poison::Yes) {
    out.copies = HostCopies::Yes;
    out.by.emplace_back(
        [](const Program& program, const Plan& plan, Machine& machine) { return std::make_unique<Poisoner>(program, plan, machine); });
  }
  return out;
}

std::function<Watching(Plugins&)> watched_by(const Proofs& proofs) {
  if (proofs.poison == Poison::No && !proofs.reference) return {};
  return [proofs](Plugins& plugins) { return watching(proofs.poison, reference_options(proofs, plugins)); };
}

}  // namespace galley
