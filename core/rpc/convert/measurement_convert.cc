#include "core/rpc/convert/measurement_convert.h"

#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/base/utf8.h"
#include "core/rpc/convert/job_convert.h"
#include "core/rpc/convert/member_convert.h"
#include "core/rpc/convert/report_convert.h"
#include "core/rpc/status.h"

namespace paceline {
namespace {

// Bounds the names of layers, operations and processors, which are for people
// and come out of files.
constexpr size_t kMaxNameBytes = 1024;

absl::Status CheckMeasured(absl::string_view what, double value) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("measurement: ", what, " is ", value,
                   ", need a finite number that is not negative"));
}

v1::MeasuredSeconds ToProto(const MeasuredSeconds& seconds) {
  v1::MeasuredSeconds proto;
  proto.set_wall(seconds.wall);
  proto.set_spread(seconds.spread);
  proto.set_cpu(seconds.cpu);
  return proto;
}

absl::StatusOr<MeasuredSeconds> SecondsFromProto(
    const v1::MeasuredSeconds& proto) {
  PACELINE_RETURN_IF_ERROR(CheckMeasured("wall", proto.wall()));
  PACELINE_RETURN_IF_ERROR(CheckMeasured("spread", proto.spread()));
  PACELINE_RETURN_IF_ERROR(CheckMeasured("cpu", proto.cpu()));
  return MeasuredSeconds{proto.wall(), proto.spread(), proto.cpu()};
}

v1::LayerMeasurement ToProto(const LayerMeasurement& layer) {
  v1::LayerMeasurement proto;
  proto.set_name(ToUtf8(layer.name, kMaxNameBytes));
  proto.set_kind(ToUtf8(layer.kind, kMaxNameBytes));
  *proto.mutable_forward() = ToProto(layer.forward);
  *proto.mutable_backward() = ToProto(layer.backward);
  proto.set_update_seconds(layer.update_seconds);
  proto.set_flops(layer.flops);
  proto.set_output_bytes(layer.output_bytes);
  proto.set_parameter_bytes(layer.parameter_bytes);
  proto.set_kept_bytes(layer.kept_bytes);
  return proto;
}

absl::StatusOr<LayerMeasurement> LayerFromProto(
    const v1::LayerMeasurement& proto) {
  LayerMeasurement layer;
  layer.name = proto.name();
  layer.kind = proto.kind();
  PACELINE_ASSIGN_OR_RETURN(layer.forward, SecondsFromProto(proto.forward()));
  PACELINE_ASSIGN_OR_RETURN(layer.backward, SecondsFromProto(proto.backward()));
  PACELINE_RETURN_IF_ERROR(
      CheckMeasured("update_seconds", proto.update_seconds()));
  PACELINE_RETURN_IF_ERROR(CheckMeasured("flops", proto.flops()));
  PACELINE_RETURN_IF_ERROR(
      CheckMeasured("output_bytes", static_cast<double>(proto.output_bytes())));
  PACELINE_RETURN_IF_ERROR(CheckMeasured(
      "parameter_bytes", static_cast<double>(proto.parameter_bytes())));
  PACELINE_RETURN_IF_ERROR(
      CheckMeasured("kept_bytes", static_cast<double>(proto.kept_bytes())));
  layer.update_seconds = proto.update_seconds();
  layer.flops = proto.flops();
  layer.output_bytes = proto.output_bytes();
  layer.parameter_bytes = proto.parameter_bytes();
  layer.kept_bytes = proto.kept_bytes();
  return layer;
}

absl::Status CheckDevice(const v1::DeviceProfile& proto) {
  if (proto.layers().empty() || proto.layers_size() > kMaxProfiledLayers) {
    return absl::InvalidArgumentError(
        absl::StrCat("measurement: a profile of ", proto.layers_size(),
                     " layers, need 1 to ", kMaxProfiledLayers));
  }
  PACELINE_RETURN_IF_ERROR(
      CheckMeasured("frame_seconds", proto.frame_seconds()));
  PACELINE_RETURN_IF_ERROR(
      CheckMeasured("frame_seconds_per_byte", proto.frame_seconds_per_byte()));
  PACELINE_RETURN_IF_ERROR(CheckMeasured("gate_seconds", proto.gate_seconds()));
  PACELINE_RETURN_IF_ERROR(
      CheckMeasured("quota_period_seconds", proto.quota_period_seconds()));
  PACELINE_RETURN_IF_ERROR(CheckMeasured("cpu_share", proto.cpu_share()));
  if (proto.cpu_share() == 0 || proto.micro_batch() < 1 ||
      proto.threads() < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("measurement: cpu_share ", proto.cpu_share(),
                     ", micro_batch ", proto.micro_batch(), ", threads ",
                     proto.threads(), ", all must be above 0"));
  }
  return absl::OkStatus();
}

}  // namespace

v1::DeviceProfile ToProto(const DeviceProfile& profile) {
  v1::DeviceProfile proto;
  proto.set_model(profile.key.model);
  proto.set_micro_batch(profile.key.micro_batch);
  proto.set_dtype(profile.key.dtype);
  proto.set_threads(profile.key.threads);
  proto.set_device(profile.key.device);
  proto.set_cpu_capability(profile.cpu_capability);
  proto.set_cpu_model(ToUtf8(profile.cpu_model, kMaxNameBytes));
  for (const LayerMeasurement& layer : profile.layers) {
    *proto.add_layers() = ToProto(layer);
  }
  proto.set_runs(profile.runs);
  proto.set_frame_seconds(profile.frame_seconds);
  proto.set_frame_seconds_per_byte(profile.frame_seconds_per_byte);
  proto.set_gate_seconds(profile.gate_seconds);
  proto.set_cpu_share(profile.cpu_share);
  proto.set_quota_period_seconds(profile.quota_period_seconds);
  proto.set_measured_unix_ms(profile.measured_unix_ms);
  return proto;
}

