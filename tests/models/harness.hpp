// What tests of ops and kernels share: a plugin's libraries opened as the host opens them, a host of their own whose threads can be
// counted, operands with guards around them, and a node run by its reference or by a kernel.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "galley/galley.h"
#include "galley/philox.h"
#include "tests/models/device.hpp"
#include "tests/turn.hpp"

namespace galley::test {

/// An operand's numbers. Integers are held as doubles too: those of tests are small.
struct Tensor {
  uint32_t dtype = 0;
  std::vector<int64_t> shape;
  std::vector<double> values;
  int64_t count() const;
  int64_t columns() const { return shape.empty() ? 1 : shape.back(); }
};

bool floating(uint32_t dtype);
/// The nearest value that the dtype has.
double rounded(double value, uint32_t dtype);
/// Numbers from −1 to 1.
Tensor draw(uint32_t dtype, const std::vector<int64_t>& shape, std::mt19937_64& random);

/// The tables of a library. Throws what is wrong with it.
const galley_entry* open_library(const std::string& file);

/// Bytes at an address of 64, or `off` bytes after one, between guards of 64 bytes.
class Memory {
 public:
  Memory(int64_t bytes, unsigned char fill, int64_t off = 0);
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  ~Memory();
  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  bool intact() const;  ///< nothing was written before or after it

 private:
  std::unique_ptr<std::byte[]> storage_;
  std::byte* data_;
  int64_t bytes_;
};
/// The Memory that has this address, guards included. Throws if there is none.
Extent memory_around(const void* address);
Memory pack(const Tensor& t, uint32_t dtype, int64_t off = 0);
std::vector<double> unpack(const void* data, uint32_t dtype, int64_t count);

/// The rule of input i, or of output i.
const galley_operand_rule* rule_of(const galley_op* op, bool output, size_t i);
/// How many rows an operand of this rule has, and the shape of one with so many.
int64_t rows_of(const galley_operand_rule* rule, const Tensor& t);
std::vector<int64_t> shape_of_rows(const galley_operand_rule* rule, const Tensor& t, int64_t rows);

/// A node with its operands, absent ones empty.
struct Problem {
  const galley_op* op = nullptr;
  std::string name;
  std::vector<std::optional<Tensor>> inputs, outputs;
  const galley_attr* const* attrs = nullptr;
  uint32_t n_attrs = 0;
  uint64_t flags = 0;
  int64_t first_row = 0, length = 0;

  /// One of the op's cases with inputs drawn from its ranges; outputs get their shapes from the op.
  static Problem draw(const galley_op* op, const galley_op_case& c, std::mt19937_64& random);
  /// Asks the op for the outputs' shapes.
  void infer();
};

/// A node view over a problem, with what it points to.
class View {
 public:
  /// `data`: an address for each operand that is there; `access` for each output; `dtypes`: all floating ones as F64 for references.
  View(const Problem& problem, const std::vector<void*>& inputs, const std::vector<void*>& outputs, const std::vector<uint32_t>& access,
       bool as_f64);
  View(const View&) = delete;
  const galley_node_view* node() const { return &view_; }

