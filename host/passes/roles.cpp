#include "host/passes/roles.hpp"

#include <algorithm>
#include <string_view>

namespace galley {

std::string owner_of(const galley_op* op) {
  const std::string& plugin = plugin_of(op);
  return plugin.empty() ? standard_plugin : plugin;
}

Result<Roles> bind_roles(Plugins& plugins) {
  Plugin* standard = nullptr;
  for (const auto& plugin : plugins.all())
    if (plugin->manifest.id == standard_plugin) standard = plugin.get();
  if (!standard)
    return plugin_error(std::string("plugin '") + standard_plugin + "', which has the ops that every run needs, is not there",
                        "it belongs into the folder 'plugins' beside the program");
  TRY_STATUS(plugins.load(*standard));
  Roles roles;
  const std::pair<const char*, const galley_op**> wanted[] = {{"add", &roles.add},
                                                              {"copy", &roles.copy},
                                                              {"sum_squares", &roles.sum_squares},
                                                              {"transpose", &roles.transpose},
                                                              {"block_squares", &roles.block_squares},
                                                              {"sum_blocks", &roles.sum_blocks},
                                                              {"norm_finish", &roles.norm_finish},
                                                              {"fill", &roles.fill},
                                                              {"take_rows", &roles.take_rows},
                                                              {"step_begin", &roles.step_begin},
                                                              {"loss_begin", &roles.loss_begin},
                                                              {"loss_seed", &roles.loss_seed},
                                                              {"cross_entropy", &roles.cross_entropy},
                                                              {"label_hits", &roles.label_hits},
                                                              {"scheduled", &roles.scheduled},
                                                              {"next_rows", &roles.next_rows},
                                                              {"step_end", &roles.step_end},
                                                              {"put_back", &roles.put_back},
                                                              {"attention", &roles.attention},
                                                              {"cached_attention", &roles.cached_attention},
                                                              {"cache_rows", &roles.cache_rows},
                                                              {"take_columns", &roles.take_columns},
                                                              {"all_reduce", &roles.all_reduce},
                                                              {"all_reduce_here", &roles.all_reduce_here},
                                                              {"reduce_scatter", &roles.reduce_scatter},
                                                              {"all_gather", &roles.all_gather},
                                                              {"all_gather_here", &roles.all_gather_here},
                                                              {"checksum", &roles.checksum}};
  for (const auto& [name, op] : wanted) {
    for (const galley_op* known : standard->library->ops)
      if (std::string_view(known->name) == name) *op = known;
    if (!*op) return plugin_error(std::string("plugin '") + standard_plugin + "' has no op '" + name + "', which every run needs");
  }
  return roles;
}

}  // namespace galley
