#include "host/tools/report/tensorboard.hpp"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <string>

namespace galley {
namespace {

constexpr std::array<uint32_t, 256> crc_table = [] {
  std::array<uint32_t, 256> t = {};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int k = 0; k < 8; ++k) c = c & 1 ? 0x82F63B78u ^ (c >> 1) : c >> 1;
    t[i] = c;
  }
  return t;
}();

uint32_t masked_crc(std::string_view bytes) {
  uint32_t c = 0xFFFFFFFFu;
  for (const char b : bytes) c = crc_table[(c ^ static_cast<uint8_t>(b)) & 0xFF] ^ (c >> 8);
  c ^= 0xFFFFFFFFu;
  return ((c >> 15) | (c << 17)) + 0xA282EAD8u;
}

double wall_time() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

/// A protocol buffer in a fixed block.
struct Protobuf {
  std::array<char, 192> data;
  size_t size = 0;
  void raw(const void* bytes, size_t n) {
    std::memcpy(data.data() + size, bytes, n);
    size += n;
  }
  void varint(uint64_t v) {
    do {
      const auto b = static_cast<char>((v & 0x7F) | (v > 0x7F ? 0x80 : 0));
      raw(&b, 1);
      v >>= 7;
    } while (v);
  }
  void text(uint32_t field, std::string_view s) {
    varint(field << 3 | 2);
    varint(s.size());
    raw(s.data(), s.size());
  }
  std::string_view view() const { return {data.data(), size}; }
};

Protobuf event_at_now() {
  Protobuf m;
  const double t = wall_time();
  m.varint(1 << 3 | 1);  // wall_time, double
  m.raw(&t, 8);
  return m;
}

}  // namespace

Status EventsFile::started(const StartEvent& start) {
  const auto name = "events.out.tfevents." + std::to_string(static_cast<long long>(wall_time())) + ".galley." + std::to_string(getpid());
  file_.emplace(TRY(File::create(start.directory / name)));
  Protobuf m = event_at_now();
  m.text(3, "brain.Event:2");  // file_version
  return record(m.view());
}

Status EventsFile::step(const StepEvent& m) {
  TRY_STATUS(scalar("train/loss", m.step, m.loss));
  TRY_STATUS(scalar("train/grad_norm", m.step, m.grad_norm));
  for (const ReportedMetric& metric : m.reported) TRY_STATUS(scalar("train/" + std::string(metric.name), m.step, metric.value));
  if (m.epoch > 0) TRY_STATUS(scalar("train/epoch", m.step, m.epoch));
  if (m.seconds > 0) {
    TRY_STATUS(scalar("speed/positions_per_second", m.step, static_cast<double>(m.positions) / m.seconds));
    TRY_STATUS(scalar("speed/tokens_per_second", m.step, static_cast<double>(m.tokens) / m.seconds));
  }
  return scalar("train/lr", m.step, m.lr);
}

Status EventsFile::validated(const ValidationEvent& v) {
  for (const ReportedMetric& metric : v.reported) TRY_STATUS(scalar("validation/" + std::string(metric.name), v.step, metric.value));
  return scalar("validation/loss", v.step, v.loss);
}

Status EventsFile::scalar(std::string_view tag, int64_t step, double number) {
  const auto value = static_cast<float>(number);
  Protobuf v;  // Summary.Value { tag = 1, simple_value = 2 }
  v.text(1, tag);
  v.varint(2 << 3 | 5);
  v.raw(&value, 4);
  Protobuf summary;
  summary.text(1, v.view());
  Protobuf m = event_at_now();
  m.varint(2 << 3 | 0);  // step
  m.varint(static_cast<uint64_t>(step));
  m.text(5, summary.view());
  return record(m.view());
}

Status EventsFile::record(std::string_view event) {
  std::array<char, 256> out;
  const uint64_t n = event.size();
  std::memcpy(out.data(), &n, 8);
  const uint32_t head = masked_crc({out.data(), 8}), body = masked_crc(event);
  std::memcpy(out.data() + 8, &head, 4);
  std::memcpy(out.data() + 12, event.data(), n);
  std::memcpy(out.data() + 12 + n, &body, 4);
  return file_->write(std::string_view(out.data(), n + 16));
}

}  // namespace galley
