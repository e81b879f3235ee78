// For tests: a plugin that would need a later host. Flags of the upper half it may have: those are hints.
#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

void infer(const Node& node, Shapes& out) { out.like(0, node.in(0)); }
Op from_later("from_later", "y = x, in a way that is not known yet");

struct FromLater {
  explicit FromLater(const Options&) {}
};

const bool registered =
    add(from_later.input("x", GALLEY_ROLE_ROWS).output("y", GALLEY_ROLE_ROWS).infer<infer>().flags(1ull << 30 | 1ull << 40)) &&
    add(strategy<FromLater>("from-later"));

}  // namespace

GALLEY_PLUGIN("from-later", "1.0.0");
