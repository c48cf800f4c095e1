// Measurements and the orders for them: checks of both, and protos of profiles
// and links to the logic's structs and back.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/plan/measurement.h"
#include "paceline/v1/coordinator.pb.h"
#include "paceline/v1/types.pb.h"

namespace paceline {

v1::DeviceProfile ToProto(const DeviceProfile& profile);
// Errors: InvalidArgument  a number that is negative or not finite, no layers,
// or more than kMaxProfiledLayers; names it.
absl::StatusOr<DeviceProfile> FromProto(const v1::DeviceProfile& proto);

inline constexpr int kMaxProfiledLayers = 100'000;
// One measurement has a link there and one back.
inline constexpr int kMaxMeasuredLinks = 2;
inline constexpr int kMaxFilesLookedFor = 16;

v1::LinkMeasurement ToProto(const LinkMeasurement& link);
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
