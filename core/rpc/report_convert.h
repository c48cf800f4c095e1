// Orders and reports of the control stream: the worker's structs to protos and
// back, and what the coordinator checks of a report.  A wrong form is refused
// here; what it means is checked by the logic.
#pragma once

#include "absl/status/statusor.h"
#include "core/cluster/run_order.h"
#include "core/cluster/run_report.h"
#include "paceline/v1/coordinator.pb.h"
#include "paceline/v1/types.pb.h"

namespace paceline {

v1::TimeSplit ToProto(const TimeSplit& seconds);
TimeSplit FromProto(const v1::TimeSplit& proto);
v1::FlowTimes ToProto(const FlowTimes& flow);
FlowTimes FromProto(const v1::FlowTimes& proto);

v1::StepRecord ToProto(const StepRecord& step);
v1::EvaluationRecord ToProto(const EvaluationRecord& evaluation);
// LogLine::sequence is LogRecord::origin_sequence.
v1::LogLine ToProto(const LogRecord& line);

v1::StageTime ToProto(const StageTime& time);
v1::RunState ToProto(const RunReport& report);

// Refuses what has a wrong form, and cleans the rest, since the peer may be
// anybody: times and counts of the run that cannot be (NaN, infinite, negative)
// become 0, each text of a log becomes one line of at most 8 KiB.  MemberState,
// RoundRecord and Measurement are left to group_convert.h and
// measurement_convert.h.
// Errors: InvalidArgument  a phase, job, step or code that does not exist, a
// record of a step below 1, samples below 0
absl::Status CheckHeartbeat(v1::Heartbeat& heartbeat);

// Why the run has failed; OK unless its phase says that it has.
absl::Status ErrorOf(const v1::RunState& run);

v1::StagePlacement ToProto(const StagePlacement& stage);
StagePlacement FromProto(const v1::StagePlacement& proto);

v1::RunOrder ToProto(const RunOrder& order);
// Errors: InvalidArgument  stages are not numbered 0, 1, 2, ...; what
// group_convert.h refuses.
absl::StatusOr<RunOrder> FromProto(const v1::RunOrder& proto);

}  // namespace paceline
