// JSON as plain data: config.json, tokenizer.json, an index of shards, the header of a safetensors file. The parser is nlohmann's; no
// type and no exception of it is seen outside json.cpp. Everything here is [thread-safe].
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "host/base/result.hpp"
#include "host/base/value.hpp"

namespace galley {

/// Values of a text: each takes some 64 bytes of memory, whatever it takes in the text. kMany are for what has a value for each token,
/// tensor or step; kFew for what is searched in turn, or by patterns.
inline constexpr size_t kMostJsonValues = size_t{1} << 20, kManyJsonValues = size_t{1} << 23, kFewJsonValues = size_t{1} << 15;

/// Objects become Tables, arrays Lists, null nil; a number without fraction and exponent that fits int64 an integer, every other a
/// double. Refused with "<origin>:<line>:<column>: …", exit code Recipe (lines and columns from 1, columns in bytes): whatever JSON
/// does not allow, a key that comes twice in one object, more than 200 levels, and more than `most` values.
/// KeyOrder::Listed: each object has a list of its keys in the text's order under kKeyOrder, which is no key of the text then.
enum class KeyOrder : uint8_t { Sorted, Listed };
inline constexpr const char* kKeyOrder = "__order";
Result<Value> parse_json(std::string_view text, std::string_view origin, size_t most = kMostJsonValues, KeyOrder order = KeyOrder::Sorted);

/// The file at `path`, of at most `limit` bytes. A file that cannot be read fails with exit code Failed.
Result<Value> read_json(const std::filesystem::path& path, uint64_t limit = 64u << 20, size_t most = kMostJsonValues);

/// The string with its quotes, `"` `\` and control characters (those of Unicode, too) escaped, and U+FFFD for what is no
/// UTF-8.
std::string json_quote(std::string_view text);

/// The value as JSON: keys in order, numbers in the fewest digits that come back the same, a schedule as the text that it was written as; a
/// number that is not finite, which JSON cannot say, as null. `indent` spaces a level, each element on a line of its own; 0: everything
/// on one line.
std::string to_json(const Value& value, int indent = 0);

}  // namespace galley
