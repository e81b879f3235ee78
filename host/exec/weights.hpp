// Reads weights from safetensors files: checks the files before a byte is allocated, then reads tensors into the machine.
#pragma once

#include <map>
#include <span>
#include <string>

#include "host/base/result.hpp"
#include "host/base/tensor_files.hpp"
#include "host/exec/machine.hpp"
#include "host/plan/program.hpp"

namespace galley {

/// Checks every file that a Read instruction names. Errors (exit code Recipe, with file and tensor): a tensor that is missing under all its
/// names, one that nobody reads and no pattern of `ignored` (host/base/glob.hpp) names, another shape, a dtype that cannot be converted.
/// Reads headers only. [plan-time]
Status check_files(const Program& program, std::span<const std::string> ignored);

/// Reads tensors into a machine; each file is opened once and stays open until this is dropped.
class WeightFiles {
 public:
  WeightFiles(const Program& program, Machine& machine) : program_(program), machine_(machine) {}

  /// Runs a Read instruction: reads the first of its names that is there. If others are there (a head that is tied to the embedding, and
  /// saved again), their numbers have to be the same: else exit code Recipe with both names. Converts to the operand's dtype, through its
  /// second output (or the program's staging) if dtypes differ or the host cannot reach the destination. Synchronizes first, because work
  /// enqueued before may still use those bytes. A number in the file that is NaN or infinite, or that overflows the operand's dtype, is
  /// exit code Recipe with its position.
  Status read(const Instruction& code);

 private:
  Result<const tensor_files::Reader*> open(const std::string& file);
  const Program& program_;
  Machine& machine_;
  std::map<std::string, tensor_files::Reader> readers_;
};

}  // namespace galley
