// What a plugin's manifest promises of numbers in a format, held against numbers that were packed and unpacked again.
#pragma once

#include <string>
#include <vector>

#include "host/plugins/manifest.hpp"
#include "host/proofs/numbers.hpp"

namespace galley {

/// The first of the promises of a format that holds for a packing node's attributes; null: there is none.
const FormatPromise* promise_for(const std::vector<const FormatPromise*>& promises, const galley_op& pack, const AttrList& attrs);

/// The first number that is further from what it was than the promise says: "element 70 (block 1 of 64), 0.51, is kept as 0.52, …". "":
/// there is none.
std::string broken_promise(const FormatPromise& promise, const galley_op& pack, const AttrList& attrs, const Numbers& was,
                           const Numbers& kept);

}  // namespace galley
