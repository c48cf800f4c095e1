// `paceline report`: what jobs did, side by side, as a page, tables or a trace.
#pragma once

#include <string>
#include <vector>

#include "client/commands/command.h"

namespace paceline {

struct ReportOptions {
  std::vector<std::string> jobs;  // numbers, or "last"; at least one
  std::string format = "html";    // one of ReportFormats()
  std::string file;               // empty or "-": standard output
};

// html, csv, latex, perfetto.
std::vector<std::string> ReportFormats();

// Columns are named as in the documents of client/README.md.  A file is written
// beside `options.file` and renamed.
//
// No record is kept of when a worker computed what: a step is what the
// simulator makes of the times that the job's stages took.
ExitCode ReportCommand(const CommandContext& context,
                       const ReportOptions& options);

}  // namespace paceline
