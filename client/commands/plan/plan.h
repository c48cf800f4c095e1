// `paceline plan`, `profile`, `predict` and `simulate`.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/commands/command.h"
#include "client/files/plan_file.h"
#include "client/render/console.h"
#include "client/rpc/control_client.h"
#include "client/values/plan_options.h"
#include "core/base/clock.h"
#include "core/job/job_model.h"
#include "core/job/spec/job_spec.h"
#include "core/plan/cost.h"
#include "core/plan/inputs.h"
#include "core/plan/plan.h"
#include "core/plan/problem.h"
#include "core/plan/search/policy.h"
#include "core/simulate/group_step.h"
#include "core/simulate/simulation.h"
#include "core/weights/safetensors_layout.h"

namespace paceline {

// --- plan question -----------------------------------------------------------

// The question that `paceline plan` is asked, and the answer that a job for the
// mesh itself gets.

// From what `paceline plan` was given to what the policies are asked.

// A job for the mesh that there is.
struct MeshJob {
  JobSpec spec;  // with the schedule asked for
  ModelDescription model;
  // By id, as the problem's devices, with the memory that the options leave.
  std::vector<MemberInput> workers;
  Measurements measurements;
};

struct PlanQuestion {
  PlanInputs inputs;  // facts are empty where devices are made up
  std::string policy = "optimal";
  std::string schedule = "1f1b";
  std::string model;        // ModelKey; empty: not one of our models
  int64_t micro_batch = 0;  // samples; 0: not known
  // With fewer workers than stages: of all stages, which the workers share; 0:
  // a stage has workers of its own.
  int shared_stages = 0;
  bool own_cuts = false;       // the job's own decide, not a policy
  std::optional<MeshJob> job;  // of a mesh
  // A job could ask the same, so that MakePlan() answers as it does there.
  bool as_job = false;
};

// Makes a problem forward only, and the devices' own times too: by `facts`
// where there are any, else by the layers' parts.
void LeaveOutBackward(const std::vector<DeviceFacts>& facts,
                      PlanProblem& problem);

// For the coordinator's live workers, with all that it ever measured.  `spec`
// has passed CheckJobSpec.
//
// Errors: InvalidArgument     sizes that do not fit; an option that is wrong
//         FailedPrecondition  no worker is attached
//         and those of ControlClient
absl::StatusOr<PlanQuestion> AskForMesh(ControlClient& client,
                                        const JobSpec& spec,
                                        const PlanOptions& options);

// For the machines that the options describe, else for those of the source.
//
// Errors: InvalidArgument  machines, bandwidths, speeds or memory that are
//         wrong, missing or too few; too many states; an option that is wrong
absl::StatusOr<PlanQuestion> AskForProfile(const ProfileSource& source,
                                           const PlanOptions& options);

// Answers as MakePlan() places question.job, which there is, with its cost by
// the formula of the question's problem.  Of more stages than workers,
// placement, stage_seconds, transfer_seconds (0 between two stages of one
// worker) and memory_bytes (of all its stages) are those of all stages; the
// step, its pace and their bound are those of one run of layers a worker.
// interleaved-1f1b is planned as 1f1b.
//
//   policy  cuts and places; empty: the job's own cuts and workers do
//
// Errors: MakePlan's; InvalidArgument where the job has a worker hold stages
// that are no neighbours, of which the formula knows nothing
absl::StatusOr<PlanAnswer> AnswerOfJob(const std::string& policy,
                                       const PlanQuestion& question,
                                       const PlanOptions& options);

// --- plan --------------------------------------------------------------------

// `paceline plan`.

// The names of the stage's devices.
std::vector<std::string> WorkersOf(const PlanProblem& problem,
                                   const PlacedStage& stage);

// Asks the question's policy, or with options.compare all of them, prints, and
// writes the plan (the best of all) to options.save, unless that is empty.
//
// Ends with kExitUsage for a question that is wrong, kExitUnplaceable when
// there is no device or nothing fits; a comparison only when no policy has an
// answer.
Outcome PlanCommand(Console& console, const Clock& clock,
                    const PlanQuestion& question, const PlanOptions& options);

// A plan beside its devices as one group.
struct PlanBesideGroup {
  std::string configuration;      // replicas of each stage: "13-2-1"
  double bottleneck_seconds = 0;  // a micro-batch
  double group_seconds = 0;  // the same, of all devices in data parallelism
  double one_device_seconds = 0;
  // For a simulation; the pipedream cost model has a layer a stage.
  PlanProblem problem = {};
  Placement placement = {};
};

// All layers on each of the problem's devices.
Placement GroupPlacement(const PlanProblem& problem);

// The answer for `source`, by either cost model; `options` are checked.
// Errors: InvalidArgument    a question that is wrong
//         ResourceExhausted  nothing fits the memory
absl::StatusOr<PlanBesideGroup> PlanForStudy(const ProfileSource& source,
                                             const PlanOptions& options,
                                             const Clock& clock);

// `paceline plan --cost-model pipedream`: what PipeDream's released optimizer
// would answer, its faults mended.

// Ends with kExitUsage for machines or a profile that are wrong,
// kExitUnplaceable when nothing fits the memory.
Outcome PipedreamPlanCommand(Console& console, const Clock& clock,
                             const ProfileSource& source,
                             const PlanOptions& options);

// A chain of layers as the graph that PipeDream plans for.
GraphProfile ChainGraph(const std::vector<LayerCost>& layers);

// --- profile -----------------------------------------------------------------

// `paceline profile`.

struct ProfileOptions {
  std::vector<std::string> workers = {};  // empty: all live ones
  bool all = false;                       // says so
  std::optional<bool> links =
      {};  // nothing: when more than one worker measures
  std::optional<absl::Duration> timeout = {};
};

// Has workers measure `spec` (whose micro-batch is set already), shows what is
// still waited for, then prints what was found; `failed` makes it kExitFailed.
// A timeout and Ctrl-C print what there is; the workers go on, and what they
// find is kept.
//
// Ends with kExitUsage for a wrong spec, kExitNotFound for an unknown worker,
// kExitUnplaceable when there is no worker, kExitTimedOut, kExitInterrupted.
Outcome ProfileCommand(const CommandContext& context, const JobSpec& spec,
                       const ProfileOptions& options);

// The same, without printing what was found.
// Errors: those of ControlClient; DeadlineExceeded, Cancelled (Ctrl-C);
//         FailedPrecondition  something could not be measured: says what
absl::StatusOr<ProfileProgress> TakeProfile(const CommandContext& context,
                                            const JobSpec& spec,
                                            const ProfileOptions& options);

// The workers that could measure and hold stages: those that are attached, by
// id.
// Errors: those of ControlClient::ListWorkers.
absl::StatusOr<std::vector<v1::Worker>> LiveWorkers(ControlClient& client);

// `spec` as a measurement needs it: micro-batches of `batch` samples, and a
// data set that any worker can make.  The batch stays what --set made it, else
// it is as many micro-batches as in a job file that does not say.
// Errors: InvalidArgument  one line for each thing that is wrong, unknown
// models among them
absl::StatusOr<JobSpec> WithMicroBatch(JobSpec spec, int64_t batch,
                                       const std::vector<std::string>& sets);

// How a weights file is looked into here, where no worker can; null: it is not.
// Real: LoadWeights of core/weights.
using LoadModelWeights = std::function<absl::StatusOr<std::vector<NamedTensor>>(
    const ModelSpec& spec, const ModelDescription& model,
    const LayerRange& layers, WeightsOrigin* origin)>;

// Has the workers that have nothing else to do look for the data, weights and
// script of a job, and into them as the job would, for some seconds at most.
// Notes their answers, the files that some of them cannot read, and the files
// that none has looked at.  A coordinator that does not answer is no error
// here.
//   inputs  that the data must be; zeros: any
//
// Errors: InvalidArgument  no worker can read one of them, or it does not fit
//                          the job, and all live workers were asked
//         Cancelled        interrupted
absl::Status LookForFiles(const CommandContext& context, const JobSpec& spec,
                          const LoadModelWeights& load = nullptr,
                          const v1::Inputs& inputs = {});

// This program has no LibTorch: a worker looks into a TorchScript file for it.
//
// When the model of `spec` is a script that no worker has looked into, has one
// do so, and fills in what it found; otherwise does nothing.  Blocks until a
// worker is free of jobs and has looked, though no longer than `timeout`; says
// for what it waits.
//
// Errors:
//   InvalidArgument   the worker cannot use the file; says why
//   Cancelled         interrupted
//   DeadlineExceeded  `timeout` is over; the coordinator gives it up too
//   those of ControlClient
absl::Status FillInScript(const CommandContext& context,
                          std::optional<absl::Duration> timeout, JobSpec* spec);

// --- predict -----------------------------------------------------------------

// `paceline predict`: times that were never measured, from measured ones.

// A million measurements have some 50 MB; what is larger is a mistake.
constexpr int64_t kMaxTimingFileBytes = int64_t{1} << 30;

struct PredictFitOptions {
  std::vector<std::string> files;  // comma separated, at least one
  // Each is one more time to predict: "op=all_reduce,dtype=f16,elements=4096".
  std::vector<std::string> at;
};

// Fits all files together, leaves measured points out, predicts them, and
// prints the error; then predicts what `at` asks for.
Outcome PredictFitCommand(Console& console, const PredictFitOptions& options);

// Predicts each device as if it had never measured this model at this
// micro-batch, where anything else was measured.
//   wanted  its name; empty: all that are attached or were measured
//
// Ends with kExitUsage for sizes that are wrong, kExitNotFound for an unknown
// device and where nothing was measured yet.
Outcome PredictModelCommand(const CommandContext& context, const JobSpec& spec,
                            const std::string& wanted);

// --- simulate ----------------------------------------------------------------

// Machines and models that one does not have: the flags of `paceline simulate`
// as a problem and a placement.  Pure.

inline constexpr int kMostSimulatedDevices = 4096;
inline constexpr int kMostSimulatedLayers = 1 << 20;

// Each as the command line has it.
struct MachineFlags {
  std::optional<int> devices;      // else as many as speeds, or 4
  std::vector<double> speeds;      // one for all, or one a device
  std::vector<double> bandwidths;  // bytes/s of a device's port; the same
  double latency_seconds = 1e-4;
  double frame_seconds = 0;  // CPU, each end
  // Equal layers ...
  std::optional<int> layers;               // else one a device
  double forward_seconds = 0.01;           // of a micro-batch, on speed 1
  std::optional<double> backward_seconds;  // else twice forward
  double output_bytes = 1e6;
  double parameter_bytes = 4e6;
  double kept_bytes = 4e6;
  // ... or those of a model, by their FLOPs.
  double flops_per_second = 1e10;   // of speed 1
  int64_t micro_batch_samples = 0;  // --batch; with a model at least 1

