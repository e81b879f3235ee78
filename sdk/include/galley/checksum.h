/* The checksum of a weight's bytes, the same on every device: the proof of training compares weights by it, states keep it.
 *
 *   checksum = mix(bytes, 0) + Σ mix(word i, i + 1), modulo 2^64
 *
 * Words are 8 bytes, little-endian; the last one is filled up with zeros. A sum has no order, so words may be taken by any number of
 * threads in any order. mix is the output function of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators",
 * OOPSLA 2014) on a counter that the word is added to. It finds what kernels do wrong; it is no protection against intent. */
#ifndef GALLEY_CHECKSUM_H
#define GALLEY_CHECKSUM_H

#include <stdint.h>
#include <string.h>

#include "galley/philox.h"

#ifdef __cplusplus
extern "C" {
#endif

static inline GALLEY_HOST_DEVICE uint64_t galley_checksum_mix(uint64_t word, uint64_t index) {
  uint64_t x = word + index * 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

/* What `bytes` bytes add that begin at word `first` of a tensor; for the tensor's last word, the rest of which counts as zeros. */
static inline uint64_t galley_checksum_part(const void* data, int64_t bytes, int64_t first) {
  const unsigned char* at = (const unsigned char*)data;
  const int64_t words = bytes / 8;
  uint64_t sum = 0, word = 0;
  for (int64_t i = 0; i < words; ++i) {
    memcpy(&word, at + 8 * i, 8);
    sum += galley_checksum_mix(word, (uint64_t)(first + i) + 1);
  }
  if (bytes % 8 == 0) return sum;
  word = 0;
  memcpy(&word, at + 8 * words, (size_t)(bytes % 8));
  return sum + galley_checksum_mix(word, (uint64_t)(first + words) + 1);
}

/* What a tensor of so many bytes begins with. */
static inline GALLEY_HOST_DEVICE uint64_t galley_checksum_begin(int64_t bytes) { return galley_checksum_mix((uint64_t)bytes, 0); }

#ifdef __cplusplus
}
#endif
#endif
