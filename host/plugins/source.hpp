// A kind of data of a plugin, made: its instance, with the options of data.NAME { … }. What it says is checked here.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "galley/source.h"
#include "host/base/fill.hpp"
#include "host/base/result.hpp"
#include "host/plugins/instance.hpp"
#include "host/plugins/loader.hpp"
#include "host/plugins/options.hpp"

namespace galley {

class LoadedSource {
 public:
  /// What a source says before anything is read.
  struct Description {
    std::string summary;
    std::vector<OwnInput> tensors;
    int64_t rows_of_item = 1, vocabulary = 0;
    uint64_t flags = 0;  ///< GALLEY_SOURCE_…
  };
  struct Contents {
    uint64_t items = 0, validation_items = 0, fingerprint = 0;
  };

  /// Finds the kind, checks the options against its manifest, loads its plugin and creates the instance. `plugins` outlives it.
  /// Null for a kind that needs none. [main-thread]
  static Result<std::unique_ptr<LoadedSource>> create(Plugins& plugins, const Use& use, const std::vector<std::string>& built_in);

  LoadedSource(const LoadedSource&) = delete;
  LoadedSource& operator=(const LoadedSource&) = delete;

  /// Asks what it says, for rows of a run. [plan-time]
  Status describe(const galley_source_call& call);
  const Description& says() const { return says_; }
  /// Lets it read what it has to, the first time. [main-thread]
  Result<Contents> open(int64_t vocabulary, uint64_t seed);
  /// Writes a row into `row`. [thread-safe]
  Status read(galley_source_row& row) const;

  const Caller& caller() const { return caller_; }
  const Options& options() const { return *options_; }
  /// For checks that call it by hand.
  const galley_source& table() const { return *table_; }
  void* instance() const { return instance_.get(); }

 private:
  LoadedSource() = default;
  std::unique_ptr<const Options> options_;
  Caller caller_;
  const galley_source* table_ = nullptr;
  Instance instance_;
  Description says_;
  std::optional<Contents> contents_;
  int64_t length_ = 0;  ///< of rows, as it was described
};

}  // namespace galley
