// How a saved tensor is compressed into a format, and brought back.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "host/graph/graph.hpp"
#include "host/plan/program.hpp"

namespace galley {

struct Compilation;

/// A format into which strategies compress saved tensors (saved.h).
struct SavedFormat {
  std::string name;
  AttrList attrs;
  int use = -1;  ///< the first of the recipe's strategies that offers it
};

/// Instructions over tensors that are counted from 0: the saved tensor, or what stands for it in backward; then its components; then what
/// only one of the two lists uses.
struct Compression {
  std::vector<ProgramTensor> tensors;
  size_t components = 0;
  std::vector<Instruction> pack, unpack;
  std::vector<Program::Chosen> kernels;
  int64_t bytes = 0;   ///< of all components
  double seconds = 0;  ///< of both lists
};

/// Makes compressions of transients of micro, after `bind`: nothing where the format, or every kernel, does not take the tensor, in its own
/// dtype or cast to F32. Leaves the program as it was.
class Compressor {
 public:
  explicit Compressor(Compilation& c) : c_(c) {}
  Result<std::optional<Compression>> of(const GraphTensor& tensor, const SavedFormat& format);

 private:
  Result<bool> emit(const GraphTensor& tensor, const SavedFormat& format, bool in_f32, Compression* compression);
  Compilation& c_;
};

}  // namespace galley
