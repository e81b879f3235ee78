// Reads generated.jsonl, the texts that a run has generated at its evaluations, for a page.
#pragma once

#include <cstddef>
#include <filesystem>

#include "host/base/result.hpp"
#include "host/base/value.hpp"

namespace galley {

/// The most generated texts of a page, and bytes of its file that it reads.
inline constexpr size_t kMostGenerated = 2000, kMostGeneratedFile = size_t{256} << 20;

/// Returns {file, evaluations: [{step, count, lines: [{index, prompt, expected, text, ended, tokens, match, cut}]}], found, trouble},
/// or nil where the run has no such file. A line has what the file's has; `cut` has the bytes of texts that are only begun here.
///
/// No more than `most` lines are there: the first and the last evaluation always, of the others each second, third, … (`found` is how many
/// there are), and of each its first lines (`count` is how many it has). What a run repeated after it was resumed counts once. A file that
/// is too large or cannot be read is no error: `trouble` says what is wrong, and of which line first. A last line that is not complete is
/// left out, as in a run that is under way.
Result<Value> read_generated(const std::filesystem::path& run, size_t most);

}  // namespace galley
