#include "host/commands/embed.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "host/base/json.hpp"
#include "host/base/log.hpp"
#include "host/commands/run_commands.hpp"
#include "host/tokens/lines.hpp"
#include "host/tokens/text_codec.hpp"
#include "host/tokens/tokenizer/unicode.hpp"
#include "host/tools/inference/embed.hpp"
#include "host/tools/inference/folder_study.hpp"

namespace galley {
namespace {

/// What becomes of the hidden states of a text.
enum class Pool : uint8_t { Mean, First, Last, None };
constexpr std::array<const char*, 4> kPools = {"mean", "first", "last", "none"};

Result<Pool> pool_of(const CommandLine& a) {
  if (!a.has("--pool")) return Pool::Mean;
  const auto at = std::ranges::find(kPools, a.get("--pool"));
  if (at == kPools.end()) return recipe_error("galley embed: --pool '" + a.get("--pool") + "'", "known: mean, first, last, none");
  return static_cast<Pool>(at - kPools.begin());
}

/// The shortest decimals that are read as the same F32.
void append(std::string& out, float x) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, x).ptr;
  out.append(digits, end);
}
template <class Numbers>
void append_list(std::string& out, const Numbers& numbers) {
  out += '[';
  bool first = true;
  for (const auto x : numbers) {
    if (!first) out += ',';
    first = false;
    append(out, static_cast<float>(x));
  }
  out += ']';
}

/// Sums in double, in the order of the positions.
std::vector<double> pooled(std::span<const float> states, size_t width, Pool pool) {
  const size_t tokens = states.size() / width, from = pool == Pool::Last ? tokens - 1 : 0, to = pool == Pool::First ? 1 : tokens;
  std::vector<double> out(width, 0.0);
  for (size_t t = from; t < to; ++t)
    for (size_t c = 0; c < width; ++c) out[c] += static_cast<double>(states[t * width + c]);
  for (double& x : out) x /= static_cast<double>(to - from);
  return out;
}

Status print(std::span<const float> states, size_t width, Pool pool, bool normalize) {
  std::string line;
  if (pool == Pool::None) {
    line = "{\"states\":[";
    for (size_t at = 0; at < states.size(); at += width) {
      if (at > 0) line += ',';
      append_list(line, states.subspan(at, width));
    }
    line += "]}\n";
  } else {
    std::vector<double> vector = pooled(states, width, pool);
    double square = 0;
    for (const double x : vector) square += x * x;
    if (normalize && square > 0)
      for (double& x : vector) x /= std::sqrt(square);
    line = "{\"embedding\":";
    append_list(line, vector);
    line += "}\n";
  }
  if (std::fwrite(line.data(), 1, line.size(), stdout) != line.size()) return run_error("cannot write to the standard output");
  return ok();
}

/// Returns the text of a line: a string, or an object's field "text".
Result<std::string> text_of(std::string_view line, const std::string& place) {
  const Value value = TRY(parse_json(line, place));
  if (const auto* text = value.as<std::string>()) return *text;
  if (const auto* text = value.field<std::string>("text")) return *text;
  return recipe_error(place + ": a line has to be a string or an object { \"text\": … }");
}

}  // namespace

Status command_embed(const CommandLine& a) {
  const std::filesystem::path directory = a.positional[0];
  const Pool pool = TRY(pool_of(a));
  const bool normalize = a.has("--normalize");
  if (normalize && pool == Pool::None) return recipe_error("galley embed: --normalize needs a vector: leave out --pool none");
  const FolderKind kind = TRY(kind_of_folder(directory));
  if (kind == FolderKind::Run && a.has("--length"))
    return recipe_error("galley embed: --length applies to a model's folder only; a run uses its recipe's length");
  StudyOptions options = TRY(study_options(a));
  options.purpose = Purpose::Embed;
  const FolderStudy folder = TRY(study_folder(directory, {a.get("--base"), TRY(a.integer("--length", 0, 1))}, options));
  ReferenceShown reference = TRY(ReferenceShown::open(a));
  const auto session = TRY(folder.open(reference.options()));
  const Recipe& recipe = session->study().recipe;
  const TextCodec codec = TRY(TextCodec::open(text_spec(recipe), recipe));
  TextCodec::Work work(codec);

  size_t width = 0;
  Embedder embedder(*session, [&](int64_t, std::span<const float> states) { return print(states, width, pool, normalize); });
  width = static_cast<size_t>(embedder.width());
  const auto most = static_cast<size_t>(embedder.length());
  StdinLines lines;
  std::string_view line;
  std::vector<TokenId> ids;
  int64_t cut = 0;
  while (TRY(lines.next(&line))) {
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string place = lines.place();
    const std::string text = TRY(text_of(line, place));
    cut += TRY(codec.encode_whole(valid_utf8(text, nullptr), codec.after(), most, work, &ids));
    if (ids.empty()) return recipe_error(place + ": the text has no tokens");
    TRY_STATUS(embedder.add(ids));
  }
  TRY_STATUS(embedder.finish());
  if (cut > 0)
    log(LogLevel::Warning, std::to_string(cut) + (cut == 1 ? " text is" : " texts are") + " longer than " + std::to_string(most) +
                               " tokens and were cut; --length sets more, for a model's folder");
  return reference.finish(ok());
}

}  // namespace galley
