#include "host/commands/report.hpp"

#include <cstdio>

#include "host/base/new_file.hpp"
#include "host/commands/run_commands.hpp"
#include "host/tools/report/page.hpp"
#include "host/tools/report/run_page.hpp"
#include "host/tools/report/terminal.hpp"

namespace galley {

Status command_report(const CommandLine& a) {
  const StudyOptions options = TRY(study_options(a));
  const std::vector<std::filesystem::path> directories(a.positional.begin(), a.positional.end());
  const std::filesystem::path page = directories.front() / "report.html";
  const Value data = TRY(report_page(directories, options));
  TRY_STATUS(write_atomic(page, page_html(data)));
  print_lines("written: %s\n", page.c_str());
  return ok();
}

}  // namespace galley
