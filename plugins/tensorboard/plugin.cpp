// Writes what a run reports as TensorBoard's events: records of a protocol buffer (tensorboard/compat/proto/event.proto) in TFRecord
// framing, with masked CRC-32C. Each process writes one file, events.out.tfevents.<time>.galley.<pid>, of scalars only.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <galley/cpp/strategy.hpp>
#include <string_view>

namespace {

using namespace galley::sdk;

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

/// A protocol buffer.
struct Protobuf {
  std::string data;
  void raw(const void* bytes, size_t n) { data.append(static_cast<const char*>(bytes), n); }
  void varint(uint64_t v) {
    do {
      data += static_cast<char>((v & 0x7F) | (v > 0x7F ? 0x80 : 0));
      v >>= 7;
    } while (v);
  }
  void text(uint32_t field, std::string_view s) {
    varint(field << 3 | 2);
    varint(s.size());
    data += s;
  }
};

Protobuf event_at_now() {
  Protobuf m;
  const double t = wall_time();
  m.varint(1 << 3 | 1);  // wall_time, double
  m.raw(&t, 8);
  return m;
}

class Events final : public Listener {
 public:
  Events(const galley_started_event& run, int64_t every)
      : path_(std::string(run.directory) + "/events.out.tfevents." + std::to_string(static_cast<long long>(wall_time())) + ".galley." +
              std::to_string(::getpid())),
        every_(every),
        file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666)) {
    if (file_.number < 0) fail("cannot be opened");
    Protobuf m = event_at_now();
    m.text(3, "brain.Event:2");  // file_version
    record(m.data);
  }

  void step(const galley_step_event& e) override {
    if (e.step % every_ != 0) return;
    scalar("train/loss", e.step, e.loss);
    scalar("train/grad_norm", e.step, e.grad_norm);
    for (const Metric& metric : metrics(e)) scalar("train/" + std::string(metric.name), e.step, metric.value);
    if (e.epoch > 0) scalar("train/epoch", e.step, e.epoch);
    if (e.seconds > 0) {
      scalar("speed/positions_per_second", e.step, static_cast<double>(e.positions) / e.seconds);
      scalar("speed/tokens_per_second", e.step, static_cast<double>(e.tokens) / e.seconds);
    }
    scalar("train/lr", e.step, e.lr);
  }
  void validated(const galley_validated_event& e) override {
    for (const Metric& metric : metrics(e)) scalar("validation/" + std::string(metric.name), e.step, metric.value);
    scalar("validation/loss", e.step, e.loss);
  }
  void saving() override {
    if (::fsync(file_.number) != 0 && errno != EINVAL) fail("cannot be written to the disk");  // EINVAL: no file of a disk
  }

 private:
  struct Descriptor {
    explicit Descriptor(int of) : number(of) {}
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    ~Descriptor() {
      if (number >= 0) ::close(number);
    }
    const int number;
  };

  void scalar(std::string_view tag, int64_t step, double number) {
    const auto value = static_cast<float>(number);
    Protobuf v;  // Summary.Value { tag = 1, simple_value = 2 }
    v.text(1, tag);
    v.varint(2 << 3 | 5);
    v.raw(&value, 4);
    Protobuf summary;
    summary.text(1, v.data);
    Protobuf m = event_at_now();
    m.varint(2 << 3 | 0);  // step
    m.varint(static_cast<uint64_t>(step));
    m.text(5, summary.data);
    record(m.data);
  }
  void record(std::string_view event) {
    const uint64_t n = event.size();
    std::string out(reinterpret_cast<const char*>(&n), 8);
    const uint32_t head = masked_crc(out), body = masked_crc(event);
    out.append(reinterpret_cast<const char*>(&head), 4).append(event).append(reinterpret_cast<const char*>(&body), 4);
    for (std::string_view rest = out; !rest.empty();) {
      const ssize_t written = ::write(file_.number, rest.data(), rest.size());
      if (written >= 0) rest.remove_prefix(static_cast<size_t>(written));
      else if (errno != EINTR) fail("cannot be written");
    }
  }
  [[noreturn]] void fail(const char* what) const { throw Failure(GALLEY_FAILED, path_ + " " + what + ": " + std::strerror(errno)); }

  std::string path_;
  int64_t every_;
  Descriptor file_;
};

class TensorBoard {
 public:
  explicit TensorBoard(const Options& options) : every_(options.integer("every")) {}
  std::unique_ptr<Listener> listen(const galley_started_event& run) const {
    if (every_ == 0) return std::make_unique<Listener>();
    return std::make_unique<Events>(run, every_);
  }

 private:
  int64_t every_;
};

const bool added = add(strategy<TensorBoard>("tensorboard"));

}  // namespace

GALLEY_PLUGIN("tensorboard", "1.0.0");
