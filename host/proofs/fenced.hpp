// Memory beyond which nothing can be touched: a process that does dies of it.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace galley {

/// Where each piece is fenced: before its first byte, or after its last one.
enum class Edge : uint8_t { None, Before, After };

/// Memory of which each piece has pages before and after it that nobody may touch.
class Fenced {
 public:
  explicit Fenced(Edge edge) : edge_(edge) {}
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;
  ~Fenced() {
    for (const auto& [begin, bytes] : pieces_) ::munmap(begin, bytes);
  }
  /// Room with this content; null: the system gives no more memory.
  std::byte* add(std::span<const std::byte> content) {
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    const size_t inside = std::max(page, (content.size() + page - 1) / page * page), all = inside + 2 * page;
    void* const mapped = ::mmap(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    pieces_.emplace_back(mapped, all);
    auto* const begin = static_cast<std::byte*>(mapped) + page;
    if (::mprotect(begin, inside, PROT_READ | PROT_WRITE) != 0) return nullptr;
    std::byte* const at = edge_ == Edge::After ? begin + (inside - content.size()) : begin;
    std::ranges::copy(content, at);
    return at;
  }

 private:
  Edge edge_;
  std::vector<std::pair<void*, size_t>> pieces_;
};

}  // namespace galley
