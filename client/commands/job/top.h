// `paceline top`, and --watch of other commands: the mesh as it changes.
#pragma once

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "client/commands/command.h"
#include "client/commands/job/jobs_and_nodes.h"
#include "client/render/mesh_view.h"

namespace paceline {

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
