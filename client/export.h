// `paceline job export`: the weights of a job into a file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/command.h"

namespace paceline {

// Where an export goes.  Nothing is seen under the target's name before
// Commit(); dropped without it, nothing is left.  Thread-compatible.
class ExportTarget : public ByteSink {
 public:
  // All bytes are written: makes them durable and puts them in place.
  virtual absl::Status Commit() = 0;
};

// path "-": standard output.  A file: written beside it as PATH.part, renamed
// at the end; what was there before stays until then.  A device or a pipe is
// written as it is.
// Errors: FailedPrecondition  it cannot be written; says why
absl::StatusOr<std::unique_ptr<ExportTarget>> OpenExportTarget(
    const std::string& path);

ExitCode ExportJobCommand(const CommandContext& context, int64_t id,
                          const std::string& path);

}  // namespace paceline
