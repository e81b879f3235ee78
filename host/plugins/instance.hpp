// What a plugin's `create` has made of options, until its `destroy`: of a strategy, and of a kind of data.
#pragma once

#include "host/base/result.hpp"
#include "host/plugins/call.hpp"
#include "host/plugins/options.hpp"

namespace galley {

class Instance {
 public:
  Instance() = default;
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;
  ~Instance() {
    if (!destroy_) return;
    // Nothing is left to be told about a failure here.
    const Status ignored = call_plugin(caller_, "destroy", [&](galley_error*) {
      destroy_(made_);
      return GALLEY_OK;
    });
    (void)ignored;
  }

  /// Calls the table's `create`, once. The options stay where they are, and outlive this.
  template <class Table>
  Status create(const Caller& caller, const Table& table, const Options& options) {
    Status created =
        call_plugin(caller, "create", [&](galley_error* error) { return table.create(table.self, options.table(), &made_, error); });
    if (!created.ok() && created.error().exit == Exit::Recipe && !options.misread().empty() &&
        created.error().cause.find("'" + options.misread() + "'") != std::string::npos)
      return plugin_fault(caller, "create",
                          plugin_error("it asks for its option '" + options.misread() + "' as another type than its manifest says"));
    TRY_STATUS(std::move(created));
    caller_ = caller;
    destroy_ = table.destroy;
    return ok();
  }

  void* get() const { return made_; }

 private:
  Caller caller_;
  void (*destroy_)(void* instance) = nullptr;
  void* made_ = nullptr;
};

}  // namespace galley
