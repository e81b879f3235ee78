#include "processes.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cassert>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <thread>

#include "galley/abi.h"
#include "host/plugins/abi.hpp"

namespace galley::test {
namespace {

using namespace std::chrono_literals;

constexpr int64_t most_processes = 8, most_bytes = 4096;

void* shared_memory(size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert(memory != MAP_FAILED);
  return memory;
}

std::string read_all(int descriptor) {
  std::string out;
  char piece[512];
  for (ssize_t n; (n = ::read(descriptor, piece, sizeof piece)) > 0;) out.append(piece, static_cast<size_t>(n));
  return out;
}

}  // namespace

std::vector<std::string> in_processes(int64_t n, const std::function<std::string(int64_t rank)>& body,
                                      const std::function<void(const std::vector<pid_t>&)>& meanwhile) {
  std::fflush(nullptr);
  std::vector<pid_t> processes;
  std::vector<int> readers;
  for (int64_t rank = 0; rank < n; ++rank) {
    int ends[2];
    if (::pipe(ends) != 0) return {};
    const pid_t process = ::fork();
    if (process == 0) {
      ::alarm(20);  // a test that hangs ends
      std::string said;
      try {
        said = body(rank);
      } catch (const std::exception& exception) {
        said = std::string("exception: ") + exception.what();
      }
      const ssize_t written = ::write(ends[1], said.data(), said.size());
      ::_exit(written == static_cast<ssize_t>(said.size()) ? 0 : 1);
    }
    ::close(ends[1]);
    processes.push_back(process);
    readers.push_back(ends[0]);
  }
  if (meanwhile) meanwhile(processes);
  std::vector<std::string> out;
  for (size_t rank = 0; rank < processes.size(); ++rank) {
    out.push_back(read_all(readers[rank]));
    ::close(readers[rank]);
    int status = 0;
    ::waitpid(processes[rank], &status, 0);
    if (WIFSIGNALED(status)) out.back() = "signal " + std::to_string(WTERMSIG(status));
  }
  return out;
}

struct SharedRanks::Room {
  int64_t ranks = 0;
  std::atomic<int64_t> opened = 0, closed = 0, aborted = 0, culprit = -1, come = 0, turn = 0;
  std::atomic<bool> is_over = false;
  char bytes[most_processes][most_bytes] = {};
};

namespace {

using Room = SharedRanks::Room;

struct Member {
  Room* room = nullptr;
  int64_t rank = 0;
};
bool spoiled = false;  // of this process

galley_status refuse(galley_error* error, galley_status status, const std::string& text) {
  fill_error(error, status, text, "");
  return status;
}

galley_status lost(const Room& room, galley_error* error) {
  return refuse(error, GALLEY_LOST, room.culprit < 0 ? "the exchange was ended" : "it has closed its connection");
}

/// Waits for all: false if the exchange ends before.
bool meet(Room& room) {
  const int64_t turn = room.turn;
  if (room.come.fetch_add(1) + 1 == room.ranks) {
    room.come = 0;
    ++room.turn;
    return true;
  }
  while (room.turn == turn) {
    if (room.is_over) return false;
    std::this_thread::sleep_for(50us);
  }
  return true;
}

galley_status open_member(void* self, const galley_ranks_options* options, void** handle, galley_error* error) {
  auto* room = static_cast<Room*>(self);
  if (options->size < GALLEY_RANKS_OPTIONS_MIN_SIZE || !options->target || !options->job || !options->meeting || options->n_arenas != 1 ||
      options->arena_bytes[0] != 64 || options->local_ranks < 1)
    return refuse(error, GALLEY_FAILED, "the options are not whole");
  if (options->ranks != room->ranks)
    return refuse(error, GALLEY_INVALID,
                  "here are " + std::to_string(room->ranks) + " processes, and the launcher says " + std::to_string(options->ranks));
  *handle = new Member{room, options->rank};
  ++room->opened;
  return meet(*room) ? GALLEY_OK : lost(*room, error);
}

galley_status exchange_members(void* handle, const void* mine, int64_t bytes, void* all, galley_error* error) {
  const Member& member = *static_cast<Member*>(handle);
  Room& room = *member.room;
  if (spoiled) return refuse(error, GALLEY_FAILED, "the cable is loose");
  if (bytes > most_bytes) return refuse(error, GALLEY_FAILED, "that is too much for a test");
  std::memcpy(room.bytes[member.rank], mine, static_cast<size_t>(bytes));
  if (!meet(room)) return lost(room, error);
  for (int64_t r = 0; r < room.ranks; ++r) std::memcpy(static_cast<char*>(all) + r * bytes, room.bytes[r], static_cast<size_t>(bytes));
  return meet(room) ? GALLEY_OK : lost(room, error);
}

galley_status check_member(void* handle, int64_t* culprit, galley_error* error) {
  const Room& room = *static_cast<Member*>(handle)->room;
  if (!room.is_over) return GALLEY_OK;
  *culprit = room.culprit;
  return lost(room, error);
}

void abort_member(void* handle) {
  Room& room = *static_cast<Member*>(handle)->room;
  ++room.aborted;
  room.is_over = true;
}

void close_member(void* handle) {
  auto* member = static_cast<Member*>(handle);
  ++member->room->closed;
  (void)meet(*member->room);  // as MPI_Finalize does
  delete member;
}

}  // namespace

SharedRanks::SharedRanks(int64_t ranks, int64_t really) : room_(new (shared_memory(sizeof(Room))) Room), ranks_(ranks) {
  room_->ranks = really ? really : ranks;
}
SharedRanks::~SharedRanks() { ::munmap(room_, sizeof(Room)); }

Result<std::unique_ptr<Party>> SharedRanks::open(int64_t rank) const {
  static galley_ranks table;
  table = new_struct<galley_ranks>();
  table.self = room_;
  table.name = "shared";
  table.device = "cpu";
  table.open = open_member;
  table.exchange = exchange_members;
  table.check = check_member;
  table.abort = abort_member;
  table.close = close_member;
  static const Target target;
  static int arena = 0;
  PartyOptions options;
  options.table = &table;
  options.caller = {"shared"};
  options.target = &target;
  options.arenas = {&arena};
  options.bytes = {64};
  options.meeting = "/meeting";
  return Party::open({rank, ranks_, rank, ranks_, "test", "test.1"}, options);
}

void SharedRanks::leave(int64_t rank) const {
  room_->culprit = rank;
  room_->is_over = true;
}
void SharedRanks::spoil() const { spoiled = true; }
int64_t SharedRanks::closed() const { return room_->closed; }
int64_t SharedRanks::aborted() const { return room_->aborted; }

}  // namespace galley::test
