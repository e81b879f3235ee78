/* A driver of a GPU that is none: what cuDNN asks of it when it makes a plan is answered, and nothing runs. With it, the tests learn on any
   machine whether cuDNN takes our graphs, and how much memory its engines want (tests/models/cudnn_test.cpp). It has the name of the
   driver's library, so whoever opens that afterwards gets this one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

static int succeed(void) { return 0; }
static int unknown(void) { return 500; } /* CUDA_ERROR_NOT_FOUND */
static int number(int* value) {
  *value = 1;
  return 0;
}
static int zero(int* value) {
  *value = 0;
  return 0;
}
static int version(int* value) {
  *value = 13000;
  return 0;
}
static int handle(void** made) {
  *made = (void*)1;
  return 0;
}

#define ANSWER(how, name) int name() __attribute__((alias(#how), visibility("default")));
#define ANSWER_ALL(how, a, b, c, d, e) ANSWER(how, a) ANSWER(how, b) ANSWER(how, c) ANSWER(how, d) ANSWER(how, e)
ANSWER(unknown, cuGetExportTable)
ANSWER(version, cuDriverGetVersion)
ANSWER(number, cuDeviceGetCount)
ANSWER(number, cuDeviceGetAttribute)
ANSWER_ALL(zero, cuDeviceGet, cuCtxGetDevice, cuFuncGetAttribute, cuKernelGetAttribute, cuOccupancyMaxActiveBlocksPerMultiprocessor)
ANSWER_ALL(handle, cuCtxGetCurrent, cuDevicePrimaryCtxRetain, cuLibraryLoadData, cuLibraryGetKernel, cuModuleLoadData)
ANSWER_ALL(handle, cuModuleGetFunction, cuKernelGetFunction, cuModuleLoadFatBinary, cuModuleLoadDataEx, cuLibraryLoadFromFile)
ANSWER_ALL(succeed, cuInit, cuGetErrorString, cuGetErrorName, cuCtxPushCurrent, cuCtxPopCurrent)
ANSWER_ALL(succeed, cuCtxGetLimit, cuStreamGetCtx, cuStreamSynchronize, cuDevicePrimaryCtxReset, cuDevicePrimaryCtxRelease)
ANSWER_ALL(succeed, cuLaunchKernel, cuLaunchKernelEx, cuLaunchCooperativeKernel, cuOccupancyMaxPotentialClusterSize, cuTensorMapEncodeTiled)
ANSWER_ALL(succeed, cuLinkCreate, cuLinkCreate_v2, cuLinkAddData, cuLinkAddData_v2, cuLinkAddFile_v2)
ANSWER_ALL(succeed, cuLinkComplete, cuLinkDestroy, cuLibraryUnload, cuModuleUnload, cuModuleGetGlobal_v2)
ANSWER_ALL(succeed, cuKernelSetAttribute, cuFuncSetAttribute, cuMemcpyDtoH_v2, cuMemcpyHtoD_v2, cuCtxSynchronize)

int cuGetProcAddress_v2(const char* name, void** found, int cuda, uint64_t flags, int* status) {
  (void)cuda, (void)flags;
  void* const here = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  *found = here ? dlsym(here, name) : NULL;
  if (!*found) *found = (void*)succeed;
  if (here) dlclose(here);
  if (status) *status = 0;
  return 0;
}
int cuGetProcAddress(const char* name, void** found, int cuda, uint64_t flags) {
  return cuGetProcAddress_v2(name, found, cuda, flags, NULL);
}
