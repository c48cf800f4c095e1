#include "client/commands/options.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/render/text.h"
#include "core/plan/policy.h"
#include "core/plan/problem.h"
#include "core/schedule/schedule.h"

namespace paceline {

namespace {

constexpr int64_t kMostSamples = int64_t{1} << 40;
// Options of `simulate` that a plan file takes the place of.
constexpr char kMachinesGroup[] = "Machines and model";

CLI::Option* AddBatch(CLI::App* app, int64_t& batch) {
  return app
      ->add_option("--batch", batch,
                   "Samples of one micro-batch (of a step there are "
                   "train.batch)")
      ->type_name("B")
      ->check(CLI::Range(int64_t{1}, kMostSamples));
}

CLI::Option* AddModel(CLI::App* app, std::string& model) {
  return app
      ->add_option("--model", model, "Name of a model, as 'model list' has it")
      ->type_name("MODEL");
}

std::string CheckPolicy(const std::string& word) {
  return WhyNotAmong("policy", word, PolicyNames());
}

void AddSource(CLI::App* app, PlanOptions& options) {
  AddModel(app, options.model);
  app->add_option("-f,--file", options.job_file,
                  "A job, as YAML; - reads standard input")
      ->type_name("FILE");
  app->add_option("--profile", options.profile,
                  "Layers from a file: the published graph format, what "
                  "'profile -o json' prints, or a plan file; asks no "
                  "coordinator")
      ->type_name("FILE");
  app->add_option("--batch", options.batch, "Samples of one micro-batch")
      ->type_name("B")
      ->check(CLI::Range(int64_t{1}, kMostSamples));
}

void AddMachines(CLI::App* app, PlanOptions& options) {
  app->add_option("--machines", options.machines,
                  "With --profile: 16 devices, or 4x4: devices of a machine, "
                  "and machines")
      ->type_name("NxM");
  app->add_option("--bandwidth", options.bandwidth,
                  "Bytes a second inside a machine and between them")
      ->type_name("B1,B2");
  app->add_option("--latency", options.latency,
                  "Seconds inside a machine and between them")
      ->type_name("L1,L2");
  app->add_option("--speed", options.speed,
                  "Of the devices, 1: as the profile; one number a device, or "
                  "one for all")
      ->type_name("S,S,...");
  app->add_option("--memory", options.memory, "Bytes of each device")
      ->type_name("BYTES");
}

void AddPolicy(CLI::App* app, PlanOptions& options) {
  app->add_option("--policy", options.policy,
                  "Who plans; default: the job's, else dp")
      ->type_name(
          absl::StrCat("POLICY:{", absl::StrJoin(PolicyNames(), ","), "}"))
      ->check(CheckPolicy, "");
  app->add_flag("--compare", options.compare,
                "Asks all policies: cost, gap and time in one table");
  app->add_option("--levels", options.levels,
                  "2: stages inside each machine, then over the machines")
      ->check(CLI::Range(1, 2))
      ->option_text("1|2");
  app->add_option("--seed", options.seed, "Of mcmc and soft")
      ->type_name("N")
      ->check(CLI::Range(int64_t{0}, std::numeric_limits<int64_t>::max()))
      ->capture_default_str();
  app->add_option("--cost-model", options.cost_model,
                  "paceline, or pipedream: the formula of PipeDream's "
                  "optimizer")
      ->check(CLI::IsMember({"paceline", "pipedream"}));
  app->add_flag("--count-transfers", options.count_transfers,
                "pipedream: activations and gradients cost time");
}

void AddGoal(CLI::App* app, PlanOptions& options) {
  app->add_option("--micro-batches", options.micro_batches,
                  "Of a step; 0: an endless stream, where only the bottleneck "
                  "counts.  Default: train.batch / train.micro_batch; 0 with "
                  "--profile")
      ->type_name("M")
      ->check(CLI::Range(int64_t{0}, kMaxPlannedMicroBatches));
  app->add_flag("--inference", options.inference, "Forward only");
  app->add_option("--stages", options.stages, "Exactly so many")
      ->type_name("S")
      ->check(CLI::Range(1, 100'000));
  app->add_flag("--replicas", options.replicas,
                "Several workers a stage, where that is faster.  The default "
                "but for a mesh's training, since no job trains replicas yet");
  app->add_flag("--no-replicas", options.no_replicas, "One device a stage");
  app->add_flag("--even-shares", options.even_shares,
                "Replicas get equal shares, whatever their speed");
  app->add_flag("--no-overlap", options.no_overlap,
                "Transfers stop compute instead of running beside it");
  app->add_option("--schedule", options.schedule,
                  "What is kept in memory, as pipeline.schedule")
      ->type_name("SCHEDULE");
  app->add_option("--reserve", options.reserve_bytes,
                  "Bytes that every device keeps free of the model")
      ->type_name("BYTES")
      ->check(CLI::Range(0.0, 1e18));
}

void AddMachineFlags(CLI::App* simulate, SimulateFlags& simulated) {
  MachineFlags& flags = simulated.machines;
  const auto add = [&](const char* name, auto& value, const char* type,
                       const char* help) {
    return simulate->add_option(name, value, help)
        ->type_name(type)
        ->group(kMachinesGroup);
  };
  add("--devices", flags.devices, "N",
      "How many (default 4, or as many as --speed lists)");
  add("--speed", flags.speeds, "S,...", "One for all, or one a device")
      ->delimiter(',')
      ->allow_extra_args(false);
  add("--bandwidth", flags.bandwidths, "BYTES/S,...",
      "Of a device's port: one for all, or one a device (default 1.25e8)")
      ->delimiter(',')
      ->allow_extra_args(false);
  add("--latency", flags.latency_seconds, "SECONDS", "Of every link")
      ->capture_default_str();
  add("--frame-seconds", flags.frame_seconds, "SECONDS",
      "CPU that a frame takes at each end")
      ->capture_default_str();
  add("--stages", flags.stages, "S", "Default: one a device");
  CLI::Option* model = add("--model", simulated.model, "MODEL",
                           "Layers of a model, by their flops");
  // Without a model: equal layers.
  for (CLI::Option* of_equal_layers :
       {add("--layers", flags.layers, "N", "Default: one a device"),
        add("--forward", flags.forward_seconds, "SECONDS",
            "Of a layer and micro-batch on a device of speed 1 (default 0.01)"),
        add("--backward", flags.backward_seconds, "SECONDS",
            "The same (default: twice forward)"),
        add("--output-bytes", flags.output_bytes, "BYTES",
            "From a layer to the next (default 1e6)"),
        add("--parameter-bytes", flags.parameter_bytes, "BYTES",
            "Of a layer (default 4e6)"),
        add("--kept-bytes", flags.kept_bytes, "BYTES",
            "That a layer keeps for backward (default 4e6)")}) {
    of_equal_layers->excludes(model);
  }
  add("--batch", flags.micro_batch_samples, "SAMPLES", "Of a micro-batch");
  add("--flops", flags.flops_per_second, "FLOP/S",
      "Of a device of speed 1 (default 1e10)")
      ->needs(model);
  simulate
      ->add_option("--set", simulated.sets,
                   "Overrides one value of the model: KEY=VALUE, as in "
                   "model.depth=2; may be given again")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false)
      ->group(kMachinesGroup)
      ->needs(model);
}

}  // namespace

void AddProfileOptions(CLI::App* app, ProfileOptions& options) {
  CLI::Option* const model = AddModel(app, options.model);
  CLI::Option* const batch = AddBatch(app, options.batch);
  model->needs(batch);
  app->add_option("-f,--file", options.job_file,
                  "Model, micro-batch and precision of a job, as YAML; - reads "
                  "standard input")
      ->type_name("FILE")
      ->excludes(model)
      ->excludes(batch);
  CLI::Option* const worker =
      app->add_option("--worker", options.workers,
                      "Measures on this one; may be given again")
          ->type_name("NAME")
          ->allow_extra_args(false);
  app->add_flag("--all", options.all,
                "Measures on all live workers; the default")
      ->excludes(worker);
  app->add_flag_function(
      "--links,!--no-links",
      [&options](int64_t given) { options.links = given > 0; },
      "Measures bandwidth and latency between the workers too; the default "
      "when there are several");
  app->footer(
      "Examples:\n"
      "  paceline profile --model lenet --batch 16\n"
      "  paceline profile --model vit --batch 8 --set model.depth=6 "
      "--worker w1 --worker w2\n"
      "  paceline profile -f job.yaml --set train.micro_batch=8\n"
      "  paceline profile --model lenet --batch 16 -o json > lenet.json");
}

void AddPlanOptions(CLI::App* app, PlanOptions& options) {
  AddSource(app, options);
  AddMachines(app, options);
  AddPolicy(app, options);
  AddGoal(app, options);
  app->add_option("--save", options.save,
                  "Writes a plan file, for 'simulate --plan' and 'job submit "
                  "--plan'")
      ->type_name("FILE");
  app->footer(
      "Layers are numbered from 0; in -o json last_layer is one past the "
      "last.\n"
      "Examples:\n"
      "  paceline plan --model lenet --batch 16\n"
      "  paceline plan -f job.yaml --compare\n"
      "  paceline plan -f job.yaml --save plan.json\n"
      "  paceline plan --profile vgg16.txt --machines 4x4 "
      "--bandwidth 1e10,1.25e9 --memory 16e9");
}

void AddPredictModelOptions(CLI::App* app, PredictModelOptions& options) {
  AddModel(app, options.model);
  AddBatch(app, options.batch);
  app->add_option("--device", options.device,
                  "With --model: on this worker; default: all")
      ->type_name("NAME");
}

void AddSimulateOptions(CLI::App* simulate, SimulateFlags& flags,
                        std::string& plan_file) {
  AddMachineFlags(simulate, flags);
  CLI::Option* const plan =
      simulate
          ->add_option("--plan", plan_file,
                       "A plan file of 'plan --save': its machines and stages")
          ->type_name("FILE");
  for (CLI::Option* option : simulate->get_options()) {
    if (option->get_group() == kMachinesGroup) plan->excludes(option);
  }
  simulate
      ->add_option("--schedule", flags.schedule,
                   "Order of forwards and backwards (default 1f1b)")
      ->type_name("SCHEDULE");
  simulate
      ->add_option("--micro-batches", flags.micro_batches,
                   "Of a step (default 32)")
      ->type_name("M");
  simulate->add_option("--steps", flags.steps, "How many steps")
      ->type_name("K")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  simulate->add_flag("--inference", flags.inference,
                     "Forwards only, batch after batch");
  simulate
      ->add_option("--credit", flags.credit_frames,
                   "Frames on their way of one boundary and direction; 0: as "
                   "workers grant them")
      ->type_name("N")
      ->check(CLI::Range(0, 1 << 20));
  simulate
      ->add_option("--slow", flags.slow,
                   "A device takes FACTOR times as long from TIME on; may be "
                   "given again")
      ->type_name("DEVICE@TIME=FACTOR[:DURATION]")
      ->allow_extra_args(false);
  simulate
      ->add_option("--fail", flags.fail,
                   "A device is gone at TIME; BACK seconds later the step is "
                   "run again; may be given again")
      ->type_name("DEVICE@TIME[:BACK]")
      ->allow_extra_args(false);
  simulate
      ->add_option("--trace", flags.trace_file,
                   "Writes what happened for ui.perfetto.dev")
      ->type_name("FILE");
  simulate->footer(
      "Examples:\n"
      "  paceline simulate --devices 4 --speed 1,1,1,0.5 --micro-batches 16\n"
      "  paceline simulate --model vit --batch 8 --devices 3 --trace t.json\n"
      "  paceline simulate --plan plan.json --schedule gpipe\n"
      "  paceline simulate --devices 4 --slow d2@1=3:5 --fail d1@0.5:10");
}

namespace {

std::string CheckScheduleName(const std::string& word) {
  return WhyNotAmong("schedule", word, ScheduleNames());
}

void AddShared(CLI::App* app, BenchOptions& options) {
  app->add_option("--model", options.model,
                  "Name of a model, as 'model list' has it")
      ->type_name("MODEL")
      ->required();
  app->add_option("--stages", options.stages,
                  "How many; default: 1 and as many as there are workers")
      ->type_name("S,S,...")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  app->add_option("--policy", options.policies, "Who cuts; default: dp")
      ->type_name("POLICY,...")
      ->delimiter(',')
      ->check(CheckPolicy, "");
  app->add_option("--micro-batch", options.micro_batch,
                  "Samples of one micro-batch")
      ->type_name("B")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  app->add_option("--micro-batches", options.micro_batches,
                  "How many pass through")
      ->type_name("M")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 20))
      ->capture_default_str();
  app->add_option(
         "--tries", options.tries,
         "Rounds through all of it; of each the one of median speed-up "
         "is shown")
      ->type_name("N")
      ->check(CLI::Range(1, 99))
      ->capture_default_str();
  app->add_option("--paired", options.paired,
                  "One worker alone before and after everything it is compared "
                  "with, for N micro-batches (training: steps): for machines "
                  "that are now faster, now slower")
      ->type_name("N")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 20));
  app->add_flag("!--no-profile", options.profile,
                "Plans with what was measured before, if anything was");
  app->add_flag("--keep-jobs", options.keep_jobs,
                "Leaves the jobs, to be looked at with 'job show'");
}

}  // namespace

