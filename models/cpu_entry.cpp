// The entry of the CPU kernel libraries. The same sources are compiled once for each ISA; the host opens the one that its target names.
#include "galley/cpp/plugin.hpp"

GALLEY_PLUGIN("models", "1.0.0");
