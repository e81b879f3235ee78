// Pairs of answers from a CSV file, and their objective. Row 2 k of a micro-batch holds a chosen answer, row 2 k + 1 the rejected one; the
// tensor "pairs" is 0 for the first and -100 for the second, so that a window counts pairs. And the same answers one by one, for models that
// learn something of a row: which of the two it is, whose characters are digits, or the answer itself.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <utility>

#include "galley/cpp/source.hpp"
#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

// ---- The data ------------------------------------------------------------------------------------------------------------------------

struct Pair {
  std::string prompt, answers[2];
};

/// The fields of a record, which may be quoted; `line` moves on.
std::vector<std::string> record(std::istream& in) {
  std::vector<std::string> out(1);
  bool quoted = false;
  for (char c; in.get(c);) {
    if (c == '"' && quoted && in.peek() == '"') out.back() += static_cast<char>(in.get());
    else if (c == '"') quoted = !quoted;
    else if (c == ',' && !quoted) out.emplace_back();
    else if (c == '\n' && !quoted) return out;
    else if (c != '\r' || quoted) out.back() += c;
  }
  if (out.size() == 1 && out.front().empty()) out.clear();
  return out;
}

class Pairs {
 public:
  explicit Pairs(const Options& options)
      : path_(options.string("path")), held_out_(options.integer("validation")), mistake_(options.string("mistake")) {}

  SourceInfo describe(const galley_source_call&) {
    SourceInfo out;
    out.summary = "pairs of " + path_.substr(path_.rfind('/') + 1);
    out.tensors = {{"pairs", GALLEY_I32, 1, "pair"}};
    if (mistake_ == "twice") out.tensors.push_back(out.tensors.front());
    if (mistake_ == "taken") out.tensors.push_back({"input_ids"});
    if (mistake_ == "nameless") out.tensors.push_back({""});
    if (mistake_ == "many") out.tensors.resize(GALLEY_SOURCE_MOST_TENSORS + 1, {"more"});
    out.rows_of_item = 2;
    out.vocabulary = 256;
    out.flags = GALLEY_SOURCE_LABELS | (held_out_ ? GALLEY_SOURCE_VALIDATES : 0);
    return out;
  }

  galley_source_contents open(const galley_source_contents& run) {
    if (mistake_ == "told") invalid(path_ + ": its rows may be longer than " + std::to_string(run.length));
    std::ifstream in(path_);
    if (record(in) != std::vector<std::string>{"prompt", "chosen", "rejected"})
      invalid(path_ + ": the first line is not prompt,chosen,rejected");
    galley_source_contents out = fresh<galley_source_contents>();
    out.fingerprint = galley_name_hash("pairs");
    for (std::vector<std::string> fields = record(in); !fields.empty(); fields = record(in)) {
      if (fields.size() != 3)
        invalid(path_ + ": pair " + std::to_string(pairs_.size() + 1) + " has " + std::to_string(fields.size()) + " fields");
      for (const std::string& field : fields) out.fingerprint = out.fingerprint * 1099511628211ull + galley_name_hash(field.c_str());
      pairs_.push_back({fields[0], {fields[1], fields[2]}});
    }
    out.validation_items = held_out_;
    out.items = static_cast<int64_t>(pairs_.size()) - held_out_;
    return out;
  }

  bool validates() const { return held_out_ > 0; }
  /// One answer of a pair, with its prompt.
  std::pair<std::string, std::string> answer(int64_t number, bool validation) const {
    const int64_t first = validation ? static_cast<int64_t>(pairs_.size()) - held_out_ : 0;
    const Pair& pair = pairs_[static_cast<size_t>(first + number / 2)];
    return {pair.prompt, pair.answers[number % 2]};
  }

  void read(galley_source_row& row) const {
    const int64_t first = static_cast<int64_t>(pairs_.size()) - held_out_;
    const Pair& pair = pairs_[static_cast<size_t>(row.validation ? first + row.item : row.item)];
    const std::string text = pair.prompt + pair.answers[row.row];
    const auto length = static_cast<int64_t>(text.size());
    row.length = mistake_ == "long" ? row.room + 1 : length < row.room ? length : row.room;
    for (int64_t s = 0; s < length && s < row.room; ++s) {
      row.tokens[s] = static_cast<unsigned char>(text[static_cast<size_t>(s)]);
      if (s > 0 && s >= static_cast<int64_t>(pair.prompt.size())) row.labels[s - 1] = row.tokens[s];
    }
    if (mistake_ == "token") row.tokens[0] = 256;
    if (row.row == 0) static_cast<int32_t*>(row.tensors[0])[0] = 0;
  }

