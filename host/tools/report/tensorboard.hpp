// Writes TensorBoard events: records of a protocol buffer (tensorboard/compat/proto/event.proto) in TFRecord framing, with masked CRC-32C.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "host/base/file.hpp"
#include "host/session/events.hpp"

namespace galley {

/// Writes one file for each process, events.out.tfevents.<time>.galley.<pid>; scalars only. Allocates nothing for a record. One thread.
class EventsFile final : public Observer {
 public:
  Status started(const StartEvent& start) override;
  Status step(const StepEvent& m) override;
  Status validated(const ValidationEvent& v) override;

 private:
  Status scalar(std::string_view tag, int64_t step, double value);
  Status record(std::string_view event);
  std::optional<File> file_;
};

}  // namespace galley
