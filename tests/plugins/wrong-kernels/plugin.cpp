// For tests: the library without kernels. They are in cpu.cpp.
#include "galley/cpp/plugin.hpp"

GALLEY_PLUGIN("wrong-kernels", "1.0.0");
