// plugin.toml: what a plugin is and what it provides, read and checked before its library is loaded.
//
//   id = "example"                    # of the plugin; its folder and library are called so
//   version = "1.0.0"
//   state_version = 1                 # of the states it keeps: a run resumes only with the same; default 1
//   abi = "0.4"                       # the ABI it is built for
//   summary = "…"                     # optional
//   requires = ["example >= 1.2"]       # optional: other plugins whose ops it names, and the least version of each
//
//   [library]
//   plugin = "example.so"             # the default is <id>.so
//
//   [[kernels]]                       # libraries that hold kernels only, opened for the device that runs
//   device = "cpu"
//   isa = "x86-64-v4"                 # without: for every machine; the best that fits is taken
//   library = "example-cpu-v4.so"
//
//   [provides]                        # optional: so that it is loaded when someone asks for one of these. A plugin without strategies and
//   ops = ["example_step"]            # kinds of data is always loaded and need not say it
//   kernels = ["linear"]              # kernels for ops of others
//   formats = []
//   devices = []
//   ranks = []                        # how processes find each other: one at most (ranks.h)
//
//   [[promise]]                       # optional: how near numbers in a format lie to those that were packed; `galley certify` holds it
//   format = "example"
//   block = 64                        # numbers of a block: how many, "row", or an attribute of the format that says it
//   within = 0.01                     # each number lies so near, as a share of the largest magnitude of its block
//   largest = 0.001                   # and that largest number itself so near; the default is `within`
//   group = 256                       # optional: the scales of so many blocks share one of theirs,
//   of_group = 0.01                   # and each is off by such a share of how far one of them is from the tensor's mean scale
//   when = { double = [1] }           # optional: only with one of these values of the format's attributes
//
//   [[strategy]]
//   name = "example"
//   summary = "A step against the gradient"
//   source = "Loshchilov, Hutter 2019, arXiv:1711.05101"
//   exactness = "rounding"            # beside the definition: "bits", "rounding" or "approximate"
//   against = "without"               # optional: what `galley certify` holds that against, beside the ops' references:
//                                     # "without": the same recipe without it, by losses, gradients and updated weights;
//                                     # "gradients": the same, by the first window's loss and the gradients that both have;
//                                     # "start": the same, by the loss before the first update, with nothing else trained;
//                                     # or a table: { arm = "without" } for these, or { instead = "other" } for the recipe with that
//                                     # strategy in its place, and the options that both have. More of its keys:
//                                     #   batch = "steps"           the other recipe's batch is so many times as large, as this option says
//                                     #   within = 0.1              of "approximate": the most that losses, and the middle one of all
//                                     #                             gradients, may differ, relatively, and updates where gradients are
//                                     #                             the same; or a table: { loss = 0.1, gradients = 0.5 }
//                                     #   when = { option = [1] }   only then; unless = ["path"]: only where these options are not given
//   loss = 0.141                      # optional: by how many nats the loss was higher with it, of a measurement that its page names; or by
//                                     # options, the first that holds: [{ nats = 0.19, when = { type = "fp4" } }, { nats = 0.14 }]
//   provides = [{ facet = "window", value = "micro-batches", when = { steps = [2, 3] } }]   # `when` is optional: any of these values
//   needs = [{ facet = "update" }]    # what another strategy of the recipe has to provide; with `value`: this one
//   config = ["quantization_config"]  # keys of a model's config.json that describe what this strategy has saved
//   control = true                    # optional, of plugins that come with Galley: a recipe with it is the control of `galley compare`
//   always = true                     # likewise: it listens to every run whose recipe does not use it itself
//
//   [[strategy.option]]
//   name = "lr"
//   type = "number"                   # integer, number, boolean, string, strings, numbers, path, choice, bytes, tables
//   default = 1e-3                    # or required = true, or neither
//   range = "(0, inf)"                # or min = …, max = …; of choice: choices = ["a", "b"]; of numbers: length = 2
//   schedule = true                   # may follow the step
//   aliases = ["learning_rate"]       # only for "did you mean 'lr'?"
//   description = "Learning rate."
//
//   [[source]]                        # a kind of data, data.NAME { … }: a name, a summary and options, as a strategy's
//
//   [[strategy.option.field]]         # of tables: what each of them may have; the keys of an option, without `schedule`
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "host/base/option_spec.hpp"
#include "host/base/result.hpp"

