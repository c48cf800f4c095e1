#include <algorithm>
#include <cstddef>
#include <iterator>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/commands/plan/plan.h"
#include "client/values/text.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/cluster/registration.h"
#include "core/job/job_model.h"
#include "core/model/description.h"
#include "core/plan/cost.h"
#include "core/plan/machines.h"
#include "core/plan/measurement.h"
#include "core/plan/pipedream/state_space.h"
#include "core/plan/plan.h"
#include "core/schedule/schedule.h"
#include "core/simulate/estimate.h"

namespace paceline {

namespace {

absl::StatusOr<std::vector<double>> ParseNumbers(const char* option,
                                                 const std::string& text) {
  std::vector<double> numbers;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    double number = 0;
    if (!absl::SimpleAtod(part, &number)) {
      return InvalidArgument(option, " ", Printable(text), ": '",
                             Printable(part), "' is no number");
    }
    numbers.push_back(number);
  }
  return numbers;
}

absl::Status PutSpeeds(const std::string& text, PlanProblem& problem) {
  PACELINE_ASSIGN_OR_RETURN(const std::vector<double> speeds,
                            ParseNumbers("--speed", text));
  const size_t devices = problem.devices.size();
  if (speeds.size() != 1 && speeds.size() != devices) {
    return InvalidArgument("--speed has ", Counted(speeds.size(), "number"),
                           ", there are ", Counted(devices, "device"),
                           ": give one for each, or one for all");
  }
  for (size_t d = 0; d < devices; ++d) {
    problem.devices[d].speed = speeds[speeds.size() == 1 ? 0 : d];
  }
  return absl::OkStatus();
}

absl::Status PutLatencies(const std::string& text, const Machines& machines,
                          PlanProblem& problem) {
  PACELINE_ASSIGN_OR_RETURN(const std::vector<double> latencies,
                            ParseNumbers("--latency", text));
  if (static_cast<int>(latencies.size()) != machines.levels()) {
    return InvalidArgument("--latency has ",
                           Counted(latencies.size(), "number"), ", --machines ",
                           Counted(machines.levels(), "level"),
                           ": give one for each, the inner one first");
  }
  const size_t in_machine = machines.sizes[0];
  for (size_t from = 0; from < problem.links.size(); ++from) {
    for (size_t to = 0; to < problem.links.size(); ++to) {
      const bool near = from / in_machine == to / in_machine;
      problem.links[from][to].latency_seconds =
          near ? latencies.front() : latencies.back();
    }
  }
  return absl::OkStatus();
}

absl::Status PutMemory(const std::string& text, PlanProblem& problem) {
  PACELINE_ASSIGN_OR_RETURN(const std::vector<double> memory,
                            ParseNumbers("--memory", text));
  if (memory.size() != 1) {
    return InvalidArgument("--memory ", Printable(text),
                           ": need one number, bytes of a device");
  }
  for (Device& device : problem.devices) device.memory_bytes = memory[0];
  return absl::OkStatus();
}

// Puts what the options say in place of what the source says.
absl::Status Apply(const PlanOptions& options, PlanQuestion& question) {
  PlanProblem& problem = question.inputs.problem;
  if (options.schedule.has_value()) question.schedule = *options.schedule;
  PACELINE_RETURN_IF_ERROR(CheckAmong("--schedule: ", "schedule",
                                      question.schedule, ScheduleNames()));
  CountMemoryOf(question.schedule, problem);
  if (options.policy.has_value()) {
    question.policy = *options.policy;
    question.own_cuts = false;
  }
  if (options.stages.has_value()) {
    problem.stages = *options.stages;
    question.own_cuts = false;
  }
  if (options.micro_batches.has_value()) {
    problem.micro_batches = *options.micro_batches;
  }
  if (!options.memory.empty()) {
    PACELINE_RETURN_IF_ERROR(PutMemory(options.memory, problem));
  }
  if (options.inference) LeaveOutBackward(question.inputs.facts, problem);
  if (options.replicas) problem.replicas = true;
  if (options.no_replicas) problem.replicas = false;
  if (options.even_shares) problem.uneven_shares = false;
  if (options.no_overlap) problem.overlap = false;
  problem.reserved_bytes += options.reserve_bytes;
  return absl::OkStatus();
}

absl::Status PutOptionMachines(const PlanOptions& options,
                               PlanQuestion& question) {
  PlanProblem& problem = question.inputs.problem;
  PACELINE_ASSIGN_OR_RETURN(
      const Machines machines,
      ParseMachines(options.machines, options.bandwidth, ""));
  PutMachines(machines, problem);
  question.inputs.facts.clear();
  if (!options.latency.empty()) {
    PACELINE_RETURN_IF_ERROR(PutLatencies(options.latency, machines, problem));
  }
  if (!options.speed.empty()) {
    PACELINE_RETURN_IF_ERROR(PutSpeeds(options.speed, problem));
  }
  return absl::OkStatus();
}

absl::Status TakeGraph(const ProfileSource& source, PlanQuestion& question) {
  PACELINE_ASSIGN_OR_RETURN(const StateSpace space, StatesOf(*source.graph));
  question.inputs.problem.layers = LayersOf(*source.graph, space);
  question.inputs.source = absl::StrCat(
      source.name, ": ", Counted(source.graph->nodes.size(), "node"), ", ",
      Counted(space.states, "state"), ", a chain of ",
      Counted(question.inputs.problem.layers.size(), "layer"));
  return absl::OkStatus();
}

absl::Status TakeProfiles(const ProfileSource& source, bool own_devices,
                          PlanQuestion& question) {
  const DeviceProfile& first = source.profiles.front();
  question.model = first.key.model;
  question.micro_batch = first.key.micro_batch;
  if (own_devices) {
    PACELINE_ASSIGN_OR_RETURN(question.inputs, InputsOfProfiles(source));
    return absl::OkStatus();
  }
  question.inputs.problem.layers = LayersOf(first);
  question.inputs.source = absl::StrCat(
      source.name, ": layer times measured on ", Printable(first.key.device));
  return absl::OkStatus();
}

void TakePlan(const ProfileSource& source, PlanQuestion& question) {
  const PlanFile& plan = *source.plan;
  question.inputs = plan;
  question.inputs.source = absl::StrCat(source.name, ": ", plan.source);
  question.schedule = plan.schedule;
  question.model = plan.model;
  question.micro_batch = plan.micro_batch;
}

// No job has these.
bool OnlyAsked(const PlanOptions& options) {
  return options.inference || options.micro_batches.has_value() ||
         options.even_shares || options.no_overlap ||
         options.seed != PlanOptions().seed;
}

// With more stages than workers.
absl::Status ShareWorkers(PlanQuestion& question) {
  PlanProblem& problem = question.inputs.problem;
  const int workers = static_cast<int>(problem.devices.size());
  if (problem.stages <= workers) return absl::OkStatus();
  if (ScheduleTraitsOf(question.schedule).deals && problem.training) {
    return InvalidArgument(
        "interleaved-1f1b deals its stages out in turn and asks no policy, and "
        "there are more of them, ",
        problem.stages, ", than workers, ", workers,
        ": 'job submit --dry-run' shows who holds what; give --stages for at "
        "most one a worker, or --schedule 1f1b");
  }
  question.shared_stages = problem.stages;
  problem.stages = 0;
  // A replica holds one stage only.
  problem.replicas = false;
  return absl::OkStatus();
}

}  // namespace

