// Progress of a job while somebody waits for it; and the mesh as it changes:
// `paceline top`, and --watch of other commands.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "client/commands/command.h"
#include "client/commands/job/jobs_and_nodes.h"
#include "client/render/mesh_view.h"
#include "client/render/report.h"
#include "core/base/clock.h"

namespace paceline {

// Time until the last step at the present speed; nothing when either is not
// known.
std::optional<absl::Duration> TimeLeft(const v1::Job& job);

struct ProgressStyle {
  bool bar = false;      // for a line that is redrawn
  bool unicode = false;  // of the bar
  int columns = 0;       // that the line may have; 0: any number
};

// One line: "job 3  step 120/938  3.9 k samples/s  loss 0.4321  12 s left";
// what is not known is left out, and a step that was skipped says so instead of
// its loss.  Of a reason it has the first clause.  The bar is as long as there
// is room.  newest: the curve's last point.
std::string ProgressLine(const v1::Job& job,
                         std::optional<v1::StepRecord> newest,
                         const ProgressStyle& style);

// When a plain line is due where none can be redrawn: at a change of state or
// phase, at every tenth of the steps, and after 10 s with a further step.
// Thread-compatible.
class PlainProgress {
 public:
  // Says whether to print now; counts as printed when it does.
  bool OnProgress(const v1::Job& job, Instant now);

 private:
  bool printed_ = false;
  Instant printed_at_;
  v1::JobState state_ = v1::JOB_STATE_UNSPECIFIED;
  std::string phase_;
  std::string why_;  // as it was said, without numbers
  int64_t step_ = 0;
  int64_t tenth_ = 0;
};

// Watching a job until it ends.

struct WatchResult {
  WaitEnd end = WaitEnd::kDone;
  v1::Job job;  // as last seen; without a full curve
};

// Polls job `id` and shows its progress on the console's error side: one
// redrawn line on a terminal, else a line now and then; with `events` also what
// has happened to it so far and what happens.  A coordinator that goes away is
// given kPatience to come back.
//
// Errors: those of ControlClient::GetJob and GetEvents.
absl::StatusOr<WatchResult> WatchJob(const CommandContext& context, int64_t id,
                                     std::optional<absl::Duration> timeout,
                                     bool events = false);

// Until Ctrl-C (kExitInterrupted), and through restarts of the coordinator.  On
// a terminal a screen; else what there is, and then a line for each change.
// Other formats than a table print what there is as one document, and end.
ExitCode TopCommand(const CommandContext& context);

// Shows what `render` makes of the mesh, again and again until Ctrl-C: on a
// terminal in place, else one after the other where it differs.  `render` is
// called after each update, and says for itself what is of interest.
//
// Errors of `render` end it.
ExitCode WatchCommand(const CommandContext& context,
                      absl::FunctionRef<absl::StatusOr<std::string>(
                          const MeshView& mesh, const v1::MeshUpdate& update)>
                          render);

ExitCode WatchJobsCommand(const CommandContext& context,
                          const JobFilter& filter);
ExitCode WatchNodesCommand(const CommandContext& context);
ExitCode WatchOneJobCommand(const CommandContext& context, int64_t id);

}  // namespace paceline
