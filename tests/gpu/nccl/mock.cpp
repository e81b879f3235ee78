// A NCCL of the tests: the calls that plugins/nccl uses, for processes on one machine with an emulated GPU each. Strict where NVIDIA's leaves
// it to the caller: what its user guide forbids, and what would hang or compute wrongly without a word, is written to stderr and ends the
// process. Source: NVIDIA, "NCCL User Guide", version 2.28.
//
//   - a communicator that is not there any more, or that is still busy with what it was asked before (it never blocks: whatever begins work
//     is in progress until ncclCommGetAsyncError has been asked several times, and is not on the stream before that)
//   - two threads in one communicator, but for ncclCommGetAsyncError and ncclCommAbort
//   - groups that are not closed, or closed twice; several communicators or streams in one group
//   - peers, types and counts that do not exist; no memory, or memory that only the host has
//   - what is received where something else of the group lies; ncclAllGather in place, at another place than the rank's own
//   - ranks that do not do the same: messages of other sizes or types than the other side expects, collectives in another order, and a message
//     that nobody answers within GALLEY_MOCK_NCCL_SECONDS (120), or at all
//
// Messages are the matter of two ranks: meanwhile others may send each other some, or wait for this one.
//
// A rank that aborts or whose process is gone makes ncclCommGetAsyncError of the others say ncclRemoteError; whatever waits for it on a
// stream goes on waiting until they abort, too.
#include <sys/random.h>

#include <climits>
#include <cstring>
#include <map>
#include <thread>

#include "galley/cuda/platform.hpp"
#include "tests/gpu/nccl/nccl.hpp"

namespace {

using namespace galley::mock;

enum Result { ncclSuccess = 0, ncclInvalidArgument = 4, ncclRemoteError = 6, ncclInProgress = 7 };
struct UniqueId {
  char bytes[128];
};
struct Config {  // of version 2.19
  size_t size;
  unsigned magic, version;
  int blocking, cga, min_ctas, max_ctas;
  const char* net;
  int split;
};

const char* call = "";  // under way

constexpr int kPolls = 3;  // how often ncclCommGetAsyncError is asked before work is on the stream

int64_t bytes_of_type(int dtype) {
  constexpr int64_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  require(dtype >= 0 && dtype < 12, std::string(call) + " of data type " + std::to_string(dtype));
  return sizes[dtype];
}

struct Range {
  const char* begin;
  const char* end;
  bool meets(const Range& other) const { return begin < other.end && other.begin < end; }
};

}  // namespace

struct ncclComm : std::enable_shared_from_this<ncclComm> {
  ncclComm(const std::string& name, int rank_, int ranks_) : room(name, rank_, ranks_), rank(rank_), ranks(ranks_) {}

  enum State { Joining, Ready, Busy, Finalizing, Finalized } state = Joining;
  Room room;
  const int rank, ranks;
  int polls = 0;
  std::vector<std::function<void()>> begun;  ///< not yet on the streams
  uint32_t collectives = 0;                  ///< that streams have come to
  std::atomic<bool> aborted = false;
  std::atomic<int> inside = 0;  ///< threads
};
using Comm = ncclComm*;
using Stream = galley_queue*;

