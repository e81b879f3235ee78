// Plans for the processes that share a run, where one of them speaks for all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>

#include "host/base/result.hpp"
#include "host/session/study.hpp"

namespace galley {

/// Returns the processes whose plans are made where those of all are meant: each of up to 8; of more the first two, the one in the middle
/// and the last one. What is divided is dealt out to the first ones first.
std::set<int64_t> planned_ranks(int64_t ranks);

/// Studies a recipe for as many processes as `options.lanes` says, and returns the study of that one which needs the most memory: the first
/// where several do. It is one of planned_ranks(); where nothing is divided all need the same, and the first alone is planned. What one of
/// them cannot do, the run cannot. As for study() otherwise.
Result<std::unique_ptr<Study>> study_of_most(const std::filesystem::path& recipe, StudyOptions options);

}  // namespace galley
