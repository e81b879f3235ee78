// Collects the keys of a GGUF file in the bytes that the file has of them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "host/base/value.hpp"

namespace galley {

/// The keys of a file on their way into it, in the order in which they are added.
class GgufKeys {
 public:
  /// Adds a boolean, a string, an integer (U32), a number (F32), or a list of one kind of them. Anything else is Galley's own mistake.
  void add(const std::string& key, const Value& value);
  void add(const std::string& key, std::span<const std::string> texts);
  void add(const std::string& key, std::span<const float> numbers);
  void add(const std::string& key, std::span<const int32_t> numbers);
  void add(const std::string& key, std::span<const uint8_t> bytes);

  uint64_t count() const { return count_; }
  const std::string& bytes() const { return bytes_; }

 private:
  void begin(const std::string& key);
  template <class T>
  void put(T number);
  void put_text(const std::string& text);
  void put_list(uint32_t type, uint64_t length);
  void put_value(const Value& value);

  std::string bytes_;
  uint64_t count_ = 0;
};

}  // namespace galley
