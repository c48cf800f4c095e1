#include "core/rpc/convert/measurement_convert.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/base/utf8.h"
#include "core/rpc/convert/job_convert.h"
#include "core/rpc/convert/member_convert.h"
#include "core/rpc/convert/mirror.h"
#include "core/rpc/convert/report_convert.h"
#include "core/rpc/status.h"

namespace paceline {
namespace {

// Bounds the names of layers, operations and processors, which are for people
// and come out of files.
constexpr size_t kMaxNameBytes = 1024;

absl::Status CheckDevice(const v1::DeviceProfile& proto) {
  if (proto.layers().empty() || proto.layers_size() > kMaxProfiledLayers) {
    return InvalidArgument("measurement: a profile of ", proto.layers_size(),
                           " layers, need 1 to ", kMaxProfiledLayers);
  }
  PACELINE_RETURN_IF_ERROR(CheckNumbers(proto));
  if (proto.cpu_share() == 0 || proto.micro_batch() < 1 ||
      proto.threads() < 1) {
    return InvalidArgument("measurement: cpu_share ", proto.cpu_share(),
                           ", micro_batch ", proto.micro_batch(), ", threads ",
                           proto.threads(), ", all must be above 0");
  }
  return absl::OkStatus();
}

}  // namespace

v1::DeviceProfile ToProto(const DeviceProfile& profile) {
  auto proto = Given<v1::DeviceProfile>(profile);
  proto.set_cpu_model(ToUtf8(profile.cpu_model, kMaxNameBytes));
  for (v1::LayerMeasurement& layer : *proto.mutable_layers()) {
    layer.set_name(ToUtf8(layer.name(), kMaxNameBytes));
    layer.set_kind(ToUtf8(layer.kind(), kMaxNameBytes));
  }
  return proto;
}

absl::StatusOr<DeviceProfile> FromProto(const v1::DeviceProfile& proto) {
  PACELINE_RETURN_IF_ERROR(CheckDevice(proto));
  return Taken<DeviceProfile>(proto);
}

v1::LinkMeasurement ToProto(const LinkMeasurement& link) {
  return Given<v1::LinkMeasurement>(link);
}

absl::StatusOr<LinkMeasurement> FromProto(const v1::LinkMeasurement& proto) {
  PACELINE_RETURN_IF_ERROR(CheckNumbers(proto));
  if (proto.bytes_per_second() == 0 || proto.from() == proto.to()) {
    return InvalidArgument("measurement: a link from ", proto.from(), " to ",
                           proto.to(), " of 0 bytes/s, or to itself");
  }
  auto link = Taken<LinkMeasurement>(proto);
  link.error = ToUtf8(link.error, kMaxStatusMessageBytes);
  return link;
}

absl::Status CheckMeasureOrder(const v1::MeasureOrder& order) {
  if (order.what_case() != v1::MeasureOrder::WHAT_NOT_SET) {
    return absl::OkStatus();
  }
  return InvalidArgument(
      "an order to measure that names neither layers nor a link nor files");
}

absl::Status CheckMeasurement(const v1::Measurement& measurement) {
  constexpr int32_t kLastCode =
      static_cast<int32_t>(absl::StatusCode::kUnauthenticated);
  if (measurement.error_code() < 0 || measurement.error_code() > kLastCode) {
    return InvalidArgument("measurement ", measurement.id(), ": no such code ",
                           measurement.error_code());
  }
  PACELINE_RETURN_IF_ERROR(
      CheckSize(absl::StrCat("measurement ", measurement.id(), ": links"),
                measurement.links_size(), kMaxMeasuredLinks));
  PACELINE_RETURN_IF_ERROR(
      CheckSize(absl::StrCat("measurement ", measurement.id(), ": files"),
                measurement.missing_size(), kMaxFilesLookedFor));
  PACELINE_RETURN_IF_ERROR(
      CheckSize(absl::StrCat("measurement ", measurement.id(), ": notes"),
                measurement.notes_size(), kMaxNotes));
  if (measurement.has_profile()) {
    PACELINE_RETURN_IF_ERROR(FromProto(measurement.profile()).status());
  }
  for (const v1::LinkMeasurement& link : measurement.links()) {
    PACELINE_RETURN_IF_ERROR(FromProto(link).status());
  }
  return absl::OkStatus();
}

absl::Status ErrorOf(const v1::Measurement& measurement) {
  return absl::Status(
      static_cast<absl::StatusCode>(measurement.error_code()),
      ToUtf8(measurement.error_message(), kMaxStatusMessageBytes));
}

}  // namespace paceline
