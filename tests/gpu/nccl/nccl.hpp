// What the stand-in for NCCL (mock.cpp) is made of: the processes of a communicator on one machine, which meet in a file in memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace galley::mock {

/// Writes what is forbidden, and by which rank, and ends the process.
[[noreturn]] void forbid(const std::string& what);
inline void require(bool holds, const std::string& what) {
  if (!holds) forbid(what);
}

inline constexpr int kMostRanks = 8;
inline constexpr uint64_t kRing = 1 << 16;  ///< bytes that are under way from one rank to another

/// What a message is, for the one who receives it: all of it has to be as that one expects it.
struct Header {
  uint32_t kind;    ///< 1: ncclSend to ncclRecv, 2: of ncclAllGather
  uint32_t number;  ///< of the collective, among those of the communicator
  uint64_t count;
  int64_t dtype;

  bool operator==(const Header&) const = default;
  std::string text() const;
};

/// A message from or to another rank, or this one: so many bytes.
struct Message {
  int peer;
  Header header;
  char* data;
  uint64_t bytes;
};
/// What a group does when the stream comes to it.
struct Messages {
  std::vector<Message> sends, receives;
};

/// The file: what all processes of a communicator see.
class Room {
 public:
  enum State : uint32_t { Absent, Joined, Finalized, Aborted };

  /// Comes in.
  Room(const std::string& name, int rank, int ranks);
  ~Room();
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  /// Removes the file's name: all are in.
  void hide() const;
  bool all(State at_least) const;
  /// Whether a rank has aborted, or its process is gone.
  bool broken() const;
  void become(State state);
  /// The rank from which messages have come that nobody has received; -1: none.
  int unread() const;
  /// Sends and receives; returns false if `aborted` became true before all was done. Forbids what nobody answers.
  bool pass(const Messages& messages, const std::atomic<bool>& aborted);

 private:
  struct Shared;
  class Passing;
  bool there(int rank) const;

  const std::string path_;
  const int rank_, ranks_;
  int file_ = -1;
  Shared* shared_ = nullptr;
};

}  // namespace galley::mock