namespace {

std::mutex mutex;  // of the list
std::map<Comm, std::shared_ptr<ncclComm>> comms;

std::shared_ptr<ncclComm> at(Comm comm) {
  const std::lock_guard lock(mutex);
  const auto found = comms.find(comm);
  require(found != comms.end(), std::string(call) + " on a communicator that is not there (any more)");
  return found->second;
}
std::shared_ptr<ncclComm> remove(Comm comm) {
  std::shared_ptr<ncclComm> out = at(comm);
  const std::lock_guard lock(mutex);
  comms.erase(comm);
  return out;
}

/// A thread in a communicator that is ready for work.
struct Inside {
  explicit Inside(Comm comm) : of(at(comm)) {
    require(of->inside++ == 0, std::string(call) + " while another thread is in the communicator");
    require(of->state != ncclComm::Joining && of->state != ncclComm::Busy,
            std::string(call) + " while the communicator is in progress: ncclCommGetAsyncError says when it is not");
    require(of->state == ncclComm::Ready, std::string(call) + " on a communicator that has been finalized");
  }
  ~Inside() { --of->inside; }
  std::shared_ptr<ncclComm> of;
};

/// What a thread has asked for since ncclGroupStart.
struct Group {
  int depth = 0;
  Comm comm = nullptr;
  Stream stream = nullptr;
  Messages messages;
  std::vector<Range> sent, received;
  std::vector<std::pair<const char*, Range>> gathered;  ///< of ncclAllGather: what a rank gives, and all
};
thread_local Group group;

void join_group(Comm comm, Stream stream) {
  require(!group.comm || group.comm == comm, "a group with several communicators");
  require(!group.stream || group.stream == stream, "a group with several streams");
  require(stream != nullptr, std::string(call) + " without a stream");
  group.comm = comm;
  group.stream = stream;
}

/// Memory that a GPU could reach, in the first and the last byte.
Range memory(Stream stream, const void* data, int64_t bytes) {
  const auto* const begin = static_cast<const char*>(data);
  require(begin != nullptr, std::string(call) + " without memory");
  auto* const queue = reinterpret_cast<galley::cuda::Queue*>(stream);
  for (const char* const byte : {begin, begin + bytes - 1}) {
    try {
      queue->check_argument(1, &byte, sizeof byte);
    } catch (const std::exception& wrong) {
      forbid(std::string(call) + ": " + wrong.what());
    }
  }
  return {begin, begin + bytes};
}

void check_places() {
  const auto apart = [](const Range& a, const Range& b) {
    require(!a.meets(b), "a group receives where it sends from, or receives something else");
  };
  for (size_t i = 0; i < group.received.size(); ++i) {
    for (size_t j = 0; j < i; ++j) apart(group.received[i], group.received[j]);
    for (const Range& sent : group.sent) apart(group.received[i], sent);
  }
  int64_t to_self = 0;
  for (const Message& m : group.messages.sends) to_self += m.header.kind == 1 && m.peer == at(group.comm)->rank;
  for (const Message& m : group.messages.receives) to_self -= m.header.kind == 1 && m.peer == at(group.comm)->rank;
  require(to_self == 0, "a message to this rank itself that the group does not receive");
}

/// Runs on the stream.
void pass(ncclComm& comm, Messages messages, bool collective) {
  if (comm.aborted) return;
  const uint32_t number = collective ? ++comm.collectives : 0;
  for (std::vector<Message>* list : {&messages.sends, &messages.receives})
    for (Message& m : *list)
      if (m.header.kind == 2) m.header.number = number;
  (void)comm.room.pass(messages, comm.aborted);
}

int end_group() {
  if (!group.comm) return ncclSuccess;
  const Inside inside(group.comm);
  check_places();
  const bool collective = !group.gathered.empty();
  require(!collective || (group.gathered.size() == 1 && group.sent.empty() && group.received.empty()),
          "a group with a collective and something else, which this NCCL does not know");
  ncclComm& comm = *inside.of;
  comm.begun.push_back([of = inside.of, stream = group.stream, messages = std::move(group.messages), collective] {
    galley::cuda::put(stream, [of, messages, collective] { pass(*of, messages, collective); });
  });
  comm.state = ncclComm::Busy;
  comm.polls = kPolls;
  group = {};
  return ncclInProgress;
}

/// A call that a group has collected, or that is one by itself.
int collected() { return group.depth > 0 ? ncclSuccess : end_group(); }

std::string id_of(const std::string& text) {
  std::string out = "galley-nccl-" + text;
  for (char& c : out)
    if (c == '/' || c == ':') c = '-';
  return out;
}

}  // namespace

#define NCCL_CALL extern "C" __attribute__((visibility("default")))

NCCL_CALL int ncclGetVersion(int* out) {
  const char* const text = std::getenv("GALLEY_MOCK_NCCL_VERSION");
  *out = text ? std::atoi(text) : 22809;
  return ncclSuccess;
}
NCCL_CALL const char* ncclGetErrorString(int result) {
  return result == ncclRemoteError ? "remote process exited or there was a network error" : "an error of the NCCL of the tests";
}
NCCL_CALL const char* ncclGetLastError(Comm comm) { return comm ? "" : nullptr; }

NCCL_CALL int ncclGetUniqueId(UniqueId* out) {
  call = "ncclGetUniqueId";
  std::string text = std::getenv("NCCL_COMM_ID") ? std::getenv("NCCL_COMM_ID") : "";
  if (text.empty()) {
    uint64_t random = 0;
    require(::getrandom(&random, sizeof random, 0) == sizeof random, "no random number");
    text = std::to_string(random);
  }
  *out = {};
  id_of(text).copy(out->bytes, sizeof out->bytes - 1);
  return ncclSuccess;
}

NCCL_CALL int ncclCommInitRankConfig(Comm* out, int ranks, UniqueId id, int rank, Config* config) {
  call = "ncclCommInitRankConfig";
  require(ranks > 0 && ranks <= kMostRanks && rank >= 0 && rank < ranks,
          "rank " + std::to_string(rank) + " of " + std::to_string(ranks) + ", of which there are at most " + std::to_string(kMostRanks));
  require(config && config->size == sizeof(Config) && config->magic == 0xcafebeef && config->version >= 21900 && config->version <= 22809,
          "a configuration that is not initialized");
  for (const int one : {config->cga, config->min_ctas, config->max_ctas, config->split})
    require(one == INT_MIN, "a setting that it does not know");
  require(config->blocking == 0 && !config->net, "a communicator that blocks, which it does not know");
  require(std::memcmp(id.bytes, "galley-nccl-", 12) == 0 && std::memchr(id.bytes, 0, sizeof id.bytes), "a unique id that it has not made");
  require(group.depth == 0, "a communicator is made inside of a group");
  auto comm = std::make_shared<ncclComm>(id.bytes, rank, ranks);
  const std::lock_guard lock(mutex);
  *out = comm.get();
  comms[comm.get()] = comm;
  return ncclInProgress;
}

