// What each command does: a table.
#include <cstdio>
#include <optional>

#include "host/base/confinement.hpp"
#include "host/base/glob.hpp"
#include "host/base/ordered.hpp"
#include "host/commands/certify.hpp"
#include "host/commands/check.hpp"
#include "host/commands/cli.hpp"
#include "host/commands/compare.hpp"
#include "host/commands/embed.hpp"
#include "host/commands/fit.hpp"
#include "host/commands/inspect.hpp"
#include "host/commands/plan.hpp"
#include "host/commands/plugin.hpp"
#include "host/commands/predict.hpp"
#include "host/commands/report.hpp"
#include "host/commands/run_commands.hpp"
#include "host/commands/sample.hpp"
#include "host/commands/tokenize.hpp"
#include "host/commands/train_tokenizer.hpp"
#include "host/session/study.hpp"
#include "host/tools/report/data_report.hpp"
#include "host/tools/report/listing.hpp"
#include "host/tools/report/terminal.hpp"

namespace galley {
namespace {

const FlagSpec set_flag = {"--set", "NAME=VALUE", "set a recipe argument: the value of arg(\"NAME\")", true, false};
const FlagSpec use_flag = {"--use", "STRATEGY",
                           "add a strategy to the recipe's own, as it would write it: NAME, or 'NAME { option = value }'", true, false};
const FlagSpec without_flag = {
    "--without", "PASSES",
    "leave passes of the compiler out that only make it faster, to find a bug: exchanges, fuse, alias, overlap, with commas between"};
const FlagSpec confine_flag = {"--confine", "", "limit what comes from somebody else to files in its own folder and those that flags name",
                               false, false};
const FlagSpec unconfined_flag = {"--unconfined", "", "let a run that is not marked as yours read all that it recorded", false, false};
const FlagSpec plugin_path_flag = {"--plugin-path", "DIR",
                                   "search DIR for plugins first; DIR is a plugin's folder or a folder of such folders", true, false};
const FlagSpec device_flag = {"--device", "KIND", "the device to run on: cpu, or cuda for an NVIDIA GPU (cpu)", false, false};
const FlagSpec memory_flag = {"--memory", "BYTES", "refuse a plan that needs more memory than this, e.g. 24GiB", false, false};
const FlagSpec lanes_flag = {"--lanes", "N",
                             "add each of N equal shares of a window's micro-batches up by itself: the run has the same bytes with every "
                             "number of processes that divides N (the recipe's)",
                             false, false};
const FlagSpec ranks_flag = {"--ranks", "N", "plan for N processes that share the run, by the one that needs the most (1)", false, false};
const FlagSpec poison_flag = {"--poison", "", "debug: before each instruction, fill all memory except its operands with junk (slow)", false,
                              false};
const FlagSpec reference_flag = {
    "--reference", "", "debug: compute every instruction again by the reference of its op, and stop at the first that differs (slow)",
    false, false};
const FlagSpec reference_out_flag = {"--reference-out", "FILE",
                                     "with --reference: write what was compared, and the largest errors, as JSON", false, false};
const FlagSpec profile_flag = {"--profile", "",
                               "print how long each op and each strategy takes on the device, and the share of its peak that it reaches",
                               false, false};
const FlagSpec trace_flag = {"--trace", "FILE", "write what runs when in steps 2 to 4, for chrome://tracing or ui.perfetto.dev", false,
                             false};

const FlagSpec until_flag = {"--until", "STEP", "save and end after this step; `galley resume` goes on from it", false, false};

FlagSpec target_flag_for(const std::filesystem::path& shipped) {
  std::string names;
  for (const std::string& name : target_names(shipped)) names += name + ", ";
  return {"--target", "NAME|FILE", "plan for another machine: " + names + (names.empty() ? "" : "or ") + "a TOML file", false, false};
}

constexpr size_t kMostThreads = 4096;

Status command_tokenize(const CommandLine& a) {
  const auto threads = static_cast<size_t>(TRY(a.integer("--threads", static_cast<int64_t>(usable_threads()), 1)));
  if (threads > kMostThreads) return recipe_error("--threads " + a.get("--threads") + ": the limit is " + std::to_string(kMostThreads));
  if (a.has("--train")) {
    if (!a.positional.empty() || a.has("--decode") || a.has("--special"))
      return recipe_error("galley tokenize: --train takes no TOKENIZER_JSON, --decode or --special");
    if (!a.has("--vocab") || !a.has("--out")) return recipe_error("galley tokenize: --train needs --vocab N and --out DIR");
    std::vector<std::filesystem::path> folders;
    for (const std::string& named : a.flags.at("--train")) {
      const std::filesystem::path begin = before_wildcards(named);
      folders.push_back(begin.empty() ? "." : begin);
    }
    std::optional<Confinement> within;
    if (a.has("--confine")) within.emplace(folders, "the folders that --train names", "without --confine, links are followed");
    return train_tokenizer(a.flags.at("--train"), static_cast<size_t>(TRY(a.integer("--vocab", 0, 1))), a.get("--out"), threads);
  }
  for (const char* flag : {"--vocab", "--out", "--confine"})
    if (a.has(flag)) return recipe_error(std::string("galley tokenize: ") + flag + " requires --train");
  if (a.positional.empty())
    return recipe_error("galley tokenize: TOKENIZER_JSON is missing", "to train one: galley tokenize --train FILE --vocab N --out DIR");
  if (a.has("--decode") && a.has("--special")) return recipe_error("galley tokenize: --special cannot be combined with --decode");
  return tokenize(a.positional[0], a.has("--decode") ? Direction::Decode : Direction::Encode,
                  a.has("--special") ? Template::Yes : Template::No, threads);
}

Status command_data(const CommandLine& a) {
  StudyOptions options = TRY(study_options(a));
  options.purpose = Purpose::Gradients;
  options.runs = false;
  const int64_t rows = TRY(a.integer("--rows", 2, 0));
  return show_data(*TRY(study(a.positional[0], options)), rows, a.has("--json") ? DataForm::Json : DataForm::Text,
                   a.has("--validation") ? Split::Validation : Split::Train, options.warn);
}

Status command_plugins(const CommandLine& a) {
  const StudyOptions options = TRY(study_options(a));
  return print_plugins(options.plugin_path, a.positional.empty() ? "" : a.positional[0], a.has("--json"));
}

}  // namespace

std::vector<CommandSpec> all_commands() {
  const FlagSpec target_flag = target_flag_for(find_installation().targets);
  return {
      {"plan",
       "RECIPE",
       "show how much memory a recipe needs, to the byte: when, and for what",
       "Opens no device and reads no weights. Examples:\n"
       "  galley plan scripts/quickstart.lua --set text=.\n"
       "  galley plan finetune.lua --set model=DIR --memory 24GiB   exit code 3 if it does not fit\n",
       {set_flag,
        use_flag,
        confine_flag,
        memory_flag,
        lanes_flag,
        {"--ranks", "N", "plan for one of N processes that share the run (1)"},
        {"--rank", "R", "with --ranks: which of them, from 0 (0)"},
        target_flag,
        device_flag,
        plugin_path_flag,
        without_flag,
        {"--json", "", "print the plan as JSON"},
        {"--tensors", "", "with --json: also each tensor, with its bytes, owner, offset and life"},
        {"--html", "FILE", "write a page with a map of the memory: every tensor, where and when; for a browser, without network"},
        {"--lock", "FILE", "write what the plan takes, by tensor, for --against"},
        {"--against", "FILE", "say what has grown, shrunk, come and gone since --lock wrote FILE; exit code 1 if a memory needs more"},
        {"--check", "",
         "also prove the plan, with stamps in the place of numbers: each operand holds what it should when it is read; kernels do not run"},
        {"--dump", "PASS", "print the result of a compiler pass; `all` prints every pass, `help` lists them"},
        {"--choices", "LINE:N,…", "take entry N of the one_of in that line, not the first, as galley fit does: 3:2,7:1"}},
       command_plan},
      {"train",
       "RECIPE",
       "train a model in a new run directory",
       "Plans the run before it starts; an error names whatever cannot work. Writes recipe.lua, run.toml, metrics.jsonl, memory.json,\n"
       "model/ or adapter/, and state/, from which `galley resume` continues.\n"
       "Ctrl-C finishes the step and its validation, saves, and prints how to continue. A second Ctrl-C ends the program at once.\n",
       {{"--out", "DIR", "the run's directory; it must be new or empty", false, true},
        set_flag,
        use_flag,
        confine_flag,
        memory_flag,
        lanes_flag,
        target_flag,
        device_flag,
        plugin_path_flag,
        without_flag,
        until_flag,
        profile_flag,
        trace_flag,
        poison_flag,
        reference_flag,
        reference_out_flag},
       command_train,
       false,
       true},
      {"resume",
       "DIR",
       "continue a run from its last save, with the same results to the bit",
       "A run that was killed before its first save starts again. If something that the run depends on has changed (its recipe, modules,\n"
       "data, base model or plugins), the run is not resumed; the error says what has changed.\n"
       "With --steps or --epochs a run goes on after its end, as a run of its own: schedules are asked for the new length. Example:\n"
       "  galley resume DIR --steps 2000 --out longer\n",
       {{"--steps", "N", "how many steps the run is to have in all; needs --out"},
        {"--epochs", "E", "how often it is to go through the data in all; needs --out"},
        {"--out", "NEW", "with --steps or --epochs: the directory of the run that goes on; DIR stays as it is"},
        {"--recorded", "", "use the recipe and modules that the run recorded, even if their files have changed"},
        confine_flag,
        unconfined_flag,
        plugin_path_flag,
        until_flag,
        profile_flag,
        trace_flag,
        poison_flag,
        reference_flag,
        reference_out_flag},
       command_resume,
       false,
       true},
      {"compare",
       "RECIPE…",
       "train recipes side by side, with the same seeds, and say how they differ",
       "RECIPE returns compare { … }; or several recipes are given, the first of which is what the others are held against.\n"
       "Arms take turns, so that a noisy machine is fair to all; what is interrupted goes on when the command is started again. Each "
       "arm's\n"
       "runs are ordinary run directories below DIR/arms. DIR/compare.json says all for programs.\n"
       "With --ranks N, plans are those of N processes; one trains in their place, lane after lane, which leaves the same losses and "
       "models,\n"
       "to the byte, or up to rounding where groups of them make sums first. Examples:\n"
       "  galley compare scripts/compare.lua --set model=DIR --set data=FILE --out lean\n"
       "  galley compare plain.lua lean.lua --out both --expect 'lean: memory <= 0.5 plain' --expect 'lean: rounding'\n",
       {{"--out", "DIR", "the comparison's directory; what it holds already is taken over", false, true},
        {"--seeds", "N,N,…", "train each arm with each of these seeds (those of the recipe, or 1,2,3,4,5)"},
        {"--margin", "MARGIN", "a difference of losses that matters: in nats, or a share of what training gains (the recipe's, or 2%)"},
        {"--turns", "N", "cut each run into N parts (those of the recipe, or 4)"},
        {"--expect", "CONDITION",
         "exit code 1 if it does not hold: 'ARM: identical', 'ARM: rounding', 'ARM: same', 'ARM: better', 'ARM: worse', 'ARM: memory <= "
         "0.5 OTHER'",
         true, false},
        set_flag,
        use_flag,
        confine_flag,
        memory_flag,
        lanes_flag,
        ranks_flag,
        target_flag,
        device_flag,
        plugin_path_flag},
       command_compare},
      {"certify",
       "RECIPE",
       "hold what a recipe's strategies declare against what they do: each one off and on",
       "Two updates on the recipe's own model and data, with each strategy off or replaced by the one that it stands for, and once under\n"
       "the references of all ops. Shows by how much losses, gradients and updates differ, beside the bound of what the strategy's\n"
       "manifest declares: bits, rounding or approximate. Also runs the recipe twice, at other addresses and with another number of\n"
       "threads, and holds gradient rules against finite differences. Exit code 4 if a declaration does not hold. Example:\n"
       "  galley certify scripts/finetune.lua --set model=DIR --set text=book.txt\n",
       {{"--json", "FILE", "write all of it for programs"},
        {"--out", "DIR", "keep gradients and weights of all arms here; DIR must be new or empty"},
        {"--references", "",
         "run all instructions under the ops' references whatever the model's size; above 20 M parameters it takes minutes"},
        {"--no-references", "", "leave out the run under the ops' references"},
        set_flag,
        use_flag,
        confine_flag,
        memory_flag,
        target_flag,
        device_flag,
        plugin_path_flag},
       command_certify},
      {"check",
       "DIR",
       "hold a plugin against what the headers ask of it, each thing in a process of its own",
       "DIR is a plugin's folder, which may lie anywhere. Its manifest is held against what the plugin asks for and claims; functions "
       "that\n"
       "have to be pure are asked again, also at once; gradient rules are held against finite differences of references in double\n"
       "precision, kernels against the references, in all sizes, dtypes, numbers of threads and levels that are here; formats, kinds of\n"
       "data and listeners by what they say; and short runs are trained with each strategy, as example.lua beside plugin.toml says.\n"
       "Kernels for CUDA run on the GPU that is here, or without one on that which the SDK emulates. Says what it has not looked at. Each\n"
       "finding names the sentence that it breaks, and a command that runs its test once more. Exit code 4 if something is found.\n"
       "Example:\n"
       "  galley check build/plugins/mine\n",
       {{"--json", "FILE", "write all of it for programs"},
        {"--only", "TEST", "run one test, in this process"},
        {"--lines", "FILE", "with --only: write each thing there as it is found, a line of JSON each"},
        {"--seconds", "N",
         "what all tests may take, as far as they can leave something out, which is said (60); with --only what this one may (20)"},
        {"--seed", "N", "seed of the numbers that cases are drawn from (1)"},
        plugin_path_flag},
       command_check},
      {"fit",
       "RECIPE",
       "plan all that a recipe offers by one_of { … }: what fits, how fast, how exact",
       "Opens no device. The order in a one_of says what is wanted: of what computes different things, the first that fits is chosen, an\n"
       "earlier one_of first; of what differs in memory and speed alone, the fastest. Other commands take the first of each one_of.\n"
       "With --ranks N each combination is planned as a run of N processes, of which the one that needs the most has to fit. Example:\n"
       "  galley fit scripts/fit.lua --set model=DIR --set data=FILE --memory 6GiB --target rtx4060 --write mine.lua\n",
       {{"--memory", "BYTES", "the memory that there is, e.g. 6GiB; with --ranks that of each process", false, true},
        lanes_flag,
        ranks_flag,
        {"--write", "FILE", "write the recipe that is chosen"},
        {"--all", "", "print every combination that can work, and not only the fastest and the leanest of those that compute the same"},
        set_flag,
        use_flag,
        confine_flag,
        target_flag,
        device_flag,
        plugin_path_flag},
       command_fit},
      {"report",
       "DIR…",
       "write a page about a run, several runs or a comparison: curves, speed, memory, verdicts",
       "DIR is a run's directory, or that of a comparison that has ended. Writes report.html into the first one: a single file that loads\n"
       "nothing, for any browser. Opens no device; runs are planned again, to show their memory. Examples:\n"
       "  galley report runs/first\n"
       "  galley report runs/plain runs/lean\n",
       {confine_flag, unconfined_flag, plugin_path_flag},
       command_report,
       false},
      {"eval",
       "RECIPE|DIR",
       "compute the loss of a recipe's or a run's model on the validation data",
       "",
       {set_flag,
        use_flag,
        confine_flag,
        unconfined_flag,
        device_flag,
        plugin_path_flag,
        {"--json", "", "print the result as JSON"},
        reference_flag,
        reference_out_flag},
       command_eval},
      {"export",
       "DIR|RECIPE",
       "write the model or the adapter of a run into a new folder, for other programs",
       "DIR is a run's directory, whether the run has ended or not: its best state is exported where the recipe keeps it, "
       "else its newest.\n"
       "It may also be a model's folder, or an adapter's in PEFT's format; or a recipe, whose model is written as its run would begin.\n"
       "The folder that is written is in Hugging Face's format, or for an adapter in PEFT's. Examples:\n"
       "  galley export runs/chat --out adapter                         an adapter stays one\n"
       "  galley export runs/chat --merge --out model                   one model, with the adapter merged into its weights\n"
       "  galley export runs/chat --merge --format gguf --dtype q4_k --out chat.gguf    one file for llama.cpp, with the tokenizer\n"
       "Merging computes in F32 from the weights as the run keeps them, and rounds once. Without --dtype, a model is saved in F32, unless\n"
       "most of its numbers are kept in 16 bit only and none that is trained is kept in F32: then in that dtype.\n"
       "A GGUF file is read again and compared with the model before it gets its name. While it is written, the model lies beside it a "
       "second\n"
       "time, in F32 if there is a --dtype.\n",
       {{"--out", "PATH", "the folder to write, which must be new or empty; with --format gguf the new file, FILE.gguf", false, true},
        {"--format", "FORMAT", "hf: a folder in Hugging Face's format (the default); gguf: one file for llama.cpp"},
        set_flag,
        use_flag,
        confine_flag,
        unconfined_flag,
        {"--merge", "", "merge what was trained beside the model's weights into them"},
        {"--dtype", "DTYPE", "round the numbers to f32, bf16 or f16; with --format gguf also to q8_0, q6_k, q4_k or q4_0"},
        {"--shard", "SIZE", "split a model into files of at most this size, with an index (5GB)"},
        {"--unchecked", "", "with --format gguf: do not read the file again"},
        {"--modelfile", "FILE", "with --format gguf: also write a Modelfile for Ollama: context, stop texts, chat template"},
        {"--base", "DIR", "with an adapter's folder: its base model, if it is not where adapter_config.json says"},
        {"--json", "", "print the result as JSON: what rounding has taken from each tensor"},
        memory_flag,
        plugin_path_flag,
        reference_flag,
        reference_out_flag},
       command_export},
      {"sample",
       "DIR",
       "continue a prompt, or chat with the model",
       "DIR is a run's directory, a model's folder (config.json, model.safetensors, tokenizer.json), or an adapter's in PEFT's format.\n"
       "Prints text as it is generated, until it has --tokens tokens, an end-of-text token, or a --stop text. A text that grows\n"
       "beyond the context is continued from its last tokens. Examples:\n"
       "  galley sample runs/first --prompt \"A plan is\" --tokens 200 --temperature 0.8 --seed 7\n"
       "  galley sample runs/chat --chat                  a conversation, in the model's chat template\n"
       "  echo \"Name a prime.\" | galley sample model --chat --temperature 0\n"
       "  cat prompts.jsonl | galley sample model --lines\n"
       "                                                  a line {\"text\": …, \"tokens\": N, \"ended\": \"end\"|\"stop\"|\"length\"} for "
       "each\n",
       {{"--prompt", "TEXT", "the text to continue; with --chat: the user's message"},
        {"--chat", "", "chat: each line of stdin is the user's next message"},
        {"--lines", "",
         "continue each line of stdin, a JSON string or {\"prompt\": …}, with --chat also {\"messages\": […]}; print a JSON line"},
        {"--batch", "N", "with --lines: continue N of them at once (8)"},
        {"--tokens", "N", "generate at most N tokens (200)"},
        {"--temperature", "T", "sampling temperature; 0 always takes the most probable token (0.8)"},
        {"--top-k", "K", "sample from the K most probable tokens (40; 0: all)"},
        {"--top-p", "P", "of those, sample from the smallest set of tokens whose cumulative probability is at least P (1)"},
        {"--min-p", "P", "of those, sample from the tokens that are at least P times as probable as the most probable one (0)"},
        {"--repetition-penalty", "X", "divide the scores of tokens that the text has by X (1)"},
        {"--seed", "N", "seed of the random numbers (1)"},
        {"--stop", "TEXT", "stop before this text", true, false},
        {"--system", "TEXT", "with --chat: the system message"},
        {"--template", "NAME", "with --chat: another chat template than the model's: a name, or a .jinja file"},
        {"--length", "N",
         "with a model's or an adapter's folder: the context length in tokens (512, or the model's own where that is shorter)"},
        {"--overlong", "HOW",
         "a prompt longer than the context: `refuse` it (the default), or `cut` it: show its last tokens (of a source the first), of a "
         "conversation leave out the oldest turns after the system message"},
        {"--plan", "", "print the memory that this needs, and sample nothing"},
        {"--no-cache", "", "keep no keys and values of earlier tokens: make each token from the whole text, which takes longer"},
        {"--cache", "int8", "keep them in 8 bit: in a quarter of the memory that they have in F32, and in half of that in 16 bit"},
        {"--base", "DIR", "with an adapter's folder: its base model, if it is not where adapter_config.json says"},
        memory_flag,
        confine_flag,
        unconfined_flag,
        plugin_path_flag,
        reference_flag,
        reference_out_flag},
       command_sample},
      {"embed",
       "DIR",
       "the vectors that a model has of texts, or its hidden states",
       "DIR is as for `galley sample`. Reads a line {\"text\": …} or a JSON string from stdin for each text, with the tokens that the\n"
       "tokenizer puts around one, and writes a line {\"embedding\": […]} for each, in order. Examples:\n"
       "  echo '{\"text\": \"A sentence.\"}' | galley embed model --normalize\n"
       "  cat texts.jsonl | galley embed model --pool none\n",
       {{"--pool", "HOW", "mean of the hidden states (the default), that of the first or last token, or none: {\"states\": [[…], …]}"},
        {"--normalize", "", "divide each vector by its length", false, false},
        {"--length", "N", "with a model's or an adapter's folder: tokens that are read of a text (512, or the model's own)"},
        {"--base", "DIR", "with an adapter's folder: its base model, if it is not where adapter_config.json says"},
        confine_flag,
        unconfined_flag,
        plugin_path_flag,
        reference_flag,
        reference_out_flag},
       command_embed},
      {"predict",
       "DIR",
       "say which labels or values a trained model gives to texts, as JSON lines",
       "DIR is a run or a model's folder. Reads a line {\"text\": …} or a JSON string from stdin for each text, or --text; of a run the "
       "fields\n"
       "are called as in its data. Writes a line for each, in order: {\"label\": …, \"probability\": …, \"probabilities\": {…}}; where a "
       "text\n"
       "may have several labels {\"labels\": […], …}, and for a regression {\"value\": …}. Examples:\n"
       "  galley predict runs/classify --text \"Where is my parcel?\"\n"
       "  cat texts.jsonl | galley predict runs/classify > labels.jsonl\n",
       {{"--text", "TEXT", "a text, in the place of stdin", true, false},
        {"--pair", "TEXT", "the second text beside --text, for a model that tells something of two", true, false},
        {"--length", "N", "with a model's folder: tokens that are read of a text (512, or the model's own)", false, false},
        confine_flag,
        unconfined_flag,
        plugin_path_flag,
        reference_flag,
        reference_out_flag},
       command_predict},
      {"data",
       "RECIPE",
       "show what the model will see: documents, tokens, padding, a few rows",
       "Prepares the data as `galley train` would, and keeps it for a later run. Tokens that count in the loss are shown in colour on a\n"
       "terminal, and between ‹ and › elsewhere. Example:\n"
       "  galley data scripts/chat.lua --set model=DIR --set chat=talk.jsonl --rows 4\n",
       {{"--rows", "N", "show N rows (2), of the first window at most"},
        {"--validation", "", "show rows of the validation data, all of which N may reach"},
        {"--json", "", "print facts and rows as JSON lines"},
        set_flag,
        use_flag,
        confine_flag,
        device_flag,
        plugin_path_flag},
       command_data},
      {"gradients",
       "RECIPE",
       "compute the loss and all gradients of one window; write them as safetensors",
       "For comparison with other programs: without dropout, whatever the recipe says.\n"
       "Writes loss (F64), grad.PARAMETER (F32, before clipping), and with --logits also logits (F32).\n",
       {{"--out", "FILE", "the file to write", false, true},
        {"--logits", "", "also write the logits"},
        set_flag,
        use_flag,
        confine_flag,
        target_flag,
        device_flag,
        plugin_path_flag,
        reference_flag,
        reference_out_flag},
       command_gradients,
       false},
      {"tokenize",
       "[TOKENIZER_JSON]",
       "convert texts to token ids or back, as JSON lines; or train a tokenizer",
       "Reads a line {\"text\": …} from stdin and writes a line {\"ids\": […]}; with --decode, the reverse. Example:\n"
       "  echo '{\"text\": \"Hello\"}' | galley tokenize model/tokenizer.json --special\n"
       "With --train, trains a byte-level BPE on text files, folders and patterns. Example:\n"
       "  galley tokenize --train \"books/*.txt\" --vocab 8000 --out tokenizer\n",
       {{"--special", "", "add the special tokens that the tokenizer puts around each text (<s>)", false, false},
        {"--decode", "", "convert ids to text", false, false},
        {"--threads", "N", "number of threads (all)", false, false},
        {"--train", "FILES", "train on these files", true, false},
        {"--confine", "", "with --train: read no link that leads out of the folders that FILES names", false, false},
        {"--vocab", "N", "with --train: size of the vocabulary"},
        {"--out", "DIR", "with --train: folder for tokenizer.json and tokenizer_config.json"}},
       command_tokenize},
      {"recipe",
       "[NAME]",
       "list all that a recipe can say, with types and defaults, or what one name takes",
       "Examples:\n"
       "  galley recipe save\n"
       "  galley recipe data.chat\n"
       "  galley recipe cosine\n",
       {},
       [](const CommandLine& a) { return print_recipe(a.positional.empty() ? "" : a.positional[0]); }},
      {"plugin",
       "new NAME",
       "begin a plugin of one's own: a folder that builds, passes `galley check` and trains",
       "Writes the folder NAME, from a template of the SDK. What the plugin is called is NAME from then on; what it does is yours to "
       "change.\n"
       "Example:\n"
       "  galley plugin new my-optimizer --kind optimizer\n",
       {{"--kind", "KIND", std::string("what it is: ") + kPluginKinds + "; without it, an optimizer"},
        {"--out", "DIR", "the folder to write (NAME)"}},
       command_plugin},
      {"plugins",
       "[NAME]",
       "list plugins and strategies, or show the options of one",
       "Of a plugin, also its ops, with operands and attributes, and its kernels.\n",
       {plugin_path_flag,
        {"--json", "", "print everything as JSON, for programs: options of strategies, contracts of ops and formats", false, false}},
       command_plugins},
  };
}

}  // namespace galley
