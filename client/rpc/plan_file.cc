#include "client/rpc/plan_file.h"

#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/document.h"
#include "client/files.h"
#include "client/rpc/json_fields.h"
#include "client/text.h"
#include "core/base/status_macros.h"
#include "core/schedule/schedule.h"

namespace paceline {
namespace {

using nlohmann::json;

constexpr int kVersion = 1;
constexpr char kKind[] = "paceline plan";
constexpr int64_t kMostLayers = 100'000;
constexpr int64_t kMostDevices = 10'000;

// --- writing ----------------------------------------------------------------

Document Numbers(const std::vector<double>& numbers) {
  Document::List list;
  for (const double number : numbers) list.emplace_back(number);
  return list;
}

Document LayersDocument(const std::vector<LayerCost>& layers) {
  Document::List list;
  for (const LayerCost& layer : layers) {
    list.push_back(Document::Map{{"name", layer.name},
                                 {"forward_seconds", layer.forward_seconds},
                                 {"backward_seconds", layer.backward_seconds},
                                 {"output_bytes", layer.output_bytes},
                                 {"parameter_bytes", layer.parameter_bytes},
                                 {"borrowed_bytes", layer.borrowed_bytes},
                                 {"kept_bytes", layer.kept_bytes}});
  }
  return list;
}

Document DevicesDocument(const std::vector<Device>& devices) {
  Document::List list;
  for (const Device& device : devices) {
    list.push_back(Document::Map{
        {"name", device.name},
        {"speed", device.speed},
        {"layer_seconds", Numbers(device.layer_seconds)},
        {"memory_bytes", device.memory_bytes},
        {"machine", device.machine},
        {"frame_seconds", device.frame_seconds},
        {"frame_seconds_per_byte", device.frame_seconds_per_byte}});
  }
  return list;
}

Document LinksDocument(const std::vector<std::vector<LinkCost>>& links) {
  Document::List bandwidths, latencies;
  for (const std::vector<LinkCost>& row : links) {
    Document::List bandwidth, latency;
    for (const LinkCost& link : row) {
      // Infinity becomes null.
      bandwidth.emplace_back(link.bytes_per_second);
      latency.emplace_back(link.latency_seconds);
    }
    bandwidths.emplace_back(std::move(bandwidth));
    latencies.emplace_back(std::move(latency));
  }
  return Document::Map{{"bytes_per_second", std::move(bandwidths)},
                       {"latency_seconds", std::move(latencies)}};
}

Document TiesDocument(const std::vector<TieCost>& ties) {
  Document::List list;
  for (const TieCost& tie : ties) {
    list.push_back(Document::Map{
        {"owner", tie.owner}, {"user", tie.user}, {"bytes", tie.bytes}});
  }
  return list;
}

Document ProblemDocument(const PlanProblem& problem) {
  return Document::Map{
      {"layers", LayersDocument(problem.layers)},
      {"devices", DevicesDocument(problem.devices)},
      {"links", LinksDocument(problem.links)},
      {"micro_batches", problem.micro_batches},
      {"training", Document(problem.training)},
      {"overlap", Document(problem.overlap)},
      {"micro_batches_per_sync", problem.micro_batches_per_sync},
      {"parameter_copies", problem.parameter_copies},
      {"owner_copies", problem.owner_copies},
      {"reserved_bytes", problem.reserved_bytes},
      {"keeps_all", Document(problem.keeps_all)},
      {"stashes", Document(problem.stashes)},
      {"splits", Document(problem.splits)},
      {"ties", TiesDocument(problem.ties)},
      {"stages", problem.stages},
      {"replicas", Document(problem.replicas)},
      {"uneven_shares", Document(problem.uneven_shares)}};
}

Document PlacementDocument(const Placement& placement) {
  Document::List list;
  for (const PlacedStage& stage : placement) {
    Document::List devices;
    for (const int device : stage.devices) devices.emplace_back(device);
    list.push_back(Document::Map{{"first_layer", stage.layers.first},
                                 {"last_layer", stage.layers.last},
                                 {"devices", std::move(devices)},
                                 {"shares", Numbers(stage.shares)}});
  }
  return list;
}

Document FactsDocument(const std::vector<DeviceFacts>& facts) {
  Document::List list;
  for (const DeviceFacts& device : facts) {
    list.push_back(
        Document::Map{{"gate_seconds", device.gate_seconds},
                      {"cpu_share", device.cpu_share},
                      {"quota_period_seconds", device.quota_period_seconds},
                      {"forward_seconds", Numbers(device.forward_seconds)},
                      {"backward_seconds", Numbers(device.backward_seconds)},
                      {"update_seconds", Numbers(device.update_seconds)}});
  }
  return list;
}

// --- reading ----------------------------------------------------------------

void ReadLayers(JsonFields& problem, std::vector<LayerCost>& layers) {
  problem.ForEach("layers", [&](JsonFields& fields) {
    LayerCost& layer = layers.emplace_back();
    fields.OptionalText("name", layer.name);
    fields.Amount("forward_seconds", layer.forward_seconds);
    fields.Amount("backward_seconds", layer.backward_seconds);
    fields.Amount("output_bytes", layer.output_bytes);
    fields.Amount("parameter_bytes", layer.parameter_bytes);
    fields.OptionalAmount("borrowed_bytes", layer.borrowed_bytes);
    fields.Amount("kept_bytes", layer.kept_bytes);
  });
  if (layers.size() > kMostLayers) {
    problem.Fail("layers", absl::StrCat("has ", layers.size(),
                                        " layers, at most ", kMostLayers));
  }
}

void ReadDevices(JsonFields& problem, std::vector<Device>& devices) {
  problem.ForEach("devices", [&](JsonFields& fields) {
    Device& device = devices.emplace_back();
    fields.Text("name", device.name);
    fields.Amount("speed", device.speed);
    fields.Amounts("layer_seconds", device.layer_seconds);
    fields.Amount("memory_bytes", device.memory_bytes);
    fields.Whole("machine", 0, kMostDevices, device.machine);
    fields.Amount("frame_seconds", device.frame_seconds);
    fields.Amount("frame_seconds_per_byte", device.frame_seconds_per_byte);
  });
  if (devices.size() > kMostDevices) {
    problem.Fail("devices", absl::StrCat("has ", devices.size(),
                                         " devices, at most ", kMostDevices));
  }
}

// Row `row` of the matrix under `key`; null (JSON's nearest to infinity) reads
// as `null_is`, NaN when it may not stand there.
void ReadMatrix(JsonFields& links, const char* key, double null_is,
                std::vector<std::vector<double>>& rows) {
  const json* const matrix = links.List(key);
  for (size_t r = 0; matrix != nullptr && r < matrix->size(); ++r) {
    const json& row = (*matrix)[r];
    std::vector<double>& into = rows.emplace_back();
    if (!row.is_array()) {
      links.Fail(absl::StrCat(key, "[", r, "]"), "expected a list");
      return;
    }
    for (size_t c = 0; c < row.size(); ++c) {
      into.push_back(row[c].is_number() ? row[c].get<double>()
                     : row[c].is_null() ? null_is
                                        : NAN);
      if (std::isnan(into.back())) {
        links.Fail(absl::StrCat(key, "[", r, "][", c, "]"),
                   "expected a number");
        return;
      }
    }
  }
}

void ReadLinks(JsonFields& problem, std::vector<std::vector<LinkCost>>& links) {
  JsonFields fields = problem.Object("links");
  std::vector<std::vector<double>> bandwidths, latencies;
  ReadMatrix(fields, "bytes_per_second",
             std::numeric_limits<double>::infinity(), bandwidths);
  ReadMatrix(fields, "latency_seconds", NAN, latencies);
  for (size_t r = 0; r < bandwidths.size(); ++r) {
    std::vector<LinkCost>& row = links.emplace_back();
    if (r >= latencies.size() || latencies[r].size() != bandwidths[r].size()) {
      fields.Fail("latency_seconds", "has another size than bytes_per_second");
      return;
    }
    for (size_t c = 0; c < bandwidths[r].size(); ++c) {
      row.push_back({bandwidths[r][c], latencies[r][c]});
    }
  }
}

// Files of old have none; FollowPlan says so where that makes a difference.
void ReadTies(JsonFields& problem, std::vector<TieCost>& ties) {
  if (!problem.Has("ties")) return;
  problem.ForEach("ties", [&](JsonFields& fields) {
    TieCost& tie = ties.emplace_back();
    fields.Whole("owner", 0, kMostLayers, tie.owner);
    fields.Whole("user", 0, kMostLayers, tie.user);
    fields.Amount("bytes", tie.bytes);
  });
}

void ReadPredicted(JsonFields& root, std::optional<PredictedTimes>& predicted) {
  if (!root.Has("predicted")) return;
  JsonFields fields = root.Object("predicted");
  PredictedTimes& times = predicted.emplace();
  fields.Flag("assumed", times.assumed);
  fields.Amount("low_factor", times.low_factor);
  fields.Amount("high_factor", times.high_factor);
  if (times.low_factor > 1 || times.high_factor < 1) {
    fields.Fail(
        "low_factor, high_factor",
        absl::StrCat("are ", times.low_factor, " and ", times.high_factor,
                     ", need one below 1 and one "
                     "above"));
  }
}

void ReadProblem(JsonFields fields, PlanProblem& problem) {
  ReadLayers(fields, problem.layers);
  ReadDevices(fields, problem.devices);
  ReadLinks(fields, problem.links);
  fields.Whole("micro_batches", 0, kMaxPlannedMicroBatches,
               problem.micro_batches);
  fields.Flag("training", problem.training);
  fields.Flag("overlap", problem.overlap);
  fields.Whole("micro_batches_per_sync", 0, kMaxPlannedMicroBatches,
               problem.micro_batches_per_sync);
  fields.Amount("parameter_copies", problem.parameter_copies);
  fields.OptionalAmount("owner_copies", problem.owner_copies);
  fields.Amount("reserved_bytes", problem.reserved_bytes);
  fields.Flag("keeps_all", problem.keeps_all);
  fields.Flag("stashes", problem.stashes);
  if (fields.Has("splits")) fields.Flag("splits", problem.splits);
  ReadTies(fields, problem.ties);
  fields.Whole("stages", 0, kMostLayers, problem.stages);
  fields.Flag("replicas", problem.replicas);
  fields.Flag("uneven_shares", problem.uneven_shares);
}

void ReadPlacement(JsonFields& root, Placement& placement) {
  root.ForEach("placement", [&](JsonFields& fields) {
    PlacedStage& stage = placement.emplace_back();
    fields.Whole("first_layer", 0, kMostLayers, stage.layers.first);
    fields.Whole("last_layer", 0, kMostLayers, stage.layers.last);
    fields.Amounts("shares", stage.shares);
    const json* const devices = fields.List("devices");
    for (size_t i = 0; devices != nullptr && i < devices->size(); ++i) {
      const json& device = (*devices)[i];
      if (!device.is_number_integer() || device < 0 || device > kMostDevices) {
        fields.Fail(absl::StrCat("devices[", i, "]"),
                    "expected the number of a device, from 0");
        return;
      }
      stage.devices.push_back(device.get<int>());
    }
  });
}

void ReadFacts(JsonFields& root, const PlanProblem& problem,
               std::vector<DeviceFacts>& facts) {
  if (!root.Has("facts")) return;
  const size_t layers = problem.layers.size();
  root.ForEach("facts", [&](JsonFields& fields) {
    DeviceFacts& device = facts.emplace_back();
    fields.Amount("gate_seconds", device.gate_seconds);
    fields.Amount("cpu_share", device.cpu_share);
    fields.Amount("quota_period_seconds", device.quota_period_seconds);
    fields.Amounts("forward_seconds", device.forward_seconds);
    fields.Amounts("backward_seconds", device.backward_seconds);
    fields.Amounts("update_seconds", device.update_seconds);
    if (!(device.cpu_share > 0 && device.cpu_share <= 1)) {
      fields.Fail("cpu_share", absl::StrCat("is ", device.cpu_share,
                                            ", need above 0, at most 1"));
    }
    for (const auto* seconds :
         {&device.forward_seconds, &device.backward_seconds,
          &device.update_seconds}) {
      if (seconds->size() == layers) continue;
      fields.Fail(
          "forward_seconds, backward_seconds, update_seconds",
          absl::StrCat("one has ", seconds->size(), " layers, not ", layers));
    }
  });
  if (!facts.empty() && facts.size() != problem.devices.size()) {
    root.Fail("facts", absl::StrCat("of ", facts.size(), " devices, there are ",
                                    problem.devices.size()));
  }
}

absl::Status CheckSchedule(const std::string& schedule) {
  for (const std::string& name : ScheduleNames()) {
    if (schedule == name) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("schedule: no schedule '", Printable(schedule),
                   "'; there are ", absl::StrJoin(ScheduleNames(), ", ")));
}

absl::StatusOr<PlanFile> Read(const json& value) {
  absl::Status status;
  PlanFile plan;
  JsonFields root(value, "", status);
  std::string kind;
  int version = 0;
  root.Text("kind", kind);
  root.Whole("version", 1, kVersion, version);
  if (status.ok() && kind != kKind) {
    root.Fail("kind",
              absl::StrCat("is '", Printable(kind), "', not '", kKind, "'"));
  }
  root.OptionalText("model", plan.model);
  root.Whole("micro_batch", 0, std::numeric_limits<int64_t>::max(),
             plan.micro_batch);
  root.Text("schedule", plan.schedule);
  root.OptionalText("policy", plan.policy);
  root.OptionalText("why", plan.why);
  root.OptionalText("source", plan.source);
  ReadPredicted(root, plan.predicted);
  ReadProblem(root.Object("problem"), plan.problem);
  ReadPlacement(root, plan.placement);
  PACELINE_RETURN_IF_ERROR(status);
  PACELINE_RETURN_IF_ERROR(CheckSchedule(plan.schedule));
  if (const absl::Status problem = CheckProblem(plan.problem); !problem.ok()) {
    // A file without devices is wrong; a mesh without them is not ready.
    return absl::InvalidArgumentError(
        absl::StrCat("problem: ", problem.message()));
  }
  ReadFacts(root, plan.problem, plan.facts);
  PACELINE_RETURN_IF_ERROR(status);
  const absl::Status placed =
      CheckPlacement(plan.problem, plan.placement, DeviceHolds::kSeveralStages);
  if (!placed.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("placement: ", placed.message()));
  }
  return plan;
}

}  // namespace

