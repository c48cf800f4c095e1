// Measures links to other workers (stage.proto, Probe, both sides), and what
// frames cost here.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/cancel_token.h"
#include "core/cluster/measure_order.h"
#include "core/rpc/stream_limit.h"
#include "grpcpp/support/server_callback.h"
#include "paceline/v1/stage.grpc.pb.h"
#include "worker/measure/profiler.h"

namespace paceline {

// The answering side of one probe, which takes a place among `strangers` and is
// ended after a minute; owns itself.
grpc::ServerBidiReactor<v1::ProbeMessage, v1::ProbeMessage>* AnswerProbe(
    grpc::CallbackServerContext& context, StreamLimit& strangers);

// The asking side: round trips of empty messages, then messages of 64 KiB to
// the target, so many that a transfer takes long enough to be measured.  Blocks
// for about half a second on a fast link.
//
// The latency is half of the median round trip.  CPU seconds of a byte are
// those of both whole processes while it went on: over a real link the kernel's
// part is many times that of loopback.
//
// Errors: as Prober::ProbeLink.
absl::StatusOr<LinkMeasurement> ProbeLink(const std::string& self,
                                          const LinkTarget& target,
                                          const CancelToken& cancel);

// Measures what the data plane itself costs: two planes of this process
// exchange frames over loopback.  One frame at a time, there and back, in two
// sizes, as a pipeline's boundary does it; then the step gate.  CPU time of the
// whole process: its other threads must have little to do.  Blocks for about a
// second. Errors: those of the data plane; cancel.status()
absl::StatusOr<FrameCost> MeasureFrameCost(const CancelToken& cancel);

// advertise: --advertise; empty: `bound`, where the worker listens.  Its port 0
// becomes the port that was bound; a host that means "every address" becomes
// empty, which asks the coordinator to put in the one it sees.
// bound: host:port, with a port.
// Errors: InvalidArgument  advertise is not host:port.
absl::StatusOr<std::string> AdvertisedAddress(const std::string& advertise,
                                              const std::string& bound);

// Whether who dials `address` in this process reaches this worker itself, which
// listens on `bound` and is known as `advertised`.
bool IsOwnAddress(const std::string& address, const std::string& bound,
                  const std::string& advertised);

// The real Prober.  Immutable.
class GrpcProber final : public Prober {
 public:
  // This worker's own: where it listens, and as others know it.
  GrpcProber(std::string bound, std::string advertised)
      : bound_(std::move(bound)), advertised_(std::move(advertised)) {}

  absl::StatusOr<LinkMeasurement> ProbeLink(
      const std::string& self, const LinkTarget& target,
      const CancelToken& cancel) override {
    if (IsOwnAddress(target.address, bound_, advertised_)) {
      return absl::FailedPreconditionError(
          absl::StrCat("cannot dial ", target.name, " (", target.address,
                       "), which is the address of ", self, " itself: start ",
                       target.name, " with --advertise HOST:PORT"));
    }
    return paceline::ProbeLink(self, target, cancel);
  }
  absl::StatusOr<FrameCost> MeasureFrames(const CancelToken& cancel) override {
    return MeasureFrameCost(cancel);
  }

 private:
  const std::string bound_;
  const std::string advertised_;
};

}  // namespace paceline
