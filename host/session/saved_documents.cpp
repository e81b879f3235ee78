#include "host/session/saved_documents.hpp"

#include <algorithm>
#include <filesystem>
#include <set>

#include "host/base/json.hpp"
#include "host/plan/dtype.hpp"
#include "host/tokens/text_codec.hpp"

namespace galley {
namespace {

/// Documents go with the tensors beside which they lie: config.json with the model, an adapter's configuration with the adapter.
void keep_written_documents(Program& program) {
  std::set<std::string> folders;
  for (const Instruction& i : program.segment(SegmentKind::Export).code)
    if (i.write()) folders.insert(std::filesystem::path(i.write()->file).parent_path().string());
  std::erase_if(program.documents,
                [&](const Document& d) { return !folders.contains(std::filesystem::path(d.file).parent_path().string()); });
}

/// The dtype of the numbers in the model's file, as config.json calls it.
std::string model_dtype(const Program& program) {
  for (const Instruction& i : program.segment(SegmentKind::Export).code)
    if (const Write* write = i.write(); write && write->file.starts_with("model/") && is_floating(write->dtype))
      return write->dtype == GALLEY_BF16 ? "bfloat16" : write->dtype == GALLEY_F16 ? "float16" : "float32";
  return "float32";
}

/// What transformers generates a text by, of a model that has no folder to take it from.
void add_generation(const ModelConfig& model, Program& program) {
  const auto eos = model.config.find("eos_token_id");
  const bool writes = model.learning.labels == Fill::NextTokens || model.learning.labels == Fill::TargetLabels;
  constexpr const char* file = "model/generation_config.json";
  if (!writes || !model.folder.empty() || eos == model.config.end() || eos->second.is_nil() ||
      std::ranges::any_of(program.documents, [&](const Document& d) { return d.file == file; }))
    return;
  Table out = {{"_from_model_config", Value(true)}};
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"})
    if (const auto id = model.config.find(key); id != model.config.end() && !id->second.is_nil()) out.emplace(key, id->second);
  program.documents.push_back({file, to_json(Value(std::move(out)), 2) + "\n"});
}

/// A model is of no use without its tokenizer, nor is an adapter whose vocabulary has grown: the files beside it go with them.
Status add_tokenizer(const Recipe& recipe, Program& program) {
  const auto files = TRY(tokenizer_files(text_data(recipe), recipe));
  if (files.empty()) return ok();
  std::set<std::string> folders;
  for (const Instruction& i : program.segment(SegmentKind::Export).code)
    if (i.write()) folders.insert(std::filesystem::path(i.write()->file).parent_path().string());
  for (const auto& [name, text] : files)
    for (const std::string& to : folders) program.documents.push_back({to + "/" + name, text});
  return ok();
}

}  // namespace

Status complete_documents(Study& s) {
  describe_model(s.model, model_dtype(s.program), s.draft->exports.config, s.program.documents);
  if (!s.program.segment(SegmentKind::Export).code.empty()) {
    TRY_STATUS(add_tokenizer(s.recipe, s.program));
    add_generation(s.model, s.program);
  }
  keep_written_documents(s.program);
  return ok();
}

}  // namespace galley
