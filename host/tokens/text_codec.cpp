#include "host/tokens/text_codec.hpp"

#include <algorithm>
#include <array>

#include "host/base/below.hpp"
#include "host/base/confinement.hpp"
#include "host/base/file.hpp"
#include "host/base/json.hpp"
#include "host/tokens/cache.hpp"
#include "host/tokens/chat.hpp"
#include "host/tokens/new_tokens.hpp"
#include "host/tokens/spec.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

/// What belongs to a tokenizer and lies beside it; the last is the model's, and not saved with it.
constexpr std::string_view kBeside[] = {
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",      "vocab.json",
    "merges.txt",     "tokenizer.model",       "chat_template.jinja",     "generation_config.json", "config.json"};

/// The object in a file; an empty one where there is no such file.
Result<Table> object_in(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return Table();
  Result<Value> read = read_json(path);
  if (!read) return recipe_error(read.error().cause, read.error().hint);
  Value value = *std::move(read);
  auto* table = std::get_if<Table>(&value);
  if (!table) return recipe_error(path.string() + ": this is no JSON object");
  return std::move(*table);
}

/// Returns the text of a token: "<s>", or { content = "<s>" }.
std::string token_text(const Table& table, const char* name) {
  const auto it = table.find(name);
  if (it == table.end()) return {};
  if (const auto* text = it->second.as<std::string>()) return *text;
  return it->second.text_field("content");
}

/// An id, or a list of them.
std::vector<TokenId> ids_in(const Table& table, const char* name) {
  std::vector<TokenId> out;
  const auto add = [&](const Value& value) {
    if (const auto* id = value.as<int64_t>(); id && *id >= 0 && *id < INT32_MAX) out.push_back(static_cast<TokenId>(*id));
  };
  const auto it = table.find(name);
  if (it == table.end()) return out;
  add(it->second);
  if (const auto* list = it->second.as<List>()) std::for_each(list->begin(), list->end(), add);
  return out;
}

/// A template, or a list of { name, template }.
std::map<std::string, std::string> templates_in(const Table& table) {
  std::map<std::string, std::string> out;
  const auto it = table.find("chat_template");
  if (it == table.end()) return out;
  if (const auto* text = it->second.as<std::string>()) out.emplace("default", *text);
  const auto* list = it->second.as<List>();
  for (size_t i = 0; list && i < list->size(); ++i)
    if (const auto* entry = (*list)[i].as<Table>()) out.emplace(token_text(*entry, "name"), token_text(*entry, "template"));
  return out;
}

/// The chat templates that are files of a model's folder, by name: chat_template.jinja, and those of additional_chat_templates.
std::map<std::string, std::string> template_files(const fs::path& folder) {
  std::map<std::string, std::string> out;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / "additional_chat_templates", error))
    if (entry.path().extension() == ".jinja")
      out.emplace(entry.path().stem().string(), "additional_chat_templates/" + entry.path().filename().string());
  if (fs::exists(folder / "chat_template.jinja", error)) out["default"] = "chat_template.jinja";
  return out;
}

}  // namespace

Result<ModelTokens> read_model_tokens(const fs::path& folder) {
  const Table about = TRY(object_in(folder / "tokenizer_config.json")), config = TRY(object_in(folder / "config.json")),
              generation = TRY(object_in(folder / "generation_config.json"));
  ModelTokens out;
  const Table map = TRY(object_in(folder / "special_tokens_map.json"));
  const auto token = [&](const char* name) {
    std::string text = token_text(about, name);
    return text.empty() ? token_text(map, name) : text;
  };
  out.bos = token("bos_token");
  out.eos = token("eos_token");
  out.mask = token("mask_token");
  out.pad = token("pad_token");
  out.cls = token("cls_token");
  out.sep = token("sep_token");
  out.unk = token("unk_token");
  out.eos_ids = ids_in(config, "eos_token_id");
  out.stops = ids_in(generation, "eos_token_id");
  out.chat_templates = templates_in(about);
  for (const auto& [name, file] : template_files(folder)) {
    Result<std::string> text = read_text(folder / file);
    if (!text) return recipe_error(text.error().cause, text.error().hint);
    out.chat_templates.insert_or_assign(name, *std::move(text));
  }
  return out;
}

SpecialTokens special_tokens(const Tokenizer& tokenizer, const ModelTokens& model) {
  const std::span<const TokenId> specials = tokenizer.specials();
  const auto id = [&](const std::string& name, std::initializer_list<const char*> usual) {
    if (!name.empty()) return tokenizer.find(name);
    for (const char* token : usual)
      if (const auto it = std::find_if(specials.begin(), specials.end(), [&](TokenId s) { return tokenizer.name(s) == token; });
          it != specials.end())
        return *it;
    return TokenId{-1};
  };
  SpecialTokens out;
  out.mask = id(model.mask, {"[MASK]", "<mask>"});
  out.pad = id(model.pad, {"[PAD]", "<pad>"});
  out.cls = id(model.cls, {"[CLS]"});
  out.sep = id(model.sep, {"[SEP]"});
  out.unk = model.unk.empty() ? tokenizer.unknown() : tokenizer.find(model.unk);
  out.all.assign(specials.begin(), specials.end());
  for (const TokenId one : {out.mask, out.pad, out.cls, out.sep, out.unk, tokenizer.find(model.bos), tokenizer.find(model.eos)})
    if (one >= 0) out.all.push_back(one);
  std::sort(out.all.begin(), out.all.end());
  out.all.erase(std::unique(out.all.begin(), out.all.end()), out.all.end());
  return out;
}

