// Measures a link between two workers: stage.proto, Probe, both sides.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/cluster/measure_order.h"
#include "core/rpc/stranger_limit.h"
#include "grpcpp/support/server_callback.h"
#include "paceline/v1/stage.grpc.pb.h"
#include "worker/cancel_token.h"

namespace paceline {

// The answering side of one probe, which takes a place among `strangers` and is
// ended after a minute; owns itself.
grpc::ServerBidiReactor<v1::ProbeMessage, v1::ProbeMessage>* AnswerProbe(
    grpc::CallbackServerContext& context, StrangerLimit& strangers);

// The asking side: round trips of empty messages, then messages of 64 KiB one
// way and the other, so many that a transfer takes long enough to be measured.
// Blocks for about half a second on a fast link.
//
// The result: self to target, and back.  The latency is half of the median
// round trip, the same both ways.  CPU seconds of a byte are those of both
// whole processes while it went on: over a real link the kernel's part is many
// times that of loopback.
//
// Errors: as Prober::ProbeLink.
absl::StatusOr<std::vector<LinkMeasurement>> ProbeLink(
    const std::string& self, const LinkTarget& target,
    const CancelToken& cancel);

}  // namespace paceline
