// Writing the model: all Write instructions of a segment into their safetensors files, and the documents beside them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "host/base/new_file.hpp"
#include "host/base/result.hpp"
#include "host/exec/machine.hpp"
#include "host/plan/program.hpp"

namespace galley {

/// What rounding has taken from a tensor that was written in fewer bits than it is computed in.
struct Rounded {
  std::string file, entry;  ///< where it was written, and its name there
  uint32_t dtype = 0;       ///< in which it was written
  int64_t numbers = 0;
  double error = 0;               ///< the norm of what was taken over that of the numbers before: the relative root mean square
  double lost = 0;                ///< the norm of what was taken
  std::optional<double> trained;  ///< the norm of what training has changed, where the program knows it
};

/// Of a file of tensors: of their names and of the checksums of their bytes. It does not depend on where they lie.
uint64_t checksum_of_tensors(const std::map<std::string, uint64_t>& checksums);

/// Files are written aside (NewFile) and renamed when all of them are complete and synced, so that each is the old one or the new one
/// whatever happens. Documents come first and tensors last: whoever finds the tensors finds what describes them. What a killed export left
/// is removed by the next. Dropped before finish(), it removes what it had written.
///
/// Tensors may come in any order: where each lies is known from the instructions.
class Exporter {
 public:
  /// Creates folders and files below `run_directory`, with their headers.
  static Result<Exporter> create(const Program& program, Machine& machine, const std::filesystem::path& run_directory);
  Exporter(Exporter&&) = default;
  Exporter& operator=(Exporter&&) = delete;

  /// Runs a Write instruction: synchronizes and writes the operand, each number rounded once to the file's dtype. One that is too large for
  /// it is exit code Failed.
  Status write(const Instruction& code);
  /// An error if a tensor is missing. Afterwards everything is there, under its name and on the disk.
  Status finish();
  /// Of the tensors that have been written, those that were rounded, in that order.
  const std::vector<Rounded>& rounded() const { return rounded_; }
  /// A checksum of what each file of tensors holds, by the file: checksum_of_tensors() of all of them.
  std::map<std::string, uint64_t> checksums() const;

 private:
  struct Slot {
    uint64_t offset = 0;  ///< in the file
    uint64_t bytes = 0;
    bool written = false;
    uint64_t checksum = 0;  ///< of its bytes
  };
  struct Output {
    NewFile made;
    std::map<std::string, Slot> slots;  ///< by entry
  };
  Exporter(const Program& program, Machine& machine, std::filesystem::path run_directory)
      : program_(&program), machine_(&machine), run_directory_(std::move(run_directory)) {}
  Status read(const Operand& operand, int64_t at, std::span<double> numbers);
  /// Numbers [at, at + n) of a tensor as they were before training.
  using Before = std::function<Status(int64_t at, std::span<double> numbers)>;
  Result<double> norm_of_change(const Operand& value, const Before& before);
  /// Of a weight that the program has read from the model's files, which still are there; nothing of others.
  Result<std::optional<double>> norm_since_file(const Operand& value, const std::string& entry);
  Status add(const std::string& file, const std::vector<const Instruction*>& writes);

  const Program* program_;
  Machine* machine_;
  std::filesystem::path run_directory_;
  std::map<std::string, Output> outputs_;  ///< by Instruction::file
  std::vector<Rounded> rounded_;
};

}  // namespace galley
