// Counts what the whole test program allocates.
#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/data/support.hpp"

namespace {

std::atomic<int64_t> count = 0;

void* attempt(std::size_t bytes) noexcept {
  ++count;
  return std::malloc(bytes > 0 ? bytes : 1);
}

void* counted(std::size_t bytes) {
  if (void* memory = attempt(bytes)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return attempt(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return attempt(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace galley {

int64_t allocations() { return count; }

}  // namespace galley