namespace galley {

enum class Exactness { Bits, Rounding, Approximate };
/// As manifests write it.
inline const char* exactness_name(Exactness e) {
  return e == Exactness::Bits ? "bits" : e == Exactness::Rounding ? "rounding" : "approximate";
}

/// A facet that a strategy decides or relies on, while its options have one of the values in `when`.
struct FacetRule {
  std::string facet;
  Value value;                       ///< a string, an integer or a boolean; nil, of a need: whatever it is
  std::map<std::string, List> when;  ///< option → any of these; empty: always

  /// `options`: every option with its value, defaults included. An option without a value fulfils nothing.
  bool holds(const Table& options) const;
};

/// What a strategy's exactness is held against, beside its ops' references.
struct Against {
  enum class Arm : uint8_t { None, Without, Gradients, Start, Instead };
  Arm arm = Arm::None;
  std::string strategy;               ///< Instead: the other one
  std::string batch;                  ///< the option by which the other recipe's batch is multiplied; "": none
  std::optional<double> within;       ///< the most that gradients, or updates, may differ, relatively; none: not bounded
  std::optional<double> within_loss;  ///< likewise of a loss
  std::map<std::string, List> when;   ///< as a facet's
  std::vector<std::string> unless;    ///< options that are not given

  /// `options`: every option with its value, defaults included; `given`: those of the recipe.
  bool holds(const Table& options, const Table& given) const;
  /// "the same recipe without it", to which conditions are added; "": Arm::None.
  std::string text() const;
};

/// What a strategy costs, as measured.
struct MeasuredLoss {
  double nats = 0;                   ///< by which the loss was higher
  std::map<std::string, List> when;  ///< as a facet's
};

struct StrategySpec {
  std::string name;
  std::string summary;
  std::string source;  ///< the paper, or the implementation that defines it
  Exactness exactness = Exactness::Bits;
  Against against;
  std::vector<MeasuredLoss> losses;
  std::vector<OptionSpec> options;
  std::vector<FacetRule> provides, needs;
  std::vector<std::string> config;  ///< keys of a model's config.json that a run with this strategy understands
  bool control = false;             ///< it changes nothing but rounding errors: what these do alone is seen beside a recipe with it
  bool always = false;              ///< it listens to every run
  int line = 0;

  const OptionSpec* option(std::string_view option_name) const;
  /// The measured loss with these options, defaults included; 0 where none is known.
  double loss(const Table& given) const;
};

/// How near numbers in a format lie to those that were packed into it, block by block.
struct FormatPromise {
  std::string format;
  int64_t block = 0;                 ///< numbers of a block; 0: each row is one, or `block_of` says it
  std::string block_of;              ///< an attribute of the format; "": none
  double within = 0;                 ///< of every number, as a share of the largest magnitude of its block
  double largest = 0;                ///< likewise of that one
  int64_t group = 0;                 ///< so many blocks have scales that share one; 0: none do
  double of_group = 0;               ///< of that one, as far as the largest magnitudes differ from their mean
  std::map<std::string, List> when;  ///< attribute → any of these
};

struct KernelLibrary {
  std::string device;
  std::string isa;      ///< empty: every machine
  std::string library;  ///< a file name
};

/// Another plugin, and its least version.
struct Requirement {
  std::string id;
  std::vector<int64_t> least;  ///< the version's numbers; empty: any
  std::string text;            ///< "example >= 1.2"

  bool met_by(const std::string& version) const;
};

struct Manifest {
  std::filesystem::path file;  ///< plugin.toml, absolute
  std::string id;
  std::string version;
  std::string summary;
  int64_t state_version = 1;
  uint32_t abi_major = 0, abi_minor = 0;
  std::string library;  ///< a file name
  std::vector<KernelLibrary> kernel_libraries;
  std::vector<Requirement> requirements;
  std::vector<std::string> ops, kernels, formats, devices, ranks;  ///< [provides]
  std::vector<FormatPromise> promises;
  std::vector<StrategySpec> strategies;
  std::vector<StrategySpec> sources;  ///< kinds of data: a name, a summary and options

  std::filesystem::path folder() const { return file.parent_path(); }
  const StrategySpec* strategy(std::string_view name) const;
};

/// Errors are one line with file and line, exit code Plugin. Unknown keys are errors too, unless the manifest is for a later minor
/// version. A manifest for another ABI than this Galley's is read as well as it goes: loading its library is what fails.
Result<Manifest> read_manifest(const std::filesystem::path& file);
/// The same from memory; `file` is for messages.
Result<Manifest> parse_manifest(std::string_view text, const std::filesystem::path& file);

/// What keeps the manifest's plugin from running with this Galley: "needs ABI 1.3, this Galley has 1.0", or "".
std::string abi_problem(uint32_t major, uint32_t minor);

}  // namespace galley
