#include "host/tools/gguf/gguf_export.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdio>

#include "host/base/confinement.hpp"
#include "host/base/file.hpp"
#include "host/base/json.hpp"
#include "host/exec/folder.hpp"
#include "host/tools/gguf/adapter.hpp"
#include "host/tools/gguf/vocabulary.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostPositions = 32;
/// How far logits may be apart: in F32 only the order of sums differs. Numbers in 16 or 8 bits move those of a model by some thousandths; a
/// tensor in a wrong place moves them by about their size.
constexpr double kMostApart = 1e-5, kMostApartRounded = 0.2;

/// Folders of the export: "model", "adapter".
bool exports_to(const Program& program, const std::string& folder) {
  return std::ranges::any_of(program.segment(SegmentKind::Export).code,
                             [&](const Instruction& i) { return i.write() && i.write()->file.starts_with(folder + "/"); });
}

Status check_exports(const Study& study, const fs::path& out) {
  const std::string place = "galley export --format gguf";
  if (out.extension() != ".gguf")
    return recipe_error(place + ": --out " + out.string() + ": the name of such a file has the ending .gguf", "name it MODEL.gguf");
  std::error_code error;
  if (fs::exists(out, error))
    return recipe_error(place + ": --out " + out.string() + " is there already", "name a new file, or remove that one");
  if (exports_to(study.program, "adapter") && exports_to(study.program, "model"))
    return recipe_error(place + ": this run saves an adapter beside a model that it has changed, which are two files",
                        "--merge writes the model with the adapter merged into its weights");
  if (const std::string& task = study.recipe.learning.task; task != "causal-lm" && task != "seq2seq-lm")
    return recipe_error(place + ": a model whose task is '" + task + "' is not written as a GGUF file",
                        "those of the tasks 'causal-lm' and 'seq2seq-lm' are");
  return ok();
}

/// The text files of the export, as they lie beside the model.
Status write_documents(const Program& program, const fs::path& folder) {
  TRY_STATUS(make_directories(folder));
  for (const Document& document : program.documents) {
    File file = TRY(File::create(folder / fs::path(document.file).filename()));
    TRY_STATUS(file.write(document.text));
  }
  return ok();
}

std::string size_label(int64_t parameters) {
  const char* unit = parameters >= 1'000'000'000 ? "B" : parameters >= 1'000'000 ? "M" : "K";
  const double size = static_cast<double>(parameters) / (*unit == 'B' ? 1e9 : *unit == 'M' ? 1e6 : 1e3);
  char text[40];
  std::snprintf(text, sizeof text, size < 10 ? "%.1f%s" : "%.0f%s", size, unit);
  return text;
}

}  // namespace

Result<GgufExport> GgufExport::prepare(const Study& study, GgufRequest request) {
  TRY_STATUS(check_exports(study, request.out));
  std::error_code error;
  request.out = fs::absolute(request.out, error).lexically_normal();
  if (error) return run_error("the current directory cannot be found: " + error.message(), "go to one that exists");
  const bool adapter = exports_to(study.program, "adapter");
  const auto document =
      std::ranges::find(study.program.documents, adapter ? "adapter/adapter_config.json" : "model/config.json", &Document::file);
  assert(document != study.program.documents.end());
  const Value described = TRY(parse_json(document->text, document->file));
  const Value config = adapter ? Value(study.model.config) : described;
  GgufNaming naming =
      TRY(GgufNaming::create(config.text_field("model_type"), study.installation.families, *config.as<Table>(), study.model.origin));
  if (adapter) TRY(naming.adapter(described, {}));
  else if (described.field<Table>("quantization_config"))
    return recipe_error(
        "galley export --format gguf: the model is saved in 4 or 8 bit ('quantization_config'), which such files have in types of their "
        "own",
        "--dtype q4_k or q8_0 rounds numbers: leave out what quantizes the model, or --merge an adapter that was trained beside it");
  TRY_STATUS(make_directories(request.out.parent_path()));
  NewFolder aside = TRY(NewFolder::beside(request.out));
  Confinement::lend(aside.path());  // what is exported there is read again
  TRY_STATUS(write_documents(study.program, aside.path() / "documents"));
  GgufExport out(std::move(request), std::move(aside), std::move(naming));
  out.keys_.add("general.architecture", Value(out.naming_.model().architecture));
  out.keys_.add("general.type", Value(std::string(adapter ? "adapter" : "model")));
  out.keys_.add("general.name", Value(out.request_.name));
  if (!adapter) TRY_STATUS(out.add_model_keys(study, described));
  const GgufType* type = gguf_type(out.request_.type);
  if (adapter && type && tensor_files::in_blocks(type->dtype))
    return recipe_error("galley export --format gguf: an adapter's matrices are not written in " + out.request_.type, "f32, bf16 or f16");
  if (adapter) out.adapter_ = described;
  return out;
}