 private:
  std::string path_;
  int64_t held_out_;
  std::string mistake_;
  std::vector<Pair> pairs_;
};

class Answers {
 public:
  explicit Answers(const Options& options) : pairs_(options), mistake_(options.string("mistake")) {}

  SourceInfo describe(const galley_source_call& call) {
    learns_ = call.learns;
    SourceInfo out;
    out.summary = "answers one by one";
    out.vocabulary = 256;
    out.flags = GALLEY_SOURCE_LEARNED | (pairs_.validates() ? GALLEY_SOURCE_VALIDATES : 0);
    return out;
  }
  galley_source_contents open(const galley_source_contents& run) {
    galley_source_contents out = pairs_.open(run);
    out.items *= 2;
    out.validation_items *= 2;
    return out;
  }
  void read(galley_source_row& row) const {
    const auto [prompt, answer] = pairs_.answer(row.item, row.validation != 0);
    const std::string text = prompt + (learns_ == GALLEY_LEARNS_TARGET ? "" : answer);
    row.length = std::min(static_cast<int64_t>(text.size()), row.room);
    for (int64_t s = 0; s < row.length; ++s) row.tokens[s] = static_cast<unsigned char>(text[static_cast<size_t>(s)]);
    auto* const learned = static_cast<int32_t*>(row.learned);
    const auto is_digit = [&](int64_t s) { return row.tokens[s] >= '0' && row.tokens[s] <= '9'; };
    if (learns_ == GALLEY_LEARNS_ROW_LABELS) learned[0] = mistake_ == "class" ? 2 : static_cast<int32_t>(row.item % 2);
    if (learns_ == GALLEY_LEARNS_ROW_VALUES) static_cast<float*>(row.learned)[0] = mistake_ == "value" ? INFINITY : 0.5F;
    if (learns_ == GALLEY_LEARNS_TOKEN_LABELS)
      for (int64_t s = 0; s < (mistake_ == "padding" ? row.room : row.length); ++s) learned[s] = is_digit(s);
    if (learns_ == GALLEY_LEARNS_MASKED_TOKENS)
      for (int64_t s = 0; s < row.length; ++s)
        if (is_digit(s)) learned[s] = std::exchange(row.tokens[s], '?');
    if (learns_ == GALLEY_LEARNS_TARGET)
      for (int64_t s = 0; s < std::min(static_cast<int64_t>(answer.size()), row.n_learned); ++s)
        learned[s] = static_cast<unsigned char>(answer[static_cast<size_t>(s)]);
    if (mistake_ == "target") row.target[1] = 256;
  }

 private:
  Pairs pairs_;
  std::string mistake_;
  uint32_t learns_ = GALLEY_LEARNS_NEXT_TOKENS;
};

// ---- The objective -------------------------------------------------------------------------------------------------------------------

template <class Number>
double log_sum_exp(const Number* x, int64_t V) {
  double most = static_cast<double>(x[0]), sum = 0;
  for (int64_t v = 1; v < V; ++v) most = std::fmax(most, static_cast<double>(x[v]));
  for (int64_t v = 0; v < V; ++v) sum += std::exp(static_cast<double>(x[v]) - most);
  return most + std::log(sum);
}

template <class Number>
void logp(const Node& n) {
  const int64_t R = rows(n.in(0)), V = columns(n.in(0));
  for (int64_t r = 0; r < R; ++r) {
    const Number* x = n.read<Number>(0) + r * V;
    const int32_t label = n.read<int32_t>(1)[r];
    n.write<Number>(0)[r] = label < 0 ? 0 : static_cast<Number>(static_cast<double>(x[label]) - log_sum_exp(x, V));
  }
}
template <class Number>
void logp_grad(const Node& n) {
  const int64_t R = rows(n.in(0)), V = columns(n.in(0));
  for (int64_t r = 0; r < R; ++r) {
    const Number* x = n.read<Number>(0) + r * V;
    const int32_t label = n.read<int32_t>(1)[r];
    const double d = static_cast<double>(n.read<Number>(2)[r]), all = label < 0 ? 0 : log_sum_exp(x, V);
    for (int64_t v = 0; v < V; ++v)
      n.write<Number>(0)[r * V + v] = label < 0 ? 0 : static_cast<Number>(d * ((v == label) - std::exp(static_cast<double>(x[v]) - all)));
  }
}

