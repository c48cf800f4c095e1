#include "client/files/plan_file.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/files/whole_file.h"
#include "client/values/document.h"
#include "client/values/text.h"
#include "core/base/errors.h"
#include "core/schedule/schedule.h"

namespace paceline {

namespace {

constexpr int kFormatVersion = 1;
constexpr char kKind[] = "paceline plan";
constexpr int64_t kMostLayers = 100'000;
constexpr int64_t kMostDevices = 10'000;

// --- fields, for reading and for writing ------------------------------------

using Rows = std::vector<std::vector<double>>;

// When writing, `links` go into the two lists; when reading, they come out.
void VisitLinks(JsonFields& fields, std::vector<std::vector<LinkCost>>& links) {
  Rows bandwidths(links.size()), latencies(links.size());
  for (size_t r = 0; r < links.size(); ++r) {
    for (const LinkCost& link : links[r]) {
      bandwidths[r].push_back(link.bytes_per_second);
      latencies[r].push_back(link.latency_seconds);
    }
  }
  fields.Need("bytes_per_second", bandwidths, {.null_is = HUGE_VAL});
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
  fields.Each("layers", problem.layers, [](JsonFields& of, LayerCost& layer) {
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
  fields.Each("devices", problem.devices, [](JsonFields& of, Device& device) {
    of.Need("name", device.name);
    of.Need("speed", device.speed);
    of.Need("layer_seconds", device.layer_seconds);
    of.Need("memory_bytes", device.memory_bytes);
    of.Need("machine", device.machine, {0, kMostDevices});
    of.Need("frame_seconds", device.frame_seconds);
    of.Need("frame_seconds_per_byte", device.frame_seconds_per_byte);
  });
  fields.Object("links",
                [&](JsonFields& of) { VisitLinks(of, problem.links); });
  fields.Need("micro_batches", problem.micro_batches,
              {0, kMaxPlannedMicroBatches});
  fields.Need("training", problem.training);
  fields.Need("overlap", problem.overlap);
  fields.May("sync_overlaps", problem.sync_overlaps);
  fields.Need("micro_batches_per_sync", problem.micro_batches_per_sync,
              {0, kMaxPlannedMicroBatches});
  fields.Need("parameter_copies", problem.parameter_copies);
  fields.May("owner_copies", problem.owner_copies);
  fields.Need("reserved_bytes", problem.reserved_bytes);
  fields.Need("keeps_all", problem.keeps_all);
  fields.Need("stashes", problem.stashes);
  fields.May("version_copies", problem.version_copies);
  fields.May("same_versions", problem.same_versions);
  fields.May("splits", problem.splits);
  fields.May("segment_layers", problem.segment_layers, {0, kMostLayers});
  fields.May("input_bytes", problem.input_bytes);
  // Older files have no ties; FollowPlan says so where that matters.
  fields.OptionalEach("ties", problem.ties, [](JsonFields& of, TieCost& tie) {
    of.Need("owner", tie.owner, {0, kMostLayers});
    of.Need("user", tie.user, {0, kMostLayers});
    of.Need("bytes", tie.bytes);
  });
  fields.Need("stages", problem.stages, {0, kMostLayers});
  fields.Need("replicas", problem.replicas);
  fields.Need("uneven_shares", problem.uneven_shares);
}

void VisitPlan(JsonFields& fields, PlanFile& plan) {
  fields.May("model", plan.model);
  fields.Need("micro_batch", plan.micro_batch);
  fields.Need("schedule", plan.schedule);
  fields.May("policy", plan.policy);
  fields.May("why", plan.why);
  fields.May("source", plan.source);
  fields.Each("placement", plan.placement,
              [](JsonFields& of, PlacedStage& stage) {
                of.Need("first_layer", stage.layers.first, {0, kMostLayers});
                of.Need("last_layer", stage.layers.last, {0, kMostLayers});
                of.Need("devices", stage.devices, {0, kMostDevices});
                of.Need("shares", stage.shares);
              });
  fields.Object("problem",
                [&](JsonFields& of) { VisitProblem(of, plan.problem); });
  if (plan.predicted.has_value()) {
    fields.Object("predicted", [&](JsonFields& of) {
      of.Need("assumed", plan.predicted->assumed);
      of.Need("low_factor", plan.predicted->low_factor);
      of.Need("high_factor", plan.predicted->high_factor);
    });
  }
  fields.OptionalEach(
      "facts", plan.facts, [](JsonFields& of, DeviceFacts& device) {
        of.Need("gate_seconds", device.gate_seconds);
        of.Need("cpu_share", device.cpu_share);
        of.Need("quota_period_seconds", device.quota_period_seconds);
        of.Need("forward_seconds", device.forward_seconds);
        of.Need("backward_seconds", device.backward_seconds);
        of.Need("update_seconds", device.update_seconds);
      });
}

// --- checks -----------------------------------------------------------------

void CheckSizes(const PlanFile& plan, JsonFields& root) {
  const PlanProblem& problem = plan.problem;
  if (problem.layers.size() > kMostLayers) {
    root.Fail("problem.layers", "has ", problem.layers.size(),
              " layers, at most ", kMostLayers);
  }
  if (problem.devices.size() > kMostDevices) {
    root.Fail("problem.devices", "has ", problem.devices.size(),
              " devices, at most ", kMostDevices);
  }
  if (!plan.predicted.has_value()) return;
  const PredictedTimes& times = *plan.predicted;
  if (times.low_factor > 1 || times.high_factor < 1) {
    root.Fail("predicted.low_factor, high_factor", "are ", times.low_factor,
              " and ", times.high_factor, ", need one below 1 and one above");
  }
}

void CheckFacts(const PlanFile& plan, JsonFields& root) {
  const size_t layers = plan.problem.layers.size();
  for (size_t d = 0; d < plan.facts.size(); ++d) {
    const DeviceFacts& device = plan.facts[d];
    if (!(device.cpu_share > 0 && device.cpu_share <= 1)) {
      root.Fail(absl::StrCat("facts[", d, "].cpu_share"), "is ",
                device.cpu_share, ", need above 0, at most 1");
    }
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
  root.Need("version", version, {1, kFormatVersion});
  if (status.ok() && kind != kKind) {
    root.Fail("kind", "is '", Printable(kind), "', not '", kKind, "'");
  }
  if (root.Has("predicted")) plan.predicted.emplace();
  VisitPlan(root, plan);
  CheckSizes(plan, root);
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

absl::Status SavePlanFile(const std::string& path, PlanFile plan) {
  return WriteWholeFile(path, PlanFileText(std::move(plan)));
}

absl::StatusOr<PlanFile> ReadPlanFile(const std::string& path) {
  PACELINE_ASSIGN_OR_RETURN(const std::string text,
                            ReadWholeFile(path, kMaxPlanFileBytes));
  return ParsePlanFile(path, text);
}

}  // namespace paceline
