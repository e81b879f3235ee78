// Describes and opens data of every kind: Galley's own (corpus.hpp, batch.hpp), mixes of them, and a plugin's
// (plugin_rows.hpp).
#pragma once

#include "host/data/source.hpp"
#include "host/tokens/data_options.hpp"

namespace galley {

/// Describes the data without reading it: stats files, reads headers, the tokenizer, and the first 8 KiB of texts (files with a NUL are not
/// texts). The same files give the same answer.
Result<DataInfo> describe_data(const DataSpec& spec, const Recipe& recipe, const DataPlugins& plugins = {});

/// Checks what can be checked before anything is read, once the model and the strategies are known: ids fit the vocabulary, and a window
/// has room for the rows.
Status check_data(const DataInfo& info, const DataSpec& spec, int64_t vocabulary, const Windows& windows);

/// Opens the data, and prepares with `options` what has not been prepared yet. `info` is what describe_data() has returned.
Result<std::unique_ptr<Source>> open_data(const DataInfo& info, const DataSpec& spec, const Recipe& recipe, int64_t vocabulary,
                                          const Windows& windows, const PrepareOptions& options, const DataPlugins& plugins = {});

/// The kinds, for StudyOptions.
inline constexpr DataKinds all_kinds = {own_data_kinds, describe_data, check_data, open_data};

}  // namespace galley
