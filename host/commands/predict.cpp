#include "host/commands/predict.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>

#include "host/base/json.hpp"
#include "host/base/log.hpp"
#include "host/commands/run_commands.hpp"
#include "host/session/scores.hpp"
#include "host/tokens/lines.hpp"
#include "host/tokens/spec.hpp"
#include "host/tokens/text_codec.hpp"
#include "host/tokens/tokenizer/unicode.hpp"
#include "host/tools/inference/folder_study.hpp"
#include "host/tools/inference/predict.hpp"

namespace galley {
namespace {

/// The shortest decimals that are read as the same F32.
std::string digits_of(double x) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, static_cast<float>(x)).ptr;
  return {digits, end};
}

/// Reads texts, asks the model, and writes a line for each.
class Teller {
 public:
  static Result<std::unique_ptr<Teller>> open(Session& session) {
    const Recipe& recipe = session.study().recipe;
    const Learning& learning = recipe.learning;
    if (!of_rows(learning.labels))
      return recipe_error("galley predict: a model whose task is '" + learning.task + "' has no labels or values of whole texts",
                          learning.labels == Fill::TokenLabels ? "`galley eval` says how many of its labels of tokens are right"
                          : learning.labels == Fill::NextTokens || learning.labels == Fill::TargetLabels
                              ? "`galley sample` continues a text"
                              : "`galley embed` shows what it makes of texts");
    const DataSpec& spec = text_data(recipe);
    std::unique_ptr<Teller> out(new Teller(session, TRY(TextCodec::open(text_spec(recipe), recipe))));
    if (spec.kind == "jsonl") {
      const OptionReader options = options_of(spec);
      out->first_ = TRY(options.text("text")).value_or("text");
      out->second_ = TRY(options.text("pair")).value_or("");
    }
    return out;
  }

  /// Prints what the model says of one text, or of two.
  Status tell(const std::string& first, const std::string& second, const std::string& place) {
    std::vector<TokenId> ids;
    const auto most = static_cast<size_t>(predictor_.length());
    size_t begin = SIZE_MAX;
    const std::string text = valid_utf8(first, nullptr);
    if (second.empty()) cut_ += TRY(codec_.encode_whole(text, codec_.after(), most, work_, &ids));
    else if (!codec_.joins_pairs()) return recipe_error(place + "the tokenizer does not say how it joins two texts");
    else begin = TRY(codec_.encode_pair(text, valid_utf8(second, nullptr), most, work_, &ids));
    if (ids.empty()) return recipe_error(place + "the text has no tokens");
    const std::string line = line_of(TRY(predictor_.logits(ids, begin)));
    if (std::fwrite(line.data(), 1, line.size(), stdout) != line.size()) return run_error("cannot write to the standard output");
    return ok();
  }

  /// Takes a line of stdin: a string, or an object with the fields of the run's data.
  Status tell_line(std::string_view line, const std::string& place) {
    const Value value = TRY(parse_json(is_utf8(line) ? std::string(line) : valid_utf8(line, nullptr), place));
    if (const auto* text = value.as<std::string>()) {
      if (!second_.empty())
        return recipe_error(place + ": the model tells something of two texts, in fields '" + first_ + "' and '" + second_ + "'");
      return tell(*text, "", place + ": ");
    }
    const auto* first = value.field<std::string>(first_);
    const auto* second = second_.empty() ? nullptr : value.field<std::string>(second_);
    if (!first || (!second && !second_.empty()))
      return recipe_error(place + ": a line has to be " + (second_.empty() ? "a string or " : "") + "an object { \"" + first_ + "\": …" +
                          (second_.empty() ? "" : ", \"" + second_ + "\": …") + " }");
    return tell(*first, second ? *second : "", place + ": ");
  }

  void warn() const {
    if (cut_ > 0)
      log(LogLevel::Warning, std::to_string(cut_) + (cut_ == 1 ? " text is" : " texts are") + " longer than " +
                                 std::to_string(predictor_.length()) + " tokens and were cut");
  }
  bool reads_pairs() const { return !second_.empty(); }

