// What each command does: a table.
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>

#include "host/base/nearest.hpp"
#include "host/base/ordered.hpp"
#include "host/commands/cli.hpp"
#include "host/commands/inspect.hpp"
#include "host/commands/listing.hpp"
#include "host/commands/run_commands.hpp"
#include "host/commands/sample.hpp"
#include "host/commands/tokenize.hpp"
#include "host/commands/train_tokenizer.hpp"
#include "host/plan/shadow.hpp"
#include "host/report/plan_report.hpp"

namespace galley {
namespace {

const FlagSpec set_flag = {"--set", "NAME=VALUE", "an argument of the recipe: arg(\"NAME\")", true, false};
const FlagSpec confine_flag = {"--confine", "", "the recipe is from somebody else: keep it in its folder", false, false};
const FlagSpec plugin_path_flag = {"--plugin-path", "DIR",
                                   "a folder with a plugin, or with folders of plugins; so may GALLEY_PLUGIN_PATH=DIR:DIR", true, false};
const FlagSpec device_flag = {"--device", "KIND", "the device to run on (cpu)", false, false};
const FlagSpec target_flag = {"--target", "FILE", "plan for the machine in this TOML file instead of this one", false, false};
const FlagSpec memory_flag = {"--memory", "BYTES", "refuse a plan that needs more, e.g. 24GiB", false, false};
const FlagSpec poison_flag = {"--poison", "", "debug: junk in all memory but the current instruction's operands (slow)", false, false};

int terminal_columns() {
  winsize size = {};
  return isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

constexpr size_t kMostThreads = 4096;

Status command_tokenize(const CommandLine& a) {
  const auto threads = static_cast<size_t>(TRY(a.integer("--threads", static_cast<int64_t>(usable_threads()), 1)));
  if (threads > kMostThreads)
    return recipe_error("--threads " + a.get("--threads") + ": more than " + std::to_string(kMostThreads) + " are not started");
  if (a.has("--train")) {
    if (!a.positional.empty() || a.has("--decode") || a.has("--special"))
      return recipe_error("galley tokenize: --train makes a tokenizer, and takes none");
    if (!a.has("--vocab") || !a.has("--out")) return recipe_error("galley tokenize: --train wants --vocab N and --out DIR");
    return train_tokenizer(a.flags.at("--train"), static_cast<size_t>(TRY(a.integer("--vocab", 0, 1))), a.get("--out"), threads);
  }
  for (const char* flag : {"--vocab", "--out"})
    if (a.has(flag)) return recipe_error(std::string("galley tokenize: ") + flag + " goes with --train");
  if (a.positional.empty())
    return recipe_error("galley tokenize: TOKENIZER_JSON is missing", "or train one: galley tokenize --train FILE --vocab N --out DIR");
  if (a.has("--decode") && a.has("--special")) return recipe_error("galley tokenize: --special goes with texts, not with --decode");
  return tokenize(a.positional[0], a.has("--decode") ? Direction::Decode : Direction::Encode,
                  a.has("--special") ? Template::Yes : Template::No, threads);
}

Status check_dump(const std::string& wanted) {
  if (wanted.empty() || wanted == "all" || wanted == plan_pass.name) return ok();
  std::vector<std::string> names = {"all"};
  std::string list;
  for (const PassInfo& pass : pass_list()) {
    if (wanted == pass.name) return ok();
    names.emplace_back(pass.name);
    list += (list.empty() ? "" : ", ") + names.back();
  }
  names.emplace_back(plan_pass.name);
  const std::string guess = did_you_mean(wanted, names);
  return recipe_error("--dump " + wanted + ": there is no such pass", guess.empty() ? "all, " + list + ", plan" : guess);
}

void print_dump(const std::string& wanted, const PassInfo& pass, const std::function<std::string()>& text) {
  if (wanted != "all" && wanted != pass.name) return;
  std::printf("# %s: %s\n", pass.name, pass.does);
  std::fputs(text().c_str(), stdout);
}

Status command_plan(const CommandLine& a) {
  StudyOptions options = TRY(study_options(a));
  options.runs = false;
  const std::string dump = a.get("--dump");
  if (dump == "help") {
    for (const PassInfo& pass : pass_list()) std::printf("%-14s %s\n", pass.name, pass.does);
    std::printf("%-14s %s\n", plan_pass.name, plan_pass.does);
    return ok();
  }
  TRY_STATUS(check_dump(dump));
  if (!dump.empty()) options.watch = [&](const PassInfo& pass, const auto& text) { print_dump(dump, pass, text); };
  const auto s = TRY(study(a.positional[0], options));
  if (!dump.empty()) return ok();
  if (a.has("--check")) TRY_STATUS(check_plan(s->program, s->plan, s->target));
  const DiskUse disk = disk_use(s->program, s->recipe);
  if (a.has("--json")) {
    std::fputs(plan_json(s->program, s->plan, s->target, disk, {}).c_str(), stdout);
    return ok();
  }
  std::printf("plan of %s: %s, for %s (%s, %lld threads)\n", a.positional[0].c_str(), s->model.model_type.c_str(), s->target.device.c_str(),
              s->target.isa.c_str(), static_cast<long long>(s->target.threads));
  std::printf("  data            %s\n", s->data.summary.c_str());
  std::fputs(plan_table(s->program, s->plan, s->target, disk, terminal_columns()).c_str(), stdout);
  return ok();
}

Status command_data(const CommandLine& a) {
  StudyOptions options = TRY(study_options(a));
  options.purpose = Purpose::Gradients;
  options.runs = false;
  const int64_t rows = TRY(a.integer("--rows", 2, 0));
  return show_data(*TRY(study(a.positional[0], options)), rows, a.has("--json") ? DataForm::Json : DataForm::Text);
}

Status command_plugins(const CommandLine& a) {
  const StudyOptions options = TRY(study_options(a));
  return print_plugins(options.plugin_path, a.positional.empty() ? "" : a.positional[0]);
}

}  // namespace

std::vector<CommandSpec> all_commands() {
  return {
      {"plan",
       "RECIPE",
       "say to the byte what a recipe will need, when and for whom",
       "Opens no device and no weights. Examples:\n  galley plan scripts/quickstart.lua --set text=.\n  galley plan finetune.lua --set "
       "model=DIR --memory 24GiB   exit code 3 when it does not fit\n",
       {set_flag,
        confine_flag,
        memory_flag,
        target_flag,
        device_flag,
        plugin_path_flag,
        {"--json", "", "for programs"},
        {"--check", "", "prove the plan on the shadow device as well"},
        {"--dump", "PASS", "show what a pass of the compiler has made, or all of them: all; `--dump help` lists them"}},
       command_plan},
      {"train",
       "RECIPE",
       "train, into a new run directory",
       "Plans first, and refuses by name what cannot work. The directory gets metrics.jsonl, memory.json, run.toml, model/ or adapter/, "
       "and state/ to go on from.\n"
       "Ctrl-C finishes the step, saves, and says how to go on; a second one ends at once.\n",
       {{"--out", "DIR", "the run's directory: new, or empty", false, true},
        set_flag,
        confine_flag,
        memory_flag,
        target_flag,
        device_flag,
        plugin_path_flag,
        poison_flag},
       command_train},
      {"resume",
       "DIR",
       "go on where a run stopped, bit for bit",
       "A run that was killed before its first save begins again. Where something has changed that the run depends on (its recipe, "
       "modules,\n"
       "data, base model, plugins), it is not resumed; the error says what has changed.\n",
       {{"--recorded", "", "go on with the recipe and modules as the run wrote them down, although their files have changed"},
        plugin_path_flag,
        poison_flag},
       command_resume},
      {"eval",
       "RECIPE|DIR",
       "the loss on the validation data of a recipe or a run",
       "",
       {set_flag, confine_flag, device_flag, plugin_path_flag, {"--json", "", "for programs"}},
       command_eval},
      {"sample",
       "DIR",
       "let a model write on from a prompt, or talk with it",
       "DIR is a run's directory, or a model's folder (config.json, model.safetensors, tokenizer.json). Text is shown as it is made, until "
       "--tokens, a "
       "token that ends texts, or a --stop. Examples:\n  galley sample runs/first --prompt \"A plan is\" --tokens 200 --temperature 0.8 "
       "--seed 7\n  galley "
       "sample runs/chat --chat                  a conversation, with the model's template\n  echo \"Name a prime.\" | galley sample model "
       "--chat "
       "--temperature 0\n",
       {{"--prompt", "TEXT", "what to begin with; with --chat: what the user says"},
        {"--chat", "", "a conversation: each line of stdin is what the user says next"},
        {"--tokens", "N", "how many to write at most (200)"},
        {"--temperature", "T", "0 takes the likeliest each time (0.8)"},
        {"--top-k", "K", "draw from the K likeliest only (40; 0: all)"},
        {"--top-p", "P", "of those, from the fewest that are P likely together (1)"},
        {"--seed", "N", "of the draws (1)"},
        {"--stop", "TEXT", "end before this text", true, false},
        {"--system", "TEXT", "with --chat: what the system says first"},
        {"--template", "NAME", "with --chat: the chat template, where the model's is not recognised"},
        {"--length", "N", "of a model's folder: the tokens that the model sees (512)"},
        plugin_path_flag},
       command_sample},
      {"data",
       "RECIPE",
       "what the model will see: documents, tokens, padding, a few rows",
       "Prepares the data as train would, which then finds it prepared. Tokens that count in the loss are in colour on a terminal, "
       "elsewhere "
       "between ‹ and ›. Example:\n  galley data scripts/chat.lua --set model=DIR --set chat=talk.jsonl --rows 4\n",
       {{"--rows", "N", "how many rows to show (2)"},
        {"--json", "", "for programs"},
        set_flag,
        confine_flag,
        device_flag,
        plugin_path_flag},
       command_data},
      {"gradients",
       "RECIPE",
       "loss and every gradient of one window, as safetensors",
       "For comparing with other programs: loss (F64), grad.PARAMETER (F32, before clipping), and with --logits the logits.\n",
       {{"--out", "FILE", "the file to write", false, true},
        {"--logits", "", "the logits too"},
        set_flag,
        confine_flag,
        target_flag,
        device_flag,
        plugin_path_flag},
       command_gradients},
      {"tokenize",
       "[TOKENIZER_JSON]",
       "texts to token ids and back, as JSON lines; or train a tokenizer",
       "Reads {\"text\": …} a line from stdin and writes {\"ids\": […]}; with --decode the other way. Example:\n"
       "  echo '{\"text\": \"Hello\"}' | galley tokenize model/tokenizer.json --special\n"
       "With --train, makes a byte-level BPE of text files, folders and patterns. Example:\n"
       "  galley tokenize --train \"books/*.txt\" --vocab 8000 --out tokenizer\n",
       {{"--special", "", "with the tokens that the file puts around each text (<s>)", false, false},
        {"--decode", "", "from ids to text", false, false},
        {"--threads", "N", "how many to use (all)", false, false},
        {"--train", "FILES", "train on these files", true, false},
        {"--vocab", "N", "with --train: how many tokens"},
        {"--out", "DIR", "with --train: where tokenizer.json goes"}},
       command_tokenize},
      {"plugins", "[NAME]", "what strategies there are; their options", "", {plugin_path_flag}, command_plugins},
  };
}

}  // namespace galley
