// Exports a model or an adapter into a folder of its own, for other programs to read.
#pragma once

#include <filesystem>

#include "host/session/session.hpp"

namespace galley {

/// Exports what the study saves into `out`, which must be new or empty (check_vacant). Everything is written and synced beside it, in a
/// folder OUT.tmp-…, and renamed: `out` is there whole or not at all. A model alone, or an adapter alone, lies in `out` itself; if both are
/// saved, they lie in model/ and adapter/ below it. A model of more than `shard` bytes is split into files of so many (shards.hpp).
Status export_folder(Session& session, const std::filesystem::path& out, int64_t shard);

}  // namespace galley
