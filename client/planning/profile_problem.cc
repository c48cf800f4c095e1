#include "client/planning/profile_problem.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/text.h"
#include "core/base/status_macros.h"

namespace paceline {
namespace {

// CPU time at full speed: where a quota stops a thread, wall time says more of
// the quota than of the layer.
double SecondsOf(const MeasuredSeconds& seconds, const DeviceProfile& profile) {
  return profile.cpu_share < 1 ? seconds.cpu : seconds.wall;
}

void AddDevice(const DeviceProfile& profile,
               const std::vector<LinkMeasurement>& links, PlanInputs& inputs) {
  Device& device = inputs.problem.devices.emplace_back();
  DeviceFacts& facts = inputs.facts.emplace_back();
  device.name = profile.key.device;
  device.machine = static_cast<int>(inputs.problem.devices.size()) - 1;
  device.frame_seconds = profile.frame_seconds / profile.cpu_share;
  device.frame_seconds_per_byte =
      FrameSecondsPerByte(profile, links) / profile.cpu_share;
  facts.gate_seconds = profile.gate_seconds;
  facts.cpu_share = profile.cpu_share;
  facts.quota_period_seconds = profile.quota_period_seconds;
  for (const LayerMeasurement& layer : profile.layers) {
    facts.forward_seconds.push_back(SecondsOf(layer.forward, profile));
    facts.backward_seconds.push_back(SecondsOf(layer.backward, profile));
    facts.update_seconds.push_back(layer.update_seconds);
    device.layer_seconds.push_back(
        (facts.forward_seconds.back() + facts.backward_seconds.back()) /
        profile.cpu_share);
  }
}

absl::Status FillLinks(const ProfileSource& source, PlanProblem& problem) {
  std::map<std::pair<std::string, std::string>, LinkCost> known;
  for (const LinkMeasurement& link : source.links) {
    known[{link.from, link.to}] = {link.bytes_per_second, link.latency_seconds};
  }
  for (const Device& from : problem.devices) {
    std::vector<LinkCost>& row = problem.links.emplace_back();
    for (const Device& to : problem.devices) {
      const auto found = known.find({from.name, to.name});
      if (found == known.end() && from.name != to.name) {
        return absl::InvalidArgumentError(absl::StrCat(
            "links: none from ", Printable(from.name), " to ",
            Printable(to.name),
            ": measure with 'paceline profile --links', or give --machines "
            "and --bandwidth"));
      }
      row.push_back(found == known.end() ? LinkCost() : found->second);
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<LayerCost> LayersOf(const DeviceProfile& profile) {
  std::vector<LayerCost> layers;
  for (const LayerMeasurement& layer : profile.layers) {
    layers.push_back(
        {.name = layer.name,
         .forward_seconds =
             SecondsOf(layer.forward, profile) / profile.cpu_share,
         .backward_seconds =
             SecondsOf(layer.backward, profile) / profile.cpu_share,
         .output_bytes = static_cast<double>(layer.output_bytes),
         .parameter_bytes = static_cast<double>(layer.parameter_bytes),
         .kept_bytes = static_cast<double>(layer.kept_bytes)});
  }
  return layers;
}

absl::StatusOr<PlanInputs> InputsOfProfiles(const ProfileSource& source) {
  PlanInputs inputs;
  inputs.problem.layers = LayersOf(source.profiles.front());
  for (const DeviceProfile& profile : source.profiles) {
    AddDevice(profile, source.links, inputs);
  }
  PACELINE_RETURN_IF_ERROR(FillLinks(source, inputs.problem));
  inputs.source = absl::StrCat(
      "layer times measured on ",
      absl::StrJoin(source.profiles, ", ",
                    [](std::string* out, const DeviceProfile& profile) {
                      absl::StrAppend(out, profile.key.device);
                    }));
  inputs.measured = true;
  return inputs;
}

}  // namespace paceline
