#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <thread>

#include "tests/gpu/nccl/nccl.hpp"

namespace galley::mock {

namespace {

int own_rank = -1;  // of the communicator that was made last, for messages

/// Bytes on the way from one rank to another.
struct Ring {
  std::atomic<uint64_t> written, read;
  char bytes[kRing];

  uint64_t put(const char* from, uint64_t most) {
    const uint64_t at = written, n = std::min(most, kRing - (at - read));
    for (uint64_t done = 0; done < n;) {
      const uint64_t begin = (at + done) % kRing, piece = std::min(n - done, kRing - begin);
      std::memcpy(bytes + begin, from + done, piece);
      done += piece;
    }
    written = at + n;
    return n;
  }
  uint64_t get(char* to, uint64_t most) {
    const uint64_t at = read, n = std::min(most, written - at);
    for (uint64_t done = 0; done < n;) {
      const uint64_t begin = (at + done) % kRing, piece = std::min(n - done, kRing - begin);
      std::memcpy(to + done, bytes + begin, piece);
      done += piece;
    }
    read = at + n;
    return n;
  }
};

int seconds_to_wait() {
  const char* const text = std::getenv("GALLEY_MOCK_NCCL_SECONDS");
  return text ? std::atoi(text) : 120;
}

}  // namespace

void forbid(const std::string& what) {
  std::fprintf(stderr, "NCCL of the tests, rank %d: %s\n", own_rank, what.c_str());
  std::abort();
}

std::string Header::text() const {
  return std::to_string(count) + " of type " + std::to_string(dtype) +
         (kind == 1 ? " by send and receive" : " by ncclAllGather, its collective " + std::to_string(number));
}

struct Room::Shared {
  std::atomic<uint32_t> ranks;
  std::atomic<uint32_t> states[kMostRanks];
  Ring rings[kMostRanks][kMostRanks];  // from, to
};

Room::Room(const std::string& name, int rank, int ranks) : path_("/dev/shm/" + name), rank_(rank), ranks_(ranks) {
  own_rank = rank;
  file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  require(file_ >= 0 && ::ftruncate(file_, sizeof(Shared)) == 0, "cannot make " + path_);
  shared_ = static_cast<Shared*>(::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0));
  require(shared_ != MAP_FAILED, "cannot map " + path_);
  // As long as the process is there, it has a lock on the byte of its rank.
  struct flock mine = {};
  mine.l_type = F_WRLCK;
  mine.l_start = rank;
  mine.l_len = 1;
  require(::fcntl(file_, F_OFD_SETLK, &mine) == 0, "two processes have this rank");
  uint32_t none = 0;
  shared_->ranks.compare_exchange_strong(none, static_cast<uint32_t>(ranks));
  require(shared_->ranks == static_cast<uint32_t>(ranks),
          "a communicator of " + std::to_string(ranks) + " ranks, which is one of " + std::to_string(shared_->ranks) + " elsewhere");
  require(shared_->states[rank].exchange(Joined) == Absent, "a unique id is taken for a second communicator");
}

Room::~Room() {
  ::munmap(shared_, sizeof(Shared));
  ::close(file_);
}

void Room::hide() const { (void)::unlink(path_.c_str()); }

bool Room::all(State at_least) const {
  for (int r = 0; r < ranks_; ++r)
    if (shared_->states[r] < at_least) return false;
  return true;
}

bool Room::there(int rank) const {
  if (rank == rank_) return true;
  struct flock its = {};
  its.l_type = F_WRLCK;
  its.l_start = rank;
  its.l_len = 1;
  return ::fcntl(file_, F_OFD_GETLK, &its) != 0 || its.l_type != F_UNLCK;
}

bool Room::broken() const {
  for (int r = 0; r < ranks_; ++r) {
    const uint32_t state = shared_->states[r];
    if (state == Aborted || (state == Joined && !there(r) && shared_->states[r] == Joined)) return true;
  }
  return false;
}

