#include "host/recipe/foreign.hpp"

#include <algorithm>
#include <iterator>

namespace galley {
namespace {

/// Names of transformers' TrainingArguments, TRL, PEFT, axolotl and LLaMA-Factory. `argument`: of a recipe; "": none.
struct ForeignName {
  const char *name, *argument, *written;
};
constexpr const char* kAccumulate = "write use \"accumulate\" { steps = 4 }";
constexpr const char* kRate = "the rate is the optimizer's: use \"adamw\" { lr = 2e-5 }";
constexpr const char* kSchedule = "a schedule stands where the rate does: use \"adamw\" { lr = cosine { peak = 2e-5, warmup = 100 } }";
constexpr const char* kOptimizer = "an option of the optimizer: use \"adamw\" { lr = 2e-5, betas = { 0.9, 0.999 }, weight_decay = 0.1 }";
constexpr const char* kPrecision = "write use \"amp\" { compute = \"bf16\" }, or \"fp16\"; without it all is F32";
constexpr const char* kFourBit = "write use \"quantize-nf4\" { double = true }, and an adapter beside it: use \"lora\" { rank = 16 }";
constexpr const char* kEightBit = "write use \"quantize-int8\" {}, and an adapter beside it: use \"lora\" { rank = 16 }";
constexpr const char* kLora = "write use \"lora\" { rank = 16, alpha = 32, targets = \"all-linear\" }";
constexpr const char* kValidate = "write validate = { every = 50 }; galley recipe validate lists the rest";
constexpr const char* kSave = "write save = { every = 100, keep = 2 }; galley recipe save lists the rest";
constexpr const char* kModel = "write model = model { path = \"DIR\" }, a folder from Hugging Face";
constexpr const char* kData = "write data = data.jsonl { files = { \"FILE\" } }; galley recipe lists all kinds of data";
constexpr const char* kLogs = "every step is in metrics.jsonl and in TensorBoard's events; nothing is to be said";
constexpr ForeignName kForeign[] = {
    {"gradient_accumulation_steps", "accumulate", kAccumulate},
    {"gradient_accumulation", "accumulate", kAccumulate},
    {"accumulate_grad_batches", "accumulate", kAccumulate},
    {"grad_accum_steps", "accumulate", kAccumulate},
    {"accumulate", "accumulate", kAccumulate},
    {"learning_rate", "lr", kRate},
    {"lr", "lr", kRate},
    {"warmup_steps", "", kSchedule},
    {"warmup_ratio", "", kSchedule},
    {"lr_scheduler_type", "", kSchedule},
    {"lr_scheduler", "", kSchedule},
    {"optim", "", kOptimizer},
    {"optimizer", "optimizer", kOptimizer},
    {"weight_decay", "", kOptimizer},
    {"adam_beta1", "", kOptimizer},
    {"adam_beta2", "", kOptimizer},
    {"adam_epsilon", "", kOptimizer},
    {"max_grad_norm", "", "write use \"clip\" { norm = 1.0 }"},
    {"precision", "precision", kPrecision},
    {"mixed_precision", "precision", kPrecision},
    {"bf16", "precision", kPrecision},
    {"fp16", "precision", kPrecision},
    {"dtype", "precision", kPrecision},
    {"torch_dtype", "precision", kPrecision},
    {"load_in_4bit", "", kFourBit},
    {"bnb_4bit_quant_type", "", kFourBit},
    {"bnb_4bit_use_double_quant", "", kFourBit},
    {"quantization_config", "", kFourBit},
    {"load_in_8bit", "", kEightBit},
    {"gradient_checkpointing", "recompute", "write use \"recompute\" {}"},
    {"lora_r", "rank", kLora},
    {"lora_rank", "rank", kLora},
    {"r", "rank", kLora},
    {"lora_alpha", "alpha", kLora},
    {"lora_dropout", "dropout", kLora},
    {"target_modules", "", kLora},
    {"peft_config", "", kLora},
    {"eval_steps", "validate", kValidate},
    {"eval_strategy", "", kValidate},
    {"evaluation_strategy", "", kValidate},
    {"early_stopping_patience", "", kValidate},
    {"per_device_eval_batch_size", "batch", "validation reads batches of 'batch' rows, too"},
    {"save_steps", "", kSave},
    {"save_strategy", "", kSave},
    {"save_total_limit", "", kSave},
    {"load_best_model_at_end", "", kSave},
    {"logging_steps", "", kLogs},
    {"report_to", "", kLogs},
    {"output_dir", "", "the run's folder stands in the command: galley train RECIPE --out DIR"},
    {"resume_from_checkpoint", "", "galley resume DIR goes on with a run"},
    {"model_name_or_path", "model", kModel},
    {"model_name", "model", kModel},
    {"base_model", "model", kModel},
    {"path", "model", kModel},
    {"dataset", "data", kData},
    {"datasets", "data", kData},
    {"train_dataset", "data", kData},
    {"train_file", "data", kData},
    {"packing", "", "an option of the data: data.chat { …, packing = \"none\" }"},
    {"group_by_length", "", "an option of the data: data.chat { …, packing = \"none\", group_by_length = true }"},
    {"batch_size", "batch", ""},
    {"per_device_train_batch_size", "batch", ""},
    {"micro_batch_size", "batch", ""},
    {"num_train_epochs", "epochs", ""},
    {"num_epochs", "epochs", ""},
    {"max_steps", "steps", ""},
    {"max_seq_length", "length", ""},
    {"max_length", "length", ""},
    {"num_labels", "labels", ""},
    {"model_path", "model", kModel},
};
const ForeignName* foreign(const std::string& name) {
  const auto at = std::find_if(std::begin(kForeign), std::end(kForeign), [&](const ForeignName& f) { return name == f.name; });
  return at == std::end(kForeign) ? nullptr : at;
}

}  // namespace

std::string written_here(const std::string& name) {
  const ForeignName* known = foreign(name);
  return known ? known->written : "";
}
std::string argument_here(const std::string& name) {
  const ForeignName* known = foreign(name);
  return known ? known->argument : "";
}

}  // namespace galley
