#include "host/data/source.hpp"

namespace galley {

Status Source::load(std::span<std::byte>) { return ok(); }
Result<int64_t> Source::windows_in(double) const { return run_error("this data has no epochs"); }
void Source::end_after(double) {}
Status Source::fill_validation(int64_t, WindowBuffer&) const { return run_error("this data has no validation batches"); }

}  // namespace galley
