#include "client/values/plan_options.h"

#include "client/values/text.h"
#include "core/base/errors.h"

namespace paceline {

absl::Status Refuse(const GivenOptions& given, absl::string_view why) {
  for (const auto& [name, is_given] : given) {
    if (is_given) return InvalidArgument(name, " ", why);
  }
  return absl::OkStatus();
}

namespace {

absl::Status CheckSource(const PlanOptions& options) {
  const int sources = !options.model.empty() + !options.job_file.empty() +
                      !options.profile.empty();
  if (sources == 1) return absl::OkStatus();
  return InvalidArgument(
      sources == 0 ? "nothing to plan" : "more than one thing to plan",
      ": give one of --model MODEL, -f JOB.yaml and --profile FILE");
}

absl::Status CheckMachineOptions(const PlanOptions& options) {
  const GivenOptions of_machines = {{"--machines", !options.machines.empty()},
                                    {"--bandwidth", !options.bandwidth.empty()},
                                    {"--latency", !options.latency.empty()},
                                    {"--speed", !options.speed.empty()}};
  if (options.profile.empty()) {
    return Refuse(of_machines,
                  "goes with --profile: with --model and -f the coordinator's "
                  "workers are planned for");
  }
  PACELINE_RETURN_IF_ERROR(
      Refuse({{"--batch", options.batch.has_value()},
              {"--set", !options.sets.empty()}},
             "changes a job; --profile FILE has its layers from a file"));
  if (options.machines.empty()) {
    return Refuse(of_machines, "needs --machines, as in --machines 4x4");
  }
  if (options.bandwidth.empty()) {
    return InvalidArgument(
        "--machines needs --bandwidth in bytes a second, one number a level, "
        "the inner one first, as in --machines 4x4 --bandwidth 1e10,1.25e9");
  }
  return absl::OkStatus();
}

absl::Status CheckCostModel(const PlanOptions& options) {
  if (options.cost_model != "pipedream") {
    return Refuse({{"--count-transfers", options.count_transfers}},
                  "goes with --cost-model pipedream; ours always counts them");
  }
  if (options.machines.empty()) {
    return InvalidArgument(
        "--cost-model pipedream needs --profile FILE, --machines and "
        "--bandwidth: it knows only devices that are all alike");
  }
  return Refuse(
      {{"--policy", options.policy.has_value()},
       {"--compare", options.compare},
       {"--micro-batches", options.micro_batches.value_or(0) != 0},
       {"--inference", options.inference},
       {"--stages", options.stages.has_value()},
       {"--replicas", options.replicas},
       {"--even-shares", options.even_shares},
       {"--no-overlap", options.no_overlap},
       {"--schedule", options.schedule.has_value()},
       {"--reserve", options.reserve_bytes != 0},
       {"--latency", !options.latency.empty()},
       {"--speed", !options.speed.empty()},
       {"--save", !options.save.empty()}},
      "goes with --cost-model paceline: that of PipeDream is a formula for "
      "endless training on devices that are all alike");
}

}  // namespace

absl::Status CheckPlanOptions(const PlanOptions& options) {
  PACELINE_RETURN_IF_ERROR(CheckSource(options));
  if (options.batch.has_value() && options.model.empty()) {
    return InvalidArgument(
        "--batch goes with --model; a job file has train.micro_batch, as in "
        "--set train.micro_batch=16");
  }
  PACELINE_RETURN_IF_ERROR(CheckMachineOptions(options));
  PACELINE_RETURN_IF_ERROR(CheckCostModel(options));
  if (options.replicas && options.no_replicas) {
    return InvalidArgument(
        "--replicas and --no-replicas: leave one of them out");
  }
  if (options.compare && options.policy.has_value()) {
    return InvalidArgument("--compare asks all policies: leave --policy out");
  }
  return absl::OkStatus();
}

namespace {

// Keys of a study.
struct PlanKey {
  const char* name;
  std::string PlanOptions::*text;
};
constexpr PlanKey kPlanKeys[] = {{"profile", &PlanOptions::profile},
                                 {"machines", &PlanOptions::machines},
                                 {"bandwidth", &PlanOptions::bandwidth},
                                 {"latency", &PlanOptions::latency},
                                 {"speed", &PlanOptions::speed},
                                 {"memory", &PlanOptions::memory},
                                 {"cost_model", &PlanOptions::cost_model}};

}  // namespace

absl::Status SetPlanOption(const std::string& key, const std::string& value,
                           PlanOptions& options) {
  std::vector<std::string> names = {"policy", "count_transfers"};
  for (const PlanKey& each : kPlanKeys) names.emplace_back(each.name);
  PACELINE_RETURN_IF_ERROR(CheckAmong("", "key of a plan", key, names));
  for (const PlanKey& each : kPlanKeys) {
    if (key == each.name) options.*each.text = value;
  }
  if (key == "policy") options.policy = value;
  if (key == "count_transfers") {
    PACELINE_RETURN_IF_ERROR(
        CheckAmong("count_transfers: ", "value", value, {"true", "false"}));
    options.count_transfers = value == "true";
  }
  if (key != "cost_model") return absl::OkStatus();
  return CheckAmong("cost_model: ", "cost model", value,
                    {"paceline", "pipedream"});
}

}  // namespace paceline
