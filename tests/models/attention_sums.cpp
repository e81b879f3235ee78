#include "tests/models/attention_sums.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "models/ops/attention/definition.hpp"

namespace galley::test {

namespace {

using models::AttentionDefinition;

void sums_of_o(const sdk::Node& n) {
  using namespace models::attention_input;
  const bool cached = std::string_view(n.view()->op) == "cached_attention";
  const AttentionDefinition a(n, n.read<double>(K), n.read<double>(V), cached ? n.read<int32_t>(Start) : nullptr);
  double* o = n.write<double>(0);
  std::vector<double> p(static_cast<size_t>(a.e.Sk));
  a.rows([&](const AttentionDefinition::Row& r) {
    double sum = 0;
    for (int64_t j = r.first; j <= r.last; ++j) sum += p[static_cast<size_t>(j)] = std::exp(a.score(r, j).value);
    for (int64_t j = r.first; j <= r.last; ++j)
      for (int64_t d = 0; d < a.e.D; ++d) o[a.o(r) + d] += p[static_cast<size_t>(j)] / sum * a.kept(r, j) * std::fabs(a.v(r, j)[d]);
  });
}

void sums_of_gradients(const sdk::Node& n) {
  const AttentionDefinition a(n);
  const auto out = attention_operands(a.e, n.write<double>(models::attention_output::DQ), n.write<double>(models::attention_output::DK),
                                      n.write<double>(models::attention_output::DV));
  const double *o = n.read<double>(models::attention_input::O), *lse = n.read<double>(models::attention_input::Lse),
               *go = n.read<double>(models::attention_input::DO);
  a.rows([&](const AttentionDefinition::Row& r) {
    const double *q = a.q(r), *dor = go + a.o(r), delta = a.dot(dor, o + a.o(r));
    for (int64_t j = r.first; j <= r.last; ++j) {
      const AttentionDefinition::Pair pair = a.pair(r, j, lse[a.lse(r)], dor, delta);
      const double dx = std::fabs(pair.dx), *k = a.k(r, j);
      for (int64_t d = 0; d < a.e.D; ++d) {
        out.q[q - a.in.q + d] += dx * std::fabs(k[d]);
        out.k[a.kv(r, j) + d] += dx * std::fabs(q[d]);
        out.v[a.kv(r, j) + d] += pair.weight * std::fabs(dor[d]);
      }
    }
  });
}

}  // namespace

bool rounds_probabilities(std::string_view kernel) {
  return (kernel.starts_with("attention") || kernel.starts_with("cached_attention")) &&
         (kernel.ends_with(".cudnn") || kernel.ends_with(".cuda_mma") || kernel.ends_with(".avx512_bf16"));
}

std::vector<std::vector<double>> attention_sums(const Problem& problem) {
  Problem p = problem;
  with_f64(p, [&](const galley_node_view* view) {
    const sdk::Node n(view);
    for (uint32_t i = 0; i < p.outputs.size(); ++i)
      if (n.has_out(i)) std::fill_n(n.write<double>(i), p.outputs[i]->count(), 0.0);
    if (std::string_view(view->op) == "attention_grad") sums_of_gradients(n);
    else sums_of_o(n);
  });
  std::vector<std::vector<double>> out;
  for (const auto& t : p.outputs) out.push_back(t ? t->values : std::vector<double>());
  return out;
}

}  // namespace galley::test
