#include "host/ranks/heartbeat.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <span>

#include "host/base/confinement.hpp"
#include "host/base/file.hpp"
#include "host/base/printable.hpp"
#include "host/exec/checksum.hpp"
#include "host/plugins/abi.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;
constexpr const char* ranks_folder = ".ranks";

/// Equal where a process's number means the same process: the name of the machine, its start, and the space of numbers.
uint64_t machine_number() {
  std::string text = machine_name();
  if (const auto boot = read_text("/proc/sys/kernel/random/boot_id")) text += *boot;
  struct stat space = {};
  if (::stat("/proc/self/ns/pid", &space) == 0) text += std::to_string(space.st_ino);
  return checksum(text);
}

/// Whether there is a process of this number on this machine. One that nobody has waited for yet has ended all the same.
bool is_alive(int64_t process) {
  if (::kill(static_cast<pid_t>(process), 0) != 0) return errno == EPERM;
  const auto status = read_text("/proc/" + std::to_string(process) + "/stat");
  if (!status) return true;
  const size_t name_end = status->rfind(") ");
  return name_end == std::string::npos || ((*status)[name_end + 2] != 'Z' && (*status)[name_end + 2] != 'X');
}

template <size_t N>
std::string text_in(const char (&from)[N]) {
  return printable({from, strnlen(from, N)}, Lines::Escape);
}

std::string seconds_text(std::chrono::steady_clock::duration time) {
  return std::to_string(std::max<int64_t>(std::chrono::round<std::chrono::seconds>(time).count(), 1)) + " s";
}

/// "in step 120 at 'gather model.layers.3'".
std::string where(int64_t step, const std::string& place) {
  const std::string at = place.empty() ? "" : " at '" + place + "'";
  return (step > 0 ? "in step " + std::to_string(step) : "before the first step") + at;
}

}  // namespace

// ---- The place of the main thread -------------------------------------------------------------------------------------------------

// Each word is released after the odd number: who reads a new word also reads that number afterwards, or a later one.
void MovingPlace::set(int64_t step, std::string_view text) noexcept {
  const uint64_t turn = turn_.load(std::memory_order_relaxed);
  const size_t bytes = std::min(text.size(), most_bytes);
  turn_.store(turn + 1, std::memory_order_relaxed);
  step_.store(step, std::memory_order_release);
  bytes_.store(bytes, std::memory_order_release);
  const auto put = [&](size_t at, size_t n) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + at, n);
    words_[at / 8].store(word, std::memory_order_release);
  };
  size_t at = 0;
  for (; at + 8 <= bytes; at += 8) put(at, 8);
  if (at < bytes) put(at, bytes - at);
  turn_.store(turn + 2, std::memory_order_release);
}

MovingPlace::Seen MovingPlace::get() const {
  for (;; std::this_thread::yield()) {
    const uint64_t turn = turn_.load(std::memory_order_acquire);
    if (turn % 2 != 0) continue;
    Seen out = {turn / 2, step_.load(std::memory_order_acquire), {}};
    std::array<uint64_t, most_bytes / 8> words = {};
    const size_t bytes = std::min<size_t>(bytes_.load(std::memory_order_acquire), most_bytes);
    for (size_t at = 0; at < bytes; at += 8) words[at / 8] = words_[at / 8].load(std::memory_order_acquire);
    if (turn_.load(std::memory_order_relaxed) != turn) continue;
    out.text.assign(reinterpret_cast<const char*>(words.data()), bytes);
    return out;
  }
}

// ---- The files ----------------------------------------------------------------------------------------------------------------------

/// Of processes of one build, on machines of one kind: Galley's and the plugins' versions are agreed upon.
struct Heartbeat::Slot {
  uint64_t beat = 0, moves = 0;
  int64_t step = 0, process = 0;
  uint64_t machine = 0;
  int64_t culprit = -1;
  State state = State::Running;
  uint16_t is_verdict = 0;  // `text` is one, about `culprit`; else it is this rank's error
  uint16_t has_left = 0;
  char name[64] = "", place[MovingPlace::most_bytes] = "", text[352] = "";
  uint64_t sum = 0;  // of all before: a file is read while it is written

  uint64_t own_sum() const { return checksum({reinterpret_cast<const char*>(this), offsetof(Slot, sum)}); }
};

struct Heartbeat::Other {
  std::optional<Slot> slot;
  Clock::time_point beat_at, moved_at;  // when it was seen to have changed
  bool died = false;
};

