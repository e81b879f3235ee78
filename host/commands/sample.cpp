#include "host/commands/sample.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "host/exec/state.hpp"

namespace galley {
namespace {

Result<int64_t> integer(const CommandLine& a, const std::string& flag, int64_t otherwise, int64_t least) {
  if (!a.has(flag)) return otherwise;
  const std::string text = a.get(flag);
  char* end = nullptr;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end || value < least)
    return recipe_error("galley sample: " + flag + " '" + text + "' is no integer of at least " + std::to_string(least));
  return static_cast<int64_t>(value);
}

/// A token from logits: the likeliest at temperature 0, else drawn from the `top_k` likeliest (0: all).
int32_t draw(std::span<const float> logits, double temperature, int64_t top_k, uint32_t random) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] != logits[static_cast<size_t>(b)]
               ? logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)]
               : a < b;
  };
  const size_t n = temperature == 0 ? 1 : top_k > 0 ? std::min<size_t>(static_cast<size_t>(top_k), order.size()) : order.size();
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(n), order.end(), likelier);
  if (n == 1) return order[0];
  std::vector<double> weights(n);
  const double top = logits[static_cast<size_t>(order[0])];
  for (size_t i = 0; i < n; ++i) weights[i] = std::exp((logits[static_cast<size_t>(order[i])] - top) / temperature);
  double rest = std::accumulate(weights.begin(), weights.end(), 0.0) * galley_uniform(random);
  for (size_t i = 0; i < n; ++i) {
    rest -= weights[i];
    if (rest < 0) return order[i];
  }
  return order[n - 1];
}

}  // namespace

Result<std::unique_ptr<Study>> study_run(const std::filesystem::path& directory, Purpose purpose) {
  const RunRecord record = TRY(open_run(directory));
  StudyOptions options;
  options.sets = record.sets;
  options.plugin_path.assign(record.plugin_path.begin(), record.plugin_path.end());
  options.device = record.device;
  options.target_text = record.target;
  options.recipe_text = record.recipe_text;
  options.directory = record.working_directory;
  options.purpose = purpose;
  options.single_row = purpose == Purpose::Sample;
  return study(record.recipe, options);
}

Status load_newest(const Study& study, const std::filesystem::path& directory, Executor& executor) {
  const auto latest = TRY(find_latest(directory / "state"));
  if (!latest) return recipe_error(directory.string() + ": this run has saved nothing yet", "let it come to its first save");
  return load_state(*latest, study.program, executor.machine(), StatePart::Some);
}

Status command_sample(const CommandLine& a) {
  const std::filesystem::path directory = a.positional[0];
  const int64_t count = TRY(integer(a, "--tokens", 200, 1)), top_k = TRY(integer(a, "--top-k", 40, 0)),
                seed = TRY(integer(a, "--seed", 1, 0));
  char* end = nullptr;
  const std::string heat = a.get("--temperature", "0.8");
  const double temperature = std::strtod(heat.c_str(), &end);
  if (*end || !(temperature >= 0) || !std::isfinite(temperature))
    return recipe_error("galley sample: --temperature '" + heat + "' is no number of at least 0");

  const auto s = TRY(study_run(directory, Purpose::Sample));
  const auto tokenizer = s->recipe.data.options.find("tokenizer");
  const auto* kind = tokenizer == s->recipe.data.options.end() ? nullptr : tokenizer->second.as<std::string>();
  if (!kind || *kind != "bytes")
    return recipe_error(directory.string() + ": this model was not trained on bytes, and there is no tokenizer for it",
                        "data.text { tokenizer = \"bytes\" } makes one that can be sampled");
  Session session = TRY(open_session(*s, nullptr, Poison::No));
  Executor& executor = *session.executor;
  TRY_STATUS(load_newest(*s, directory, executor));

  const Program& program = s->program;
  const auto length = static_cast<size_t>(program.length);
  WindowBuffer window = {{1, program.length}, {}, 0, 1, 0};
  std::vector<std::byte> memory(window.layout.bytes() + BatchLayout::kAlignment);
  window.memory = memory;
  std::vector<int32_t> tokens;
  for (const char c : a.get("--prompt")) tokens.push_back(static_cast<uint8_t>(c));
  if (tokens.empty()) tokens.push_back('\n');
  std::fputs(a.get("--prompt").c_str(), stdout);
  for (int64_t n = 0; n < count; ++n) {
    // The last positions that the model can see; beyond its length the context slides.
    const size_t shown = std::min(tokens.size(), length), first = tokens.size() - shown;
    const BatchRow row = window.row(0);
    row.pad(0, length);
    for (size_t i = 0; i < shown; ++i) {
      row.input_ids[i] = tokens[first + i];
      row.position_ids[i] = static_cast<int32_t>(i);
      row.first_key[i] = 0;
    }
    TRY_STATUS(executor.begin_step({1, 1, 1, 1}));
    std::vector<const void*> sources;
    for (const auto& [name, tensor] : program.inputs)
      for (size_t t = 0; t < kBatchTensorCount; ++t)
        if (name == kBatchTensors[t]) sources.push_back(window.tensor(0, t).data());
    TRY_STATUS(executor.copy_inputs(sources));
    const auto position = static_cast<int32_t>(shown - 1);
    TRY_STATUS(executor.machine().put(program.sample_position, 0, std::as_bytes(std::span(&position, 1))));
    TRY_STATUS(executor.run(SegmentKind::Sample));
    TRY_STATUS(executor.synchronize());
    std::vector<float> logits(static_cast<size_t>(program.vocabulary));
    TRY_STATUS(executor.machine().get(program.sample_logits, 0, std::as_writable_bytes(std::span(logits))));
    const uint32_t random = galley_philox(static_cast<uint64_t>(seed), static_cast<uint64_t>(n), 0).word[0];
    tokens.push_back(draw(logits, temperature, top_k, random));
    std::putchar(tokens.back());
    std::fflush(stdout);
  }
  std::putchar('\n');
  return ok();
}

}  // namespace galley
