// Measures links to other workers (both sides of Probe in stage.proto), and the
// cost of frames on this machine.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "core/os/thread.h"
#include "core/rpc/listener.h"
#include "grpcpp/support/server_callback.h"
#include "paceline/v1/stage.pb.h"
#include "worker/profile/profiler.h"

namespace paceline {

// Returns the answering side of one probe.  It takes a place among `strangers`,
// ends after a minute, and owns itself.
grpc::ServerBidiReactor<v1::ProbeMessage, v1::ProbeMessage>* AnswerProbe(
    grpc::CallbackServerContext& context, StreamLimit& strangers);

// Returns the address by which others reach this worker.
// advertise: --advertise; empty: `bound`.  Port 0 becomes the port that was
// bound.  A host that means "every address" becomes empty; the coordinator then
// puts in the host that it sees.
// bound: host:port where the worker listens, with a port.
// Errors: InvalidArgument  advertise is not host:port.
absl::StatusOr<std::string> AdvertisedAddress(const std::string& advertise,
                                              const std::string& bound);

// Returns whether `address`, dialled from this process, leads to this worker
// itself, which listens on `bound` and is known as `advertised`.
bool IsOwnAddress(const std::string& address, const std::string& bound,
                  const std::string& advertised);

// The real Prober.  Immutable.
class GrpcProber final : public Prober {
 public:
  // bound: where this worker listens.  advertised: its address for others.
  GrpcProber(std::string bound, std::string advertised)
      : bound_(std::move(bound)), advertised_(std::move(advertised)) {}

  // First round trips of empty messages, then enough messages of 64 KiB for a
  // transfer long enough to measure.  Blocks for about half a second on a fast
  // link.
  //
  // The latency is half of the median round trip.  The CPU seconds of a byte
  // are those of both whole processes during the transfer, because over a real
  // link the kernel's part is many times that of loopback.
  absl::StatusOr<LinkMeasurement> ProbeLink(const std::string& self,
                                            const v1::MeasureLink& target,
                                            const CancelToken& cancel) override;

  // Measures the cost of the data plane itself: two planes of this process
  // exchange frames over loopback.  It sends one frame at a time, there and
  // back, in two sizes, as a pipeline's boundary does, and then measures the
  // step gate.  It takes the CPU time of the whole process, so other threads
  // must have little to do.  Blocks for about a second.
  // Errors: those of the data plane; cancel.status()
  absl::StatusOr<FrameCost> MeasureFrames(const CancelToken& cancel) override;

 private:
  const std::string bound_;
  const std::string advertised_;
};

}  // namespace paceline
