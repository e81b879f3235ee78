// Functions that are compiled for the CPU and, by nvcc, for CUDA too.
#pragma once

#if defined(__CUDACC__)
#define GALLEY_ANYWHERE __host__ __device__ __forceinline__
#else
#define GALLEY_ANYWHERE inline
#endif