void LeaveOutBackward(const std::vector<DeviceFacts>& facts,
                      PlanProblem& problem) {
  if (!problem.training) return;
  problem.training = false;
  for (size_t d = 0; d < problem.devices.size(); ++d) {
    std::vector<double>& seconds = problem.devices[d].layer_seconds;
    for (size_t i = 0; i < seconds.size(); ++i) {
      const LayerCost& layer = problem.layers[i];
      const double both = layer.forward_seconds + layer.backward_seconds;
      if (!facts.empty()) {
        seconds[i] = facts[d].forward_seconds[i] / facts[d].cpu_share;
      } else if (both > 0) {
        seconds[i] *= layer.forward_seconds / both;
      }
    }
  }
}

absl::StatusOr<PlanQuestion> AskForMesh(ControlClient& client,
                                        const JobSpec& spec,
                                        const PlanOptions& options) {
  if (IsDataParallel(spec)) {
    PACELINE_RETURN_IF_ERROR(Refuse(
        {{"--policy", options.policy.has_value()},
         {"--compare", options.compare},
         {"--micro-batches", options.micro_batches.has_value()},
         {"--inference", options.inference},
         {"--stages", options.stages.has_value()},
         {"--replicas", options.replicas},
         {"--schedule", options.schedule.has_value()},
         {"--save", !options.save.empty()}},
        "goes with a pipeline; the job has aggregation.mode, and a group "
        "trains it"));
  }
  PACELINE_ASSIGN_OR_RETURN(const ModelDescription model, DescribeModel(spec));
  PACELINE_ASSIGN_OR_RETURN(const std::vector<v1::Worker> live,
                            LiveWorkers(client));
  if (live.empty()) {
    return FailedPrecondition(
        "no worker is attached to plan for: start one with paceline-worker, or "
        "plan for machines you do not have with --profile FILE --machines 4x4 "
        "--bandwidth 1e10,1.25e9");
  }
  std::vector<InputWorker> workers;
  std::vector<MemberInput> members;
  for (const v1::Worker& worker : live) {
    const v1::Registration& about = worker.registration();
    workers.push_back({about.name(), about.machine_id(), about.memory_bytes()});
    members.push_back({workers.back(), 1, HostOf(about), about.cores()});
  }
  // It asks for the measurements of all models: the times of this one may have
  // to be predicted from them.
  PACELINE_ASSIGN_OR_RETURN(const Measurements measurements,
                            client.ListMeasurements(""));
  PlanQuestion question;
  question.inputs = MakePlanInputs(spec, model, workers, measurements);
  question.inputs.problem.stages = spec.pipeline.stages;
  // As the job's own plan would be.
  if (!IsInference(spec) && !options.inference &&
      spec.pipeline.replicate != "allowed") {
    question.inputs.problem.replicas = false;
  }
  question.policy = spec.pipeline.policy;
  question.schedule = spec.pipeline.schedule;
  question.model = ModelKey(spec.model, model.input, model.classes);
  question.micro_batch = spec.train.micro_batch;
  question.own_cuts =
      !spec.pipeline.cuts.empty() || !spec.pipeline.workers.empty();
  PACELINE_RETURN_IF_ERROR(Apply(options, question));
  for (size_t d = 0; d < members.size(); ++d) {
    const double bytes = question.inputs.problem.devices[d].memory_bytes;
    if (bytes == 0) continue;  // no bound
    members[d].worker.memory_bytes =
        static_cast<int64_t>(std::max(1.0, bytes - options.reserve_bytes));
  }
  question.job = {spec, model, std::move(members), measurements};
  question.job->spec.pipeline.schedule = question.schedule;
  question.as_job = !IsDataParallel(spec) && !OnlyAsked(options);
  PACELINE_RETURN_IF_ERROR(ShareWorkers(question));
  return question;
}