const DataSpec& text_data(const Recipe& recipe) { return recipe.data.parts.empty() ? recipe.data : recipe.data.parts.front(); }

DataSpec text_spec(const Recipe& recipe) {
  DataSpec spec = text_data(recipe);
  if (spec.kind == "batch" || spec.kind == "tokens") spec.options.clear();
  return spec;
}

Result<fs::path> tokenizer_file(const DataSpec& spec, const Recipe& recipe) {
  const std::string which = TRY(options_of(spec).text("tokenizer")).value_or("model");
  if (which == "bytes" || (which == "model" && recipe.model.path.empty())) return fs::path();
  std::error_code error;
  const bool of_model = which == "model";
  fs::path out = of_model ? recipe.model.path : fs::path(which);
  if (of_model && fs::is_regular_file(out, error)) out = out.parent_path();  // a model is a folder, or a file in one
  if (of_model || fs::is_directory(out, error)) out /= "tokenizer.json";
  Confinement::lend_beside(out.parent_path(), kBeside);
  for (const auto& [name, file] : template_files(out.parent_path()))
    Confinement::lend_beside(out.parent_path(), std::array{std::string_view(file)});
  return out;
}

Result<std::vector<std::pair<std::string, std::string>>> tokenizer_files(const DataSpec& spec, const Recipe& recipe) {
  std::vector<std::pair<std::string, std::string>> out;
  const fs::path file = TRY(tokenizer_file(spec, recipe));
  if (file.empty()) return out;
  const fs::path folder = file.parent_path(), reach = reach_of(folder);
  for (const std::string_view name : std::span(kBeside).first(std::size(kBeside) - 1)) {
    std::error_code error;
    if (!fs::exists(folder / name, error)) continue;
    const Result<File> opened = File::open_read(folder / name);
    if (!opened) return recipe_error(opened.error().cause, opened.error().hint);
    if (const fs::path real = TRY(opened->real_path()); !is_below(real, reach)) {
      Error out_of = leads_out((folder / name).string(), "its folder", real, "put the file itself there in place of the link");
      out_of.cause += ", and would be saved with the model";
      return out_of;
    }
    out.emplace_back(name, TRY(read_text(*opened, uint64_t{256} << 20)));
  }
  TRY_STATUS(add_new_tokens(recipe.model.new_tokens, &out));
  // The template that the model is trained with is its own from now on; transformers takes this file before any other.
  if (const std::optional<std::string> chat = TRY(named_chat_template(recipe))) {
    std::erase_if(out, [](const auto& one) { return one.first == "chat_template.jinja"; });
    out.emplace_back("chat_template.jinja", *chat);
  }
  return out;
}

Status take_token_ids(Recipe& recipe) {
  if (!recipe.model.path.empty()) return ok();
  const DataSpec& spec = text_data(recipe);
  std::error_code error;
  if (const fs::path file = TRY(tokenizer_file(spec, recipe)); file.empty() || !fs::exists(file, error)) return ok();
  const TextCodec codec = TRY(TextCodec::open(spec, recipe));
  TokenId bos = codec.find(codec.model().bos), eos = codec.eos();
  if (const auto before = codec.before(); codec.model().bos.empty() && before.size() == 1) bos = before[0];
  // What stands around a text for an encoder is neither.
  if (bos == codec.special().cls) bos = -1;
  if (eos == codec.special().sep) eos = -1;
  const std::pair<const char*, TokenId> ids[] = {{"bos_token_id", bos}, {"eos_token_id", eos}, {"pad_token_id", codec.special().pad}};
  for (const auto& [key, id] : ids)
    if (id >= 0) recipe.model.config.try_emplace(key, static_cast<int64_t>(id));
  return ok();
}

