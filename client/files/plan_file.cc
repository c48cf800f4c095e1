#include "client/files/plan_file.h"

#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/files/whole_file.h"
#include "client/values/document.h"
#include "client/values/text.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/schedule/schedule.h"

namespace paceline {

namespace {

constexpr int kFormatVersion = 1;
constexpr char kKind[] = "paceline plan";
constexpr int64_t kMostLayers = 100'000;
constexpr int64_t kMostDevices = 10'000;

// --- fields of plans, for reading and for writing ---------------------------

using Rows = std::vector<std::vector<double>>;

// When writing, links go into the two lists; when reading, they come out.
void VisitLinks(JsonFields& fields, PlanProblem& problem) {
  std::vector<std::vector<LinkCost>>& links = problem.links;
  Rows bandwidths(links.size()), latencies(links.size());
  for (size_t r = 0; r < links.size(); ++r) {
    for (const LinkCost& link : links[r]) {
      bandwidths[r].push_back(link.bytes_per_second);
      latencies[r].push_back(link.latency_seconds);
    }
  }
  fields.Need("bytes_per_second", bandwidths, JsonBounds{.null_is = HUGE_VAL});
  fields.Need("latency_seconds", latencies);
  links.assign(bandwidths.size(), {});
  for (size_t r = 0; r < links.size(); ++r) {
    if (r >= latencies.size() || latencies[r].size() != bandwidths[r].size()) {
      fields.Fail("latency_seconds", "has another size than bytes_per_second");
      return;
    }
    for (size_t c = 0; c < bandwidths[r].size(); ++c) {
      links[r].push_back({bandwidths[r][c], latencies[r][c]});
    }
  }
}

void VisitProblem(JsonFields& fields, PlanProblem& problem) {
  fields.Need("layers", problem.layers, [](JsonFields& of, LayerCost& layer) {
    of.May("name", layer.name);
    of.Need("forward_seconds", layer.forward_seconds);
    of.Need("backward_seconds", layer.backward_seconds);
    of.Need("output_bytes", layer.output_bytes);
    of.Need("parameter_bytes", layer.parameter_bytes);
    of.May("borrowed_bytes", layer.borrowed_bytes);
    of.May("frozen_bytes", layer.frozen_bytes);
    of.May("decoded_bytes", layer.decoded_bytes);
    of.Need("kept_bytes", layer.kept_bytes);
  });
  if (problem.layers.size() > kMostLayers) {
    fields.Fail("layers", "has ", problem.layers.size(), " layers, at most ",
                kMostLayers);
  }
  fields.Need("devices", problem.devices, [](JsonFields& of, Device& device) {
    of.Need("name", device.name);
    of.Need("speed", device.speed);
    of.Need("layer_seconds", device.layer_seconds);
    of.Need("memory_bytes", device.memory_bytes);
    of.Need("machine", device.machine, JsonBounds{0, kMostDevices});
    of.Need("frame_seconds", device.frame_seconds);
    of.Need("frame_seconds_per_byte", device.frame_seconds_per_byte);
  });
  if (problem.devices.size() > kMostDevices) {
    fields.Fail("devices", "has ", problem.devices.size(), " devices, at most ",
                kMostDevices);
  }
  fields.Need("links", problem, VisitLinks);
  fields.Need("micro_batches", problem.micro_batches,
              JsonBounds{0, kMaxPlannedMicroBatches});
  fields.Need("training", problem.training);
  fields.Need("overlap", problem.overlap);
  fields.May("sync_overlaps", problem.sync_overlaps);
  fields.Need("micro_batches_per_sync", problem.micro_batches_per_sync,
              JsonBounds{0, kMaxPlannedMicroBatches});
  fields.Need("parameter_copies", problem.parameter_copies);
  fields.May("owner_copies", problem.owner_copies);
  fields.Need("reserved_bytes", problem.reserved_bytes);
  fields.Need("keeps_all", problem.keeps_all);
  fields.Need("stashes", problem.stashes);
  fields.May("version_copies", problem.version_copies);
  fields.May("same_versions", problem.same_versions);
  fields.May("splits", problem.splits);
  fields.May("segment_layers", problem.segment_layers,
             JsonBounds{0, kMostLayers});
  fields.May("input_bytes", problem.input_bytes);
  // Older files have no ties; FollowPlan says so where that matters.
  fields.May("ties", problem.ties, [](JsonFields& of, TieCost& tie) {
    of.Need("owner", tie.owner, JsonBounds{0, kMostLayers});
    of.Need("user", tie.user, JsonBounds{0, kMostLayers});
    of.Need("bytes", tie.bytes);
  });
  fields.Need("stages", problem.stages, JsonBounds{0, kMostLayers});
  fields.Need("replicas", problem.replicas);
  fields.Need("uneven_shares", problem.uneven_shares);
}

void CheckShare(JsonFields& fields, double cpu_share) {
  if (cpu_share > 0 && cpu_share <= 1) return;
  fields.Fail("cpu_share", "is ", cpu_share, ", need above 0, at most 1");
}

void VisitPlan(JsonFields& fields, PlanFile& plan) {
  fields.May("model", plan.model);
  fields.Need("micro_batch", plan.micro_batch);
  fields.Need("schedule", plan.schedule);
  fields.May("policy", plan.policy);
  fields.May("why", plan.why);
  fields.May("source", plan.source);
  fields.Need(
      "placement", plan.placement, [](JsonFields& of, PlacedStage& stage) {
        of.Need("first_layer", stage.layers.first, JsonBounds{0, kMostLayers});
        of.Need("last_layer", stage.layers.last, JsonBounds{0, kMostLayers});
        of.Need("devices", stage.devices, JsonBounds{0, kMostDevices});
        of.Need("shares", stage.shares);
      });
  fields.Need("problem", plan.problem, VisitProblem);
  if (plan.predicted.has_value()) {
    fields.Need("predicted", *plan.predicted,
                [](JsonFields& of, PredictedTimes& times) {
                  of.Need("assumed", times.assumed);
                  of.Need("low_factor", times.low_factor);
                  of.Need("high_factor", times.high_factor);
                  if (times.low_factor <= 1 && times.high_factor >= 1) return;
                  of.Fail("low_factor, high_factor", "are ", times.low_factor,
                          " and ", times.high_factor,
                          ", need one below 1 and one above");
                });
  }
  fields.May("facts", plan.facts, [](JsonFields& of, DeviceFacts& device) {
    of.Need("gate_seconds", device.gate_seconds);
    of.Need("cpu_share", device.cpu_share);
    of.Need("quota_period_seconds", device.quota_period_seconds);
    of.Need("forward_seconds", device.forward_seconds);
    of.Need("backward_seconds", device.backward_seconds);
    of.Need("update_seconds", device.update_seconds);
    CheckShare(of, device.cpu_share);
  });
}

// --- checks -----------------------------------------------------------------

void CheckFacts(const PlanFile& plan, JsonFields& root) {
  const size_t layers = plan.problem.layers.size();
  for (size_t d = 0; d < plan.facts.size(); ++d) {
    const DeviceFacts& device = plan.facts[d];
    for (const auto* seconds :
         {&device.forward_seconds, &device.backward_seconds,
          &device.update_seconds}) {
      if (seconds->size() == layers) continue;
      root.Fail(
          absl::StrCat("facts[", d,
                       "].forward_seconds, backward_seconds, update_seconds"),
          "one has ", seconds->size(), " layers, not ", layers);
    }
  }
  const size_t devices = plan.problem.devices.size();
  if (!plan.facts.empty() && plan.facts.size() != devices) {
    root.Fail("facts", "of ", plan.facts.size(), " devices, there are ",
              devices);
  }
}

absl::StatusOr<PlanFile> Read(const Document& value) {
  absl::Status status;
  PlanFile plan;
  JsonFields root(value, "", status);
  std::string kind;
  int version = 0;
  root.Need("kind", kind);
  root.Need("version", version, JsonBounds{1, kFormatVersion});
  if (status.ok() && kind != kKind) {
    root.Fail("kind", "is '", Printable(kind), "', not '", kKind, "'");
  }
  if (root.Has("predicted")) plan.predicted.emplace();
  VisitPlan(root, plan);
  PACELINE_RETURN_IF_ERROR(status);
  PACELINE_RETURN_IF_ERROR(
      CheckAmong("schedule: ", "schedule", plan.schedule, ScheduleNames()));
  if (const absl::Status problem = CheckProblem(plan.problem); !problem.ok()) {
    // A file without devices is wrong; a mesh without them is not ready.
    return InvalidArgument("problem: ", problem.message());
  }
  CheckFacts(plan, root);
  PACELINE_RETURN_IF_ERROR(status);
  const absl::Status placed =
      CheckPlacement(plan.problem, plan.placement, DeviceHolds::kSeveralStages);
  if (!placed.ok()) return InvalidArgument("placement: ", placed.message());
  return plan;
}

}  // namespace

std::string PlanFileText(PlanFile plan) {
  Document document;
  JsonFields root(document);
  document["version"] = kFormatVersion;
  document["kind"] = kKind;
  VisitPlan(root, plan);
  // One line: indented, the links of 1,000 devices are two million lines.
  return ToJson(document) + "\n";
}

absl::StatusOr<PlanFile> ParsePlanFile(const std::string& name,
                                       const std::string& text) {
  PACELINE_ASSIGN_OR_RETURN(const Document value, ParseJson(name, text));
  absl::StatusOr<PlanFile> plan = Read(value);
  if (!plan.ok()) {
    return InvalidArgument(name, ": ", plan.status().message(),
                           "; 'paceline plan --save FILE' writes plan files");
  }
  return plan;
}

absl::StatusOr<PlanFile> ReadPlanFile(const std::string& path) {
  PACELINE_ASSIGN_OR_RETURN(const std::string text,
                            ReadWholeFile(path, kMaxPlanFileBytes));
  return ParsePlanFile(path, text);
}

namespace {

// --- fields of profiles, for reading and for writing ------------------------

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
  fields.Need("micro_batch", profile.key.micro_batch,
              JsonBounds{1, kMostWhole});
  fields.May("dtype", profile.key.dtype);
  fields.May("threads", profile.key.threads, JsonBounds{1, 4096});
  fields.May("cpu_capability", profile.cpu_capability);
  fields.May("cpu_model", profile.cpu_model);
  fields.May("runs", profile.runs, JsonBounds{0, 1 << 30});
  fields.Need("layers", profile.layers,
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
  CheckShare(fields, profile.cpu_share);
  if (profile.layers.empty()) fields.Fail("layers", "there are none");
}

void VisitLink(JsonFields& fields, LinkMeasurement& link) {
  fields.Need("from", link.from);
  fields.Need("to", link.to);
  fields.Need("bytes_per_second", link.bytes_per_second);
  fields.May("latency_seconds", link.latency_seconds);
  fields.May("measured_unix_ms", link.measured_unix_ms);
  fields.May("send_cpu_seconds_per_byte", link.send_cpu_seconds_per_byte);
  fields.May("receive_cpu_seconds_per_byte", link.receive_cpu_seconds_per_byte);
  if (link.bytes_per_second <= 0) {
    fields.Fail("bytes_per_second", "is 0, need more");
  }
}

// --- checks -----------------------------------------------------------------

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
  root.Need("profiles", source.profiles, VisitProfile);
  root.May("links", source.links, VisitLink);
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
  root.Need("profiles", profiles, VisitProfile);
  root.Need("links", links, VisitLink);
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
      Joined(source.profiles, ", ",
             [](const auto& profile) { return profile.key.device; }));
  inputs.measured = true;
  return inputs;
}

}  // namespace paceline
