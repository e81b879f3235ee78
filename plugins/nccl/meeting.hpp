// How the ranks of a communicator get its id: by files in a folder that all see.
//
//   .galley-JOB.nccl      rank 0's: the id, and for each rank the number by which it asked
//   .galley-JOB.nccl.R    rank R's number, which is random: it asks for the id
//
// A start that was killed may have left such files, under the same name where the launcher gives two starts one job: a rank takes no id
// that is not for its own number, and rank 0 answers again as long as numbers change. Files are written aside and renamed, so that nobody
// reads a part of one. All are removed once the communicator is there.
#pragma once

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <vector>

#include "library.hpp"

namespace galley::nccl {

class Meeting {
 public:
  Meeting(const std::filesystem::path& folder, const std::string& job, int rank, int ranks)
      : file_(folder / (".galley-" + job + ".nccl")), rank_(rank), numbers_(static_cast<size_t>(ranks)) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (::getrandom(&own_, sizeof own_, 0) != sizeof own_) own_ = static_cast<uint64_t>(::getpid());
    if (rank == 0) numbers_[0] = own_;
    else write(of_rank(rank), &own_, sizeof own_);
  }
  ~Meeting() {
    if (written_) ::unlink((rank_ == 0 ? file_ : of_rank(rank_)).c_str());
  }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  const std::filesystem::path& file() const { return file_; }

  /// Of rank 0, again and again until all have joined: gives the id to whoever has asked since.
  void answer(const UniqueId& id) {
    const auto now = std::chrono::steady_clock::now();
    if (written_ && now < next_) return;
    next_ = now + std::chrono::milliseconds(20);
    std::vector<uint64_t> asked = numbers_;
    for (size_t r = 1; r < asked.size(); ++r)
      if (const std::vector<char> number = read(of_rank(static_cast<int>(r))); number.size() == sizeof(uint64_t))
        std::memcpy(&asked[r], number.data(), sizeof(uint64_t));
    if (written_ && asked == numbers_) return;
    numbers_ = asked;
    std::vector<char> text(sizeof id + asked.size() * sizeof(uint64_t));
    std::memcpy(text.data(), &id, sizeof id);
    std::memcpy(text.data() + sizeof id, asked.data(), asked.size() * sizeof(uint64_t));
    write(file_, text.data(), text.size());
  }
  /// Of the others: whether there is an answer, which is in `id` then.
  bool answered(UniqueId* id) const {
    const std::vector<char> text = read(file_);
    if (text.size() != sizeof *id + numbers_.size() * sizeof(uint64_t)) return false;
    uint64_t number = 0;
    std::memcpy(&number, text.data() + sizeof *id + static_cast<size_t>(rank_) * sizeof number, sizeof number);
    if (number != own_) return false;
    std::memcpy(id, text.data(), sizeof *id);
    return true;
  }

 private:
  std::filesystem::path of_rank(int rank) const { return file_.string() + "." + std::to_string(rank); }
  static std::vector<char> read(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(const std::filesystem::path& path, const void* bytes, size_t size) {
    const std::string aside = path.string() + "." + std::to_string(own_);
    const int file = ::open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool done = file >= 0 && ::write(file, bytes, size) == static_cast<ssize_t>(size) && ::fsync(file) == 0;
    int error = errno;
    if (file >= 0) ::close(file);
    if (done && ::rename(aside.c_str(), path.c_str()) != 0) done = false, error = errno;
    if (!done) {
      if (file >= 0) ::unlink(aside.c_str());
      throw sdk::Failure(GALLEY_FAILED, "cannot write '" + path.string() + "': " + std::strerror(error),
                         "the ranks find each other by this folder, which all of them have to see and write; NCCL_COMM_ID=HOST:PORT does "
                         "without it");
    }
    written_ = true;
  }

  std::filesystem::path file_;
  int rank_;
  std::vector<uint64_t> numbers_;  ///< of the ranks; rank 0 knows those that have asked
  uint64_t own_ = 0;
  bool written_ = false;
  std::chrono::steady_clock::time_point next_ = {};
};

}  // namespace galley::nccl
