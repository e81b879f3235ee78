/* Counter-based random numbers, the same on every device: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as
 * 1, 2, 3", SC 2011).
 *
 * A draw is keyed by (seed, window, row in the window, position, hash of the node's name): see GALLEY_SCALAR_RANDOM. Recomputation
 * repeats it, a batch of 8 draws the same numbers as 8 batches of 1, and adding a node does not change the draws of other nodes. */
#ifndef GALLEY_PHILOX_H
#define GALLEY_PHILOX_H

#include <stdint.h>

#if defined(__CUDACC__)
#define GALLEY_HOST_DEVICE __host__ __device__
#else
#define GALLEY_HOST_DEVICE
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct galley_philox_block {
  uint32_t word[4];
} galley_philox_block;

/* Four independent uniform 32-bit words. */
static inline GALLEY_HOST_DEVICE galley_philox_block galley_philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  uint32_t c0 = (uint32_t)counter_low, c1 = (uint32_t)(counter_low >> 32), c2 = (uint32_t)counter_high, c3 = (uint32_t)(counter_high >> 32);
  galley_philox_block out;
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
    const uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ k0, n2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)b;
    c3 = (uint32_t)a;
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  out.word[0] = c0;
  out.word[1] = c1;
  out.word[2] = c2;
  out.word[3] = c3;
  return out;
}

/* Converts a word to a uniform number in [0, 1) with 24 bits, exact in F32. */
static inline GALLEY_HOST_DEVICE float galley_uniform(uint32_t word) { return (float)(word >> 8) * (1.0f / 16777216.0f); }

/* FNV-1a hash of a name: the part of the key that differs from node to node. */
static inline uint64_t galley_name_hash(const char* name) {
  uint64_t h = 14695981039346656037ull;
  for (; *name; ++name) h = (h ^ (uint8_t)*name) * 1099511628211ull;
  return h;
}

/* The key of a node in a window. `random` is the data of GALLEY_SCALAR_RANDOM. */
static inline GALLEY_HOST_DEVICE uint64_t galley_random_key(const int64_t* random, uint64_t name_hash) {
  const galley_philox_block b = galley_philox((uint64_t)random[0], name_hash, (uint64_t)random[1]);
  return (uint64_t)b.word[0] | (uint64_t)b.word[1] << 32;
}

/* Four draws for the row at (row of the window, position). Element `column` of that row uses word column % 4 of block column / 4. */
static inline GALLEY_HOST_DEVICE galley_philox_block galley_random_block(uint64_t key, int64_t row, int64_t position, int64_t block) {
  return galley_philox(key, (uint64_t)block, (uint64_t)row << 32 | (uint64_t)(uint32_t)position);
}

#ifdef __cplusplus
}
#endif
#endif
