#include "host/tokens/document_encoder.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "host/base/json.hpp"
#include "host/tokens/cache.hpp"
#include "host/tokens/data_options.hpp"
#include "host/tokens/spec.hpp"
#include "host/tokens/tokenizer/unicode.hpp"

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
    if (!out.chat_->function) {  // a text that cannot be read is told here, with the recipe's line
      const auto opened = ChatTemplate::open(*out.chat_);
      if (!opened && opened.error().exit == Exit::Recipe) return data_error(spec, opened.error().cause, opened.error().hint);
    }
  }
  out.learning_ = recipe.learning;
  TRY_STATUS(out.check_learning(spec));
  if (has_parts(out.learning_.labels)) {
    out.length_ = static_cast<uint64_t>(recipe.length.value_or(0));
    out.target_length_ = static_cast<uint64_t>(recipe.target_length.value_or(recipe.length.value_or(0)));
    if (out.kind_ == Kind::Jsonl) out.label_ = TRY(options.text("label")).value_or("label");
  }
  if (out.kind_ == Kind::Jsonl) out.pair_ = TRY(options.text("pair")).value_or("");
  if (!out.pair_.empty()) TRY_STATUS(out.check_pair(spec));
  if (out.kind_ != Kind::Chat && TRY(options.boolean("eos")).value_or(true)) out.eos_ = codec.eos();
  if (out.kind_ == Kind::Prompts || out.kind_ == Kind::Chat) out.all_ = *TRY(options.choice(declared_data(spec.kind)["train_on"])) == 1;
  KeyHash hash;
  for (const std::string& text : {spec.kind, out.first_, out.second_, codec.identity(), out.chat_ ? out.chat_->identity : std::string()})
    hash.add(text);
  hash.add(static_cast<uint64_t>(static_cast<int64_t>(out.eos_)));
  hash.add(static_cast<uint64_t>(out.all_));
  hash.add(static_cast<uint64_t>(codec.takes_specials()));
  if (out.learning_.labels != Fill::NextTokens) {
    hash.add(std::string(info_of(out.learning_.labels).name));
    hash.add(out.label_);
    hash.add(out.pair_);
    for (const auto& [name, id] : out.learning_.names) {
      hash.add(name);
      hash.add(static_cast<uint64_t>(id));
    }
    for (const uint64_t number :
         {out.length_, out.target_length_, static_cast<uint64_t>(out.learning_.classes), static_cast<uint64_t>(out.learning_.several)})
      hash.add(number);
  }
  out.identity_ = hash.digits();
  return out;
}

Result<std::unique_ptr<DocumentEncoder::Work>> DocumentEncoder::open() const {
  auto work = std::make_unique<Work>(*codec_);
  if (chat_) work->chat = TRY(ChatTemplate::open(*chat_));
  return work;
}

/// Which data a model can learn from.
Status DocumentEncoder::check_learning(const DataSpec& spec) const {
  const Fill labels = learning_.labels;
  const std::string task = "the model's task '" + learning_.task + "' learns ";
  if (labels == Fill::TargetLabels && kind_ != Kind::Prompts)
    return data_error(spec, task + "targets of sources, which data." + spec.kind + " does not have",
                      "write data.prompts { files = …, prompt = \"FIELD\", answer = \"FIELD\" }");
  if ((of_rows(labels) || labels == Fill::TokenLabels) && kind_ != Kind::Jsonl)
    return data_error(spec, task + "labels, which data." + spec.kind + " does not have",
                      "write data.jsonl { files = …, text = \"FIELD\", label = \"FIELD\" }");
  return ok();
}

Status DocumentEncoder::check_pair(const DataSpec& spec) const {
  if (!of_rows(learning_.labels))
    return data_error(spec, "'pair' = \"" + pair_ + "\" is a second text of a row, and the model's task '" + learning_.task + "' reads one",
                      "take it out, or say which task: model { task = \"sequence-classification\" }");
  if (codec_->joins_pairs()) return ok();
  return data_error(spec, "the tokenizer does not say how it joins two texts",
                    "take 'pair' out, and write both into one field of each line");
}

/// A target ends with a token even where the tokenizer puts none.
std::vector<TokenId> DocumentEncoder::after() const {
  std::vector<TokenId> out(codec_->after().begin(), codec_->after().end());
  if (out.empty() && eos_ >= 0 && learning_.labels == Fill::TargetLabels) out.push_back(eos_);
  return out;
}