/// beta · (log p of the chosen answer − that of the rejected one), of the pair that begins with a row.
template <class Number>
double margin(const Node& n, int64_t row) {
  const int64_t S = columns(n.in(0));
  double sum = 0;
  for (int64_t s = 0; s < S; ++s)
    sum += static_cast<double>(n.read<Number>(0)[row * S + s]) - static_cast<double>(n.read<Number>(0)[(row + 1) * S + s]);
  return n.f("beta", 0.1) * sum;
}
template <class Number>
void pair_loss(const Node& n) {
  double sum = n.accumulates(0) ? *n.write<double>(0) : 0;
  for (int64_t b = 0; b + 1 < n.in(0).shape[0]; b += 2)
    if (n.read<int32_t>(1)[b] >= 0) sum += std::log1p(std::exp(-margin<Number>(n, b)));
  *n.write<double>(0) = sum;
}
template <class Number>
void pair_loss_grad(const Node& n) {
  const int64_t B = n.in(0).shape[0], S = columns(n.in(0));
  for (int64_t b = 0; b < B; ++b) {
    const int64_t first = b - b % 2;
    const bool counts = first + 1 < B && n.read<int32_t>(1)[first] >= 0;
    const double d = counts ? -n.f("beta", 0.1) / (1 + std::exp(margin<Number>(n, first))) * static_cast<double>(*n.read<Number>(2)) : 0;
    for (int64_t s = 0; s < S; ++s) n.write<Number>(0)[b * S + s] = static_cast<Number>(b % 2 ? -d : d);
  }
}

void logp_shape(const Node& n, Shapes& out) { out.set(0, GALLEY_F32, n.in(1).shape, n.in(1).rank); }
void like_first(const Node& n, Shapes& out) { out.set(0, GALLEY_F32, n.in(0).shape, n.in(0).rank); }
void one_number(const Node&, Shapes& out) { out.set(0, GALLEY_F64, {1}); }

/// Where these gradients go: kernels here add to nothing, so where one has to, it gets a tensor of its own, and the host adds.
galley_tensor own(const Backward& b) { return b.adds(0) ? 0 : b.d_inputs[0]; }

void logp_gradient(Backward& b) {
  if (b.needs(0))
    b.d_inputs[0] = b.graph.node("pairs.logp_grad", nullptr, {b.node.inputs[0], b.node.inputs[1], b.d_outputs[0]}, {}, {own(b)})[0];
}
void loss_gradient(Backward& b) {
  Attrs attrs;
  for (uint32_t i = 0; i < b.node.n_attrs; ++i) attrs.copy(*b.node.attrs[i]);
  if (b.needs(0))
    b.d_inputs[0] = b.graph.node("pairs.loss_grad", nullptr, {b.node.inputs[0], b.node.inputs[1], b.graph.scalar(GALLEY_SCALAR_LOSS_SEED)},
                                 attrs, {own(b)})[0];
}

template <void compute(const Node&)>
void run(const Node& n, void*) {
  compute(n);
}
bool adds_nothing(const Node& n) { return !n.accumulates(0); }