Status Heartbeat::write() {
  Slot& slot = *own_;
  const bool first = slot.beat++ == 0;
  const MovingPlace::Seen seen = place_.get();
  Other& self = others_[static_cast<size_t>(place_of_.rank)];
  if (slot.moves != seen.moves) self.moved_at = Clock::now();
  slot.moves = seen.moves;
  slot.step = seen.step;
  put_text(slot.place, sizeof slot.place, seen.text);
  slot.sum = slot.own_sum();
  self.slot = slot;
  // What is gone is not made anew: the others may have removed it.
  const fs::path path = folder_ / std::to_string(place_of_.rank);
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | (first ? O_CREAT : 0), 0666);
  if (descriptor < 0) return file_error("open", path, errno);
  return File::of_descriptor(descriptor, path).write_at(std::as_bytes(std::span(&slot, 1)), 0);
}

std::optional<Heartbeat::Slot> Heartbeat::read(int64_t rank) const {
  const fs::path path = folder_ / std::to_string(rank);
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) return std::nullopt;
  Slot out;
  const File file = File::of_descriptor(descriptor, path);
  if (!file.read_at(std::as_writable_bytes(std::span(&out, 1)), 0) || out.sum != out.own_sum()) return std::nullopt;
  return out;
}

void remove_heartbeats(const fs::path& directory, const std::string& but) {
  std::error_code error;
  const fs::path folder = directory / ranks_folder;
  if (!fs::is_directory(fs::symlink_status(folder, error))) return;  // nor what a link leads to
  std::vector<fs::path> starts;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().filename() != but) starts.push_back(entry.path());
  for (const fs::path& start : starts) fs::remove_all(start, error);
  fs::remove(folder, error);  // only if nothing is in it
}

// ---- Begin and end ------------------------------------------------------------------------------------------------------------------

Heartbeat::Heartbeat(fs::path folder, const RankPlace& place, Tell tell, HeartbeatTimes times)
    : folder_(std::move(folder)),
      place_of_(place),
      tell_(std::move(tell)),
      times_(times),
      machine_(machine_number()),
      own_(std::make_unique<Slot>()),
      others_(static_cast<size_t>(place.ranks)),
      looked_(Clock::now()) {
  own_->process = ::getpid();
  own_->machine = machine_;
  put_text(own_->name, sizeof own_->name, machine_name());
  for (Other& other : others_) other.beat_at = other.moved_at = looked_;
}

Result<std::unique_ptr<Heartbeat>> Heartbeat::begin(const fs::path& directory, const Party& party, Tell tell, HeartbeatTimes times) {
  return begin(directory, party.place(), party.start(), std::move(tell), times);
}

Result<std::unique_ptr<Heartbeat>> Heartbeat::begin(const fs::path& directory, const RankPlace& place, const std::string& start, Tell tell,
                                                    HeartbeatTimes times) {
  const fs::path all = directory / ranks_folder, own = all / start;
  std::error_code error;
  if (fs::is_symlink(fs::symlink_status(all, error))) return recipe_error(all.string() + " is a link", "take it away: nothing needs it");
  TRY_STATUS(Confinement::check(all));
  if (place.rank == 0) remove_heartbeats(directory, start);
  // Another rank may just have removed the folder around, because it was empty.
  for (int tries = 0; tries < 3 && !fs::is_directory(own, error); ++tries) fs::create_directories(own, error);
  if (error) return run_error("cannot create " + own.string() + ": " + error.message());
  std::unique_ptr<Heartbeat> out(new Heartbeat(own, place, std::move(tell), times));
  TRY_STATUS(out->start());
  return out;
}

Status Heartbeat::start() {
  TRY_STATUS(write());
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return ok();
}

Heartbeat::~Heartbeat() { leave(State::Failed, "it has left the run"); }

void Heartbeat::leave(State state, const std::string& text) {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    own_->state = state;
    own_->has_left = 1;
    if (!own_->is_verdict) put_text(own_->text, sizeof own_->text, text);
    (void)write();  // where that fails, the others find that this rank is silent
    stops_ = true;
  }
  changed_.notify_all();
  thread_.join();
  for (int64_t rank = 0; rank < place_of_.ranks; ++rank)
    if (!is_over(rank)) return;
  std::error_code error;
  fs::remove_all(folder_, error);
  fs::remove(folder_.parent_path(), error);  // only if nothing is in it
}

