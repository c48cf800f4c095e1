// The control stream: the check of a worker's heartbeat, and orders as protos
// and structs; and requests for pieces.  A wrong form is refused here; what it
// means is checked by the logic.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/cluster/run_order.h"
#include "paceline/v1/coordinator.pb.h"
#include "paceline/v1/stage.pb.h"
#include "paceline/v1/types.pb.h"

namespace paceline {

// A line of the log that is longer says nothing more to a person.
inline constexpr size_t kMaxLogTextBytes = 8192;
// A run has so many notes, of so many bytes.
inline constexpr int kMaxNotes = 16;
inline constexpr size_t kMaxNoteBytes = 1024;
void CleanNotes(google::protobuf::RepeatedPtrField<std::string>& notes);

// Refuses what has a wrong form, and cleans the rest, since the peer may be
// anybody: times and counts of the run that cannot be (NaN, infinite, negative)
// become 0, each text of a log becomes one line of at most kMaxLogTextBytes.  A
// traced batch that is not whole is left out.
// MemberState and Measurement are left to group_convert.h and
// measurement_convert.h.
// Errors: InvalidArgument  a phase, job, step or code that does not exist, a
// record of a step below 1, samples below 0, pieces that cannot be, more of
// something than a worker has; as CheckRoundRecord()
absl::Status CheckHeartbeat(v1::Heartbeat& heartbeat);

// Why the run has failed; OK unless its phase says that it has.
absl::Status ErrorOf(const v1::RunState& run);

v1::StagePlacement ToProto(const StagePlacement& stage);

v1::Cut ToProto(Cut cut);
v1::LayerRange ToProto(const LayerRange& layers);

v1::RunOrder ToProto(const RunOrder& order);
// Errors: InvalidArgument  stages are not numbered 0, 1, 2, ...; a cut or
// layers that cannot be; what group_convert.h refuses.
absl::StatusOr<RunOrder> FromProto(const v1::RunOrder& proto);

// A standing order's number and what it says of pieces.
void AddKeep(const KeepOrder& order, v1::StandingOrder& proto);
// Errors: InvalidArgument  numbers out of range, attempts that do not ascend
absl::StatusOr<KeepOrder> KeepFromProto(const v1::StandingOrder& proto);

struct PieceWish {
  JobId job;
  Cut cut;                         // of a follower its attempt alone
  bool follows = false;            // what comes is wanted, not a cut
  std::vector<LayerRange> layers;  // ascending, at least one
  int64_t offset = 0;              // in the first piece of a cut
};
// The request that came to the process `self`.
// Errors: Aborted          another process is meant
//         InvalidArgument  negative numbers; layers that cannot be, or none
absl::StatusOr<PieceWish> FromProto(const v1::PieceRequest& proto,
                                    Incarnation self);

}  // namespace paceline
