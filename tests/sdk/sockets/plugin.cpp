// How a stranger joins processes: galley.ranks/1 over TCP on one machine. Process 0 listens and writes its port into the folder where they
// meet; the others come to it. All that is exchanged goes through process 0: simple, and slow.
#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "galley/cpp/plugin.hpp"
#include "ranks.hpp"

namespace sockets {
namespace {

using namespace galley::sdk;

constexpr std::chrono::seconds kPatience(30);

[[noreturn]] void failed(const std::string& what) { throw Failure(GALLEY_FAILED, "sockets: cannot " + what); }

sockaddr_in address(uint16_t port) {
  sockaddr_in out = {};
  out.sin_family = AF_INET;
  out.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  out.sin_port = htons(port);
  return out;
}

/// Process 0: takes the others, each of which says its number.
void listen_for(Ranks& ranks, const std::string& file) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in own = address(0);
  socklen_t size = sizeof own;
  if (listener < 0 || ::bind(listener, reinterpret_cast<sockaddr*>(&own), size) != 0 || ::listen(listener, 64) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&own), &size) != 0)
    failed("listen");
  std::ofstream(file + ".tmp") << ntohs(own.sin_port) << '\n';
  if (std::rename((file + ".tmp").c_str(), file.c_str()) != 0) failed("write '" + file + "'");
  for (int64_t k = 1; k < ranks.ranks(); ++k) {
    const int other = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (other < 0) failed("take another process");
    ranks.greet(other);
  }
  ::close(listener);
}

/// The others.
void come_to(Ranks& ranks, const std::string& file) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  int port = 0;
  while (!(std::ifstream(file) >> port)) {
    if (std::chrono::steady_clock::now() > until) failed("find process 0: it has not written '" + file + "'");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const int to = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in there = address(static_cast<uint16_t>(port));
  if (to < 0 || ::connect(to, reinterpret_cast<const sockaddr*>(&there), sizeof there) != 0) failed("reach process 0");
  ranks.meet(to);
}

galley_status open(void*, const galley_ranks_options* options, void** handle, galley_error* error) noexcept {
  return guard(error, [&] {
    const galley_ranks_options o = read(options);
    auto ranks = std::make_unique<Ranks>(o.rank, o.ranks);
    if (o.ranks > 1) {
      const std::string file = std::string(o.meeting) + "/" + o.job + ".port";
      if (o.rank == 0) listen_for(*ranks, file);
      else come_to(*ranks, file);
    }
    *handle = ranks.release();
  });
}
galley_status exchange(void* handle, const void* mine, int64_t bytes, void* all, galley_error* error) noexcept {
  return guard(error, [&] { static_cast<Ranks*>(handle)->exchange(mine, bytes, all); });
}
galley_status check(void* handle, int64_t* culprit, galley_error* error) noexcept {
  return guard(error, [&] {
    *culprit = static_cast<Ranks*>(handle)->gone();
    if (*culprit >= 0) throw Failure(GALLEY_LOST, "a process has closed its socket");
  });
}
void abort(void* handle) noexcept { static_cast<Ranks*>(handle)->hang_up(); }
void close(void* handle) noexcept { delete static_cast<Ranks*>(handle); }

const galley_ranks table = {sizeof(galley_ranks), 1, nullptr, "sockets", "cpu", open, exchange, check, abort, close, 0};
const bool registered = add(&table);

}  // namespace
}  // namespace sockets

GALLEY_PLUGIN("sockets", "1.0.0");