 private:
  Teller(Session& session, TextCodec codec)
      : learning_(session.study().recipe.learning), predictor_(session), codec_(std::move(codec)), work_(codec_) {}

  std::string line_of(std::span<const float> logits) const {
    if (learning_.labels == Fill::RowValues) {
      std::string values;
      for (const float x : logits) values += (values.empty() ? "" : ", ") + digits_of(static_cast<double>(x));
      return logits.size() == 1 ? "{\"value\": " + values + "}\n" : "{\"values\": [" + values + "]}\n";
    }
    std::vector<double> shares(logits.size());
    double sum = 0;
    const size_t top = likeliest(logits);
    for (size_t i = 0; i < shares.size(); ++i) {
      const auto x = static_cast<double>(logits[i]);
      shares[i] = learning_.several ? 1 / (1 + std::exp(-x)) : std::exp(x - static_cast<double>(logits[top]));
      sum += shares[i];
    }
    std::string labels, all;
    for (size_t i = 0; i < shares.size(); ++i) {
      if (!learning_.several) shares[i] /= sum;
      const std::string name = json_quote(learning_.name_of(static_cast<int64_t>(i)));
      if (learning_.several && logits[i] > 0) labels += (labels.empty() ? "" : ", ") + name;
      all += (i ? ", " : "") + name + ": " + digits_of(shares[i]);
    }
    const std::string label = json_quote(learning_.name_of(static_cast<int64_t>(top)));
    const std::string said =
        learning_.several ? "\"labels\": [" + labels + "]" : "\"label\": " + label + ", \"probability\": " + digits_of(shares[top]);
    return "{" + said + ", \"probabilities\": {" + all + "}}\n";
  }

  const Learning& learning_;
  Predictor predictor_;
  TextCodec codec_;
  TextCodec::Work work_;
  std::string first_ = "text", second_;
  int64_t cut_ = 0;
};

}  // namespace

Status command_predict(const CommandLine& a) {
  const std::filesystem::path directory = a.positional[0];
  const FolderKind kind = TRY(kind_of_folder(directory));
  if (kind == FolderKind::Adapter)
    return recipe_error("galley predict: " + directory.string() + " is an adapter, which does not say which labels there are",
                        "predict with the run that made it, or with the merged model: galley export DIR --merge --out NEW");
  if (kind == FolderKind::Run && a.has("--length"))
    return recipe_error("galley predict: --length applies to a model's folder only; a run uses its recipe's length");
  if (a.has("--pair") && !a.has("--text")) return recipe_error("galley predict: --pair is the second text beside --text");
  StudyOptions options = TRY(study_options(a));
  options.purpose = Purpose::Predict;
  const FolderStudy folder = TRY(study_folder(directory, {"", TRY(a.integer("--length", 0, 1))}, options));
  ReferenceShown reference = TRY(ReferenceShown::open(a));
  const auto session = TRY(folder.open(reference.options()));
  const auto teller = TRY(Teller::open(*session));
  if (a.has("--text")) {
    const std::vector<std::string>& texts = a.flags.at("--text");
    const auto pairs = a.flags.find("--pair");
    if (pairs != a.flags.end() && pairs->second.size() != texts.size())
      return recipe_error("galley predict: there are " + std::to_string(texts.size()) + " --text and " +
                          std::to_string(pairs->second.size()) + " --pair");
    if (teller->reads_pairs() && pairs == a.flags.end())
      return recipe_error("galley predict: the model tells something of two texts", "give the second one by --pair TEXT");
    for (size_t i = 0; i < texts.size(); ++i) TRY_STATUS(teller->tell(texts[i], pairs == a.flags.end() ? "" : pairs->second[i], ""));
  } else {
    StdinLines lines;
    std::string_view line;
    while (TRY(lines.next(&line))) {
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      TRY_STATUS(teller->tell_line(line, lines.place()));
      std::fflush(stdout);
    }
  }
  teller->warn();
  return reference.finish(ok());
}

}  // namespace galley
