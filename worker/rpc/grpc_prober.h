// The real Prober.
#pragma once

#include <string>
#include <vector>

#include "worker/prober.h"
#include "worker/rpc/frame_meter.h"
#include "worker/rpc/link_probe.h"

namespace paceline {

// Immutable.
class GrpcProber final : public Prober {
 public:
  absl::StatusOr<std::vector<LinkMeasurement>> ProbeLink(
      const std::string& self, const LinkTarget& target,
      const CancelToken& cancel) override {
    return paceline::ProbeLink(self, target, cancel);
  }
  absl::StatusOr<FrameCost> MeasureFrames(const CancelToken& cancel) override {
    return MeasureFrameCost(cancel);
  }
};

}  // namespace paceline