Status GgufExport::add_model_keys(const Study& study, const Value& described) {
  const GgufModel& model = naming_.model();
  const GgufType* type = gguf_type(request_.type);
  const std::string dtype = described.text_field("dtype");
  const int64_t saved = dtype == "bfloat16" ? 32 : dtype == "float16" ? 1 : 0;
  notes_ = model.notes;
  keys_.add("general.size_label", Value(size_label(study.program.parameters)));
  keys_.add("general.file_type", Value(type ? type->number : saved));
  if (type && tensor_files::in_blocks(type->dtype)) keys_.add("general.quantization_version", Value(int64_t{2}));
  for (const auto& [key, value] : model.keys) {
    keys_.add(key, value);
    if (const auto* context = value.as<int64_t>(); context && key.ends_with(".context_length")) context_ = *context;
  }
  positions_ = std::min(kMostPositions, context_ > 0 ? context_ : kMostPositions);
  const auto* vocabulary = described.field<int64_t>("vocab_size");  // which every family reads that writes such files
  assert(vocabulary);
  return add_vocabulary(aside_.path() / "documents", *vocabulary, &keys_, &notes_);
}

Status GgufExport::write_model(File& file, const std::function<Status(uint64_t done, uint64_t total)>& progress) {
  const tensor_files::Reader from = TRY(tensor_files::Reader::open(aside_.path() / "model"));
  const Conversion conversion = TRY(plan_conversion(from, naming_, gguf_type(request_.type)));
  if (conversion.turns_blocks && request_.reads_again)
    return recipe_error(
        "galley export --format gguf: such files have matrices of this model the other way round, and Galley does not read "
        "them in blocks: the file cannot be compared with the model",
        "--unchecked writes it without comparing; --dtype f16 and bf16 are compared");
  notes_.insert(notes_.end(), conversion.notes.begin(), conversion.notes.end());
  return convert_tensors(from, naming_.model(), conversion, keys_, file, progress);
}

Status GgufExport::write_adapter(File& file, const std::function<Status(uint64_t done, uint64_t total)>& progress) {
  const tensor_files::Reader from = TRY(tensor_files::Reader::open(aside_.path() / "adapter" / "adapter_model.safetensors"));
  const Conversion conversion = TRY(plan_adapter(from, adapter_, naming_, gguf_type(request_.type), &keys_));
  TRY_STATUS(convert_tensors(from, naming_.model(), conversion, keys_, file, progress));
  return check_adapter_file(from, conversion, file.path());
}

Result<LogitsApart> GgufExport::compare_model() const {
  Result<LogitsApart> apart = read_again(aside_.path() / "model", aside_.path() / "gguf", positions_, request_.options);
  if (!apart && apart.error().exit == Exit::DoesNotFit)
    return Error{Exit::DoesNotFit, "the file cannot be compared with the model: " + apart.error().cause,
                 "--unchecked writes it without comparing"};
  if (!apart) return run_error("the file that was written is not read again: " + apart.error().cause, apart.error().hint);
  const GgufType* type = gguf_type(request_.type);
  const bool exact = !type || type->dtype == tensor_files::Dtype::F32;
  const bool near = type && (!tensor_files::in_blocks(type->dtype) || type->dtype == tensor_files::Dtype::Q8_0);
  const double most = exact ? kMostApart : near ? kMostApartRounded : INFINITY;
  if (apart->apart <= most) return apart;
  char text[200];
  std::snprintf(
      text, sizeof text,
      "the file that was written computes something else: logits are apart by %.2g of their size, and by %.2g at most they may be",
      apart->apart, most);
  return run_error(text, "nothing was kept; this is a fault of Galley, or the model's logits are not those of a trained model");
}

Result<GgufWritten> GgufExport::finish(const std::function<Status(uint64_t done, uint64_t total)>& progress) {
  const fs::path folder = aside_.path() / "gguf", path = folder / "model.gguf";
  GgufWritten out;
  TRY_STATUS(make_directories(folder));
  {
    File file = TRY(File::create(path));
    TRY_STATUS(is_adapter() ? write_adapter(file, progress) : write_model(file, progress));
    out.bytes = TRY(file.size());
  }
  if (request_.reads_again && !is_adapter()) out.apart = TRY(compare_model());
  out.notes = notes_;
  TRY_STATUS(progress(out.bytes, out.bytes));
  TRY_STATUS(sync_directory(folder));
  TRY_STATUS(rename_synced(path, request_.out));
  return out;
}

}  // namespace galley