void AddBenchInferOptions(CLI::App* app, BenchOptions& options) {
  AddShared(app, options);
  app->footer(
      "Samples are made up, weights are drawn: it is the time that counts.\n"
      "Examples:\n"
      "  paceline bench infer --model lenet\n"
      "  paceline bench infer --model deit_small_patch16_224 "
      "--stages 1,2,3,4,6 --policy equal,min-cut,dp\n"
      "  paceline bench infer --model vit --set pipeline.codec=bf16 -o json");
}

void AddBenchTrainOptions(CLI::App* app, BenchOptions& options) {
  AddShared(app, options);
  app->add_option("--schedule", options.schedules,
                  "One of pipeline.schedule, or several; default: 1f1b")
      ->type_name("SCHEDULE,...")
      ->delimiter(',')
      ->check(CheckScheduleName, "");
  app->add_option("--steps", options.steps,
                  "Batches; the first one is not counted")
      ->type_name("N")
      ->check(CLI::Range(int64_t{2}, int64_t{1'000'000}))
      ->capture_default_str();
  app->footer(
      "Samples are made up; micro-batches are those of a batch.\n"
      "Examples:\n"
      "  paceline bench train --model lenet --micro-batch 8 "
      "--micro-batches 16\n"
      "  paceline bench train --model deit_small_patch16_224 --stages 1,4 "
      "--micro-batch 2 --micro-batches 32 --schedule 1f1b,zero-bubble");
}

}  // namespace paceline
