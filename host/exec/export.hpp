// Writes the model: all Write instructions of the segment Export into their safetensors files, and the documents beside them.
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

/// Says how much rounding has changed a tensor that was written in fewer bits than it is computed in.
struct Rounded {
  std::string file, entry;  ///< where it was written, and its name there
  uint32_t dtype = 0;       ///< the dtype in which it was written
  int64_t numbers = 0;
  double error = 0;               ///< the norm of the rounding errors over that of the numbers: the relative root mean square
  double lost = 0;                ///< the norm of the rounding errors
  std::optional<double> trained;  ///< the norm of what training has changed, if the program knows it
};

/// Returns the checksum of a file of tensors, from their names and the checksums of their bytes. It does not depend on their offsets.
uint64_t checksum_of_tensors(const std::map<std::string, uint64_t>& checksums);

/// Writes the files of an export. Files are written aside (NewFile) and renamed when all of them are complete and synced, so that each is
/// the old one or the new one whatever happens. Documents come first and tensors last: whoever finds the tensors finds what describes them.
/// The next export removes what a killed one has left. An exporter that is dropped before finish() removes what it has written.
///
/// Tensors may come in any order: the instructions tell where each lies.
class Exporter {
 public:
  /// Creates folders and files below `run_directory`, with their headers.
  static Result<Exporter> create(const Program& program, Machine& machine, const std::filesystem::path& run_directory);
  Exporter(Exporter&&) = default;
  Exporter& operator=(Exporter&&) = delete;

  /// Runs a Write instruction: synchronizes and writes the operand, each number rounded once to the file's dtype. A number that is too
  /// large for it is exit code Failed. Where `export` exchanges parts of tensors, finish() returns the error, because others wait for the
  /// exchanges that follow.
  Status write(const Instruction& code);
  /// Finishes all files: afterwards they are on the disk, under their names. A tensor that is missing is an error.
  Status finish();
  /// Returns the tensors that were rounded, in the order in which they were written.
  const std::vector<Rounded>& rounded() const { return rounded_; }
  /// Returns the checksum of each file of tensors, by its path: checksum_of_tensors().
  std::map<std::string, uint64_t> checksums() const;

 private:
  struct Slot {
    uint64_t offset = 0;  ///< offset in the file
    uint64_t bytes = 0;
    bool written = false;
    uint64_t checksum = 0;  ///< the checksum of its bytes
  };
  struct Output {
    NewFile made;
    std::map<std::string, Slot> slots;  ///< by entry
  };
  Exporter(const Program& program, Machine& machine, std::filesystem::path run_directory)
      : program_(&program),
        machine_(&machine),
        run_directory_(std::move(run_directory)),
        exchanges_(program.segment(SegmentKind::Export).exchanges()) {}
  Status write_file(const Instruction& code);
  Status read(const Operand& operand, int64_t at, std::span<double> numbers);
  /// Reads numbers [at, at + n) of a tensor as they were before training.
  using Before = std::function<Status(int64_t at, std::span<double> numbers)>;
  Result<double> norm_of_change(const Operand& value, const Before& before);
  /// Returns the norm of change of a weight that the program has read from the model's files, if these still are there; nothing for others.
  Result<std::optional<double>> norm_since_file(const Operand& value, const std::string& entry);
  Status add(const std::string& file, const std::vector<const Instruction*>& writes);

  const Program* program_;
  Machine* machine_;
  std::filesystem::path run_directory_;
  std::map<std::string, Output> outputs_;  ///< by Write::file
  std::vector<Rounded> rounded_;
  bool exchanges_;               ///< other processes take part in the segment
  std::optional<Error> failed_;  ///< the first error, where they do
};

}  // namespace galley