absl::StatusOr<PlanQuestion> AskForProfile(const ProfileSource& source,
                                           const PlanOptions& options) {
  PlanQuestion question;
  const bool own_devices = options.machines.empty();
  if (source.plan.has_value()) {
    TakePlan(source, question);
  } else if (source.graph.has_value()) {
    if (own_devices) {
      return InvalidArgument(
          source.name,
          " has layers but no devices: give --machines and --bandwidth, as in "
          "--machines 4x4 --bandwidth 1e10,1.25e9");
    }
    PACELINE_RETURN_IF_ERROR(TakeGraph(source, question));
  } else {
    PACELINE_RETURN_IF_ERROR(TakeProfiles(source, own_devices, question));
  }
  if (!own_devices) {
    PACELINE_RETURN_IF_ERROR(PutOptionMachines(options, question));
  }
  PACELINE_RETURN_IF_ERROR(Apply(options, question));
  return question;
}

namespace {

// Neighbouring stages on one device count as one run of layers: cutting it
// further changes nothing of what the device computes.
absl::StatusOr<PlanAnswer> AnswerForStages(PlanProblem problem,
                                           const Placement& stages) {
  Placement runs;
  std::vector<size_t> run_of;  // [stages]
  for (const PlacedStage& stage : stages) {
    if (runs.empty() || runs.back().devices != stage.devices) {
      runs.push_back(stage);
    }
    runs.back().layers.last = stage.layers.last;
    run_of.push_back(runs.size() - 1);
  }
  if (runs.size() == stages.size()) return AnswerFor(problem, stages);
  problem.stages = 0;
  PACELINE_ASSIGN_OR_RETURN(PlanAnswer answer, AnswerFor(problem, runs));
  const PlacementCost of_runs = answer.cost;
  answer.placement = stages;
  answer.cost.stage_seconds.clear();
  answer.cost.transfer_seconds.clear();
  for (size_t s = 0; s < stages.size(); ++s) {
    const size_t run = run_of[s];
    const int device = stages[s].devices.front();
    const double all = LayerSeconds(problem, runs[run].layers, device);
    const double mine = LayerSeconds(problem, stages[s].layers, device);
    answer.cost.stage_seconds.push_back(
        all > 0 ? of_runs.stage_seconds[run] * mine / all : 0);
    if (s == 0) continue;
    const bool crosses = run_of[s - 1] != run;
    answer.cost.transfer_seconds.push_back(
        crosses ? of_runs.transfer_seconds[run - 1] : 0);
  }
  return answer;
}

// From stages whose workers are numbered as devices, from 1.  The replicas of a
// stage are in the order of their devices.
Placement AsPlacement(const std::vector<StageOfPlan>& plan) {
  std::vector<EstimateStage> stages;
  for (const StageOfPlan& stage : plan) {
    const auto device = static_cast<int>(stage.worker.value - 1);
    stages.push_back({stage.layers, device, stage.share});
  }
  absl::c_sort(stages, [](const EstimateStage& a, const EstimateStage& b) {
    return std::tie(a.layers.first, a.worker) <
           std::tie(b.layers.first, b.worker);
  });
  return PlacementOf(stages);
}

}  // namespace

