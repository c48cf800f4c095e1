// `paceline job ...`, but for submit, export and keys, and `paceline node ...`.
// Each command prints to the context's console and returns the exit code;
// errors are reported there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/commands/command.h"
#include "paceline/v1/control.pb.h"

namespace paceline {

// A job's number, or "last" for the newest.
// Errors: InvalidArgument  neither of them
//         NotFound         "last", and there are no jobs
//         and those of ControlClient::ListJobs
absl::StatusOr<int64_t> ResolveJob(ControlClient& client,
                                   const std::string& word);

// Which jobs `job list` shows; what is empty, or 0, leaves none out.
struct JobFilter {
  std::vector<std::string> states = {};
  std::string model = {};
  std::string name = {};  // a part of it
  int limit = 0;          // the newest of those that the rest leaves
};

// Takes the others out.
void KeepWanted(const JobFilter& filter, v1::ListJobsResponse& listed);
ExitCode ListJobsCommand(const CommandContext& context,
                         const JobFilter& filter);
ExitCode ShowJobCommand(const CommandContext& context, int64_t id);

// follow: goes on until the job has ended or Ctrl-C.
ExitCode JobEventsCommand(const CommandContext& context, int64_t id,
                          bool follow);
ExitCode JobLogsCommand(const CommandContext& context, int64_t id, bool follow);

struct WaitJobOptions {
  std::optional<absl::Duration> timeout = {};
  bool events = false;  // tells them as they happen, as `job watch` does
  Document extra = Document::object();  // added to what -o json prints
};
// Ends with the exit code of the job, or kExitTimedOut, kExitInterrupted.
ExitCode WaitJobCommand(const CommandContext& context, int64_t id,
                        const WaitJobOptions& options);

ExitCode StopJobCommand(const CommandContext& context, int64_t id);
ExitCode DeleteJobCommand(const CommandContext& context, int64_t id);

ExitCode ListNodesCommand(const CommandContext& context);

// word: a worker's name or its number.
ExitCode ShowNodeCommand(const CommandContext& context,
                         const std::string& word);

// The worker gets nothing new, and leaves its round group; or is taken back.
ExitCode DrainNodeCommand(const CommandContext& context,
                          const std::string& word, bool drain);

// A worker that is gone leaves the list.
ExitCode ForgetNodeCommand(const CommandContext& context,
                           const std::string& word);

}  // namespace paceline
