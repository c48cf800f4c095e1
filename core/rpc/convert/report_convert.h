// The control stream: checks of what workers say, and orders, reports of round
// groups' members and measurements as protos and structs; and requests for
// pieces.  A wrong form is refused here; what it means is checked by the logic.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/cluster/eviction.h"
#include "core/cluster/run_order.h"
#include "core/plan/measurement.h"
#include "core/rpc/convert/member_convert.h"
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
// MemberState and Measurement have checks of their own, below.
// Errors: InvalidArgument  a phase, job, step or code that does not exist, a
// record of a step below 1, samples below 0, pieces that cannot be, more of
// something than a worker has; as CheckRoundRecord()
absl::Status CheckHeartbeat(v1::Heartbeat& heartbeat);

// Why the run has failed; OK unless its phase says that it has.
absl::Status ErrorOf(const v1::RunState& run);

// Errors: InvalidArgument  stages are not numbered 0, 1, 2, ...; a cut or
// layers that cannot be; what its GroupOrder's FromProto() refuses.
absl::StatusOr<RunOrder> FromProto(const v1::RunOrder& proto);

// A standing order's number and what it says of pieces.
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

// --- round groups -----------------------------------------------------------

// Errors: InvalidArgument  as CheckView(); a share that is not positive;
//         workers twice or not by id; a member that is none of them
absl::StatusOr<GroupOrder> FromProto(const v1::GroupOrder& proto);

// Times of peers are rounded to milliseconds, never to none.
v1::MemberState ToProto(const MemberReport& report);
// Errors: InvalidArgument  a step or time out of range; a process with two
//         hashes; more processes than a group may have
absl::StatusOr<MemberReport> FromProto(const v1::MemberState& proto);

// The view alone of a group's order.  Errors: as above; one without members has
// no leveller that could be wrong.
absl::StatusOr<View> ViewFromProto(const v1::GroupOrder& proto);

// Errors: InvalidArgument  a number out of range or not finite; a reason that
//         is no word
absl::Status CheckRoundRecord(const v1::RoundRecord& record);

// --- measurements -----------------------------------------------------------

v1::DeviceProfile ToProto(const DeviceProfile& profile);
// Errors: InvalidArgument  a number that is negative or not finite, no layers,
// or more than kMaxProfiledLayers; names it.
absl::StatusOr<DeviceProfile> FromProto(const v1::DeviceProfile& proto);

inline constexpr int kMaxProfiledLayers = 100'000;
// One measurement has a link there and one back.
inline constexpr int kMaxMeasuredLinks = 2;
inline constexpr int kMaxFilesLookedFor = 16;

// Errors: InvalidArgument  a bandwidth that is not above 0, a latency below 0.
absl::StatusOr<LinkMeasurement> FromProto(const v1::LinkMeasurement& proto);

// Errors: InvalidArgument  it says neither layers nor link nor files
absl::Status CheckMeasureOrder(const v1::MeasureOrder& order);

// Errors: InvalidArgument  as above, a code that does not exist, or more than
// kMaxMeasuredLinks, or more missing files than kMaxFilesLookedFor.
absl::Status CheckMeasurement(const v1::Measurement& measurement);

// Why nothing was measured.
absl::Status ErrorOf(const v1::Measurement& measurement);

}  // namespace paceline
