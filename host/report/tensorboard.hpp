// TensorBoard events: records of a protocol buffer (tensorboard/compat/proto/event.proto) in TFRecord framing, with masked CRC-32C.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "host/base/file.hpp"

namespace galley {

/// One file a process; scalars only. Nothing is allocated for a record. One thread.
class EventsFile {
 public:
  /// events.out.tfevents.<time>.galley.<pid> in `folder`.
  static Result<EventsFile> create(const std::filesystem::path& folder);
  /// `tag` of at most 40 bytes.
  Status scalar(std::string_view tag, int64_t step, float value);

 private:
  explicit EventsFile(File file) : file_(std::move(file)) {}
  Status record(std::string_view event);
  File file_;
};

}  // namespace galley
