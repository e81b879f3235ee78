// The processes of a run, as one of them sees them: what it tells the others, and what all of them then know. Over the interface
// galley.ranks of a plugin; a run of one process needs no plugin, and whatever it tells comes back as it is.
//
// All ranks call the same functions in the same order, and get the same result: an error, too, is all ranks' error, unless a rank is lost.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "galley/ranks.h"
#include "host/base/result.hpp"
#include "host/plan/target.hpp"
#include "host/plugins/call.hpp"
#include "host/ranks/launcher.hpp"

namespace galley {

/// What the plugin's `open` is told. A run of one process gives nothing of it.
struct PartyOptions {
  const galley_ranks* table = nullptr;  ///< outlives the party, as `device`, the arenas and the axes do
  Caller caller = {};                   ///< the plugin
  const Target* target = nullptr;
  void* device = nullptr;           ///< as galley_device.open has returned it
  std::vector<void*> arenas = {};   ///< by memory class
  std::vector<int64_t> bytes = {};  ///< of the arenas
  std::span<const galley_axis* const> axes = {};
  std::filesystem::path meeting = {};  ///< a folder that all ranks see
};

/// Something that has to be the same on all ranks.
struct Subject {
  std::string name;  ///< "the recipe", "kernels"
  std::string text;  ///< "0.3.1", or all of a recipe: an error shows the line that differs
};

/// Session thread, except where said.
class Party {
 public:
  /// Returns when all ranks have called it. Where the plugin finds another number of ranks than the launcher, the error has both (exit code
  /// Recipe).
  static Result<std::unique_ptr<Party>> open(RankPlace place, const PartyOptions& options = {});
  Party(const Party&) = delete;
  Party& operator=(const Party&) = delete;
  /// Closes if all ranks come here: after end(), or after an error that is all ranks'. Else it aborts, which may end this process
  /// (MPI_Abort): the error has to be said before.
  ~Party();

  const RankPlace& place() const { return place_; }
  bool alone() const { return place_.ranks == 1; }
  /// Returns whether this is the rank that does what is done once.
  bool leads() const { return place_.rank == 0; }
  /// What kernels of exchanges find in galley_kernel_setup.ranks; NULL in a run of one process.
  void* handle() const { return handle_; }
  /// A text of this start, equal on all ranks and random otherwise: fit for a file's name. Empty in a run of one process.
  const std::string& start() const { return start_; }
  const std::string& machine(int64_t rank) const { return machines_[static_cast<size_t>(rank)]; }
  /// How many machines of different names there are.
  int64_t machines() const;
  /// Returns "rank 1 (machine b)".
  std::string name(int64_t rank) const;

  /// Returns what each rank gives, in the order of ranks. All give as many bytes.
  Result<std::vector<std::byte>> exchange(std::span<const std::byte> mine);
  /// Does the same for texts of any length.
  Result<std::vector<std::string>> texts(std::string_view mine);
  /// Returns the totals over all ranks, added in the order of ranks. All give as many numbers.
  Result<std::vector<double>> totals(std::span<const double> mine);

  /// Adds to each number those of the other ranks, modulo 2^64. All give as many.
  Status add_up(std::span<uint64_t> numbers);

  /// If a subject differs between ranks, the error (exit code Recipe) has the first one, the ranks and what they have. All give subjects of
  /// the same names, or of names that depend on what is installed: then the error says so. Costs 16 bytes a rank where nothing differs.
  Status agree(std::span<const Subject> subjects);
  /// Returns the error of the first rank that has one, as all ranks' error, with its exit code and hint: "rank 1 (machine b): cannot write …".
  /// Without the name, if all have the same, or if it is rank 0's on one machine.
  Status first_error(Status mine);
  /// Lets rank 0 work. Its error is all ranks'.
  Status once(const std::function<Status()>& work);
  /// Lets rank 0 work, and then the others, unless it has failed.
  Status in_turns(const std::function<Status()>& work);
  /// Returns whether any rank says so.
  Result<bool> any(bool mine);

  /// An error once a rank is known to be gone; does not wait. [thread-safe]
  Status check();
  /// Whether a function has failed because a rank is gone (GALLEY_LOST), or because of abort(): nothing more can be exchanged, and who is
  /// gone is for a Heartbeat to say. [thread-safe]
  bool lost() const { return lost_; }
  /// Ends all waiting for other ranks, which may end this process. [thread-safe]
  void abort();
  /// This rank has come to its end, as the others do.
  void end() { all_end_ = true; }
  /// Returns whether all ranks come to their end, for none of them has an error of its own.
  bool ends_together() const { return all_end_; }

 private:
  Party(RankPlace place, const PartyOptions& options) : place_(std::move(place)), table_(options.table), caller_(options.caller) {}
  Status join(const PartyOptions& options);
  template <class Fn>
  Status call(const char* what, Phase phase, const Fn& fn);
  Status difference(const Subject& mine);

  const RankPlace place_;
  const galley_ranks* const table_;
  const Caller caller_;
  void* handle_ = nullptr;
  std::string start_;
  std::vector<std::string> machines_ = {""};
  bool all_end_ = false;
  std::optional<Error> broken_;  ///< of an exchange: ranks are no longer at the same place
  std::atomic<bool> lost_ = false, aborted_ = false;
};

/// Returns "rank 1", "ranks 0, 2 and 3", or the first of many and their number.
std::string ranks_text(const std::vector<int64_t>& ranks);
/// Returns the name of this machine.
std::string machine_name();

}  // namespace galley
