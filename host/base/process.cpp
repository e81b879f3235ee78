#include "host/base/process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <utility>

#include "host/base/file.hpp"

namespace galley {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> out;
  out.reserve(words.size() + 1);
  for (const std::string& word : words) out.push_back(const_cast<char*>(word.c_str()));
  out.push_back(nullptr);
  return out;
}

std::string_view name_of(std::string_view variable) { return variable.substr(0, variable.find('=')); }

}  // namespace

Result<Process> Process::start(const std::vector<std::string>& words, const std::filesystem::path& log,
                               const std::vector<std::string>& environment) {
  const File file = TRY(File::open_append(log));
  const int out = file.descriptor();
  const std::vector<char*> arguments = pointers(words);
  std::vector<std::string> variables = environment;
  for (char** had = environ; *had; ++had)
    if (std::ranges::none_of(environment, [&](const std::string& own) { return name_of(own) == name_of(*had); }))
      variables.emplace_back(*had);
  const std::vector<char*> all = pointers(variables);
  const pid_t parent = ::getpid(), pid = ::fork();
  if (pid == 0) {  // only calls that a signal handler may make
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(kNotStarted);
    const int nothing = ::open("/dev/null", O_RDONLY);
    if (nothing < 0 || ::dup2(nothing, 0) < 0 || ::dup2(out, 1) < 0 || ::dup2(out, 2) < 0) ::_exit(kNotStarted);
    ::execve(arguments[0], arguments.data(), all.data());
    ::_exit(kNotStarted);
  }
  const int error = errno;
  if (pid < 0) return run_error("cannot start a process for a run: " + std::string(std::strerror(error)));
  return Process(pid, static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), handle_(std::exchange(other.handle_, -1)), ended_(std::exchange(other.ended_, std::nullopt)) {}

Process::~Process() {
  if (pid_ > 0 && !ended_) {
    send(SIGKILL);
    while (!wait_for(1)) continue;
  }
  if (handle_ >= 0) ::close(handle_);
}

int Process::wait(const std::function<bool()>& stop) {
  bool told = false;
  std::optional<int> ended = wait_for(0);
  while (!ended) {
    if (stop() && !told) {
      send(SIGTERM);
      told = true;
    }
    ended = wait_for(.1);
  }
  return *ended;
}

std::optional<int> Process::wait_for(double seconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!ended_) {
    int status = 0;
    const pid_t ended = ::waitpid(pid_, &status, WNOHANG);
    if (ended == pid_ || (ended < 0 && errno != EINTR)) {
      ended_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      break;
    }
    const double left = std::chrono::duration<double>(until - std::chrono::steady_clock::now()).count();
    if (left <= 0) break;
    pollfd ready = {handle_, POLLIN, 0};
    ::poll(&ready, handle_ < 0 ? 0 : 1, static_cast<int>(std::min(handle_ < 0 ? .02 : 1., left) * 1000) + 1);
  }
  return ended_;
}

void Process::send(int signal) const {
  if (!ended_) ::kill(pid_, signal);
}

}  // namespace galley
