// `paceline plan`.
#pragma once

#include <vector>

#include "client/console.h"
#include "client/exit_code.h"
#include "client/planning/plan_options.h"
#include "client/planning/plan_question.h"
#include "client/planning/plan_render.h"
#include "core/base/clock.h"

namespace paceline {

// Writes a plan where `plan --save` asks for it.  Real: client/rpc/plan_file.h.
class PlanSink {
 public:
  virtual ~PlanSink() = default;
  // Errors: InvalidArgument, FailedPrecondition  it cannot be written
  virtual absl::Status Save(const PlanFile& plan) = 0;
};

// Asks the question's policy, or with options.compare all of them, prints, and
// hands the plan (the best of all) to `sink`, which may be null.
//
// Ends with kExitUsage for a question that is wrong, kExitUnplaceable when
// there is no device or nothing fits; a comparison only when no policy has an
// answer.
ExitCode PlanCommand(Console& console, const Clock& clock,
                     const PlanQuestion& question, const PlanOptions& options,
                     PlanSink* sink);

}  // namespace paceline
