// The entry of the CUDA kernel library.
#include "galley/cpp/plugin.hpp"

GALLEY_PLUGIN("models", "1.0.0");
