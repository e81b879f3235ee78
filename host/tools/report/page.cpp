#include "host/tools/report/page.hpp"

#include <array>
#include <cassert>
#include <string_view>

#include "host/base/json.hpp"

namespace galley {
namespace {

std::string_view text_of(const page_files::File& file) { return {reinterpret_cast<const char*>(file.bytes), file.size}; }

/// Hexadecimal digits as base64, in which a policy names hashes.
std::string base64_of_hex(std::string_view hex) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto value = [](char c) { return static_cast<uint32_t>(c <= '9' ? c - '0' : c - 'a' + 10); };
  std::string out;
  uint32_t bits = 0, count = 0;
  for (const char c : hex) {
    bits = bits << 4 | value(c);
    count += 4;
    if (count < 6) continue;
    count -= 6;
    out += digits[bits >> count & 63u];
  }
  if (count) out += digits[bits << (6 - count) & 63u];
  while (out.size() % 4) out += '=';
  return out;
}

/// JSON that cannot end the element that it stands in.
std::string embedded_json(const Value& data) {
  const std::string json = to_json(data);
  std::string out;
  out.reserve(json.size());
  for (const char c : json) {
    if (c == '<') out += "\\u003c";
    else out += c;
  }
  return out;
}

std::string source_of(const page_files::File& file) { return std::string("'sha256-") + base64_of_hex(file.sha256) + "'"; }

}  // namespace

std::string page_html(const Value& data) {
  namespace files = page_files;
  const auto part = [&](std::string_view name) -> std::string {
    if (name == "hashes") return source_of(files::library) + " " + source_of(files::script);
    if (name == "dygraph.css") return std::string(text_of(files::library_css));
    if (name == "page.css") return std::string(text_of(files::css));
    if (name == "dygraphs.txt") return std::string(text_of(files::licence));
    if (name == "data") return embedded_json(data);
    assert(name == "scripts");
    return "<script>" + std::string(text_of(files::library)) + "</script>\n<script>" + std::string(text_of(files::script)) + "</script>";
  };
  std::string out;
  std::string_view rest = text_of(files::html);
  for (size_t begin; (begin = rest.find('@')) != std::string_view::npos;) {
    const size_t end = rest.find('@', begin + 1);
    out += rest.substr(0, begin);
    out += part(rest.substr(begin + 1, end - begin - 1));
    rest.remove_prefix(end + 1);
  }
  return out.append(rest);
}

}  // namespace galley
