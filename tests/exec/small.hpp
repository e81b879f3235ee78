// Small programs by hand, the devices that run them, and kernels of a few lines: what the tests of the executor are made of.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "galley/cpp/plugin.hpp"
#include "host/exec/executor.hpp"
#include "host/proofs/proofs.hpp"

namespace galley::small {

/// The devices, from the build's plugin libraries. Their `parallel` runs blocks one after the other, the last first.
const galley_device& cpu();
const galley_device& two_memories();
const galley_device& lazy();
/// The lazy one, or the one that works at once; both have two memory classes.
const galley_device& device(bool is_lazy);

/// Two memory classes, "host" and "spill", and two queues.
Target target();

/// A new empty folder below the working directory, named after the running test.
std::filesystem::path scratch();

// Kernels. All operands are F32 unless said otherwise.
extern const galley_kernel fill;          ///< y = attribute "value"; accumulates
extern const galley_kernel count_up;      ///< y[i] = attribute "value" + i; accumulates
extern const galley_kernel add;           ///< y = a + b; accumulates
extern const galley_kernel multiply;      ///< y = a · b, b of one element or as many; accumulates
extern const galley_kernel sum_squares;   ///< s (F64, one element) = Σ x²
extern const galley_kernel checksum;      ///< s (I32 (2)) = galley/checksum.h of x (U8)
extern const galley_kernel descend;       ///< p (updated) −= lr · factor · g, unless apply (I32) is 0: p, g, lr, factor, apply
extern const galley_kernel lose;          ///< loss (F64, updated) += Σ x · seed: loss, x, seed
extern const galley_kernel read_beyond;   ///< y[i] = x[i + 1], which for the last i is no operand
extern const galley_kernel write_beyond;  ///< y[i] = x[i], and one more
extern const galley_kernel write_input;   ///< y = x, and x[0] = 0
extern const galley_kernel leave_out;     ///< y = x but for the last element
extern const galley_kernel next_rows;     ///< random (I64 (4), updated): random[2] += attribute "rows"
extern const galley_kernel fails;         ///< GALLEY_FAILED, "the cable is loose"
extern const galley_kernel throws;        ///< std::runtime_error, past its own table
extern const galley_kernel no_prepare;    ///< cannot be prepared

/// Grows a program; the plan gives every tensor a place of its own.
class Builder {
 public:
  Program program;

  TensorId tensor(const std::string& name, Shape shape, Life life = Life::Run, uint32_t memory = 0, uint32_t dtype = GALLEY_F32);
  /// The whole tensor.
  Operand operand(TensorId tensor, uint32_t access, uint32_t later) const;
  Operand read(TensorId tensor) const { return operand(tensor, GALLEY_READ, GALLEY_READ); }
  Operand write(TensorId tensor) const { return operand(tensor, GALLEY_WRITE, GALLEY_WRITE); }
  Operand update(TensorId tensor) const { return operand(tensor, GALLEY_READ_WRITE, GALLEY_READ_WRITE); }
  /// Written by the first micro-batch, added to by the later ones.
  Operand gather(TensorId tensor) const { return operand(tensor, GALLEY_WRITE, GALLEY_ACCUMULATE); }

  Instruction& kernel(SegmentKind kind, const galley_kernel& kernel, std::vector<Operand> inputs, std::vector<Operand> outputs,
                      double value = 0);
  Instruction& copy(SegmentKind kind, TensorId from, TensorId to, uint32_t queue, uint32_t event);
  void record(SegmentKind kind, uint32_t queue, uint32_t event);
  void wait(SegmentKind kind, uint32_t queue, uint32_t event);
  Instruction& read_file(const std::filesystem::path& file, const std::string& entry, TensorId to);
  Write& write_file(const std::string& file, const std::string& entry, TensorId from);
  /// The block of scalars with one slot each, and the operand of a slot.
  void scalars(std::vector<uint32_t> which);
  void option(const std::string& name, std::vector<double> values);
  Operand scalar(uint32_t which, uint32_t access = GALLEY_READ) const;
  Operand option(const std::string& name) const;
  /// Another number of the block.
  Operand number(uint32_t dtype);
  /// What begins a window and ends an update, and what is read back; called last.
  void own_steps(double scale = 1);
  /// Checksums of `frozen` and `trained`; own_steps() calls it.
  void sum_weights();
  /// An input of micro-batches (F32) whose numbers come from a window of `micro_batches`.
  TensorId input(const std::string& name, int64_t numbers, int64_t micro_batches);

  Plan plan() const;

 private:
  Instruction& instruction(SegmentKind kind, decltype(Instruction::what) what);
  void slot(ScalarSlot slot);
  Operand of(const ScalarSlot& slot, uint32_t access) const;
};

/// A program, its plan and an executor over them.
struct Running {
  explicit Running(Builder builder_, bool is_lazy = false, Poison poison = Poison::No);
  Builder builder;
  Plan plan;
  Target machine;
  std::unique_ptr<Executor> executor;
  Error error;  ///< why there is no executor

  /// Where micro-batch `m` of the window lies; feeds it to the program's one input.
  float* micro_batch(int64_t m) { return reinterpret_cast<float*>(executor->address(builder.program.window)) + m * numbers(); }
  Status feed(int64_t m) {
    const int64_t offset = m * numbers() * 4;
    return executor->copy_inputs({&offset, 1});
  }
  int64_t numbers() const { return builder.program.tensors[static_cast<size_t>(builder.program.inputs[0].tensor)].bytes / 4; }

  /// The tensor's elements; synchronizes.
  template <class T = float>
  std::vector<T> values(TensorId tensor) {
    std::vector<T> out(static_cast<size_t>(elements(builder.program.tensors[static_cast<size_t>(tensor)].shape)));
    if (!executor->machine().get(tensor, 0, std::as_writable_bytes(std::span(out))).ok()) out.clear();
    return out;
  }
};

}  // namespace galley::small
