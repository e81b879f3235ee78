// Reports a plan for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "host/base/units.hpp"
#include "host/base/value.hpp"
#include "host/plan/plan.hpp"
#include "host/recipe/recipe.hpp"
#include "host/session/events.hpp"

namespace galley {

/// Bytes that the run will write: weights or adapter, and the resume states that are kept.
struct DiskUse {
  int64_t exported = 0;
  int64_t state = 0;   ///< of one resume state
  int64_t states = 0;  ///< how many are there at once, at most
  int64_t total() const { return exported + state * states; }
};
DiskUse disk_use(const Program& program, const Recipe& recipe);

/// Returns the document of `plan --json` and memory.json; see the run directory's contract. `allocated` has one number for each class of a
/// run, and is empty for plans.
Table plan_document(const Program& program, const Plan& plan, const Target& target, const DiskUse& disk,
                    const std::vector<int64_t>& allocated);
/// Returns the document as text.
std::string plan_json(Table document);

/// Writes a run's memory.json: what was planned and what the device gave, and when it ends what the system says: of the process
/// `resident_peak`, in bytes. Likewise usage.json: of the process, of the class that computes `taken` and `capacity`, and of the run when
/// it began and ended, how long that took, and its last losses. That differs from run to run.
class MemoryFile final : public Observer {
 public:
  Status started(const StartEvent& start) override;
  Status step(const StepEvent& m) override;
  Status validated(const ValidationEvent& v) override;
  Status ended(const EndEvent& end) override;

 private:
  int64_t begun_ = 0, first_ = 0;  ///< seconds since 1970; the step after which this process began
  double loss_ = 0, validation_loss_ = 0;
  bool stepped_ = false, validated_ = false;
};

/// What was planned and what the system says of it, a line for the device's memory and one for the process.
std::vector<std::string> memory_lines(const EndEvent& end);

/// "14.44 GiB of 22.50 GiB: fits"; sizes that look equal are shown as bytes.
std::string fit_text(int64_t planned, int64_t limit);

/// Returns tables and a picture: what is needed, when, and by whom. `columns` is the width of the terminal.
std::string plan_table(const Program& program, const Plan& plan, const Target& target, const DiskUse& disk, int columns);
/// Returns those of memory alone: what each class needs, at which moment, and for what.
std::string memory_table(const Program& program, const Plan& plan, const Target& target, int columns);

}  // namespace galley
