/* A cuDNN that only says what it is: 9.20.1, built with a CUDA whose NVRTC nobody has. */
#include <stddef.h>

size_t cudnnGetVersion(void);
size_t cudnnGetCudartVersion(void);

__attribute__((visibility("default"))) size_t cudnnGetVersion(void) { return 92001; }
__attribute__((visibility("default"))) size_t cudnnGetCudartVersion(void) { return 77000; }
