// The commands that make runs and look into them: train, resume, eval, gradients.
#pragma once

#include "host/commands/cli.hpp"
#include "host/session/session.hpp"

namespace galley {

/// What the flags --set, --plugin-path, --device, --target and --memory say.
Result<StudyOptions> study_options(const CommandLine& a);

/// Opens the data and shows on stderr how far that has come. A signal ends it, and nothing is left of what was not finished.
Result<std::unique_ptr<Source>> open_source_shown(const Study& study);

Status command_train(const CommandLine& a);
Status command_resume(const CommandLine& a);
Status command_eval(const CommandLine& a);
Status command_gradients(const CommandLine& a);

}  // namespace galley