/// A text with what the tokenizer puts around it, at most `most` tokens in all: the text is cut.
Status DocumentEncoder::encode_whole(std::string_view text, uint64_t most, bool counts, Work& work, std::vector<uint32_t>* out) const {
  TRY(codec_->encode_whole(text, after(), static_cast<size_t>(most), work.codec, &work.ids));
  for (const TokenId id : work.ids) out->push_back(static_cast<uint32_t>(id) | (counts ? 0 : kUncounted));
  return ok();
}

Status DocumentEncoder::encode_target(const Table& record, Work& work, std::vector<uint32_t>* out) const {
  const std::string source = TRY(field(record, first_, "prompt")), target = TRY(field(record, second_, "answer"));
  if (target.empty()) return recipe_error("field '" + second_ + "' is empty");
  TRY_STATUS(encode_whole(source, length_, false, work, out));
  return encode_whole(target, target_length_, true, work, out);
}

/// A number, or one of the model's names.
Result<uint32_t> DocumentEncoder::label_of(const Value& value) const {
  const auto* number = value.as<int64_t>();
  int64_t written = 0;  // as a text: CSV has nothing else
  if (const auto* name = value.as<std::string>()) {
    const auto known = learning_.names.find(*name);
    if (known != learning_.names.end()) number = &known->second;
    else if (const auto end = std::from_chars(name->data(), name->data() + name->size(), written);
             end.ec == std::errc() && end.ptr == name->data() + name->size())
      number = &written;
  }
  if (number && *number >= 0 && *number < learning_.classes) return static_cast<uint32_t>(*number);
  std::string names;
  for (const auto& [name, id] : learning_.names)
    if (names.size() < 200) names += (names.empty() ? ", or one of " : ", ") + name;
  return recipe_error("label " + value_text(value) + " is none of the model's: 0 to " + std::to_string(learning_.classes - 1) + names,
                      "write labels = N in model { … }, and numbers from 0 on in the data");
}

Status DocumentEncoder::encode_labels(const Table& record, std::vector<uint32_t>* out) const {
  const Value& labels = *TRY(value_in(record, label_, "label"));
  if (learning_.labels == Fill::RowValues) return encode_values(labels, out);
  if (!learning_.several) {
    out->push_back(TRY(label_of(labels)));
    return ok();
  }
  const auto* list = labels.as<List>();
  if (!list) return recipe_error("field '" + label_ + "' is " + labels.type_name() + " where a list of labels belongs");
  for (const Value& label : *list) out->push_back(TRY(label_of(label)));
  if (list->empty()) out->push_back(static_cast<uint32_t>(learning_.classes));  // none of them
  return ok();
}

/// A number, or a list of as many as the model tells.
Status DocumentEncoder::encode_values(const Value& values, std::vector<uint32_t>* out) const {
  const List one = {values};
  const List& list = values.as<List>() ? *values.as<List>() : one;
  if (list.size() != static_cast<size_t>(learning_.classes))
    return recipe_error("field '" + label_ + "' has " + std::to_string(list.size()) + (list.size() == 1 ? " value" : " values") +
                            ", and the model tells " + std::to_string(learning_.classes),
                        "write labels = " + std::to_string(list.size()) + " in model { … }");
  for (const Value& value : list) {
    const auto* real = value.as<double>();
    const auto* whole = value.as<int64_t>();
    double number = real ? *real : whole ? static_cast<double>(*whole) : NAN;
    if (const auto* text = value.as<std::string>())  // CSV has nothing else
      if (const auto end = std::from_chars(text->data(), text->data() + text->size(), number);
          end.ec != std::errc() || end.ptr != text->data() + text->size())
        number = NAN;
    if (!std::isfinite(static_cast<float>(number)))
      return recipe_error("field '" + label_ + "' is " + value_text(value) + " where a number belongs");
    for (const uint32_t half : halves_of(static_cast<float>(number))) out->push_back(half);
  }
  return ok();
}

