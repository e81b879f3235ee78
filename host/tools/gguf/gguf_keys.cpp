#include "host/tools/gguf/gguf_keys.hpp"

#include <cassert>

namespace galley {
namespace {

/// The numbers of GGUF's types of values.
constexpr uint32_t kU8 = 0, kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kString = 8, kArray = 9;

uint32_t key_type(const Value& value) {
  if (value.as<bool>()) return kBool;
  if (value.as<int64_t>()) return kU32;
  if (value.as<double>()) return kF32;
  return value.as<std::string>() ? kString : kArray;
}

}  // namespace

template <class T>
void GgufKeys::put(T number) {
  bytes_.append(reinterpret_cast<const char*>(&number), sizeof number);
}

void GgufKeys::put_text(const std::string& text) {
  put(static_cast<uint64_t>(text.size()));
  bytes_ += text;
}

void GgufKeys::begin(const std::string& key) {
  put_text(key);
  ++count_;
}

void GgufKeys::put_list(uint32_t type, uint64_t length) {
  put(kArray);
  put(type);
  put(length);
}

void GgufKeys::put_value(const Value& value) {
  if (const auto* flag = value.as<bool>()) put(static_cast<uint8_t>(*flag));
  else if (const auto* whole = value.as<int64_t>()) put(static_cast<uint32_t>(*whole));
  else if (const auto* number = value.as<double>()) put(static_cast<float>(*number));
  else if (const auto* text = value.as<std::string>()) put_text(*text);
  else assert(!"a value that no key has");
}

void GgufKeys::add(const std::string& key, const Value& value) {
  begin(key);
  const auto* list = value.as<List>();
  if (!list) {
    put(key_type(value));
    put_value(value);
    return;
  }
  put_list(list->empty() ? kU32 : key_type(list->front()), list->size());
  for (const Value& entry : *list) put_value(entry);
}

void GgufKeys::add(const std::string& key, std::span<const std::string> texts) {
  begin(key);
  put_list(kString, texts.size());
  for (const std::string& text : texts) put_text(text);
}

void GgufKeys::add(const std::string& key, std::span<const float> numbers) {
  begin(key);
  put_list(kF32, numbers.size());
  for (const float number : numbers) put(number);
}

void GgufKeys::add(const std::string& key, std::span<const int32_t> numbers) {
  begin(key);
  put_list(kI32, numbers.size());
  for (const int32_t number : numbers) put(number);
}

void GgufKeys::add(const std::string& key, std::span<const uint8_t> bytes) {
  begin(key);
  put_list(kU8, bytes.size());
  for (const uint8_t byte : bytes) put(byte);
}

}  // namespace galley
