// Carries the messages of a round group's members, as protos and back. The
// frame holds the payload, the sender and the attempt
// (core/transfer/frame_codec.h).
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/round/message.h"
#include "paceline/v1/round.pb.h"

namespace paceline {

// More than any group has; what is above is refused before memory is taken.
constexpr int kMaxRoundShards = 64;
constexpr int kMaxRoundMembers = 1024;
// Bounds the samples of one member in one step; those of all its members can be
// added.
constexpr int64_t kMaxRoundSamples = int64_t{1} << 40;

v1::RoundMessage ToProto(const RoundMessage& message);

// `attempt` and `from` of the frame.
// Errors: InvalidArgument  no body, or one that no member would send: says
//         which number is wrong and what it may be
absl::StatusOr<RoundMessage> FromProto(const v1::RoundMessage& proto,
                                       int64_t attempt, const MemberId& from);

}  // namespace paceline
