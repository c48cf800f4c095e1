#include "worker/control/run_order.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_join.h"
#include "core/base/errors.h"
#include "core/job/job_check.h"
#include "core/plan/memory.h"
#include "core/schedule/schedule.h"
#include "core/simulate/program.h"
#include "worker/pipeline/step_exchange.h"

namespace paceline {
namespace {

constexpr size_t kMostUnappliedBytes = size_t{256} << 20;

int MicroBatchesOf(const TrainSpec& train) {
  return static_cast<int>((train.batch + train.micro_batch - 1) /
                          train.micro_batch);
}

bool IsReplicated(const RunOrder& order, int stage) {
  return ReplicasOf(order, stage).size() > 1;
}

// Whether a stage has replicas that train.
bool ReplicasTrain(const RunOrder& order) {
  return !IsInference(order.spec) &&
         std::ssize(order.stages) > StageCount(order) &&
         !order.group.has_value();
}

std::vector<int> CountReplicas(const RunOrder& order) {
  std::vector<int> counts;
  for (int stage = 0; stage < StageCount(order); ++stage) {
    counts.push_back(static_cast<int>(ReplicasOf(order, stage).size()));
  }
  return counts;
}

// The batch's route begins anew with each where replicas train.
RouteTable RouteOf(const RunOrder& order, int stage) {
  if (order.routes.empty()) return RouteTable();
  return IsInference(order.spec) ? order.routes[stage]
                                 : order.routes[stage].InEachBatch();
}

std::vector<RouteTable> RoutesOf(const RunOrder& order) {
  std::vector<RouteTable> routes;
  for (int stage = 0; stage < StageCount(order); ++stage) {
    routes.push_back(RouteOf(order, stage));
  }
  return routes;
}

// Replicas keep micro-batches between forward and backward, and no more frames
// of a boundary are on the way.
absl::StatusOr<ScheduleBounds> BoundsOfReplicas(const RunOrder& order) {
  const Program program =
      ProgramOfReplicas(CountReplicas(order), RoutesOf(order),
                        MicroBatchesOf(order.spec.train), /*training=*/true);
  PACELINE_ASSIGN_OR_RETURN(
      const std::vector<InstructionList> lists,
      ListsOfReplicas(program, order.spec.pipeline.schedule));
  ScheduleBounds bounds;
  for (const std::vector<int>& workers : program.workers_of) {
    int most = 0;
    for (const int worker : workers) {
      int kept = 0;
      for (const Instruction& instruction : lists[worker]) {
        if (instruction.op == Op::kForward) most = std::max(most, ++kept);
        if (instruction.op == Op::kBackward) --kept;
      }
    }
    bounds.kept_micro_batches.push_back(most);
    bounds.split_micro_batches.push_back(0);
    bounds.kept_versions.push_back(1);
  }
  bounds.activation_frames = bounds.kept_micro_batches;
  bounds.activation_frames.pop_back();
  bounds.gradient_frames = bounds.activation_frames;
  return bounds;
}

absl::StatusOr<ScheduleBounds> BoundsOf(const RunOrder& order, WorkerId self,
                                        bool training) {
  if (training && ReplicasTrain(order)) return BoundsOfReplicas(order);
  const TrainSpec& train = order.spec.train;
  ScheduleRequest request;
  request.name = order.spec.pipeline.schedule;
  request.stages = StageCount(order);
  request.micro_batches = MicroBatchesOf(train);
  request.training = training;
  request.worker_of = WorkerIndexOfStage(order, self);
  request.vertical_sync = order.spec.pipeline.vertical_sync;
  return BoundsOfRun(std::move(request));
}

absl::Status CheckNumbers(const RunOrder& order) {
  if (order.base != Cut() && order.base.attempt >= order.fence.attempt) {
    return InvalidArgument("order: ", ToText(order.fence), " begins with ",
                           CutText(order.base),
                           ": need an attempt before its own");
  }
  if (order.threads < 1) {
    return InvalidArgument("order: threads is ", order.threads,
                           ", need 1 or more");
  }
  return absl::OkStatus();
}

absl::Status CheckTies(const RunOrder& order, const ModelDescription& model) {
  const std::string& schedule = order.spec.pipeline.schedule;
  const bool streams = ScheduleTraitsOf(schedule).asynchronous;
  for (const Tie& tie : TiesOf(order, model)) {
    if (IsReplicated(order, tie.owner_stage) ||
        IsReplicated(order, tie.user_stage)) {
      return InvalidArgument("order: stages ", tie.owner_stage, " and ",
                             tie.user_stage, " share ", tie.parameter,
                             ", and one of them has replicas");
    }
    if (streams && tie.owner_stage != tie.user_stage) {
      return InvalidArgument("order: ", schedule, " cuts ", model.name,
                             " between stages ", tie.owner_stage, " and ",
                             tie.user_stage, ", which share ", tie.parameter);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckReplicas(const RunOrder& order) {
  const int stages = StageCount(order);
  if (!order.routes.empty() && std::ssize(order.routes) != stages) {
    return InvalidArgument("order: ", order.routes.size(), " routes for ",
                           stages, " stages");
  }
  std::map<WorkerId, int> stages_of;
  std::set<WorkerId> replicas;
  for (int stage = 0; stage < stages; ++stage) {
    const absl::Span<const StagePlacement> places = ReplicasOf(order, stage);
    for (const StagePlacement& place : places) {
      ++stages_of[place.worker];
      if (places.size() > 1) replicas.insert(place.worker);
      if (place.layers == places.front().layers) continue;
      return InvalidArgument("order: the replicas of stage ", stage,
                             " hold different layers");
    }
    const absl::Status turns = CheckTurns(
        order.routes.empty() ? std::vector<int>() : order.routes[stage].turns(),
        static_cast<int>(places.size()));
    if (!turns.ok()) {
      return InvalidArgument("order: stage ", stage, ": ", turns.message());
    }
  }
  // Where replicas train, workers of one stage as well.
  if (!replicas.empty() && !IsInference(order.spec)) {
    for (const auto& [worker, count] : stages_of) replicas.insert(worker);
  }
  for (const WorkerId replica : replicas) {
    if (stages_of[replica] == 1) continue;
    return InvalidArgument("order: worker ", replica.value,
                           " is a replica of a stage and holds another one");
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<int> WorkerIndexOfStage(const RunOrder& order, WorkerId self) {
  std::map<WorkerId, int> index;
  std::vector<int> worker_of;
  for (int stage = 0; stage < StageCount(order); ++stage) {
    const absl::Span<const StagePlacement> places = ReplicasOf(order, stage);
    const bool own =
        std::ranges::count(places, self, &StagePlacement::worker) > 0;
    const int next = static_cast<int>(index.size());
    worker_of.push_back(
        index.emplace(own ? self : places.front().worker, next).first->second);
  }
  return worker_of;
}

Turns TurnsOf(const RunOrder& order, WorkerId self) {
  for (int stage = 0; stage < std::ssize(order.routes); ++stage) {
    const absl::Span<const StagePlacement> places = ReplicasOf(order, stage);
    for (size_t i = 0; places.size() > 1 && i < places.size(); ++i) {
      if (places[i].worker != self) continue;
      return {RouteOf(order, stage), static_cast<int>(i)};
    }
  }
  return {};
}

std::vector<Tie> TiesOf(const RunOrder& order, const ModelDescription& model) {
  const auto stage_of = [&](int layer) {
    const auto found = std::find_if(
        order.stages.begin(), order.stages.end(),
        [&](const StagePlacement& stage) { return layer < stage.layers.last; });
    return static_cast<int>(found->stage);
  };
  std::vector<Tie> ties;
  // Values that no step changes need not cross.
  if (IsInference(order.spec)) return ties;
  for (const SharedParameter& shared : SharedParameters(model)) {
    const Tie tie{shared.name, shared.shape, stage_of(shared.owner),
                  stage_of(shared.user)};
    // The engine of a replica adds these up itself.
    if (tie.owner_stage == tie.user_stage &&
        IsReplicated(order, tie.owner_stage)) {
      continue;
    }
    ties.push_back(tie);
  }
  return ties;
}

StageRunnerOptions RunnerOptions(const RunOrder& order,
                                 const ModelDescription& model, WorkerId self) {
  StageRunnerOptions options;
  options.schedule = order.spec.pipeline.schedule;
  options.worker_of = WorkerIndexOfStage(order, self);
  options.worker = options.worker_of[StagesOf(order, self).front()];
  options.micro_batches = MicroBatchesOf(order.spec.train);
  options.vertical_sync = order.spec.pipeline.vertical_sync;
  options.train = order.spec.train;
  options.inference = IsInference(order.spec);
  options.ties = TiesOf(order, model);
  if (options.inference) options.turns = TurnsOf(order, self);
  if (ReplicasTrain(order)) {
    options.replicas = CountReplicas(order);
    options.routes = RoutesOf(order);
    options.replica = TurnsOf(order, self).replica;
  }
  if (options.inference) options.first_batch = order.base.step;
  options.trained = order.trained;
  options.skipped_in_row = order.skipped_in_row;
  return options;
}

EngineOptions EngineOptionsOf(const RunOrder& order,
                              const ModelDescription& model, int stage) {
  EngineOptions options;
  options.model = model;
  options.layers = ReplicasOf(order, stage).front().layers;
  options.train = order.spec.train;
  options.stage = stage;
  options.stages = StageCount(order);
  options.stashes = ScheduleTraitsOf(order.spec.pipeline.schedule).asynchronous;
  options.inference = IsInference(order.spec);
  options.flat_gradient = !options.inference && IsReplicated(order, stage);
  options.precision = PrecisionOf(order.spec.precision);
  return options;
}

std::vector<int> StagesOf(const RunOrder& order, WorkerId self) {
  std::vector<int> stages;
  for (const StagePlacement& place : order.stages) {
    if (place.worker == self) stages.push_back(place.stage);
  }
  return stages;
}

absl::Status CheckSpecOfOrder(const JobSpec& spec) {
  const std::vector<SpecProblem> problems = CheckJobSpec(spec);
  if (problems.empty()) return absl::OkStatus();
  const SpecProblem& first = problems.front();
  return InvalidArgument("order: ", first.path, first.path.empty() ? "" : ": ",
                         first.why);
}

absl::Status CheckOrder(const RunOrder& order, const ModelDescription& model,
                        WorkerId self) {
  const int layers = static_cast<int>(model.layers.size());
  int covered = 0;
  int next = 0;
  for (const StagePlacement& stage : order.stages) {
    if (stage.stage == next - 1) continue;  // a replica
    ++next;
    if (stage.layers.first != covered ||
        stage.layers.last <= stage.layers.first) {
      return InvalidArgument("order: a stage holds layers [",
                             stage.layers.first, ", ", stage.layers.last,
                             "), but layer ", covered, " comes next");
    }
    covered = stage.layers.last;
  }
  if (covered != layers) {
    return InvalidArgument("order: stages cover ", covered,
                           " layers, the model ", model.name, " has ", layers);
  }
  if (StagesOf(order, self).empty()) {
    return InvalidArgument("order: no stage is placed on this worker (id ",
                           self.value, ")");
  }
  PACELINE_RETURN_IF_ERROR(CheckNumbers(order));
  PACELINE_RETURN_IF_ERROR(CheckReplicas(order));
  return CheckTies(order, model);
}

absl::StatusOr<MemberId> CheckGroupOrder(const RunOrder& order,
                                         const ModelDescription& model,
                                         WorkerId self) {
  const LayerRange whole = {0, static_cast<int>(model.layers.size())};
  for (const StagePlacement& place : order.stages) {
    if (place.stage == 0 && place.layers == whole) continue;
    return Unimplemented(
        "order: a round group holds a part of the model, but this worker knows "
        "groups of the whole model only: update paceline-worker");
  }
  if (!IsDataParallel(order.spec)) {
    return InvalidArgument(
        "order: a round group for a job whose aggregation.mode is ",
        order.spec.aggregation.mode);
  }
  if (IsInference(order.spec)) {
    return InvalidArgument(
        "order: a round group for an inference job, which has no training "
        "steps to divide among members");
  }
  if (order.spec.aggregation.shards < 1) {
    return InvalidArgument(
        "order: aggregation.shards is 0, but the coordinator settles a number "
        "for all members: update paceline-coordinator");
  }
  PACELINE_RETURN_IF_ERROR(CheckNumbers(order));
  PACELINE_RETURN_IF_ERROR(CheckView(order.group->view));
  for (const GroupWorker& worker : order.group->workers) {
    if (worker.id.worker == self) return worker.id;
  }
  return InvalidArgument("order: this worker (id ", self.value,
                         ") is not in its round group");
}

absl::StatusOr<RunWiring> MakeRunWiring(const RunOrder& order,
                                        const ModelDescription& model,
                                        WorkerId self) {
  RunWiring wiring;
  wiring.fence = order.fence;
  wiring.self = self;
  wiring.micro_batch = order.spec.train.micro_batch;
  const std::optional<Codec> codec = FindCodec(order.spec.pipeline.codec);
  if (!codec.has_value()) {
    return InvalidArgument("order: codec '", order.spec.pipeline.codec,
                           "', but this worker "
                           "knows ",
                           absl::StrJoin(CodecNames(), ", "),
                           ": update paceline-worker");
  }
  wiring.codec = *codec;
  wiring.acknowledges_at_once = IsInference(order.spec);
  for (int stage = 0; stage < StageCount(order); ++stage) {
    const absl::Span<const StagePlacement> places = ReplicasOf(order, stage);
    StageWiring& into = wiring.stages.emplace_back();
    for (const StagePlacement& place : places) {
      into.replicas.push_back({place.worker, place.address});
    }
    if (places.size() > 1) {
      into.route = RouteOf(order, stage);
      if (ReplicasTrain(order)) {
        into.replica_frame_bytes =
            ReplicaFrameBytes(FlatValues(model, places.front().layers),
                              static_cast<int>(places.size()));
      }
    }
    wiring.boundaries.push_back(
        BoundaryTensors(model.layers[places.front().layers.last - 1]));
  }
  wiring.boundaries.pop_back();
  wiring.label_shape = model.label_shape;
  wiring.ties = TiesOf(order, model);

  PACELINE_ASSIGN_OR_RETURN(wiring.bounds,
                            BoundsOf(order, self, /*training=*/true));
  PACELINE_ASSIGN_OR_RETURN(const ScheduleBounds evaluation,
                            BoundsOf(order, self, /*training=*/false));
  for (size_t i = 0; i < wiring.boundaries.size(); ++i) {
    int& frames = wiring.bounds.activation_frames[i];
    frames = 2 * std::max(frames, evaluation.activation_frames[i]);
  }
  return wiring;
}

absl::StatusOr<int64_t> PredictBytes(const RunOrder& order,
                                     const ModelDescription& model,
                                     WorkerId self) {
  if (order.group.has_value()) {
    const size_t members = std::max<size_t>(1, order.group->workers.size());
    return MemberBytes(order.spec, model, static_cast<int64_t>(members));
  }
  const bool training = !IsInference(order.spec);
  PACELINE_ASSIGN_OR_RETURN(const ScheduleBounds bounds,
                            BoundsOf(order, self, training));
  const std::vector<StageKeeps> keeps = KeepsOfStages(bounds);
  std::vector<LayerRange> ranges;
  std::vector<StageKeeps> own;
  for (const int stage : StagesOf(order, self)) {
    ranges.push_back(ReplicasOf(order, stage).front().layers);
    own.push_back(training ? keeps[stage] : kInferenceKeeps);
  }
  const Bytes bytes = EstimateBytes(model, order.spec.train, ranges, own,
                                    PrecisionOf(order.spec.precision));
  return ranges.front().first > 0 ? bytes.count
                                  : (bytes + DataBytes(order.spec)).count;
}

absl::StatusOr<int64_t> PredictWithData(int64_t predicted_bytes,
                                        const JobSpec& spec, int64_t data_bytes,
                                        int64_t memory_bytes) {
  const int64_t bytes =
      predicted_bytes + std::max<int64_t>(0, data_bytes - DataBytes(spec));
  if (memory_bytes <= 0 || bytes <= memory_bytes) return bytes;
  return ResourceExhausted(
      "with ", BytesText(data_bytes), " for the samples of ", spec.data.name,
      " and their order it needs ", BytesText(bytes), ", this worker has ",
      BytesText(memory_bytes),
      ": take fewer samples, or read them where there is more memory");
}

size_t UnappliedBytes(int64_t memory_bytes, int64_t predicted_bytes) {
  if (memory_bytes <= 0) return kMostUnappliedBytes;
  const int64_t left = std::max<int64_t>(0, memory_bytes - predicted_bytes);
  return std::min(kMostUnappliedBytes, static_cast<size_t>(left / 2));
}

}  // namespace paceline
