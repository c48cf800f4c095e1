// `paceline job export`: the weights of a job into a file.
#pragma once

#include <cstdint>
#include <string>

#include "client/commands/command.h"
#include "client/commands/reference.h"

namespace paceline {

// Why an export must not go to `path`; empty: it may.  Everywhere else -o is
// the form of what is printed: who writes `-o json` here means that, and would
// get a file of weights called json.
std::string WhyNoExportFile(const std::string& path);

// path "-": standard output.  A file: written beside it as PATH.part, read back
// and compared with the job's hash, and only then renamed: what was there
// before stays until then, and no file is left behind that is cut short or
// another job's.  A device or a pipe is written as it is.
ExitCode ExportJobCommand(const CommandContext& context,
                          const ReadWeights& read, int64_t id,
                          const std::string& path);

}  // namespace paceline