NCCL_CALL int ncclCommGetAsyncError(Comm which, int* out) {
  call = "ncclCommGetAsyncError";
  require(group.depth == 0, "ncclCommGetAsyncError inside of a group");
  const std::shared_ptr<ncclComm> comm = at(which);
  *out = ncclInProgress;
  if (comm->room.broken()) {
    *out = ncclRemoteError;
  } else if (comm->state == ncclComm::Joining && comm->room.all(Room::Joined)) {
    comm->state = ncclComm::Ready;
    comm->room.hide();
  } else if (comm->state == ncclComm::Busy && --comm->polls <= 0) {
    for (const auto& begin : comm->begun) begin();
    comm->begun.clear();
    comm->state = ncclComm::Ready;
  } else if (comm->state == ncclComm::Finalizing && comm->room.all(Room::Finalized)) {
    comm->state = ncclComm::Finalized;
    const int from = comm->room.unread();
    require(from < 0, "it ends without what rank " + std::to_string(from) + " has sent");
  }
  if (*out == ncclInProgress && (comm->state == ncclComm::Ready || comm->state == ncclComm::Finalized)) *out = ncclSuccess;
  return ncclSuccess;
}

NCCL_CALL int ncclCommFinalize(Comm which) {
  call = "ncclCommFinalize";
  const Inside inside(which);
  inside.of->state = ncclComm::Finalizing;
  inside.of->room.become(Room::Finalized);
  return ncclInProgress;
}
NCCL_CALL int ncclCommDestroy(Comm which) {
  call = "ncclCommDestroy";
  require(at(which)->state == ncclComm::Finalized, "ncclCommDestroy of a communicator that is not finalized");
  remove(which);
  return ncclSuccess;
}
NCCL_CALL int ncclCommAbort(Comm which) {
  const std::shared_ptr<ncclComm> comm = remove(which);
  comm->aborted = true;
  comm->room.become(Room::Aborted);
  return ncclSuccess;
}

NCCL_CALL int ncclGroupStart() {
  call = "ncclGroupStart";
  if (group.depth++ == 0) require(!group.comm, "a group that was left open");
  return ncclSuccess;
}
NCCL_CALL int ncclGroupEnd() {
  call = "ncclGroupEnd";
  require(group.depth > 0, "ncclGroupEnd without ncclGroupStart");
  return --group.depth > 0 ? ncclSuccess : end_group();
}

namespace {

/// ncclSend or ncclRecv.
int message(const void* data, size_t count, int dtype, int peer, Comm which, Stream stream, bool sends) {
  {
    const Inside inside(which);
    require(peer >= 0 && peer < inside.of->ranks,
            std::string(call) + " with rank " + std::to_string(peer) + " of " + std::to_string(inside.of->ranks));
  }
  join_group(which, stream);
  const int64_t size = bytes_of_type(dtype);
  require(count > 0 && count < uint64_t{1} << 48, std::string(call) + " of " + std::to_string(count) + " numbers");
  const auto bytes = static_cast<int64_t>(count) * size;
  (sends ? group.sent : group.received).push_back(memory(stream, data, bytes));
  (sends ? group.messages.sends : group.messages.receives)
      .push_back({peer, {1, 0, count, dtype}, static_cast<char*>(const_cast<void*>(data)), static_cast<uint64_t>(bytes)});
  return collected();
}

}  // namespace

NCCL_CALL int ncclSend(const void* data, size_t count, int dtype, int peer, Comm comm, Stream stream) {
  call = "ncclSend";
  return message(data, count, dtype, peer, comm, stream, true);
}
NCCL_CALL int ncclRecv(void* data, size_t count, int dtype, int peer, Comm comm, Stream stream) {
  call = "ncclRecv";
  return message(data, count, dtype, peer, comm, stream, false);
}

NCCL_CALL int ncclAllGather(const void* mine, void* all, size_t count, int dtype, Comm which, Stream stream) {
  call = "ncclAllGather";
  int rank = 0, ranks = 0;
  {
    const Inside inside(which);
    rank = inside.of->rank;
    ranks = inside.of->ranks;
  }
  join_group(which, stream);
  const auto bytes = static_cast<int64_t>(count) * bytes_of_type(dtype);
  require(count > 0 && count < uint64_t{1} << 48, "ncclAllGather of " + std::to_string(count) + " numbers");
  const Range from = memory(stream, mine, bytes), to = memory(stream, all, bytes * ranks);
  const char* const place = to.begin + rank * bytes;
  require(!from.meets(to) || from.begin == place, "ncclAllGather in place, and not at this rank's own: recvbuff + rank * sendcount");
  group.gathered.push_back({from.begin, to});
  for (int r = 0; r < ranks; ++r) {
    const Header header = {2, 0, count, dtype};
    if (r == rank && from.begin == place) continue;
    group.messages.sends.push_back({r, header, const_cast<char*>(from.begin), static_cast<uint64_t>(bytes)});
    group.messages.receives.push_back({r, header, const_cast<char*>(to.begin) + r * bytes, static_cast<uint64_t>(bytes)});
  }
  return collected();
}