constexpr uint64_t given = GALLEY_OPERAND_NO_GRADIENT, each_row = GALLEY_OPERAND_SAME_ROWS;  // a number for each row of the logits
Op logp_op("pairs.logp", "log p of each label, 0 where there is none; logits (…, V), labels (…)");
Op logp_grad_op("pairs.logp_grad", "dlogits = (onehot(label) - softmax(logits)) · d");
Op loss_op("pairs.loss", "sum over pairs of log(1 + exp(-beta (sum logp[b] - sum logp[b + 1]))); logp (B, S), pairs (B)");
Op loss_grad_op("pairs.loss_grad", "its gradient by logp, times the seed");
const bool ops_added = add(logp_op.input("logits", GALLEY_ROLE_ROWS)
                               .input("labels", GALLEY_ROLE_ROWS, given | each_row)
                               .output("logp", GALLEY_ROLE_ROWS, each_row)
                               .flags(GALLEY_OP_FULL)
                               .infer<logp_shape>()
                               .gradient<logp_gradient>()
                               .reference<logp<double>>()
                               .test("some", {{GALLEY_F32, {2, 3, 5}, -3, 3}, {GALLEY_I32, {2, 3}, -2, 4}})) &&
                       add(logp_grad_op.input("logits", GALLEY_ROLE_ROWS)
                               .input("labels", GALLEY_ROLE_ROWS, given | each_row)
                               .input("d", GALLEY_ROLE_ROWS, given | each_row)
                               .output("dlogits", GALLEY_ROLE_ROWS)
                               .flags(GALLEY_OP_FULL)
                               .infer<like_first>()
                               .reference<logp_grad<double>>()
                               .test("some", {{GALLEY_F32, {2, 3, 5}, -3, 3}, {GALLEY_I32, {2, 3}, -2, 4}, {GALLEY_F32, {2, 3}}})) &&
                       add(loss_op.input("logp", GALLEY_ROLE_WHOLE)
                               .input("pairs", GALLEY_ROLE_WHOLE, given)
                               .output("loss", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_ACCUMULATES)
                               .number("beta", 0.1, "how sharply")
                               .flags(GALLEY_OP_LOSS | GALLEY_OP_FULL)
                               .infer<one_number>()
                               .gradient<loss_gradient>()
                               .reference<pair_loss<double>>()
                               .test("some", {{GALLEY_F32, {4, 5}, -3, 0}, {GALLEY_I32, {4}, -1, 1}})) &&
                       add(loss_grad_op.input("logp", GALLEY_ROLE_WHOLE)
                               .input("pairs", GALLEY_ROLE_WHOLE, given)
                               .input("seed", GALLEY_ROLE_WHOLE, given)
                               .output("dlogp", GALLEY_ROLE_WHOLE)
                               .number("beta", 0.1, "how sharply")
                               .flags(GALLEY_OP_FULL)
                               .infer<like_first>()
                               .reference<pair_loss_grad<double>>()
                               .test("some", {{GALLEY_F32, {4, 5}, -3, 0}, {GALLEY_I32, {4}, -1, 1}, {GALLEY_F32, {1}}}));
const bool kernels_added = add(kernel<run<logp<float>>, adds_nothing>("pairs.logp.cpu", "pairs.logp")) &&
                           add(kernel<run<logp_grad<float>>, adds_nothing>("pairs.logp_grad.cpu", "pairs.logp_grad")) &&
                           add(kernel<run<pair_loss<float>>>("pairs.loss.cpu", "pairs.loss")) &&
                           add(kernel<run<pair_loss_grad<float>>, adds_nothing>("pairs.loss_grad.cpu", "pairs.loss_grad"));

class PairLoss {
 public:
  explicit PairLoss(const Options& options) { attrs_.f("beta", options.number("beta")); }
  static constexpr uint32_t phase = GALLEY_PHASE_REPLACE;

  void model(ModelGraph& graph) const {
    const uint32_t purpose = graph.run().purpose;
    if (purpose != GALLEY_PURPOSE_TRAIN && purpose != GALLEY_PURPOSE_EVAL && purpose != GALLEY_PURPOSE_GRADIENTS) return;
    for (galley_node n = graph.next_node(0, GALLEY_NODES_MODEL); n; n = graph.next_node(n, GALLEY_NODES_MODEL)) {
      const galley_node_info loss = graph.node(n);
      if (!(loss.op_flags & GALLEY_OP_LOSS)) continue;
      const galley_tensor logp = graph.node("pairs.logp", "pairs.logp", {loss.inputs[0], loss.inputs[1]}, {})[0];
      graph.take_loss(n);
      graph.node("pairs.loss", "pairs.loss", {logp, graph.input("pairs")}, attrs_, {graph.scalar(GALLEY_SCALAR_LOSS)}, {true});
      return;
    }
    invalid("the model has no loss that could be replaced");
  }

 private:
  Attrs attrs_;
};

const bool added = add(source<Pairs>("pairs")) && add(source<Answers>("answers")) && add(strategy<PairLoss>("pair-loss"));

}  // namespace

GALLEY_PLUGIN("pairs", "1.0.0");
