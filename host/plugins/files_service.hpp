// The service galley.files/1: files as the host reads them, for plugins.
#pragma once

#include "galley/files.h"

namespace galley {

/// Lives as long as the process. [thread-safe]
const galley_files* files_service();

}  // namespace galley