Result<TextCodec> TextCodec::open(const DataSpec& spec, const Recipe& recipe) {
  TextCodec out;
  const std::string which = TRY(options_of(spec).text("tokenizer")).value_or("model");
  if (which == "bytes" && !recipe.model.new_tokens.empty())
    return data_error(spec, "tokenizer = \"bytes\" cannot be given tokens (model's add_tokens)",
                      "leave add_tokens out, or name a tokenizer.json");
  if (which == "bytes") return out;
  const bool of_model = which == "model";
  const fs::path path = TRY(tokenizer_file(spec, recipe));
  if (path.empty()) {
    return data_error(spec, "tokenizer = \"model\", the default, but the model has no folder that one could lie in",
                      "write tokenizer = \"bytes\", or tokenizer = the path of a tokenizer.json");
  }
  std::error_code error;
  if (!fs::exists(path, error)) {
    return data_error(spec, "there is no " + path.string(),
                      of_model ? std::string("copy the model's tokenizer.json there (that of a GGUF file is not read)") +
                                     (spec.place.line > 0 ? ", or write tokenizer = \"bytes\"" : "")
                               : "tokenizer is \"model\", \"bytes\" or the path of a tokenizer.json");
  }
  Result<std::string> text = read_text(path, uint64_t{256} << 20);
  if (text) text = with_new_tokens(*std::move(text), recipe.model.new_tokens, path.string());
  if (!text) return data_error(spec, text.error().cause, text.error().hint);
  Result<Tokenizer> tokenizer = Tokenizer::parse(*text, path.string());
  if (!tokenizer) return data_error(spec, tokenizer.error().cause, tokenizer.error().hint);
  out.tokenizer_ = std::move(*tokenizer);
  out.model_ = TRY(read_model_tokens(path.parent_path()));
  out.eos_ = out.tokenizer_->find(out.model_.eos);
  if (out.eos_ < 0 && !out.model_.eos_ids.empty() && out.model_.eos_ids[0] < out.vocabulary()) out.eos_ = out.model_.eos_ids[0];
  if (const auto after = out.tokenizer_->after(); out.eos_ < 0 && after.size() == 1) out.eos_ = after[0];
  if (spec.kind != "chat" && !TRY(options_of(spec).boolean("special")).value_or(true)) out.takes_specials_ = AddedTokens::Special::Text;
  out.special_ = special_tokens(*out.tokenizer_, out.model_);
  for (const TokenId id : out.special_.all) out.model_.specials.push_back(out.tokenizer_->name(id));
  out.stops_ = out.model_.stops;
  out.stops_.insert(out.stops_.end(), out.model_.eos_ids.begin(), out.model_.eos_ids.end());
  if (out.eos_ >= 0) out.stops_.push_back(out.eos_);
  KeyHash hash;
  hash.add(*text);
  hash.add(static_cast<uint64_t>(static_cast<int64_t>(out.eos_)));
  out.identity_ = hash.digits();
  return out;
}

Status TextCodec::encode(std::string_view text, Work& work, std::vector<TokenId>* ids, Normalizer::Begin begin) const {
  if (!tokenizer_) {
    for (const char c : text) ids->push_back(static_cast<uint8_t>(c));
    return ok();
  }
  return tokenizer_->encode(text, {Tokenizer::Around::Nothing, takes_specials_, begin}, *work.tokenizer_, ids);
}

Status TextCodec::encode(std::span<const Tokenizer::Segment> segments, Work& work, std::vector<TokenId>* ids,
                         std::vector<bool>* counts) const {
  if (tokenizer_) return tokenizer_->encode(segments, *work.tokenizer_, ids, counts);
  for (const Tokenizer::Segment& segment : segments) {
    for (const char c : segment.text) ids->push_back(static_cast<uint8_t>(c));
    counts->resize(ids->size(), segment.counts);
  }
  return ok();
}

Result<bool> TextCodec::encode_whole(std::string_view text, std::span<const TokenId> after, size_t most, Work& work,
                                     std::vector<TokenId>* ids) const {
  ids->assign(before().begin(), before().end());
  TRY_STATUS(encode(text, work, ids));
  const size_t room = most > after.size() ? most - after.size() : 0;
  const bool cut = ids->size() > room;
  if (cut) ids->resize(room);
  ids->insert(ids->end(), after.begin(), after.end());
  ids->resize(std::min(ids->size(), most));
  return cut;
}

Result<size_t> TextCodec::encode_pair(std::string_view first, std::string_view second, size_t most, Work& work,
                                      std::vector<TokenId>* ids) const {
  std::vector<TokenId> texts[2];
  TRY_STATUS(encode(first, work, &texts[0]));
  TRY_STATUS(encode(second, work, &texts[1]));
  size_t specials = 0;
  for (const Tokenizer::PairPiece& piece : tokenizer_->pair()) specials += piece.text < 0;
  // LongestFirst.
  const size_t room = most > specials ? most - specials : 0;
  const bool swapped = texts[0].size() > texts[1].size();
  std::vector<TokenId>&shorter = texts[swapped ? 1 : 0], &longer = texts[swapped ? 0 : 1];
  if (shorter.size() + longer.size() > room) {
    const size_t less = shorter.size(), kept = less > room ? less : std::max(less, room - less);
    const bool halves = less + kept > room;
    shorter.resize(halves ? room / 2 : less);
    longer.resize(halves ? room / 2 + room % 2 : kept);
  }
  ids->clear();
  std::optional<size_t> begin;
  for (const Tokenizer::PairPiece& piece : tokenizer_->pair()) {
    if (piece.type > 0 && !begin) begin = ids->size();
    if (piece.text < 0) ids->push_back(piece.id);
    else ids->insert(ids->end(), texts[piece.text].begin(), texts[piece.text].end());
  }
  ids->resize(std::min(ids->size(), most));
  return std::min(begin.value_or(ids->size()), ids->size());
}

std::string TextCodec::decode(std::span<const TokenId> ids) const {
  if (tokenizer_) return tokenizer_->decode(ids);
  std::string out;
  for (const TokenId id : ids) out += static_cast<char>(id);
  return out;
}

}  // namespace galley
