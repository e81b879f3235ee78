// The ops of language models: shapes, gradients, costs and references. Each folder of models/ops registers its own; nothing is listed here.
#include "galley/cpp/plugin.hpp"

GALLEY_PLUGIN("models", "1.0.0");
