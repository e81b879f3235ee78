// Lets a model write a text after each prompt of a recipe's `evaluate`, always the likeliest token, and judges what it has written.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/session/events.hpp"
#include "host/session/session.hpp"
#include "host/tools/inference/judge.hpp"
#include "host/tools/inference/prompts.hpp"

namespace galley {

/// Used by one thread. Refers to the study.
class TextEvaluation {
 public:
  /// Reads the prompts and makes their tokens; null where the recipe does not evaluate by texts. What judges is tried once. Errors, exit code
  /// Recipe, have the file and line of the prompt: one that is not read, has nothing to compare with, or leaves no room for a token.
  static Result<std::unique_ptr<TextEvaluation>> open(const Study& study);

  /// Writes and judges the texts by a session of the study, none of whose steps is under way. `after` is called after each batch.
  Result<TextsEvent> run(Session& session, const std::function<Status(int64_t done, int64_t all)>& after);

 private:
  struct Asked {
    std::string place, text;
    std::vector<TokenId> tokens;
    std::optional<std::string> expected;
    Value line;
  };
  explicit TextEvaluation(const Study& study) : study_(study) {}
  Status read();
  Result<Asked> read_line(const Value& line);
  Status judge(WrittenText* text, const Asked& asked);

  const Study& study_;
  std::unique_ptr<Prompts> prompts_;
  std::unique_ptr<TextJudge> judge_;
  std::vector<Asked> asked_;
  Stops stops_;
};

}  // namespace galley