void Room::become(State state) { shared_->states[rank_] = state; }

int Room::unread() const {
  for (int r = 0; r < ranks_; ++r)
    if (const Ring& ring = shared_->rings[r][rank_]; ring.read != ring.written) return r;
  return -1;
}

/// The messages to or from one rank, one after the other.
class Room::Passing {
 public:
  Passing(Room& room, int peer) : room_(room), peer_(peer) {}
  void add_send(const Message& m) { sends_.push_back(m); }
  void add_receive(const Message& m) { receives_.push_back(m); }
  bool done() const { return sends_.empty() && receives_.empty(); }
  std::string waits() const {
    return sends_.empty() ? "receives " + receives_.front().header.text() + " from" : "sends " + sends_.front().header.text() + " to";
  }

  /// Returns whether anything has moved.
  bool step() {
    uint64_t moved = 0;
    Ring& out = room_.shared_->rings[room_.rank_][peer_];
    if (!sends_.empty()) {
      const Message& m = sends_.front();
      moved += run(
          sent_, m, [&](char* bytes, uint64_t n) { return out.put(bytes, n); }, m.header);
      if (sent_ == sizeof(Header) + m.bytes) sends_.pop_front(), sent_ = 0;
    }
    Ring& in = room_.shared_->rings[peer_][room_.rank_];
    if (!receives_.empty()) {
      const Message& m = receives_.front();
      const bool had = received_ >= sizeof(Header);
      moved += run(
          received_, m, [&](char* bytes, uint64_t n) { return in.get(bytes, n); }, header_);
      if (!had && received_ >= sizeof(Header)) check(m);
      if (received_ == sizeof(Header) + m.bytes) receives_.pop_front(), received_ = 0;
    }
    return moved > 0;
  }

 private:
  template <class Move>
  static uint64_t run(uint64_t& at, const Message& m, const Move& move, const Header& header) {
    auto* const of_header = const_cast<char*>(reinterpret_cast<const char*>(&header));
    const uint64_t moved = at < sizeof(Header) ? move(of_header + at, sizeof(Header) - at)
                                               : move(m.data + (at - sizeof(Header)), m.bytes - (at - sizeof(Header)));
    at += moved;
    return moved;
  }
  void check(const Message& m) const {
    require(header_ == m.header, "it receives " + m.header.text() + ", and rank " + std::to_string(peer_) + " sends " + header_.text());
  }

  Room& room_;
  int peer_;
  std::deque<Message> sends_, receives_;
  uint64_t sent_ = 0, received_ = 0;
  Header header_ = {};
};

bool Room::pass(const Messages& messages, const std::atomic<bool>& aborted) {
  std::deque<Passing> peers;
  for (int r = 0; r < ranks_; ++r) peers.emplace_back(*this, r);
  for (const Message& m : messages.sends) peers[static_cast<size_t>(m.peer)].add_send(m);
  for (const Message& m : messages.receives) peers[static_cast<size_t>(m.peer)].add_receive(m);
  const int seconds = seconds_to_wait();
  auto last = std::chrono::steady_clock::now();
  for (int idle = 0;;) {
    bool moved = false, done = true;
    for (Passing& peer : peers) {
      moved |= peer.step();
      done &= peer.done();
    }
    if (done) return true;
    if (aborted) return false;
    if (moved) {
      last = std::chrono::steady_clock::now();
      idle = 0;
      continue;
    }
    if (++idle < 100) sched_yield();
    else std::this_thread::sleep_for(std::chrono::microseconds(100));
    if (std::chrono::steady_clock::now() - last < std::chrono::seconds(seconds)) continue;
    for (int r = 0; r < ranks_; ++r)
      if (Passing& peer = peers[static_cast<size_t>(r)]; !peer.done())
        forbid("it " + peer.waits() + " rank " + std::to_string(r) + ", and nothing has moved for " + std::to_string(seconds) + " s");
  }
}

}  // namespace galley::mock
