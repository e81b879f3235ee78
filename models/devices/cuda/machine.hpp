// The GPU as a target: what a plan needs to know of it. Asks the driver, but makes no context and takes no memory of the GPU.
#pragma once

#include <cuda_runtime_api.h>

#include "galley/cpp/plugin.hpp"

namespace galley::cuda {

/// Throws what a call of the runtime says, with the call's name.
void check(cudaError_t status, const char* call);

/// Fills a target for kernels of device "cuda". What it points to lives as long as the library. Throws where there is no GPU or driver, and
/// where the GPU is too old.
void describe(galley_target* out);

/// The architecture of GPU 0: 90 for sm_90.
int architecture();

}  // namespace galley::cuda
