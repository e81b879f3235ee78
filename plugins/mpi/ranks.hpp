// What galley_ranks.open makes, for the plugin's own library and for its kernels: the processes of a run, and messages between them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "galley/cpp/exchange.hpp"
#include "library.hpp"

namespace galley::mpi {

/// Bytes of one message at most: MPI counts in int.
inline constexpr int64_t kMessage = 16 << 20;

class Ranks {
 public:
  Ranks() = default;  ///< one rank, which touches no MPI
  Ranks(const Library& library, Comm comm, int rank, int ranks) : library_(&library), comm_(comm), rank_(rank), ranks_(ranks) {}
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  const Library* library() const { return library_; }
  Comm comm() const { return comm_; }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  /// Throws what a call's code says. After it, nothing of the run can go on here. `other`: the rank whose message it is, -1: none.
  void check(int code, const char* call, int other = -1) {
    if (code == kSuccess) return;
    culprit_ = other;
    lost_ = true;
    const std::string of = other < 0 ? "" : " of a message with rank " + std::to_string(other);
    throw sdk::Failure(GALLEY_LOST, std::string(call) + of + ": " + library_->text(code));
  }
  /// Waits for what a call has begun, whose code is `begun`. Throws as check.
  void wait(int begun, Request* request, const char* call, int other = -1) {
    check(begun, call, other);
    int done = 0;
    for (sdk::Patience patience;; patience.wait()) {
      check(library_->test(request, &done, nullptr), call, other);
      if (done) return;
    }
  }
  /// [thread-safe]
  bool lost() const { return lost_; }
  int culprit() const { return culprit_; }

  /// all[r * bytes] … is what rank r gave.
  void gather(const void* mine, int64_t bytes, void* all);

 private:
  const Library* library_ = nullptr;
  Comm comm_ = nullptr;
  int rank_ = 0, ranks_ = 1;
  std::atomic<bool> lost_ = false;
  std::atomic<int> culprit_ = -1;
};

/// Messages that are under way at once: one to and one from each other rank of a group. Two ranks send each other messages in one order,
/// whichever groups they are of.
class Messages {
 public:
  Messages(Ranks& ranks, const sdk::Group& group) : ranks_(ranks), group_(group) {
    pending_.reserve(2 * static_cast<size_t>(group.places()));
  }

  /// Sends and receives by `send(place)` and `receive(place)`: for the rank at each other place an address and at most kMessage bytes; with
  /// 0 bytes there is no message. Returns when all are there.
  template <class Send, class Receive>
  void swap(const Send& send, const Receive& receive) {
    const Library& mpi = *ranks_.library();
    const int64_t places = group_.places(), own = group_.place();
    for (int64_t k = 1; k < places; ++k) {
      const int64_t place = (own + places - k) % places;
      const auto [to, bytes] = receive(place);
      const auto from = static_cast<int>(group_.member(place));
      if (bytes) ranks_.check(mpi.irecv(to, static_cast<int>(bytes), mpi.byte, from, 0, ranks_.comm(), add(from)), "MPI_Irecv", from);
    }
    for (int64_t k = 1; k < places; ++k) {
      const int64_t place = (own + k) % places;
      const auto [from, bytes] = send(place);
      const auto to = static_cast<int>(group_.member(place));
      if (bytes) ranks_.check(mpi.isend(from, static_cast<int>(bytes), mpi.byte, to, 0, ranks_.comm(), add(to)), "MPI_Isend", to);
    }
    for (Pending& p : pending_) ranks_.wait(kSuccess, &p.request, "MPI_Test", p.other);
    pending_.clear();
  }

 private:
  struct Pending {
    Request request;
    int other;
  };
  Request* add(int other) { return &pending_.emplace_back(Pending{nullptr, other}).request; }

  Ranks& ranks_;
  sdk::Group group_;
  std::vector<Pending> pending_;
};

struct To {
  void* address;
  int64_t bytes;
};
struct From {
  const void* address;
  int64_t bytes;
};

inline void Ranks::gather(const void* mine, int64_t bytes, void* all) {
  const auto* own = static_cast<const char*>(mine);
  auto* of_all = static_cast<char*>(all);
  if (bytes <= kMessage) {
    const auto size = static_cast<int>(bytes);
    Request request = nullptr;
    return wait(library_->iallgather(mine, size, library_->byte, all, size, library_->byte, comm_, &request), &request, "MPI_Iallgather");
  }
  Messages messages(*this, sdk::Group(rank_, ranks_));
  for (int64_t done = 0; done < bytes; done += kMessage) {
    const int64_t size = std::min(kMessage, bytes - done);
    messages.swap([&](int64_t) { return From{own + done, size}; }, [&](int64_t from) { return To{of_all + from * bytes + done, size}; });
  }
  std::memcpy(of_all + rank_ * bytes, own, static_cast<size_t>(bytes));
}

}  // namespace galley::mpi
