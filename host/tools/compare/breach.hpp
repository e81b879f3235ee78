// Checks what strategies declare by the verdict of a comparison.
#pragma once

#include <string>

#include "host/tools/compare/verdict.hpp"

namespace galley {

/// Two arms differ by strategies: which of their declarations the verdict on the second arm denies, as "'NAME' (lean.lua:4), plugin 'ID',
/// declares the same bytes". "": none, or nothing can be said. It is said only of arms with the same lanes whose recipes differ in nothing
/// but strategies that one of them has in addition, all of which declare bits or rounding beside the recipe without them; or in one that
/// stands in the place of another one and declares to equal it. A declaration of bits is denied by any other byte, one of rounding by a
/// difference of losses that is no matter of chance, however small: `apart` says whether the interval leaves out 0.
std::string breach_of(const Study& baseline, const Study& arm, Verdict verdict, bool apart);

}  // namespace galley
