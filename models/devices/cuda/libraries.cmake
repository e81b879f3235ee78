# The runtime is linked statically: it looks for the driver only when it is first called, so the library loads on machines without one.
if(CMAKE_CUDA_COMPILER)
  find_package(CUDAToolkit REQUIRED)
  list(APPEND libraries CUDA::cudart_static)
else()
  set(left_out TRUE)
endif()