std::string PlanFileText(const PlanFile& plan) {
  Document::Map map = {{"version", kVersion},
                       {"kind", kKind},
                       {"model", plan.model},
                       {"micro_batch", plan.micro_batch},
                       {"schedule", plan.schedule},
                       {"policy", plan.policy},
                       {"why", plan.why},
                       {"source", plan.source},
                       {"placement", PlacementDocument(plan.placement)},
                       {"problem", ProblemDocument(plan.problem)}};
  if (plan.predicted.has_value()) {
    map.emplace_back(
        "predicted",
        Document::Map{{"assumed", Document(plan.predicted->assumed)},
                      {"low_factor", plan.predicted->low_factor},
                      {"high_factor", plan.predicted->high_factor}});
  }
  if (!plan.facts.empty()) {
    map.emplace_back("facts", FactsDocument(plan.facts));
  }
  // One line: indented, the links of 1,000 devices are two million lines.
  return Document(std::move(map)).ToJson() + "\n";
}

absl::StatusOr<PlanFile> ParsePlanFile(const std::string& name,
                                       const std::string& text) {
  PACELINE_ASSIGN_OR_RETURN(const json value, ParseJson(name, text));
  absl::StatusOr<PlanFile> plan = Read(value);
  if (!plan.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", plan.status().message(),
                     "; 'paceline plan --save FILE' writes plan files"));
  }
  return plan;
}

absl::Status PlanFileSink::Save(const PlanFile& plan) {
  return WriteWholeFile(path_, PlanFileText(plan));
}

absl::StatusOr<PlanFile> ReadPlanFile(const std::string& path) {
  PACELINE_ASSIGN_OR_RETURN(const std::string text,
                            ReadWholeFile(path, kMaxPlanFileBytes));
  return ParsePlanFile(path, text);
}

}  // namespace paceline
