// One entry of the recipe's list, made: a strategy's instance with its options and the interfaces it has. Immutable, like the instance.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "galley/claim.h"
#include "galley/observer.h"
#include "galley/rewrite.h"
#include "galley/saved.h"
#include "galley/update.h"
#include "host/base/result.hpp"
#include "host/plugins/instance.hpp"
#include "host/plugins/loader.hpp"
#include "host/plugins/options.hpp"
#include "host/recipe/recipe.hpp"

namespace galley {

class LoadedStrategy {
 public:
  /// Finds the strategy, checks the options against its manifest, loads its plugin and creates the instance. What is wrong with the
  /// recipe comes out before anything is loaded. `plugins` outlives the strategy. [main-thread]
  static Result<std::unique_ptr<const LoadedStrategy>> create(Plugins& plugins, const Use& use);

  LoadedStrategy(const LoadedStrategy&) = delete;
  LoadedStrategy& operator=(const LoadedStrategy&) = delete;

  const std::string& name() const { return spec_->name; }
  const StrategySpec& spec() const { return *spec_; }
  const Plugin& plugin() const { return *plugin_; }
  const Options& options() const { return *options_; }
  /// For call_plugin.
  const Caller& caller() const { return caller_; }
  const Place& place() const { return caller_.place; }

  void* instance() const { return instance_.get(); }
  /// Null for what it does not do.
  const galley_rewrite* rewrite() const { return rewrite_ ? &*rewrite_ : nullptr; }
  const galley_claim* claim() const { return claim_ ? &*claim_ : nullptr; }
  const galley_update* update() const { return update_ ? &*update_ : nullptr; }
  const galley_saved* saved() const { return saved_ ? &*saved_ : nullptr; }
  const galley_observer* observer() const { return observer_ ? &*observer_ : nullptr; }

 private:
  LoadedStrategy() = default;
  const StrategySpec* spec_ = nullptr;
  const Plugin* plugin_ = nullptr;
  std::unique_ptr<const Options> options_;
  Caller caller_;
  Instance instance_;
  std::optional<galley_rewrite> rewrite_;
  std::optional<galley_claim> claim_;
  std::optional<galley_update> update_;
  std::optional<galley_saved> saved_;
  std::optional<galley_observer> observer_;
};

}  // namespace galley
