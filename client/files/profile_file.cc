#include "client/files/profile_file.h"

#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/files/whole_file.h"
#include "client/values/text.h"
#include "core/base/errors.h"

namespace paceline {

namespace {

// --- fields, for reading and for writing ------------------------------------

void VisitSeconds(JsonFields& fields, const std::string& direction,
                  MeasuredSeconds& seconds) {
  const auto key = [&](const char* end) { return direction + end; };
  fields.Need(key("_seconds").c_str(), seconds.wall);
  fields.May(key("_spread_seconds").c_str(), seconds.spread);
  // A profile that a person writes has one time.
  if (fields.reads()) seconds.cpu = seconds.wall;
  fields.May(key("_cpu_seconds").c_str(), seconds.cpu);
}

void VisitProfile(JsonFields& fields, DeviceProfile& profile) {
  fields.Need("device", profile.key.device);
  fields.Need("model", profile.key.model);
  fields.Need("micro_batch", profile.key.micro_batch, {1, kMostWhole});
  fields.May("dtype", profile.key.dtype);
  fields.May("threads", profile.key.threads, {1, 4096});
  fields.May("cpu_capability", profile.cpu_capability);
  fields.May("cpu_model", profile.cpu_model);
  fields.May("runs", profile.runs, {0, 1 << 30});
  fields.Each("layers", profile.layers,
              [](JsonFields& of, LayerMeasurement& layer) {
                of.May("name", layer.name);
                of.May("kind", layer.kind);
                VisitSeconds(of, "forward", layer.forward);
                VisitSeconds(of, "backward", layer.backward);
                of.May("update_seconds", layer.update_seconds);
                of.May("flops", layer.flops);
                of.Need("output_bytes", layer.output_bytes);
                of.Need("parameter_bytes", layer.parameter_bytes);
                of.Need("kept_bytes", layer.kept_bytes);
              });
  fields.May("frame_seconds", profile.frame_seconds);
  fields.May("frame_seconds_per_byte", profile.frame_seconds_per_byte);
  fields.May("gate_seconds", profile.gate_seconds);
  fields.May("cpu_share", profile.cpu_share);
  fields.May("quota_period_seconds", profile.quota_period_seconds);
  fields.May("measured_unix_ms", profile.measured_unix_ms);
}

void VisitLink(JsonFields& fields, LinkMeasurement& link) {
  fields.Need("from", link.from);
  fields.Need("to", link.to);
  fields.Need("bytes_per_second", link.bytes_per_second);
  fields.May("latency_seconds", link.latency_seconds);
  fields.May("measured_unix_ms", link.measured_unix_ms);
  fields.May("send_cpu_seconds_per_byte", link.send_cpu_seconds_per_byte);
  fields.May("receive_cpu_seconds_per_byte", link.receive_cpu_seconds_per_byte);
}

// --- checks -----------------------------------------------------------------

void ReadProfile(JsonFields& fields, DeviceProfile& profile) {
  VisitProfile(fields, profile);
  if (!(profile.cpu_share > 0 && profile.cpu_share <= 1)) {
    fields.Fail("cpu_share", "is ", profile.cpu_share,
                ", need above 0, at most 1");
  }
  if (profile.layers.empty()) fields.Fail("layers", "there are none");
}

void ReadLink(JsonFields& fields, LinkMeasurement& link) {
  VisitLink(fields, link);
  if (link.bytes_per_second <= 0) {
    fields.Fail("bytes_per_second", "is 0, need more");
  }
}

// Layers of two profiles mean the same.
bool AreAlike(const DeviceProfile& a, const DeviceProfile& b) {
  return a.key.model == b.key.model && a.key.micro_batch == b.key.micro_batch &&
         a.layers.size() == b.layers.size();
}

void CheckAlike(JsonFields& root, const std::vector<DeviceProfile>& profiles) {
  std::set<std::string> devices;
  for (const DeviceProfile& profile : profiles) {
    if (!devices.insert(profile.key.device).second) {
      root.Fail("profiles", "device ", Printable(profile.key.device),
                " has two: keep one");
    }
    if (!AreAlike(profile, profiles.front())) {
      root.Fail("profiles", "of ", Printable(profiles.front().key.model),
                " in micro-batches of ", profiles.front().key.micro_batch,
                " and of ", Printable(profile.key.model), " in those of ",
                profile.key.micro_batch, ": a plan is made from one of them");
    }
  }
}

absl::StatusOr<ProfileSource> ReadProfiles(const Document& value) {
  absl::Status status;
  ProfileSource source;
  JsonFields root(value, "", status);
  root.Each("profiles", source.profiles, ReadProfile);
  root.OptionalEach("links", source.links, ReadLink);
  if (source.profiles.empty()) root.Fail("profiles", "there are none");
  CheckAlike(root, source.profiles);
  PACELINE_RETURN_IF_ERROR(status);
  return source;
}

absl::StatusOr<ProfileSource> Parse(const std::string& name,
                                    const std::string& text) {
  ProfileSource source;
  if (!absl::StartsWith(absl::StripLeadingAsciiWhitespace(text), "{")) {
    PACELINE_ASSIGN_OR_RETURN(source.graph, ParseGraphProfile(text));
    return source;
  }
  PACELINE_ASSIGN_OR_RETURN(const Document value, ParseJson(name, text));
  if (!value.contains("problem")) return ReadProfiles(value);
  PACELINE_ASSIGN_OR_RETURN(source.plan, ParsePlanFile(name, text));
  return source;
}

}  // namespace

Document ProfilesDocument(std::vector<DeviceProfile> profiles,
                          std::vector<LinkMeasurement> links) {
  Document document;
  JsonFields root(document);
  root.Each("profiles", profiles, VisitProfile);
  root.Each("links", links, VisitLink);
  return document;
}

absl::StatusOr<ProfileSource> ParseProfileFile(const std::string& name,
                                               const std::string& text) {
  absl::StatusOr<ProfileSource> source = Parse(name, text);
  if (!source.ok()) {
    const absl::string_view why = source.status().message();
    return InvalidArgument(absl::StartsWith(why, name)
                               ? std::string(why)
                               : absl::StrCat(name, ": ", why));
  }
  source->name = name;
  return source;
}

absl::StatusOr<ProfileSource> ReadProfileFile(const std::string& path) {
  PACELINE_ASSIGN_OR_RETURN(const std::string text,
                            ReadWholeFile(path, kMaxPlanFileBytes));
  return ParseProfileFile(path, text);
}

namespace {

void AddDevice(const DeviceProfile& profile,
               const std::vector<LinkMeasurement>& links, PlanInputs& inputs) {
  Device& device = inputs.problem.devices.emplace_back();
  DeviceFacts& facts = inputs.facts.emplace_back();
  device.name = profile.key.device;
  device.machine = static_cast<int>(inputs.problem.devices.size()) - 1;
  UseProfile(profile, links, device, facts);
  for (size_t i = 0; i < profile.layers.size(); ++i) {
    device.layer_seconds.push_back(
        (facts.forward_seconds[i] + facts.backward_seconds[i]) /
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
        return InvalidArgument(
            "links: none from ", Printable(from.name), " to ",
            Printable(to.name),
            ": measure with 'paceline profile --links', or give --machines "
            "and --bandwidth");
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
