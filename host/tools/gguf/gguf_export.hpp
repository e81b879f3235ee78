// Exports a model or an adapter as a GGUF file, for llama.cpp and the programs that are made of it.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "host/base/new_file.hpp"
#include "host/session/session.hpp"
#include "host/tools/gguf/conversion.hpp"
#include "host/tools/gguf/read_again.hpp"

namespace galley {

struct GgufRequest {
  std::filesystem::path out;  ///< the file; there must be none yet
  std::string type;           ///< a name of gguf_type(); "": the dtype that the model is saved in
  std::string name;           ///< general.name
  bool reads_again = true;    ///< compares the file with the model before it gets its name
  StudyOptions options;       ///< those of the export's study
};

struct GgufWritten {
  uint64_t bytes = 0;
  std::vector<std::string> notes;    ///< lines for people: what is otherwise than one would expect
  std::optional<LogitsApart> apart;  ///< none if it was not compared
};

/// An export on its way: a folder beside the file, which goes with this, has the model in Hugging Face's format, then the file. The file
/// appears whole, and only if what is read of it agrees with the model.
class GgufExport {
 public:
  /// Describes the file, from a study of Purpose::Export in F32 (or in the model's own dtype, without a type). Whatever cannot be written is
  /// refused here, before weights and a device are opened: exit code Recipe.
  static Result<GgufExport> prepare(const Study& study, GgufRequest request);
  bool is_adapter() const { return !adapter_.is_nil(); }
  /// Returns how many tokens the file says a text may have; 0 of an adapter.
  int64_t context() const { return context_; }
  /// Writes the model aside. The session may be closed afterwards.
  Status take(Session& session) { return session.export_model(aside_.path()); }
  /// Makes the file of it, compares, and gives it its name. An adapter's numbers are compared, and nothing is said of them.
  Result<GgufWritten> finish(const std::function<Status(uint64_t done, uint64_t total)>& progress);

 private:
  GgufExport(GgufRequest request, NewFolder aside, GgufNaming naming)
      : request_(std::move(request)), aside_(std::move(aside)), naming_(std::move(naming)) {}

  Status add_model_keys(const Study& study, const Value& described);
  Status write_model(File& file, const std::function<Status(uint64_t done, uint64_t total)>& progress);
  Status write_adapter(File& file, const std::function<Status(uint64_t done, uint64_t total)>& progress);
  Result<LogitsApart> compare_model() const;

  GgufRequest request_;
  NewFolder aside_;
  GgufNaming naming_;
  GgufKeys keys_;
  std::vector<std::string> notes_;
  Value adapter_;          ///< adapter_config.json, of an adapter; nil of a model
  int64_t positions_ = 0;  ///< that are compared
  int64_t context_ = 0;
};

}  // namespace galley
