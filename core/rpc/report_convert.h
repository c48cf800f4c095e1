// Orders and reports of the control stream: protos to the structs of
// core/cluster and back, for both of its ends.  FromProto refuses what has a
// wrong form; what it means is checked by the logic.
#pragma once

#include "absl/status/statusor.h"
#include "core/cluster/run_order.h"
#include "core/cluster/run_report.h"
#include "paceline/v1/coordinator.pb.h"
#include "paceline/v1/types.pb.h"

namespace paceline {

// Times and counts that cannot be (NaN, infinite, negative) come as 0, not as
// an error.
v1::TimeSplit ToProto(const TimeSplit& seconds);
TimeSplit FromProto(const v1::TimeSplit& proto);
v1::FlowTimes ToProto(const FlowTimes& flow);
FlowTimes FromProto(const v1::FlowTimes& proto);

v1::StepRecord ToProto(const StepRecord& step);
// Errors: InvalidArgument  a step below 1, samples below 0.
absl::StatusOr<StepRecord> FromProto(const v1::StepRecord& proto);

v1::EvaluationRecord ToProto(const EvaluationRecord& evaluation);
// Errors: InvalidArgument  a step or samples below 0.
absl::StatusOr<EvaluationRecord> FromProto(const v1::EvaluationRecord& proto);

// LogLine::sequence is LogRecord::origin_sequence.  FromProto makes one line of
// each text, at most 8 KiB of it, since the peer may be anybody; the
// incarnation is left unset.
v1::LogLine ToProto(const LogRecord& line);
LogRecord FromProto(const v1::LogLine& proto);

// Times that cannot be: as above.
v1::StageTime ToProto(const StageTime& time);
StageTime FromProto(const v1::StageTime& proto);
// Of a stage without a flush.
v1::StageVersions VersionsToProto(const StageTime& time);
v1::RunState ToProto(const RunReport& report);
// Times that cannot be: as above.
// Errors: InvalidArgument  a phase, job, step or code that does not exist; what
// group_convert.h refuses.
absl::StatusOr<RunReport> FromProto(const v1::RunState& proto);

v1::StagePlacement ToProto(const StagePlacement& stage);
StagePlacement FromProto(const v1::StagePlacement& proto);

v1::RunOrder ToProto(const RunOrder& order);
// Errors: InvalidArgument  stages are not numbered 0, 1, 2, ...; what
// group_convert.h refuses.
absl::StatusOr<RunOrder> FromProto(const v1::RunOrder& proto);

}  // namespace paceline