/// Whether the rank reads and writes no more.
bool Heartbeat::is_over(int64_t rank) const {
  const std::optional<Slot> slot = read(rank);
  if (!slot) return false;
  const bool is_gone = slot->state == State::Running && verdict_ && verdict_->rank == rank;
  return slot->has_left || is_gone || (slot->machine == machine_ && !is_alive(slot->process));
}

bool Heartbeat::failed(const Error& error) {
  bool shown = false;
  if (thread_.joinable()) {
    std::unique_lock lock(mutex_);
    own_->state = State::Failed;
    if (!own_->is_verdict) put_text(own_->text, sizeof own_->text, error.cause);
    (void)write();
    const auto until = Clock::now() + times_.silence;
    shown = verdict_.has_value();
    while (!shown && place_of_.rank != 0 && Clock::now() < until) {
      if (const std::optional<Slot> first = read(0)) {
        shown = first->is_verdict && first->culprit == place_of_.rank;
        if (first->is_verdict || first->state != State::Running || (first->machine == machine_ && !is_alive(first->process))) break;
      }
      changed_.wait_for(lock, times_.beat / 4);
    }
  }
  leave(State::Failed, error.cause);
  return shown;
}

std::optional<Alarm> Heartbeat::verdict() const {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, times_.silence + 8 * times_.beat, [&] { return verdict_.has_value(); });
  return verdict_;
}

Status Heartbeat::check_shared(Party& party) const {
  TRY_STATUS(party.first_error(ok()));  // all have begun
  std::vector<int64_t> missing;
  const auto until = Clock::now() + times_.silence;
  while (place_of_.rank == 0) {
    missing.clear();
    for (int64_t rank = 0; rank < place_of_.ranks; ++rank)
      if (!read(rank)) missing.push_back(rank);
    if (missing.empty() || Clock::now() >= until) break;
    std::this_thread::sleep_for(times_.beat / 4);
  }
  if (missing.empty()) return party.first_error(ok());
  const std::string directory = folder_.parent_path().parent_path().string();
  return party.first_error(recipe_error(directory + " is another directory on machine " + party.machine(missing.front()) + ": what " +
                                            ranks_text(missing) + " wrote there is not here",
                                        "name a directory that all machines of the run share"));
}

// ---- The thread -----------------------------------------------------------------------------------------------------------------------

void Heartbeat::run() {
  std::unique_lock lock(mutex_);
  while (!stops_) {
    (void)write();
    if (!verdict_ && own_->state == State::Running) {
      look();
      std::optional<Alarm> alarm = judge();
      if (!alarm) alarm = halt();
      if (alarm) {
        if (alarm->kind == Alarm::Kind::End) {
          verdict_ = alarm;
          own_->culprit = alarm->rank;
          own_->is_verdict = 1;
          put_text(own_->text, sizeof own_->text, alarm->text);
          (void)write();
        }
        lock.unlock();
        changed_.notify_all();
        tell_(*alarm);
        lock.lock();
      }
    }
    changed_.wait_for(lock, times_.beat, [&] { return stops_; });
  }
}

void Heartbeat::look() {
  const Clock::time_point now = Clock::now();
  // If this thread was held up itself, with its machine or its file system, it does not know what the others did meanwhile.
  if (const auto gap = now - looked_ - times_.beat; gap > times_.silence / 2)
    for (Other& other : others_) other.beat_at += gap, other.moved_at += gap;
  looked_ = now;
  const Other& first = others_[0];
  if (place_of_.rank != 0) {
    look_at(0);
    const bool doubtful = first.died || now - first.beat_at > 3 * times_.beat;
    if (doubtful && !is_wide_) {
      wide_ = now;
      for (Other& other : std::span(others_).subspan(1)) other.beat_at = other.moved_at = now;
    }
    is_wide_ = doubtful;
  }
  if (place_of_.rank == 0 || is_wide_)
    for (int64_t rank = 1; rank < place_of_.ranks; ++rank)
      if (rank != place_of_.rank) look_at(rank);
}

void Heartbeat::look_at(int64_t rank) {
  Other& other = others_[static_cast<size_t>(rank)];
  std::optional<Slot> slot = read(rank);
  if (!slot) return;
  if (slot->state == State::Running && slot->machine == machine_ && !is_alive(slot->process)) {
    slot = read(rank);  // its last words
    if (!slot) return;
    other.died = slot->state == State::Running;
  }
  if (!other.slot || other.slot->beat != slot->beat) other.beat_at = looked_;
  if (!other.slot || other.slot->moves != slot->moves) other.moved_at = looked_;
  other.slot = slot;
}

