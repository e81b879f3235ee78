#include "host/tokens/data_options.hpp"

#include <climits>
#include <cstdint>

namespace galley {
namespace {

using Type = OptionType;

const OptionSpec files_spec = {
    .name = "files", .description = "files, folders and patterns such as \"text/**/*.txt\"", .type = Type::Strings, .required = true};
const OptionSpec tokenizer_spec = {
    .name = "tokenizer",
    .description = "\"model\" (the tokenizer.json beside the weights), \"bytes\", or the path of a tokenizer.json",
    .type = Type::String,
    .fallback = Value(std::string("model"))};
const OptionSpec validation_spec = {
    .name = "validation",
    .description = "the share of documents that is held out, or files of their own; where the recipe validates, 0.05",
    .wanted = "a number in [0, 1), or files"};
const OptionSpec packing_spec = {
    .name = "packing",
    .description = "how documents share rows: each into the row that it fills best, one after the other, or one a row",
    .type = Type::Choice,
    .fallback = Value(std::string("best-fit")),
    .choices = {"best-fit", "sequential", "none"}};
const OptionSpec group_by_length_spec = {.name = "group_by_length",
                                         .description = "with packing = \"none\": micro-batches of rows of like length",
                                         .type = Type::Boolean,
                                         .fallback = Value(false)};
const OptionSpec eos_spec = {.name = "eos",
                             .description = "put the tokenizer's end-of-text token after each document",
                             .type = Type::Boolean,
                             .fallback = Value(true)};
const OptionSpec mask_spec = {.name = "mask",
                              .description = "the share of tokens that a masked language model has to tell; for others it means nothing",
                              .fallback = Value(0.15),
                              .range = {0, 1, true, false},
                              .aliases = {"mlm_probability"}};
const OptionSpec pair_spec = {.name = "pair",
                              .description =
                                  "the field of a line that holds a second text, for models that tell something of two; without it "
                                  "there is one",
                              .type = Type::String};
const OptionSpec label_spec = {.name = "label",
                               .description =
                                   "the field of a line that holds its label, a number or a name, or a list of them; for models "
                                   "that learn labels or values",
                               .type = Type::String,
                               .fallback = Value(std::string("label"))};
const OptionSpec special_spec = {
    .name = "special",
    .description = "special tokens that stand in a text, such as \"</s>\", are tokens, as in transformers; else text",
    .type = Type::Boolean,
    .fallback = Value(true)};
const OptionSpec skip_bad_spec = {.name = "skip_bad",
                                  .description = "leave out lines that are no documents, and count them, instead of refusing them",
                                  .type = Type::Boolean,
                                  .fallback = Value(false)};

/// Documents of more than a row. The first choice is the default.
OptionSpec overlong(std::vector<std::string> choices, const std::string& more = {}) {
  OptionSpec out = {.name = "overlong",
                    .description =
                        "documents longer than a row: \"split\" cuts them into rows, \"truncate\" leaves out what does not fit, "
                        "\"drop\" leaves the whole document out" +
                        more,
                    .type = Type::Choice,
                    .choices = std::move(choices)};
  out.fallback = Value(out.choices.front());
  return out;
}
const OptionSpec split_spec = overlong({"split", "truncate", "drop"}), truncate_spec = overlong({"truncate", "split", "drop"}),
                 turns =
                     overlong({"truncate", "turn", "split", "drop"}, ", \"turn\" leaves out what is after the last reply that fits whole");

OptionSpec field(const char* name, const char* what) {
  return {.name = name,
          .description = std::string("the field of a line that holds ") + what,
          .type = Type::String,
          .fallback = Value(std::string(name))};
}
OptionSpec train_on(const char* some, const char* what) {
  return {.name = "train_on",
          .description = std::string("what counts in the loss: ") + what + ", or everything",
          .type = Type::Choice,
          .fallback = Value(std::string(some)),
          .choices = {some, "all"}};
}

}  // namespace

const std::vector<Declared>& declared_data() {
  static const std::vector<Declared> out = {
      {"batch",
       "data = data.batch { path = \"batch.safetensors\" }",
       "one fixed batch, the same in every window; for comparing with other programs",
       {{.name = "path", .description = "a safetensors file with input_ids and labels", .type = Type::Path, .required = true}}},
      {"chat",
       "data = data.chat { files = { \"chat.jsonl\" } }",
       "a conversation a line: { \"messages\": [{ \"role\", \"content\" }, …] }, or ShareGPT's { \"conversations\": [{ \"from\", \"value\" "
       "}, …] }",
       {files_spec,
        tokenizer_spec,
        validation_spec,
        packing_spec,
        turns,
        group_by_length_spec,
        skip_bad_spec,
        {.name = "messages",
         .description = "the field of a line that holds the conversation; without it, 'messages' or 'conversations'",
         .type = Type::String},
        {.name = "template",
         .description = "the chat template: a .jinja file, one of Galley's by name (\"chatml\") or of the model's (\"tool_use\"), or a "
                        "function; without "
                        "it the model's own",
         .wanted = "a name, the path of a .jinja file, or function(messages, generate, line) … end"},
        {.name = "system", .description = "the system's message of conversations that have none", .type = Type::String},
        {.name = "ignore", .description = "keys of messages and lines that are left out on purpose", .type = Type::Strings},
        {.name = "roles",
         .description = "the roles of names in the file; \"human\" and \"gpt\" are known",
         .wanted = "a table such as { bot = \"assistant\" }"},
        {.name = "variables",
         .description = "what the template is given beside the conversation",
         .wanted = "a table such as { enable_thinking = false }"},
        {.name = "past",
         .description = "a turn that the template writes otherwise once the conversation goes on: \"each\" makes it a row of its own, "
                        "\"refuse\" refuses it",
         .type = Type::Choice,
         .fallback = Value(std::string("each")),
         .choices = {"each", "refuse"}},
        {.name = "special",
         .description = "special tokens that stand in a message are tokens, and not text",
         .type = Type::Boolean,
         .fallback = Value(false)},
        {.name = "date",
         .description = "the day that the template writes, such as \"2026-11-28\"; without it strftime_now is not defined",
         .type = Type::String},
        train_on("assistant", "the assistant's turns")}},
      {"jsonl",
       "data = data.jsonl { files = { \"text.jsonl\" } }",
       "a document a line: { \"text\": … }",
       {files_spec, tokenizer_spec, validation_spec, packing_spec, split_spec, group_by_length_spec, eos_spec, skip_bad_spec,
        field("text", "the document"), pair_spec, mask_spec, label_spec, special_spec}},
      {"mix",
       "data = data.mix { data.text { … }, data.chat { … }, weights = { 1, 2 } }",
       "rows of several data; an epoch ends when each of them has been seen once",
       {{.name = "weights",
         .description = "how many rows of each, one number for each data; without them as many of all",
         .type = Type::Numbers,
         .range = {0, 1e9}}}},
      {"prompts",
       "data = data.prompts { files = { \"pairs.jsonl\" } }",
       "a pair a line: { \"prompt\": …, \"answer\": … }",
       {files_spec, tokenizer_spec, validation_spec, packing_spec, truncate_spec, group_by_length_spec, eos_spec, skip_bad_spec,
        field("prompt", "the prompt"), field("answer", "the answer"), train_on("answer", "answers"), special_spec}},
      {"text",
       "data = data.text { files = { \"text\" } }",
       "a document a file",
       {files_spec,
        tokenizer_spec,
        validation_spec,
        packing_spec,
        split_spec,
        group_by_length_spec,
        eos_spec,
        mask_spec,
        special_spec,
        {.name = "separator",
         .description = "what ends a document within a file; without it a file is one document",
         .type = Type::String}}},
      {"tokens",
       "data = data.tokens { files = { \"tokens.bin\" } }",
       "token ids, tokenized before, as little-endian integers",
       {files_spec,
        validation_spec,
        packing_spec,
        split_spec,
        group_by_length_spec,
        {.name = "separator", .description = "the id that ends a document", .type = Type::Integer, .range = {0, INT32_MAX - 1}},
        {.name = "dtype",
         .description = "the integers in the files",
         .type = Type::Choice,
         .fallback = Value(std::string("uint16")),
         .choices = {"uint16", "uint32"}}}}};
  return out;
}

const Declared& declared_data(std::string_view kind) { return find_declared(declared_data(), kind); }

std::vector<std::string> own_data_kinds() {
  std::vector<std::string> out;
  for (const Declared& kind : declared_data()) out.push_back(kind.name);
  return out;
}

}  // namespace galley