  std::optional<int> stages;  // else one a device, as layers allow
};

// The input of `paceline simulate`, before its flags change the run.
struct SimulatedPlan {
  PlanProblem problem;
  // As the planner saw it, where the simulator sees it otherwise: a quota is in
  // its times there, and simulated here (OptionsFor).
  std::optional<PlanProblem> planned = {};
  Placement placement;
  SimulationOptions options;
};

// Stages of as many layers each, longer ones first, on devices d0, d1, ... in
// order; more stages than devices: several in a row on each.  A link is as fast
// as the slower of its two ports.
//
// model: where the layers come from; null: equal ones.  A model's backward
// takes twice as long as its forward.
//
// Errors: InvalidArgument  names the flag, what it says, and what would do.
absl::StatusOr<SimulatedPlan> MakeSimulatedPlan(const MachineFlags& flags,
                                                const JobSpec* model);

// --slow and --fail of `paceline simulate`.  Pure.

// "DEVICE@TIME=FACTOR[:DURATION]": a device's name, else its number; seconds.
// Errors: InvalidArgument  names the flag, the part that is wrong, and what is
// right; a factor below 1; a device that there is not.
absl::StatusOr<SimulatedSlowDown> ParseSlowDown(const std::string& text,
                                                const PlanProblem& problem);

// "DEVICE@TIME[:BACK]": BACK seconds later the step is run again.
// Errors: as above.
absl::StatusOr<SimulatedFailure> ParseFailure(const std::string& text,
                                              const PlanProblem& problem);

// `paceline simulate`: what a plan and a schedule would take, event by event;
// asks no coordinator.

struct SimulateFlags {
  // These machines are simulated unless a plan file is given.
  MachineFlags machines;
  std::optional<std::string> schedule;   // else the plan's
  std::optional<int64_t> micro_batches;  // else the plan's, or 32
  bool inference = false;
  int steps = 1;
  int credit_frames = 0;
  std::vector<std::string> slow;  // see disturbance_flags.h
  std::vector<std::string> fail;
  std::string trace_file;  // empty: none
};

// Simulates `plan`, changed by what `flags` say of a run, writes the trace,
// and prints the result.  machines made `plan`, if no file did, and are not
// read.
//
// Bad flags exit with 2, a trace that cannot be written with 1; a failure that
// ends the simulation was asked for and exits with 0.
Outcome SimulateCommand(Console& console, const SimulateFlags& flags,
                        SimulatedPlan plan);

}  // namespace paceline
