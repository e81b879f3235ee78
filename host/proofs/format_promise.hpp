// Checks what a plugin's manifest promises of numbers in a format, on numbers that were packed and unpacked again.
#pragma once

#include <string>
#include <vector>

#include "host/plugins/manifest.hpp"
#include "host/proofs/numbers.hpp"

namespace galley {

/// Returns the first of a format's promises that applies to a packing node's attributes; null if none does.
const FormatPromise* promise_for(const std::vector<const FormatPromise*>& promises, const galley_op& pack, const AttrList& attrs);

/// Names the first number that is further from what it was than promised: "element 70 (block 1 of 64), 0.51, is kept as 0.52, …". Returns
/// "" if there is none.
std::string broken_promise(const FormatPromise& promise, const galley_op& pack, const AttrList& attrs, const Numbers& was,
                           const Numbers& kept);

}  // namespace galley