/// One text, or two, and what the row has of labels.
Status DocumentEncoder::encode_row(const Table& record, Work& work, std::vector<uint32_t>* out) const {
  const std::string text = TRY(field(record, first_, "text"));
  if (pair_.empty()) {
    TRY_STATUS(encode_whole(text, length_, false, work, out));
  } else {
    const size_t second =
        TRY(codec_->encode_pair(text, TRY(field(record, pair_, "pair")), static_cast<size_t>(length_), work.codec, &work.ids));
    for (size_t i = 0; i < work.ids.size(); ++i)
      out->push_back(static_cast<uint32_t>(work.ids[i]) | kUncounted | (i < second ? 0 : kSecond));
  }
  return encode_labels(record, out);
}

/// Words with a label each: that of the word's first token, as transformers' examples have it; its others have none.
Status DocumentEncoder::encode_words(const Table& record, Work& work, std::vector<uint32_t>* out) const {
  const Value &texts = *TRY(value_in(record, first_, "text")), &labels = *TRY(value_in(record, label_, "label"));
  const auto *words = texts.as<List>(), *list = labels.as<List>();
  if (!words || !list || words->size() != list->size())
    return recipe_error("fields '" + first_ + "' and '" + label_ + "' have to be lists of as many words as labels");
  const std::vector<TokenId> after = this->after();
  work.ids.assign(codec_->before().begin(), codec_->before().end());
  std::vector<uint32_t> of_token(work.ids.size(), kUncounted);
  for (size_t i = 0; i < words->size(); ++i) {
    const auto* word = (*words)[i].as<std::string>();
    if (!word) return recipe_error("field '" + first_ + "' has " + (*words)[i].type_name() + " where a word belongs");
    const size_t begin = work.ids.size();
    TRY_STATUS(codec_->encode(*word, work.codec, &work.ids));
    const auto* none = (*list)[i].as<int64_t>();
    const bool counts = work.ids.size() > begin && !(none && *none == kNoLabel);
    of_token.resize(work.ids.size(), kUncounted);
    if (counts) of_token[begin] = TRY(label_of((*list)[i]));
  }
  const size_t most = length_ > after.size() ? static_cast<size_t>(length_) - after.size() : 0;
  work.ids.resize(std::min(work.ids.size(), most));
  work.ids.insert(work.ids.end(), after.begin(), after.end());
  of_token.resize(work.ids.size(), kUncounted);
  for (const TokenId id : work.ids) out->push_back(static_cast<uint32_t>(id) | kUncounted);
  out->insert(out->end(), of_token.begin(), of_token.end());
  return std::ranges::any_of(of_token, [](uint32_t label) { return !(label & kUncounted); }) ? ok()
                                                                                             : recipe_error("nothing in it has a label");
}

Status DocumentEncoder::encode_text(std::string_view text, Position position, Work& work, std::vector<uint32_t>* out) const {
  const bool begins = position == Position::Only || position == Position::First;
  if (begins) out->insert(out->end(), codec_->before().begin(), codec_->before().end());
  work.ids.clear();
  TRY_STATUS(codec_->encode(text, work.codec, &work.ids, begins ? Normalizer::Begin::Here : Normalizer::Begin::Before));
  count_specials(work);
  out->insert(out->end(), work.ids.begin(), work.ids.end());
  if (position != Position::Only && position != Position::Last) return ok();
  if (learning_.labels == Fill::MaskedTokens) {
    // The last token of a document is a label only.
    out->insert(out->end(), codec_->after().begin(), codec_->after().end());
    out->push_back(0);
  } else if (eos_ >= 0) {
    out->push_back(static_cast<uint32_t>(eos_));
  }
  return ok();
}

/// Of the tokens of a text, those that are special.
void DocumentEncoder::count_specials(Work& work) const {
  const std::vector<TokenId>& specials = codec_->special().all;
  for (const TokenId id : work.ids) work.specials += std::binary_search(specials.begin(), specials.end(), id);
}