absl::StatusOr<DeviceProfile> FromProto(const v1::DeviceProfile& proto) {
  PACELINE_RETURN_IF_ERROR(CheckDevice(proto));
  DeviceProfile profile;
  profile.key = {proto.model(), proto.micro_batch(), proto.dtype(),
                 proto.threads(), proto.device()};
  profile.cpu_capability = proto.cpu_capability();
  profile.cpu_model = proto.cpu_model();
  for (const v1::LayerMeasurement& layer : proto.layers()) {
    PACELINE_ASSIGN_OR_RETURN(profile.layers.emplace_back(),
                              LayerFromProto(layer));
  }
  profile.runs = proto.runs();
  profile.frame_seconds = proto.frame_seconds();
  profile.frame_seconds_per_byte = proto.frame_seconds_per_byte();
  profile.gate_seconds = proto.gate_seconds();
  profile.cpu_share = proto.cpu_share();
  profile.quota_period_seconds = proto.quota_period_seconds();
  profile.measured_unix_ms = proto.measured_unix_ms();
  return profile;
}

v1::LinkMeasurement ToProto(const LinkMeasurement& link) {
  v1::LinkMeasurement proto;
  proto.set_from(link.from);
  proto.set_to(link.to);
  proto.set_bytes_per_second(link.bytes_per_second);
  proto.set_latency_seconds(link.latency_seconds);
  proto.set_measured_unix_ms(link.measured_unix_ms);
  proto.set_send_cpu_seconds_per_byte(link.send_cpu_seconds_per_byte);
  proto.set_receive_cpu_seconds_per_byte(link.receive_cpu_seconds_per_byte);
  proto.set_error(link.error);
  return proto;
}

absl::StatusOr<LinkMeasurement> FromProto(const v1::LinkMeasurement& proto) {
  PACELINE_RETURN_IF_ERROR(
      CheckMeasured("bytes_per_second", proto.bytes_per_second()));
  PACELINE_RETURN_IF_ERROR(
      CheckMeasured("latency_seconds", proto.latency_seconds()));
  PACELINE_RETURN_IF_ERROR(CheckMeasured("send_cpu_seconds_per_byte",
                                         proto.send_cpu_seconds_per_byte()));
  PACELINE_RETURN_IF_ERROR(CheckMeasured("receive_cpu_seconds_per_byte",
                                         proto.receive_cpu_seconds_per_byte()));
  if (proto.bytes_per_second() == 0 || proto.from() == proto.to()) {
    return absl::InvalidArgumentError(
        absl::StrCat("measurement: a link from ", proto.from(), " to ",
                     proto.to(), " of 0 bytes/s, or to itself"));
  }
  return LinkMeasurement{proto.from(),
                         proto.to(),
                         proto.bytes_per_second(),
                         proto.latency_seconds(),
                         proto.measured_unix_ms(),
                         proto.send_cpu_seconds_per_byte(),
                         proto.receive_cpu_seconds_per_byte(),
                         ToUtf8(proto.error(), kMaxStatusMessageBytes)};
}

v1::MeasureOrder ToProto(const MeasureOrder& order) {
  v1::MeasureOrder proto;
  proto.set_id(order.id);
  if (order.layers.has_value()) {
    *proto.mutable_layers()->mutable_spec() = ToProto(*order.layers);
    proto.mutable_layers()->set_cpu_capability(order.cpu_capability);
  } else if (order.link.has_value()) {
    proto.mutable_link()->set_name(order.link->name);
    proto.mutable_link()->set_address(order.link->address);
  } else {
    proto.mutable_files()->mutable_paths()->Add(order.files.begin(),
                                                order.files.end());
    *proto.mutable_files()->mutable_inputs() = order.inputs;
    if (order.reader.has_value()) {
      *proto.mutable_files()->mutable_spec() = ToProto(*order.reader);
    }
  }
  return proto;
}

absl::StatusOr<MeasureOrder> FromProto(const v1::MeasureOrder& proto) {
  MeasureOrder order;
  order.id = proto.id();
  switch (proto.what_case()) {
    case v1::MeasureOrder::kLayers:
      order.layers = FromProto(proto.layers().spec());
      order.cpu_capability = proto.layers().cpu_capability();
      return order;
    case v1::MeasureOrder::kLink:
      order.link = LinkTarget{proto.link().name(), proto.link().address()};
      return order;
    case v1::MeasureOrder::kFiles:
      order.files.assign(proto.files().paths().begin(),
                         proto.files().paths().end());
      order.inputs = proto.files().inputs();
      if (proto.files().has_spec()) {
        order.reader = FromProto(proto.files().spec());
      }
      return order;
    case v1::MeasureOrder::WHAT_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "an order to measure that names neither layers nor a link nor files");
}

absl::Status CheckMeasurement(const v1::Measurement& measurement) {
  constexpr int32_t kLastCode =
      static_cast<int32_t>(absl::StatusCode::kUnauthenticated);
  if (measurement.error_code() < 0 || measurement.error_code() > kLastCode) {
    return absl::InvalidArgumentError(
        absl::StrCat("measurement ", measurement.id(), ": no such code ",
                     measurement.error_code()));
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
