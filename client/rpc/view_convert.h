// The Control service's messages as the client's own structs.
#pragma once

#include "client/views.h"
#include "paceline/v1/control.pb.h"

namespace paceline {

JobView ViewFromProto(const v1::Job& proto);
WorkerView ViewFromProto(const v1::Worker& proto);
EventView ViewFromProto(const v1::JobEvent& proto);
LogLineView ViewFromProto(const v1::LogLine& proto);
PlacementView ViewFromProto(const v1::StagePlacement& proto);
EstimateView ViewFromProto(const v1::RunEstimate& proto);

}  // namespace paceline
