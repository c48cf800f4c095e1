// The real Prober.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/prober.h"
#include "worker/rpc/daemon.h"
#include "worker/rpc/frame_meter.h"
#include "worker/rpc/link_probe.h"

namespace paceline {

// Immutable.
class GrpcProber final : public Prober {
 public:
  // This worker's own: where it listens, and as others know it.
  GrpcProber(std::string bound, std::string advertised)
      : bound_(std::move(bound)), advertised_(std::move(advertised)) {}

  absl::StatusOr<std::vector<LinkMeasurement>> ProbeLink(
      const std::string& self, const LinkTarget& target,
      const CancelToken& cancel) override {
    if (IsOwnAddress(target.address, bound_, advertised_)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the address of ", target.name, " (", target.address, ") is that of ",
          self, " itself, which measures no link: start ", target.name,
          " with --advertise HOST:PORT"));
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