Result<bool> DocumentEncoder::separate(std::string_view before, std::string_view after, Work& work) const {
  std::vector<TokenId> apart;
  for (const std::string_view part : {before, after})
    TRY_STATUS(codec_->encode(valid_utf8(part, nullptr), work.codec, &apart, Normalizer::Begin::Before));
  work.ids.clear();
  TRY_STATUS(codec_->encode(valid_utf8(std::string(before).append(after), nullptr), work.codec, &work.ids, Normalizer::Begin::Before));
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

Result<const Value*> DocumentEncoder::value_in(const Table& record, const std::string& name, const char* option) const {
  const auto it = record.find(name);
  if (it != record.end()) return &it->second;
  return recipe_error("there is no field '" + name + "'; the line has " + names_in(record),
                      "say which field it is, such as data." + std::string(kind_ == Kind::Jsonl ? "jsonl" : "prompts") + " { …, " + option +
                          " = \"NAME\" }");
}

Result<std::string> DocumentEncoder::field(const Table& record, const std::string& name, const char* option) const {
  const Value& value = *TRY(value_in(record, name, option));
  const auto* text = value.as<std::string>();
  if (!text) return recipe_error("field '" + name + "' is " + value.type_name() + " where a string belongs");
  return *text;
}

Status DocumentEncoder::encode_conversation(const Table& line, Work& work, std::vector<uint32_t>* out, std::vector<uint64_t>* ends) const {
  const auto it = conversation_in(line);
  if (it == line.end()) {
    const std::string names = first_.empty() ? "'messages' or 'conversations'" : "'" + first_ + "'";
    return recipe_error("there is no field " + names + "; the line has " + names_in(line),
                        "name the one that holds the conversation: data.chat { …, messages = \"NAME\" }");
  }
  const Conversation conversation = TRY(conversation_of(it->second, line, *chat_));
  const bool answered = std::ranges::any_of(conversation.messages, [](const Value& m) { return m.text_field("role") == "assistant"; });
  if (!answered && !all_) return recipe_error("the conversation has no assistant's turn: nothing in it counts in the loss");
  const std::vector<ChatRow> rows = TRY(work.chat->rows(conversation));
  for (const Tokenizer::Segment& segment : rows.back()) work.specials += !segment.control && !chat_->function;
  // With all that counts, the last row says everything.
  for (const ChatRow& row : std::span(rows).last(all_ ? 1 : rows.size())) {
    TRY_STATUS(encode_segments(row, work, out));
    ends->push_back(out->size());
  }
  return ok();
}

Status DocumentEncoder::encode(std::string_view record, const std::string& place, Work& work, std::vector<uint32_t>* out,
                               std::vector<uint64_t>* ends) const {
  const KeyOrder order = chat_ && !chat_->function ? KeyOrder::Listed : KeyOrder::Sorted;  // templates write tables
  const Value value = kind_ == Kind::Text ? Value() : TRY(parse_json(record, place, kMostJsonValues, order));
  const auto convert = [&]() -> Status {
    const Table* table = value.as<Table>();
    if (!table) return recipe_error(std::string("a line has to be an object, this is ") + value.type_name());
    if (learning_.labels == Fill::TokenLabels) return encode_words(*table, work, out);
    if (of_rows(learning_.labels)) return encode_row(*table, work, out);
    if (learning_.labels == Fill::TargetLabels) return encode_target(*table, work, out);
    if (kind_ == Kind::Jsonl) return encode_text(TRY(field(*table, first_, "text")), Position::Only, work, out);
    if (kind_ == Kind::Prompts) {
      const std::string prompt = TRY(field(*table, first_, "prompt")), answer = TRY(field(*table, second_, "answer"));
      const Tokenizer::Segment parts[] = {{prompt, codec_->takes_specials(), false}, {answer, codec_->takes_specials(), true}};
      if (answer.empty()) return recipe_error("field '" + second_ + "' is empty");
      for (const TokenId id : codec_->before()) out->push_back(static_cast<uint32_t>(id) | (all_ ? 0 : kUncounted));
      TRY_STATUS(encode_segments(parts, work, out));
      count_specials(work);
      if (eos_ >= 0) out->push_back(static_cast<uint32_t>(eos_));
      return ok();
    }
    return encode_conversation(*table, work, out, ends);
  };
  const size_t before = out->size(), documents = ends->size();
  Status status = kind_ == Kind::Text ? encode_text(record, Position::Only, work, out) : convert();
  if (status) {
    if (kind_ != Kind::Chat) ends->push_back(out->size());
    return status;
  }
  out->resize(before);
  ends->resize(documents);
  Error error = std::move(status).error();
  error.cause = place + ": " + error.cause;
  return error;
}

}  // namespace galley