absl::StatusOr<PlanAnswer> AnswerOfJob(const std::string& policy,
                                       const PlanQuestion& question,
                                       const PlanOptions& options) {
  const MeshJob& job = *question.job;
  JobSpec spec = job.spec;
  PipelineSpec& pipeline = spec.pipeline;
  if (!policy.empty()) {
    pipeline.policy = policy;
    pipeline.cuts.clear();
    pipeline.workers.clear();
    pipeline.replicas.clear();
    pipeline.shares.clear();
  }
  if (options.stages.has_value()) pipeline.stages = *options.stages;
  if (options.replicas) pipeline.replicate = "allowed";
  if (options.no_replicas) pipeline.replicate = "never";
  // Costs are of one run of layers a worker, where nothing is interleaved.
  if (ScheduleTraitsOf(pipeline.schedule).deals) pipeline.schedule = "1f1b";
  std::vector<PlannerWorker> workers;
  for (const MemberInput& member : job.workers) {
    const InputWorker& worker = member.worker;
    workers.push_back({WorkerId{std::ssize(workers) + 1}, worker.name,
                       worker.memory_bytes, worker.machine_id});
  }
  PACELINE_ASSIGN_OR_RETURN(
      const Plan plan, MakePlan(spec, job.model, workers, job.measurements));
  PACELINE_ASSIGN_OR_RETURN(
      PlanAnswer answer,
      AnswerForStages(question.inputs.problem, AsPlacement(plan.stages)));
  answer.exact = answer.exact || plan.exact;
  answer.why = plan.why;
  for (const auto& [worker, bytes] : plan.memory) {
    answer.cost.memory_bytes[worker.value - 1] =
        static_cast<double>(bytes) + options.reserve_bytes;
  }
  return answer;
}

}  // namespace paceline
