/* A library of kernels without kernels. The loop is one that contraction or vectorisation by build type would change. */
#include "galley/galley.h"

#if GALLEY_CPU_LEVEL >= 4 && !defined(__AVX512F__)
#error "level 4 is built without its instructions"
#endif

extern void stranger_axpy(float* y, const float* x, float a, int64_t n);
void stranger_axpy(float* y, const float* x, float a, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] += a * x[i];
}

static galley_status opened(const galley_host* host, galley_error* error) {
  float y[4] = {0, 1, 2, 3}, x[4] = {4, 5, 6, 7};
  stranger_axpy(y, x, (float)host->size, 4);
  error->code = (int32_t)y[3];
  return GALLEY_OK;
}

GALLEY_PUBLIC extern const galley_entry galley_entry_v1;
const galley_entry galley_entry_v1 = {
    .size = sizeof(galley_entry),
    .revision = 1,
    .abi_major = GALLEY_ABI_MAJOR,
    .abi_minor = GALLEY_ABI_MINOR,
    .id = "stranger",
    .version = "0.1.0",
    .open = opened,
};
