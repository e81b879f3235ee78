#include "host/proofs/format_promise.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "host/plugins/attributes.hpp"

namespace galley {
namespace {

/// What scales and sums of them in F32 are off by, as a share of a block's largest number.
constexpr double kScaleRounding = 0x1p-20;

/// An attribute of a node, or what its op says without it.
std::optional<Value> attribute(const galley_op& op, const AttrList& attrs, const std::string& name) {
  const galley_attr* attr = attrs.find(name);
  for (const galley_attr_rule* rule : attr_rules(op))
    if (!attr && name == rule->name) attr = rule->otherwise;
  if (!attr || attr->count < 1) return std::nullopt;
  switch (attr->type) {
    case GALLEY_ATTR_I64: return Value(*static_cast<const int64_t*>(attr->data));
    case GALLEY_ATTR_F64: return Value(*static_cast<const double*>(attr->data));
    case GALLEY_ATTR_STRING: return Value(std::string(static_cast<const char*>(attr->data), attr->count));
    default: return std::nullopt;
  }
}

}  // namespace

const FormatPromise* promise_for(const std::vector<const FormatPromise*>& promises, const galley_op& pack, const AttrList& attrs) {
  for (const FormatPromise* promise : promises)
    if (std::ranges::all_of(promise->when, [&](const auto& condition) {
          const auto value = attribute(pack, attrs, condition.first);
          return value && std::ranges::find(condition.second, *value) != condition.second.end();
        }))
      return promise;
  return nullptr;
}

std::string broken_promise(const FormatPromise& promise, const galley_op& pack, const AttrList& attrs, const Numbers& was,
                           const Numbers& kept) {
  const size_t n = was.floats.size();
  const auto columns = static_cast<size_t>(was.shape.empty() ? 1 : std::max<int64_t>(was.shape.back(), 1));
  size_t block = promise.block > 0 ? static_cast<size_t>(promise.block) : columns;
  if (!promise.block_of.empty()) {
    const auto value = attribute(pack, attrs, promise.block_of);
    const int64_t* count = value ? value->as<int64_t>() : nullptr;
    if (!count || *count < 1) return "its promise names the attribute '" + promise.block_of + "', which says no block";
    block = static_cast<size_t>(*count);
  }
  const size_t blocks = (n + block - 1) / block;
  std::vector<double> most(blocks, 0);
  for (size_t i = 0; i < n; ++i) most[i / block] = std::max(most[i / block], std::fabs(was.floats[i]));
  double mean = 0;
  for (const double x : most) mean += x / static_cast<double>(blocks);
  const size_t group = promise.group > 0 ? static_cast<size_t>(promise.group) : 1;
  for (size_t b = 0; b < blocks; ++b) {
    double apart = 0;
    if (promise.group > 0)
      for (size_t k = b / group * group; k < std::min(blocks, (b / group + 1) * group); ++k)
        apart = std::max(apart, std::fabs(most[k] - mean));
    const double scale_off = promise.of_group * apart + kScaleRounding * (most[b] + mean);
    for (size_t i = b * block; i < std::min(n, (b + 1) * block); ++i) {
      const bool largest = std::fabs(was.floats[i]) == most[b];
      const double allowed = (largest ? promise.largest : promise.within) * most[b] + scale_off;
      const double off = std::fabs(kept.floats[i] - was.floats[i]);
      if (off <= allowed || !std::isfinite(was.floats[i])) continue;
      char text[240];
      std::snprintf(text, sizeof text,
                    "element %zu, %s block %zu of %zu numbers, was %.7g and is kept as %.7g: off by %.2g%% of the block's largest, %.2g%% "
                    "is promised",
                    i, largest ? "the largest of" : "in", b, block, was.floats[i], kept.floats[i], 100 * off / most[b],
                    100 * allowed / most[b]);
      return text;
    }
  }
  return {};
}

}  // namespace galley
