// Draws data.random {}: uniform tokens, one document in each row. Every position counts; the last predicts a token that is drawn beyond the
// row. Token s of row r of window w depends on (seed, w, r, s) alone: 8 rows at once and 8 times one row are the same data.
#pragma once

#include <memory>

#include "host/data/source.hpp"

namespace galley {

/// Do the work of describe_data() and open_data() for this kind.
Result<DataInfo> describe_random(const DataSpec& spec, const Recipe& recipe);
Result<std::unique_ptr<Source>> open_random(const DataSpec& spec, const Recipe& recipe, int64_t vocabulary, const Windows& windows);

}  // namespace galley