bool Heartbeat::silent(const Other& other) const {
  return (!other.slot || other.slot->state == State::Running) && looked_ - other.beat_at > times_.silence;
}

/// "rank 1 (machine b, process 8123)".
std::string Heartbeat::about(int64_t rank, const Slot& slot) const {
  return "rank " + std::to_string(rank) + " (machine " + text_in(slot.name) + ", process " + std::to_string(slot.process) + ")";
}

/// Whoever is gone, or has failed.
std::optional<Alarm> Heartbeat::judge() const {
  if (place_of_.rank == 0) {
    for (int64_t rank = 1; rank < place_of_.ranks; ++rank)
      if (auto found = judge(rank)) return found;
    return std::nullopt;
  }
  for (const Other& other : others_)
    if (other.slot && other.slot->is_verdict) return Alarm{Alarm::Kind::End, other.slot->culprit, text_in(other.slot->text), speaks()};
  // Who speaks in rank 0's place is known once the others have been looked at for a while.
  if (is_wide_ && looked_ - wide_ < 4 * times_.beat) return std::nullopt;
  return judge(0);
}

std::optional<Alarm> Heartbeat::judge(int64_t rank) const {
  const Other& other = others_[static_cast<size_t>(rank)];
  if (other.slot && other.slot->state == State::Failed)
    return Alarm{Alarm::Kind::End, rank, about(rank, *other.slot) + ": " + text_in(other.slot->text), place_of_.rank == 0};
  const auto gone = [&](const Other& one) { return one.died || silent(one); };
  if (!gone(other)) return std::nullopt;
  std::string text = other.slot ? about(rank, *other.slot) : "rank " + std::to_string(rank);
  text += other.died ? " died" : other.slot ? " gives no sign any more" : " gives no sign in " + folder_.string();
  if (other.slot)
    text += "; " + seconds_text(looked_ - other.beat_at) + " ago it was " + where(other.slot->step, text_in(other.slot->place));
  if (!other.slot) text += ": it has ended, or this is another directory there";
  else if (!other.died) text += ": it is stopped, or its machine or its network is gone";
  std::vector<int64_t> also, waited;
  for (int64_t r = 0; r < place_of_.ranks; ++r) {
    const Other& one = others_[static_cast<size_t>(r)];
    if (r == rank || !one.slot || one.slot->state != State::Running) continue;
    if (r != place_of_.rank && gone(one)) also.push_back(r);
    else if (looked_ - one.moved_at > 2 * times_.beat) waited.push_back(r);
  }
  if (!also.empty()) text += "; " + ranks_text(also) + (also.size() == 1 ? " is gone, too" : " are gone, too");
  if (!waited.empty()) text += "; " + ranks_text(waited) + " waited";
  return Alarm{Alarm::Kind::End, rank, text, speaks()};
}

/// Whether no rank before this one lives, or has spoken.
bool Heartbeat::speaks() const {
  return std::ranges::none_of(std::span(others_).first(static_cast<size_t>(place_of_.rank)), [&](const Other& other) {
    const bool beats = other.slot && other.slot->state == State::Running && !other.died && looked_ - other.beat_at < 3 * times_.beat;
    return beats || (other.slot && other.slot->is_verdict);
  });
}

/// Whether nobody moves, as rank 0 sees it.
std::optional<Alarm> Heartbeat::halt() {
  if (place_of_.rank != 0) return std::nullopt;
  Clock::time_point last = {};
  std::map<std::string, std::vector<int64_t>> places;
  for (int64_t rank = 0; rank < place_of_.ranks; ++rank) {
    const Other& other = others_[static_cast<size_t>(rank)];
    if (other.slot && other.slot->state != State::Running) continue;
    last = std::max(last, other.moved_at);
    if (other.slot) places[where(other.slot->step, text_in(other.slot->place))].push_back(rank);
  }
  const auto still = looked_ - last;
  if (still <= times_.warning) warned_ = false;
  const bool is_end = still > times_.patience;
  if (!is_end && (still <= times_.warning || warned_)) return std::nullopt;
  warned_ = true;
  Alarm out = {is_end ? Alarm::Kind::End : Alarm::Kind::Warning, -1, "no rank has moved for " + seconds_text(still), true};
  const char* mark = ": ";
  for (const auto& [place, ranks] : places) {
    out.text += mark + ranks_text(ranks) + " " + place;
    mark = "; ";
  }
  return out;
}

}  // namespace galley
