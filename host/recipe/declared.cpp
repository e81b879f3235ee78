#include "host/recipe/declared.hpp"

#include <algorithm>
#include <cassert>
#include <cstdint>

#include "host/recipe/recipe.hpp"

namespace galley {
namespace {

constexpr double kMostRows = INT32_MAX;
constexpr double kEver = std::numeric_limits<double>::infinity();

using Type = OptionType;

Range from(double low, double high = kEver) { return {low, high}; }
Range above(double low, double high = kEver) { return {low, high, true, false}; }

// ---- Schedules ----

const OptionSpec peak_spec = {.name = "peak", .description = "the value at the end of the warm-up", .required = true};
const OptionSpec warmup_spec = {.name = "warmup",
                                .description = "steps that rise to the peak, or a share of the run below 1, such as 0.03",
                                .fallback = Value(int64_t{0}),
                                .range = from(0),
                                .wanted = "a whole number of steps, or a share of the run below 1"};
const OptionSpec floor_spec = {.name = "floor",
                               .description = "the value to which it falls, at the step after the last; 'min' is another name of it",
                               .fallback = Value(0.0),
                               .aliases = {"min_lr", "end", "final"}};
const OptionSpec min_spec = {.name = "min", .description = "another name of 'floor'"};

}  // namespace

const OptionSpec& Declared::operator[](std::string_view option) const {
  const auto at = std::find_if(options.begin(), options.end(), [&](const OptionSpec& spec) { return spec.name == option; });
  assert(at != options.end());
  return *at;
}

const Declared& declared_compare() {
  static const Declared out = {
      "compare",
      "return compare { model = …, data = …, steps = 100, seeds = { 1, 2, 3, 4, 5 }, variants = { plain = { … }, lean = { … } } }",
      "several recipes side by side: what a recipe says, for all variants, and what each variant says instead or in addition",
      {{.name = "variants",
        .description = "the recipes that are compared, by name: each one's strategies come after the common ones, its named entries "
                       "replace common ones",
        .required = true,
        .wanted = "a table such as { plain = { use \"NAME\" { … } }, lean = { … } }"},
       {.name = "baseline",
        .description = "the variant that the others are held against; without it, the one that is called 'plain' or 'baseline'",
        .type = Type::String},
       {.name = "seeds",
        .description = "each variant is trained once with each of these seeds; from five on there is a verdict on losses",
        .type = Type::Numbers,
        .fallback = Value(List{Value(int64_t{1}), Value(int64_t{2}), Value(int64_t{3}), Value(int64_t{4}), Value(int64_t{5})})},
       {.name = "turns",
        .description = "into how many parts each run is cut: variants take turns, so that a noisy machine is fair to all",
        .type = Type::Integer,
        .fallback = Value(int64_t{4}),
        .range = from(1, 1000)},
       {.name = "margin",
        .description = "a difference of losses that matters: in nats, such as 0.01, or a share of what training gains, such as \"5%\"",
        .fallback = Value(std::string("2%")),
        .wanted = kMarginExpected},
       {.name = "resplit",
        .description =
            "true: each seed holds out other documents for validation; else all seeds and variants have the same ones, those of the "
            "comparison's own `seed`",
        .type = Type::Boolean,
        .fallback = Value(false)},
       {.name = "budget",
        .description = "instead of steps: so many tokens or seconds for each run; see below",
        .wanted = "{ tokens = 1e6 } or { seconds = 60 }"},
       {.name = "sequential",
        .description = "true: one seed after the other, until each variant is decided or no seed is left",
        .type = Type::Boolean,
        .fallback = Value(false)}}};
  return out;
}

const Declared& declared_budget() {
  static const Declared out = {"budget",
                               "budget = { tokens = 1e6 }",
                               "how long the runs of a comparison are, in tokens or in seconds of their steps",
                               {{.name = "tokens",
                                 .description = "each run has the fewest steps that see so many positions of rows",
                                 .range = from(1, 9e15),
                                 .wanted = "a whole number of at least 1"},
                                {.name = "seconds",
                                 .description = "each variant has so many steps as take that long; trial runs measure a step once",
                                 .range = above(0, 1e9)}}};
  return out;
}

const Declared& declared_recipe() {
  static const Declared out = {
      "recipe",
      "return recipe { model = …, data = …, steps = 1000, use \"NAME\" { … } }",
      "a run: named entries describe it, the others are the strategies, in order",
      {{.name = "model", .description = "what is trained", .required = true, .wanted = "model { path = … }"},
       {.name = "data", .description = "what it is trained on", .required = true, .wanted = "data.text { files = { … } }"},
       {.name = "batch",
        .description = "rows of a micro-batch; all data but data.batch needs it",
        .type = Type::Integer,
        .range = from(1, kMostRows),
        .aliases = {"batch_size", "per_device_train_batch_size", "per_device_batch_size", "micro_batch_size", "train_batch_size"}},
       {.name = "length",
        .description = "positions of a row; all data but data.batch needs it",
        .type = Type::Integer,
        .range = from(1, kMostRows),
        .aliases = {"max_length", "max_seq_length", "sequence_length", "sequence_len", "seq_len", "block_size", "cutoff_len"}},
       {.name = "target_length",
        .description = "positions of a target, for models that have an encoder and a decoder; without it as many as 'length'",
        .type = Type::Integer,
        .range = from(1, kMostRows),
        .aliases = {"max_target_length"}},
       {.name = "steps",
        .description = "updates that the run makes; either this or 'epochs'",
        .type = Type::Integer,
        .range = from(1, kMostSteps),
        .aliases = {"max_steps", "iterations"}},
       {.name = "epochs",
        .description = "how often the run goes through the data, also a part of once (0.5); either this or 'steps'",
        .range = above(0),
        .aliases = {"num_train_epochs", "num_epochs", "max_epochs"}},
       {.name = "seed",
        .description = "the seed of all random numbers",
        .type = Type::Integer,
        .fallback = Value(int64_t{1}),
        .range = from(0)},
       {.name = "deterministic",
        .description = "false: kernels may be faster and have other bytes in another run",
        .type = Type::Boolean,
        .fallback = Value(true)},
       {.name = "tune",
        .description = "kernels may measure before the first step which way is the fastest",
        .type = Type::Boolean,
        .fallback = Value(false)},
       {.name = "validate", .description = "when the loss on held-out data is computed; see below", .wanted = "{ every = 50 }"},
       {.name = "evaluate",
        .description = "when the model writes texts after prompts, and how these are judged; see below",
        .wanted = "{ prompts = \"prompts.jsonl\", match = \"exact\", every = 100 }"},
       {.name = "save",
        .description = "when states are saved to resume from, and what the run leaves; see below",
        .wanted = "{ every = 100, keep = 2 }"},
       {.name = "head_rows",
        .description = "rows of one chunk of the head and the loss; 0: chosen by the planner",
        .type = Type::Integer,
        .fallback = Value(int64_t{0}),
        .range = from(0, kMostRows)},
       {.name = "lanes",
        .description =
            "equal shares of a window's micro-batches, each added up by itself: the run then has the same bytes with every number "
            "of processes that divides it; 0: as many as processes",
        .type = Type::Integer,
        .fallback = Value(int64_t{0}),
        .range = from(0, kMostRows)},
       {.name = "ranks",
        .description =
            "neighbours that compute the same micro-batches together, by the name of their axis: strategies that know the axis divide "
            "parameters among them; one process is as if there was none",
        .wanted = "a number of processes for one axis: { tensor = 2 }"},
       {.name = "kernels",
        .description = "plugins whose kernels may do ops of others",
        .type = Type::Strings,
        .wanted = "a list of plugins such as { \"fast-norm\" }"}}};
  return out;
}

const Declared& declared_model() {
  static const Declared out = {
      "model",
      "model = model { path = \"DIR\" }, or model { family = \"llama\", config = { … } }",
      "a folder in Hugging Face's format, a GGUF file, or a new model of a family",
      {{.name = "path", .description = "the folder: config.json and model.safetensors; or a GGUF file", .type = Type::Path},
       {.name = "init",
        .description = "take the weights of the folder, or draw new ones of its shape",
        .type = Type::Choice,
        .fallback = Value(std::string("file")),
        .choices = {"file", "random"}},
       {.name = "family",
        .description = "which family it is of; beside a path only where config.json has no model_type",
        .type = Type::String},
       {.name = "config", .description = "the keys of config.json, for a new model", .wanted = "a table such as { n_layer = 2 }"},
       {.name = "task",
        .description = "what the model is to do, such as \"masked-lm\" or \"sequence-classification\"; without it what its config.json "
                       "says",
        .type = Type::String},
       {.name = "labels",
        .description = "among how many labels it chooses, where the task has labels, or how many values it tells, or the labels' names, "
                       "in order; without it what config.json says, or the labels of the data, or 1 value",
        .aliases = {"num_labels", "id2label", "label_names"},
        .wanted = "a whole number, or a list of names"},
       {.name = "add_tokens",
        .description = "tokens that the tokenizer gets besides, found wherever a text has them; a row of the model's tables that the file "
                       "does not have begins as the mean of those that it has",
        .type = Type::Strings,
        .aliases = {"new_tokens", "added_tokens"},
        .wanted = "a list such as { \"<call>\", \"<result>\" }"},
       {.name = "add_special_tokens",
        .description = "likewise, special tokens: those of a chat template, which texts of people cannot make",
        .type = Type::Strings,
        .aliases = {"special_tokens", "additional_special_tokens"},
        .wanted = "a list such as { \"<|call|>\" }"}}};
  return out;
}

const Declared& declared_validate() {
  static const Declared out = {
      "validate",
      "validate = { every = 50, patience = 3 }",
      "computes the loss on held-out data, and may end the run by it",
      {{.name = "every",
        .description = "after every so many steps; 0: never",
        .type = Type::Integer,
        .fallback = Value(int64_t{0}),
        .range = from(0)},
       {.name = "start",
        .description = "before the first step too; that value is only shown",
        .type = Type::Boolean,
        .fallback = Value(false)},
       {.name = "patience",
        .description = "early stopping: the run ends, as done, after so many validations in a row without a lower loss; 0: it does not",
        .type = Type::Integer,
        .fallback = Value(int64_t{0}),
        .range = from(0),
        .aliases = {"early_stopping_patience"}},
       {.name = "min_delta",
        .description = "by how much a loss has to be lower than the lowest before to count for 'patience'",
        .fallback = Value(0.0),
        .range = from(0),
        .aliases = {"early_stopping_threshold", "threshold"}}}};
  return out;
}

const Declared& declared_evaluate() {
  static const Declared out = {
      "evaluate",
      "evaluate = { prompts = \"prompts.jsonl\", match = \"exact\", every = 100 }",
      "lets the model write a text after each prompt, always the likeliest token, and judges it",
      {{.name = "prompts",
        .description = "a file of lines such as those of data.prompts, or of data.chat where the data are conversations: { \"prompt\": …, "
                       "\"answer\": … }, { \"messages\": … }, whose last message is what is expected",
        .type = Type::Path,
        .required = true},
       {.name = "match",
        .description = "how a text is judged by what is expected: \"exact\", \"rouge-l\", a Lua pattern that finds the answer in both, or "
                       "function(text, expected, line) return … end; without it texts are only kept",
        .wanted = "\"exact\", \"rouge-l\", a Lua pattern such as \"####%s*(%S+)\", or a function"},
       {.name = "every",
        .description = "after every so many steps, and at the end; 0: at the end only",
        .type = Type::Integer,
        .fallback = Value(int64_t{0}),
        .range = from(0)},
       {.name = "start", .description = "before the first step too", .type = Type::Boolean, .fallback = Value(false)},
       {.name = "samples",
        .description = "how many of the prompts, from the first on; 0: all",
        .type = Type::Integer,
        .fallback = Value(int64_t{8}),
        .range = from(0)},
       {.name = "tokens",
        .description = "the most tokens that a text gets",
        .type = Type::Integer,
        .fallback = Value(int64_t{128}),
        .range = from(1, kMostRows),
        .aliases = {"max_new_tokens"}},
       {.name = "cache",
        .description = "\"int8\": keep keys and values in 8 bit; without it, in the dtype in which attention computes",
        .type = Type::Choice,
        .choices = {"int8"}}}};
  return out;
}

const Declared& declared_save() {
  static const Declared out = {
      "save",
      "save = { every = 100, keep = 2, best = true }",
      "resume states on the way, and the model at the end",
      {{.name = "every",
        .description = "a state after every so many steps; 0: only at the end",
        .type = Type::Integer,
        .fallback = Value(int64_t{0}),
        .range = from(0)},
       {.name = "keep",
        .description = "how many states stay",
        .type = Type::Integer,
        .fallback = Value(int64_t{2}),
        .range = from(1),
        .aliases = {"save_total_limit"}},
       {.name = "final",
        .description = "save a state and the model at the end; false: neither",
        .type = Type::Boolean,
        .fallback = Value(true)},
       {.name = "best",
        .description = "keep the state of the lowest validation loss, and export the model from it at the end",
        .type = Type::Boolean,
        .fallback = Value(false),
        .aliases = {"load_best_model_at_end"}},
       {.name = "dtype",
        .description = "the dtype that the model or adapter is saved in; without it, that in which its numbers are kept",
        .type = Type::Choice,
        .choices = {"f32", "bf16", "f16"}}}};
  return out;
}

const std::vector<Declared>& declared_schedules() {
  static const std::vector<Declared> out = {
      {"constant", "lr = constant(1e-3)", "the same at every step, as the number alone", {}},
      {"constant_with_warmup",
       "lr = constant_with_warmup { peak = 1e-3, warmup = 100 }",
       "rises over the warm-up and stays",
       {peak_spec, warmup_spec}},
      {"cosine",
       "lr = cosine { peak = 1e-3, warmup = 0.03, floor = 1e-4 }",
       "rises over the warm-up and falls along a cosine to the floor",
       {peak_spec, warmup_spec, floor_spec, min_spec}},
      {"inverse_sqrt",
       "lr = inverse_sqrt { peak = 1e-3, warmup = 1000 }",
       "rises over the warm-up and falls as 1 / sqrt(step)",
       {peak_spec,
        warmup_spec,
        {.name = "timescale",
         .description = "the steps in which it falls to 1 / sqrt(2); without it those of the warm-up, or 10,000",
         .type = Type::Integer,
         .range = from(1)}}},
      {"linear",
       "lr = linear { peak = 1e-3, warmup = 0.03 }",
       "rises over the warm-up and falls along a line to the floor",
       {peak_spec, warmup_spec, floor_spec, min_spec}},
      {"wsd",
       "lr = wsd { peak = 1e-3, warmup = 100, decay = 0.1 }",
       "warm-up, stable, decay: rises, stays, and falls at the end",
       {peak_spec,
        warmup_spec,
        {.name = "decay",
         .description = "steps at the end that fall to the floor, or a share of the run below 1",
         .fallback = Value(0.1),
         .range = from(0),
         .aliases = {"num_decay_steps"},
         .wanted = "a whole number of steps, or a share of the run below 1"},
        {.name = "decay_type",
         .description = "along what they fall",
         .type = Type::Choice,
         .fallback = Value(std::string("cosine")),
         .choices = {"cosine", "linear", "1-sqrt"}},
        floor_spec,
        min_spec}}};
  return out;
}

const Declared& find_declared(const std::vector<Declared>& list, std::string_view name) {
  const auto at = std::find_if(list.begin(), list.end(), [&](const Declared& one) { return one.name == name; });
  assert(at != list.end());
  return *at;
}

const Declared& declared_schedule(std::string_view name) { return find_declared(declared_schedules(), name); }

}  // namespace galley
