#include "host/data/document_encoder.hpp"

#include <algorithm>

#include "host/base/json.hpp"
#include "host/data/cache.hpp"
#include "host/data/spec.hpp"
#include "host/recipe/declared.hpp"
#include "host/text/unicode.hpp"

namespace galley {

Result<DocumentEncoder> DocumentEncoder::create(const DataSpec& spec, const Recipe& recipe, const TextCodec& codec) {
  DocumentEncoder out;
  out.codec_ = &codec;
  const OptionReader options = options_of(spec);
  if (spec.kind == "jsonl") {
    out.kind_ = Kind::Jsonl;
    out.first_ = TRY(options.text("text")).value_or("text");
  } else if (spec.kind == "prompts") {
    out.kind_ = Kind::Prompts;
    out.first_ = TRY(options.text("prompt")).value_or("prompt");
    out.second_ = TRY(options.text("answer")).value_or("answer");
  } else if (spec.kind == "chat") {
    out.kind_ = Kind::Chat;
    out.first_ = TRY(options.text("messages")).value_or("");
    out.chat_ = TRY(choose_chat(spec, recipe, codec.model()));
  }
  if (out.kind_ != Kind::Chat && TRY(options.boolean("eos")).value_or(true)) out.eos_ = codec.eos();
  if (out.kind_ == Kind::Prompts || out.kind_ == Kind::Chat) out.all_ = *TRY(options.choice(declared_data(spec.kind)["train_on"])) == 1;
  KeyHash hash;
  for (const std::string& text : {spec.kind, out.first_, out.second_, codec.identity(), out.chat_ ? out.chat_->identity : std::string()})
    hash.add(text);
  hash.add(static_cast<uint64_t>(static_cast<int64_t>(out.eos_)));
  hash.add(static_cast<uint64_t>(out.all_));
  out.identity_ = hash.digits();
  return out;
}

Result<std::unique_ptr<DocumentEncoder::Work>> DocumentEncoder::open() const {
  auto work = std::make_unique<Work>(*codec_);
  if (chat_) work->chat = TRY(ChatTemplate::open(*chat_));
  return work;
}

Status DocumentEncoder::encode_text(std::string_view text, Position position, Work& work, std::vector<uint32_t>* out) const {
  const bool begins = position == Position::Only || position == Position::First;
  if (begins) out->insert(out->end(), codec_->before().begin(), codec_->before().end());
  work.ids.clear();
  TRY_STATUS(codec_->encode(text, work.codec, &work.ids, begins ? Normalizer::Begin::Here : Normalizer::Begin::Before));
  out->insert(out->end(), work.ids.begin(), work.ids.end());
  if ((position == Position::Only || position == Position::Last) && eos_ >= 0) out->push_back(static_cast<uint32_t>(eos_));
  return ok();
}

Result<bool> DocumentEncoder::separate(std::string_view before, std::string_view behind, Work& work) const {
  std::vector<TokenId> apart;
  for (const std::string_view part : {before, behind})
    TRY_STATUS(codec_->encode(valid_utf8(part, nullptr), work.codec, &apart, Normalizer::Begin::Before));
  work.ids.clear();
  TRY_STATUS(codec_->encode(valid_utf8(std::string(before).append(behind), nullptr), work.codec, &work.ids, Normalizer::Begin::Before));
  return work.ids == apart;
}

Status DocumentEncoder::encode_segments(std::span<const Tokenizer::Segment> segments, Work& work, std::vector<uint32_t>* out) const {
  work.ids.clear();
  work.counts.clear();
  TRY_STATUS(codec_->encode(segments, work.codec, &work.ids, &work.counts));
  bool any = false;
  for (size_t i = 0; i < work.ids.size(); ++i) {
    const bool counts = all_ || work.counts[i];
    any |= counts;
    out->push_back(static_cast<uint32_t>(work.ids[i]) | (counts ? 0 : kUncounted));
  }
  return any ? ok() : recipe_error("nothing in it counts in the loss");
}

Table::const_iterator DocumentEncoder::conversation_in(const Table& line) const {
  if (!first_.empty()) return line.find(first_);
  const auto messages = line.find("messages");
  return messages == line.end() ? line.find("conversations") : messages;
}

Result<std::string> DocumentEncoder::field(const Table& record, const std::string& name) const {
  const auto it = record.find(name);
  if (it == record.end())
    return recipe_error("there is no field '" + name + "'; the line has " + names_in(record),
                        "say which field it is, such as data." +
                            std::string(kind_ == Kind::Jsonl ? "jsonl { …, text" : "prompts { …, prompt") + " = \"NAME\" }");
  const auto* text = it->second.as<std::string>();
  if (!text) return recipe_error("field '" + name + "' is " + it->second.type_name() + " where a string belongs");
  return *text;
}

Status DocumentEncoder::encode(std::string_view record, const std::string& place, Work& work, std::vector<uint32_t>* out) const {
  const Value value = kind_ == Kind::Text ? Value() : TRY(parse_json(record, place, kMostJsonValues));
  const auto convert = [&]() -> Status {
    const Table* table = value.as<Table>();
    if (!table) return recipe_error(std::string("a line has to be an object, this is ") + value.type_name());
    if (kind_ == Kind::Jsonl) return encode_text(TRY(field(*table, first_)), Position::Only, work, out);
    if (kind_ == Kind::Prompts) {
      const std::string prompt = TRY(field(*table, first_)), answer = TRY(field(*table, second_));
      const Tokenizer::Segment parts[] = {{prompt, false, false}, {answer, false, true}};
      if (answer.empty()) return recipe_error("field '" + second_ + "' is empty");
      for (const TokenId id : codec_->before()) out->push_back(static_cast<uint32_t>(id) | (all_ ? 0 : kUncounted));
      TRY_STATUS(encode_segments(parts, work, out));
      if (eos_ >= 0) out->push_back(static_cast<uint32_t>(eos_));
      return ok();
    }
    const auto it = conversation_in(*table);
    if (it == table->end()) {
      const std::string names = first_.empty() ? "'messages' or 'conversations'" : "'" + first_ + "'";
      return recipe_error("there is no field " + names + "; the line has " + names_in(*table),
                          "name the one that holds the conversation: data.chat { …, messages = \"NAME\" }");
    }
    const std::vector<Message> messages = TRY(messages_of(it->second, *chat_));
    const bool answered = std::any_of(messages.begin(), messages.end(), [](const Message& m) { return m.role == "assistant"; });
    if (!answered && !all_) return recipe_error("the conversation has no assistant's turn: nothing in it counts in the loss");
    return encode_segments(TRY(work.chat->render(messages, ChatTemplate::Generate::No, *table)), work, out);
  };
  const size_t before = out->size();
  Status status = kind_ == Kind::Text ? encode_text(record, Position::Only, work, out) : convert();
  if (status) return status;
  out->resize(before);
  Error error = std::move(status).error();
  error.cause = place + ": " + error.cause;
  return error;
}

}  // namespace galley