 private:
  std::vector<galley_operand> operands_;
  std::vector<const galley_operand*> inputs_, outputs_;
  galley_node_view view_ = {};
};

/// A target of this machine with two threads. It lives until the next call.
galley_target target_for(const std::string& isa);
/// Operations in BF16 for each in F32 that targets have from now on, where the machine has any; empty: as many as the machine.
void set_bf16_per_f32(std::optional<double> peak);

/// Calls `body` with the problem's node, floating operands as F64, and takes the values of its operands from there.
void with_f64(Problem& problem, const std::function<void(const galley_node_view*)>& body);
/// Fills outputs' values (and updated inputs') by the op's reference.
void run_reference(Problem& problem);

/// How far each number of `outputs` and of updated inputs moves by the reference when each floating input is off by 1e-5 of itself, up or
/// down: the largest of eight draws. An F32 kernel that is right loses no more, however much of a sum is cancelled.
struct Movements {
  std::vector<std::vector<double>> outputs, inputs;  ///< empty for operands that are absent
};
Movements movements(const Problem& problem);

/// A launch of a kernel for one or several nodes: query with `planned`, prepare with `nodes`, whose operands have addresses, enqueue as
/// often as `times` says, release. Workspace and constants begin as NaN.
struct Launch {
  Memory workspace{0, 0}, constants{0, 0};
  galley_status status = GALLEY_OK;
  std::string text;  ///< of the error
};
Launch launch(const galley_kernel* kernel, const std::string& isa, const std::vector<const galley_node_view*>& planned,
              const std::vector<const galley_node_view*>& nodes, int times = 1);

/// Whether launch() has run the kernel.
bool has_run(const galley_kernel* kernel);

/// One run of a kernel, with all that it could touch. Outputs that are written begin as NaN, as does the workspace.
struct Execution {
  std::vector<Memory> inputs, outputs;
  Memory workspace{0, 0}, constants{0, 0};
  galley_status status = GALLEY_OK;
  std::string text;     ///< of the error
  bool intact() const;  ///< nothing was written outside of operands, workspace and constants
};
struct How {
  std::vector<uint32_t> access;              ///< of each output; all are written where it is empty
  std::vector<std::vector<double>> initial;  ///< what outputs that accumulate hold before
  std::vector<int> in_place;                 ///< the input whose memory each output is, −1 for its own; all their own where it is empty
};
Execution execute(const galley_kernel* kernel, const std::string& isa, const Problem& problem, const How& how = {});
/// What a kernel says of a problem at plan time.
galley_status query(const galley_kernel* kernel, const std::string& isa, const Problem& problem, const How& how, galley_kernel_plan* plan,
                    galley_error* error);

/// The libraries of plugins: their ops, and their kernels, for each CPU level that this machine can run and for an emulated GPU.
struct Level {
  std::string isa;
  std::vector<const galley_kernel*> kernels;
  std::vector<const galley_codec*> codecs;
  const galley_kernel* kernel(const std::string& op) const;    ///< the first one for an op
  const galley_codec* codec(const std::string& format) const;  ///< null: there is none
  /// Whether it needs kernels for an op: of one that the host computes while a run loads, the processor's are enough.
  bool needs(const galley_op& op) const { return !(op.flags & GALLEY_OP_LOAD_ON_HOST) || isa.starts_with("x86-64"); }
};
struct Plugin {
  std::vector<const galley_op*> ops;
  std::vector<Level> levels;
  const galley_op* op(const std::string& name) const;
};
/// Of the build folder, GALLEY_BINARY/plugins: models, and with it the strategies that have kernels, as if they were one plugin; further
/// plugins that GALLEY_TEST_PLUGINS names (their folders, separated by colons). GALLEY_TEST_LEVEL leaves only this level: "emulated",
/// "x86-64-v4"; "cuda": the GPU of GALLEY_TEST_DEVICE (device.hpp). Ends the program with a message where a library is not there.
const Plugin& models();

/// That of an emulated GPU; null where there is none, or a device that tests are run on.
const Level* emulated_level();

/// An op with one of its cases; called "linear_one_row" where the case is "one row".
struct Case {
  const galley_op* op;
  const galley_op_case* example;
  std::string name() const;
};
inline void PrintTo(const Case& c, std::ostream* out) { *out << c.name(); }
/// Whether a case that takes three turns, by its name, runs with this commit. On a GPU all do, and where a barrier is missing that one of
/// them must notice.
inline bool has_turn(const Case& c) {
  return std::getenv("GALLEY_TEST_DEVICE") || std::getenv("GALLEY_CUDA_MUTANT") || has_turn(galley_name_hash(c.name().c_str()), 3);
}
/// All cases of all ops of `models()`.
std::vector<Case> cases();

/// Threads that `parallel` uses from now on; blocks are handed out in any order.
void set_threads(int n);

/// From the environment variable GALLEY_TEST_SEED, or fresh; printed once.
uint64_t seed();

}  // namespace galley::test
