#include "host/data/source.hpp"

#include <cassert>
#include <string>

#include "host/tokens/spec.hpp"

namespace galley {

Status Source::load(std::span<std::byte>) { return ok(); }
Result<int64_t> Source::windows_in(double) const { return run_error("this data has no epochs"); }
void Source::end_after(double) {}
Status Source::fill_validation(int64_t, WindowBuffer&) const { return run_error("this data has no validation batches"); }

Status check_data(const DataInfo& info, const DataSpec& spec, int64_t vocabulary, const Windows& windows) {
  assert(vocabulary > 0);
  if (info.vocabulary > vocabulary) {
    return data_error(spec, "its tokens have ids up to " + std::to_string(info.vocabulary - 1) + ", but the model's vocabulary has " +
                                std::to_string(vocabulary));
  }
  if (windows.micro_batches * info.layout.rows < info.window_rows) {
    return data_error(spec,
                      "the batch has " + std::to_string(info.window_rows) + " rows, but a window takes " +
                          std::to_string(windows.micro_batches) + " micro-batches of " + std::to_string(info.layout.rows),
                      "a window takes the whole batch: accumulate over " +
                          std::to_string((info.window_rows + info.layout.rows - 1) / info.layout.rows) +
                          " micro-batches, or leave 'batch' out of the recipe");
  }
  return ok();
}

}  // namespace galley
