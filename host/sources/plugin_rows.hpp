// Rows of a kind of data that a plugin brings (host/plugins/source.hpp): the items of an epoch in an order of their own, each as its rows;
// or, of one without end, rows by their window.
#pragma once

#include <memory>

#include "host/data/source.hpp"
#include "host/plugins/source.hpp"
#include "host/sources/stream.hpp"

namespace galley {

/// Do the work of describe_data() and open_data() for such a kind.
Result<DataInfo> describe_plugin_rows(const DataSpec& spec, const Recipe& recipe, LoadedSource& source);
/// `source` outlives the stream.
Result<std::unique_ptr<RowStream>> open_plugin_rows(const DataInfo& info, const Recipe& recipe, int64_t vocabulary, const Windows& windows,
                                                    LoadedSource& source);

}  // namespace galley
