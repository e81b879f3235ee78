#include "host/tools/gguf/modelfile.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "host/base/json.hpp"
#include "host/tools/inference/prompts.hpp"

namespace galley {
namespace {

using Messages = std::vector<std::pair<std::string, std::string>>;

/// What a template writes before and after a message.
struct Around {
  std::string before, after;
};

/// A template that writes each message between two texts of its role.
struct Pieces {
  std::string begin;             ///< before the first message, if that is not the system's
  std::optional<Around> system;  ///< none: the template takes no such message
  Around user, assistant;
  std::string reply;  ///< where the assistant goes on

  std::string text(const Messages& messages) const {
    std::string out = messages.front().first == "system" ? "" : begin;
    for (const auto& [role, content] : messages) {
      const Around& of = role == "system" ? *system : role == "user" ? user : assistant;
      out += of.before + content + of.after;
    }
    return out + reply;
  }
};

Result<std::string> rendered(ChatTemplate& chat, const Messages& messages) {
  std::string out;
  for (const Tokenizer::Segment& part : TRY(chat.prompt(TRY(conversation_of(messages, chat.choice()))))) out += part.text;
  return out;
}

/// Cuts a text at contents that it has once each, in this order; nothing if it does not.
std::optional<std::vector<std::string>> cut_at(const std::string& text, const std::vector<std::string>& contents) {
  std::vector<std::string> out;
  size_t at = 0;
  for (const std::string& content : contents) {
    const size_t found = text.find(content, at);
    if (found == text.npos || text.find(content, found + 1) != text.npos) return {};
    out.push_back(text.substr(at, found - at));
    at = found + content.size();
  }
  out.push_back(text.substr(at));
  return out;
}

size_t common_end(const std::string& a, const std::string& b) {
  return static_cast<size_t>(std::ranges::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend()).in1 - a.rbegin());
}

/// The pieces that a template would have to be made of.
std::optional<Pieces> pieces_of(ChatTemplate& chat) {
  const std::string s = "qzxa", u = "qzxb", r = "qzxc", v = "qzxd";
  const auto one = rendered(chat, {{"user", u}}), more = rendered(chat, {{"user", u}, {"assistant", r}, {"user", v}}),
             system = rendered(chat, {{"system", s}, {"user", u}});
  if (!one || !more) return {};
  const auto first = cut_at(*one, {u}), turns = cut_at(*more, {u, r, v});
  if (!first || !turns) return {};
  const std::string &before = (*first)[0], &after = (*first)[1], &between = (*turns)[1], &again = (*turns)[2];
  std::optional<std::vector<std::string>> told;
  if (system) told = cut_at(*system, {s, u});
  size_t n = common_end(before, again);
  if (told) n = std::min(n, common_end(again, (*told)[1]));
  const auto without = [n](const std::string& text) { return text.substr(0, text.size() - n); };
  Pieces out;
  out.begin = without(before);
  out.user.before = before.substr(before.size() - n);
  const auto shared = static_cast<size_t>(std::ranges::mismatch(between, after).in1 - between.begin());
  out.user.after = between.substr(0, shared);
  out.assistant = {between.substr(shared), without(again)};
  out.reply = after.substr(shared);
  if (told) out.system = Around{(*told)[0], without((*told)[1])};
  return out;
}

/// Whether conversations are made of the pieces, whatever is said.
bool made_of(ChatTemplate& chat, const Pieces& pieces) {
  const std::string odd = "two\nlines, \"quoted\" {{ braces }}";
  std::vector<Messages> tried = {{{"user", odd}},
                                 {{"user", "a"}, {"assistant", odd}, {"user", "b"}},
                                 {{"user", "a"}, {"assistant", "b"}, {"user", odd}, {"assistant", "c"}, {"user", "d"}}};
  if (pieces.system)
    for (size_t i = 0; i < 3; ++i) {
      tried.push_back(tried[i]);
      tried.back().insert(tried.back().begin(), {"system", "be brief"});
    }
  return std::ranges::all_of(tried, [&](const Messages& messages) {
    const auto text = rendered(chat, messages);
    return text && *text == pieces.text(messages);
  });
}

/// A text as a constant of Go's templates, whose escapes are JSON's.
std::string constant(const std::string& text) { return text.empty() ? "" : "{{ " + json_quote(text) + " }}"; }

std::string template_text(const Pieces& pieces) {
  const auto message = [](const char* role, const Around& around) {
    return "if eq .Role \"" + std::string(role) + "\" }}" + constant(around.before) + "{{ .Content }}" + constant(around.after);
  };
  std::string out = constant(pieces.begin);
  if (pieces.system && !out.empty()) out = "{{ if ne (index .Messages 0).Role \"system\" }}" + out + "{{ end }}";
  out += "{{ range .Messages }}{{ " + message("user", pieces.user) + "{{ else " + message("assistant", pieces.assistant);
  if (pieces.system) out += "{{ else " + message("system", *pieces.system);
  return out + "{{ end }}{{ end }}" + constant(pieces.reply);
}

/// llama.cpp puts the token before a text that the tokenizer puts there.
void take_off_begin(const TextCodec& codec, Pieces* pieces) {
  const auto before = codec.before();
  const std::string& bos = codec.model().bos;
  if (bos.empty() || before.size() != 1 || before[0] != codec.find(bos)) return;
  for (std::string* text : {&pieces->begin, pieces->system ? &pieces->system->before : nullptr})
    if (text && text->starts_with(bos)) text->erase(0, bos.size());
}

}  // namespace

Result<std::string> modelfile_text(const Study& study, const std::string& from, int64_t context, std::vector<std::string>* notes) {
  std::string out = "# For Ollama: ollama create NAME -f Modelfile\nFROM " + from + "\n";
  if (context > 0) out += "PARAMETER num_ctx " + std::to_string(context) + "\n";
  auto talking = Prompts::open(study, {.chat = true});
  const auto prompts = talking ? std::move(talking) : Prompts::open(study, {});
  if (!prompts) return out;  // no tokenizer that can be read: the export says so
  Stops stops;
  (*prompts)->add_stops(&stops);
  std::set<std::string> ends(stops.texts.begin(), stops.texts.end());
  for (const TokenId token : stops.tokens)
    if (token >= 0 && token < (*prompts)->codec().vocabulary()) ends.insert((*prompts)->codec().name(token));
  for (const std::string& end : ends)
    if (end.find_first_of("\"\n\r") == end.npos) out += "PARAMETER stop \"" + end + "\"\n";
    else notes->push_back("the Modelfile does not say that " + json_quote(end) + " ends a reply: it has no way to write that");
  ChatTemplate* const chat = (*prompts)->chat();
  if (!chat) return out + "TEMPLATE \"{{ .Prompt }}\"\n";
  std::optional<Pieces> pieces = pieces_of(*chat);
  if (pieces && made_of(*chat, *pieces)) {
    take_off_begin((*prompts)->codec(), &*pieces);
    const std::string text = template_text(*pieces);
    if (text.find("\"\"\"") == text.npos) return out + "# Tools are not part of it.\nTEMPLATE \"\"\"" + text + "\"\"\"\n";
  }
  notes->push_back("the Modelfile has no TEMPLATE: the chat template does more than write each message between two texts of its role");
  return out;
}

}  // namespace galley
