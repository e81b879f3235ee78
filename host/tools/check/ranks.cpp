#include <array>

#include "host/graph/axes.hpp"
#include "host/plugins/abi.hpp"
#include "host/tools/check/rules.hpp"
#include "host/tools/check/tests.hpp"

namespace galley {

/// Opens the ranks for a run of one, which has nobody to wait for.
Status check_ranks(const CheckContext& context, const galley_ranks& ranks, TestLog& log) {
  const Target target = TRY(check_devices(context.plugins, context.plugin)).front().target;
  const Caller caller = caller_of(&ranks, ranks.name);
  const TargetView view(target);
  auto options = new_struct<galley_ranks_options>();
  options.target = view.get();
  options.ranks = options.local_ranks = 1;
  options.job = "galley check";
  const Axes axes(1, 0);
  options.axes = axes.view().data();
  options.n_axes = static_cast<uint32_t>(axes.view().size());
  void* handle = nullptr;
  const auto says = [&](const Status& status) {
    if (!status) log.find("one rank", status.error().cause, rules::kRanks);
    return status.ok();
  };
  if (!says(call_plugin(caller, "open", [&](galley_error* error) { return ranks.open(ranks.self, &options, &handle, error); })))
    return ok();
  const std::array<int64_t, 3> mine = {1, -2, 3};
  std::array<int64_t, 3> all = {};
  if (says(call_plugin(caller, "exchange",
                       [&](galley_error* error) { return ranks.exchange(handle, mine.data(), sizeof mine, all.data(), error); })) &&
      all != mine)
    log.find("one rank", "exchange() of one rank does not return what it gave", rules::kRanks);
  int64_t culprit = 0;
  says(call_plugin(caller, "check", [&](galley_error* error) { return ranks.check(handle, &culprit, error); }));
  ranks.close(handle);
  log.held("one rank: open, exchange, check, close");
  return ok();
}

}  // namespace galley
