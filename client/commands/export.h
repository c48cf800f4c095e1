// `paceline job export`: the weights of a job into a file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/commands/command.h"
#include "client/commands/model_commands.h"

namespace paceline {

// Where an export goes.  Nothing is seen under the target's name before
// Commit(); dropped without it, nothing is left.  Thread-compatible.
class ExportTarget : public ByteSink {
 public:
  // Where the bytes can be read back before Commit(); empty: nowhere.
  virtual std::string staged_path() const = 0;

  // All bytes are written: makes them durable and puts them in place.
  virtual absl::Status Commit() = 0;
};

// Why an export must not go to `path`; empty: it may.  Everywhere else -o is
// the form of what is printed: who writes `-o json` here means that, and would
// get a file of weights called json.
std::string WhyNoExportFile(const std::string& path);

// path "-": standard output.  A file: written beside it as PATH.part, renamed
// at the end; what was there before stays until then.  A device or a pipe is
// written as it is.
// Errors: FailedPrecondition  it cannot be written; says why
absl::StatusOr<std::unique_ptr<ExportTarget>> OpenExportTarget(
    const std::string& path);

// Reads the file back and compares it with the job's hash before it gets its
// name. Leaves no file behind that is cut short or another job's.
ExitCode ExportJobCommand(const CommandContext& context,
                          WeightsFileReader& reader, int64_t id,
                          const std::string& path);

}  // namespace paceline
