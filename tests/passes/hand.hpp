// Graphs made by hand over ops that no plugin has, and a compilation around them for a device that nobody opens: its kernels are in
// tests/plugins/hand.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "galley/cpp/plugin.hpp"
#include "host/passes/passes.hpp"
#include "host/proofs/describe.hpp"

namespace galley::hand {

/// product (LOW), follows, drops (follows, TRAINING_ONLY), full (FULL), look (LOW, a table in any dtype): see "Dtypes" in op.h · add: y = a
/// + b · mul: y = x · w, adds into its gradients · loss: Σ x · step, step_by_element, step_by_row: p updated in place by g · square: Σ x²,
/// F64 · all_reduce: an exchange · decompose, no_decompose: LOAD_ON_HOST, with a kernel for "cpu" and with none.
const std::vector<const galley_op*>& ops();
const galley_op* op(std::string_view name);
/// Of the test plugins with the kernels, strategies and formats.
std::vector<std::filesystem::path> folders();

class Hand : public testing::Test {
 protected:
  Hand();
  galley_tensor tensor(const std::string& name, Shape shape, uint32_t kind, uint64_t flags = 0);
  galley_tensor parameter(const std::string& name, Shape shape = {4}) { return tensor(name, std::move(shape), GALLEY_KIND_PARAMETER); }
  galley_tensor input(const std::string& name, Shape shape = {4}) { return tensor(name, std::move(shape), GALLEY_KIND_INPUT); }
  /// Appends to a section; its first output.
  galley_tensor node(const std::string& name, const char* op, std::vector<galley_tensor> inputs, Section section = Section::Forward,
                     std::vector<galley_tensor> outputs = {0}, Mask accumulate = {});
  void train(std::vector<galley_tensor> parameters);
  /// Appends a strategy of a test plugin to the recipe, in line 3 of hand.lua, 4, …
  void use(const std::string& name, Table given);
  /// "" or what is wrong.
  std::string verified() { return cause(verify("test")); }
  Status verify(std::string_view pass);
  /// Runs passes one after the other and checks the program after each; "" or what is wrong.
  std::string run(const std::vector<Status (*)(Compilation&)>& passes);
  /// A segment's instructions as `plan --dump` prints them.
  std::string code(SegmentKind kind) const { return describe(c->program, kind); }
  static std::string cause(const Status& status) { return status ? "" : status.error().cause; }
  /// "name: op(inputs) -> outputs", one a node, + before what is added to.
  std::string text(Section section) const;

  std::unique_ptr<Plugins> plugins;
  Target target;
  CompileOptions options;
  Draft draft;
  Graph& graph = draft.graph;
  std::unique_ptr<Compilation> c;

 private:
  std::vector<std::unique_ptr<const LoadedStrategy>> strategies_;
};

}  // namespace galley::hand
