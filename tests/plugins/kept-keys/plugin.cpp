// Keys and values of earlier positions are kept in a cache while a model is sampled from: attention reads what an earlier step has made.
// A new row begins where a position comes again. With KEPT_KEYS_LOG, a line for each call says which positions it has kept anew.
#include <cstdio>
#include <cstdlib>

#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

void shapes(const Node& n, Shapes& out) {
  if (rows(n.in(2)) != rows(n.in(0)) || columns(n.in(2)) != columns(n.in(0)))
    invalid(std::string(n.name()) + ": the cache has another shape");
  out.like(0, n.in(0));
}

/// Keeps the positions from the first that is not kept to the present one; y is what is kept. `Number` is float or double.
template <class Number>
std::pair<int64_t, int64_t> keep(const Node& n) {
  const int64_t R = rows(n.in(0)), C = columns(n.in(0));
  const int64_t position = *n.read<int32_t>(1);
  int32_t* kept = n.update<int32_t>(3);
  Number *cache = n.update<Number>(2), *y = n.write<Number>(0);
  const int64_t first = position >= *kept ? *kept : 0;
  for (int64_t i = first * C; i < (position + 1) * C; ++i) cache[i] = n.read<Number>(0)[i];
  *kept = static_cast<int32_t>(position + 1);
  for (int64_t i = 0; i < R * C; ++i) y[i] = cache[i];
  return {first, position};
}

void reference(const Node& n) { keep<double>(n); }
void run(const Node& n, void*) {
  const auto [first, last] = keep<float>(n);
  if (std::getenv("KEPT_KEYS_LOG"))
    std::fprintf(stderr, "%s keeps %lld to %lld\n", n.name(), static_cast<long long>(first), static_cast<long long>(last));
}
bool in_f32(const Node& n) { return n.in(0).dtype == GALLEY_F32 && !n.accumulates(0); }

Op& op() {
  static Op made("kept-keys.keep", "cache = x from the first position that is not kept to the present one; y = cache; x, cache (…, C)");
  return made.input("x", GALLEY_ROLE_WHOLE)
      .input("position", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
      .input("cache", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT)
      .input("kept", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT)
      .output("y", GALLEY_ROLE_WHOLE)
      .infer<shapes>()
      .reference<reference>();
}

class KeptKeys {
 public:
  explicit KeptKeys(const Options&) {}

  void model(ModelGraph& g) const {
    if (g.run().purpose != GALLEY_PURPOSE_SAMPLE) return;
    const galley_tensor position = g.find("sample position");
    std::vector<galley_node> attentions;
    for (galley_node n = g.next_node(0, GALLEY_NODES_MODEL); n; n = g.next_node(n, GALLEY_NODES_MODEL))
      if (std::string(g.node(n).op) == "attention") attentions.push_back(n);
    for (const galley_node n : attentions)
      for (const uint32_t input : {1u, 2u}) {
        const galley_tensor x = g.node(n).inputs[input];
        const galley_tensor_info info = g.info(x);
        const std::string name = std::string(g.node(n).name) + (input == 1 ? ".keys" : ".values");
        const galley_tensor cache = g.cache(name, GALLEY_F32, {info.shape, info.shape + info.rank});
        const galley_tensor kept = g.cache(name + ".kept", GALLEY_I32, {1});
        g.set_input(n, input, g.node("kept-keys.keep", name.c_str(), {x, position, cache, kept})[0]);
      }
  }
};

const bool registered =
    add(op()) && add(kernel<run, in_f32>("kept-keys.keep.cpu", "kept-keys.keep")) && add(strategy<KeptKeys>("kept-keys"));

}  // namespace

GALLEY_PLUGIN("kept-keys", "1.0.0");
