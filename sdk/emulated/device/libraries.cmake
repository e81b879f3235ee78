# The device is the one of models/devices/cuda; its runtime is in this folder, and queues take what kernels for the emulated GPU put there.
foreach(file machine table work)
  list(APPEND sources ${PROJECT_SOURCE_DIR}/models/devices/cuda/${file}.cpp)
endforeach()
list(APPEND ARG_INCLUDES ${folder}/runtime)
list(APPEND libraries galley::emulated)
