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
  return AddValue(app, "--batch", batch, "B",
                  "Samples of one micro-batch (train.batch is the "
                  "samples of a step)")
      ->check(CLI::Range(int64_t{1}, kMostSamples));
}

CLI::Option* AddModel(CLI::App* app, std::string& model) {
  return AddValue(app, "--model", model, "MODEL",
                  "Name of a model, as 'model list' has it");
}

std::string CheckPolicy(const std::string& word) {
  return WhyNotAmong("policy", word, PolicyNames());
}

void AddSource(CLI::App* app, PlanOptions& options) {
  AddModel(app, options.model);
  AddValue(app, "-f,--file", options.job_file, "FILE",
           "A job, as YAML; - reads standard input");
  AddValue(app, "--profile", options.profile, "FILE",
           "Layers from a file: the published graph format, what "
           "'profile -o json' prints, or a plan file; asks no "
           "coordinator");
  AddValue(app, "--batch", options.batch, "B", "Samples of one micro-batch")
      ->check(CLI::Range(int64_t{1}, kMostSamples));
}

void AddMachines(CLI::App* app, PlanOptions& options) {
  AddValue(app, "--machines", options.machines, "NxM",
           "With --profile: 16 devices, or 4x4: devices of a machine, "
           "and machines");
  AddValue(app, "--bandwidth", options.bandwidth, "B1,B2",
           "Bytes a second inside a machine and between them");
  AddValue(app, "--latency", options.latency, "L1,L2",
           "Seconds inside a machine and between them");
  AddValue(app, "--speed", options.speed, "S,S,...",
           "Speed of the devices (1: as the profile), one number a "
           "device, or one for all");
  AddValue(app, "--memory", options.memory, "BYTES", "Bytes of each device");
}

void AddPolicy(CLI::App* app, PlanOptions& options) {
  app->add_option("--policy", options.policy,
                  "How to plan; default: the job's policy, else dp")
      ->type_name(
          absl::StrCat("POLICY:{", absl::StrJoin(PolicyNames(), ","), "}"))
      ->check(CheckPolicy, "");
  app->add_flag("--compare", options.compare,
                "Asks all policies: cost, gap and time in one table");
  app->add_option("--levels", options.levels,
                  "2: stages inside each machine, then over the machines")
      ->check(CLI::Range(1, 2))
      ->option_text("1|2");
  AddValue(app, "--seed", options.seed, "N", "Seed of mcmc and soft")
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
  AddValue(app, "--micro-batches", options.micro_batches, "M",
           "Micro-batches of a step; 0: an endless stream, where only the "
           "bottleneck counts.  Default: train.batch / train.micro_batch; 0 "
           "with --profile")
      ->check(CLI::Range(int64_t{0}, kMaxPlannedMicroBatches));
  app->add_flag("--inference", options.inference,
                "Plans the forward pass only");
  AddValue(app, "--stages", options.stages, "S", "Exactly so many stages")
      ->check(CLI::Range(1, 100'000));
  app->add_flag("--replicas", options.replicas,
                "Several workers a stage, where that is faster.  The default, "
                "except for training on a mesh, since no job trains replicas "
                "yet");
  app->add_flag("--no-replicas", options.no_replicas, "One device a stage");
  app->add_flag("--even-shares", options.even_shares,
                "Replicas get equal shares, whatever their speed");
  app->add_flag("--no-overlap", options.no_overlap,
                "Transfers stop compute instead of running beside it");
  AddValue(app, "--schedule", options.schedule, "SCHEDULE",
           "The schedule, which decides what is kept in memory; as "
           "pipeline.schedule");
  AddValue(app, "--reserve", options.reserve_bytes, "BYTES",
           "Bytes that every device keeps free of the model")
      ->check(CLI::Range(0.0, 1e18));
}

void AddMachineFlags(CLI::App* simulate, SimulateFlags& simulated) {
  MachineFlags& flags = simulated.machines;
  const auto add = [&](const char* name, auto& value, const char* type,
                       const char* help) {
    return AddValue(simulate, name, value, type, help)->group(kMachinesGroup);
  };
  add("--devices", flags.devices, "N",
      "Number of devices (default 4, or as many as --speed lists)");
  add("--speed", flags.speeds, "S,...",
      "Speed of the devices: one for all, or one a device")
      ->delimiter(',')
      ->allow_extra_args(false);
  add("--bandwidth", flags.bandwidths, "BYTES/S,...",
      "Bandwidth of a device's port: one for all, or one a device (default "
      "1.25e8)")
      ->delimiter(',')
      ->allow_extra_args(false);
  add("--latency", flags.latency_seconds, "SECONDS", "Latency of every link")
      ->capture_default_str();
  add("--frame-seconds", flags.frame_seconds, "SECONDS",
      "CPU seconds that a frame takes at each end")
      ->capture_default_str();
  add("--stages", flags.stages, "S",
      "Number of stages (default: one a device)");
  CLI::Option* model = add("--model", simulated.model, "MODEL",
                           "Takes the layers of a model, by their flops");
  // Without a model: equal layers.
  for (CLI::Option* of_equal_layers :
       {add("--layers", flags.layers, "N",
            "Number of layers (default: one a device)"),
        add("--forward", flags.forward_seconds, "SECONDS",
            "Forward of a layer and micro-batch at speed 1 (default 0.01)"),
        add("--backward", flags.backward_seconds, "SECONDS",
            "Backward of the same (default: twice forward)"),
        add("--output-bytes", flags.output_bytes, "BYTES",
            "Bytes from a layer to the next (default 1e6)"),
        add("--parameter-bytes", flags.parameter_bytes, "BYTES",
            "Parameters of a layer (default 4e6)"),
        add("--kept-bytes", flags.kept_bytes, "BYTES",
            "Bytes that a layer keeps for backward (default 4e6)")}) {
    of_equal_layers->excludes(model);
  }
  add("--batch", flags.micro_batch_samples, "SAMPLES",
      "Samples of a micro-batch");
  add("--flops", flags.flops_per_second, "FLOP/S",
      "Flops a second of a device of speed 1 (default 1e10)")
      ->needs(model);
  AddValue(simulate, "--set", simulated.sets, "KEY=VALUE",
           "Overrides one value of the model: KEY=VALUE, as in "
           "model.depth=2; may be given again")
      ->allow_extra_args(false)
      ->group(kMachinesGroup)
      ->needs(model);
}

}  // namespace

void AddProfileOptions(CLI::App* app, ProfileOptions& options) {
  CLI::Option* const model = AddModel(app, options.model);
  CLI::Option* const batch = AddBatch(app, options.batch);
  model->needs(batch);
  AddValue(app, "-f,--file", options.job_file, "FILE",
           "Model, micro-batch and precision of a job, as YAML; - reads "
           "standard input")
      ->excludes(model)
      ->excludes(batch);
  CLI::Option* const worker =
      AddValue(app, "--worker", options.workers, "NAME",
               "Measures on this worker; may be given again")
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
  AddValue(app, "--save", options.save, "FILE",
           "Writes a plan file, for 'simulate --plan' and 'job submit "
           "--plan'");
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
  AddValue(app, "--device", options.device, "NAME",
           "With --model: predicts for this worker; default: all");
}

void AddSimulateOptions(CLI::App* simulate, SimulateFlags& flags,
                        std::string& plan_file) {
  AddMachineFlags(simulate, flags);
  CLI::Option* const plan =
      AddValue(simulate, "--plan", plan_file, "FILE",
               "Simulates this plan file of 'plan --save': its machines and "
               "stages");
  for (CLI::Option* option : simulate->get_options()) {
    if (option->get_group() == kMachinesGroup) plan->excludes(option);
  }
  AddValue(simulate, "--schedule", flags.schedule, "SCHEDULE",
           "Order of forwards and backwards (default 1f1b)");
  AddValue(simulate, "--micro-batches", flags.micro_batches, "M",
           "Micro-batches of a step (default 32)");
  AddValue(simulate, "--steps", flags.steps, "K", "Number of steps")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  simulate->add_flag("--inference", flags.inference,
                     "Simulates forward passes only, batch after batch");
  AddValue(simulate, "--credit", flags.credit_frames, "N",
           "Frames that may be on their way over one boundary in one "
           "direction; 0: as many as workers grant")
      ->check(CLI::Range(0, 1 << 20));
  AddValue(simulate, "--slow", flags.slow, "DEVICE@TIME=FACTOR[:DURATION]",
           "A device takes FACTOR times as long from TIME on; may be "
           "given again")
      ->allow_extra_args(false);
  AddValue(simulate, "--fail", flags.fail, "DEVICE@TIME[:BACK]",
           "A device is gone at TIME; BACK seconds later the step is "
           "run again; may be given again")
      ->allow_extra_args(false);
  AddValue(simulate, "--trace", flags.trace_file, "FILE",
           "Writes what happened for ui.perfetto.dev");
  simulate->footer(
      "Examples:\n"
      "  paceline simulate --devices 4 --speed 1,1,1,0.5 --micro-batches 16\n"
      "  paceline simulate --model vit --batch 8 --devices 3 --trace t.json\n"
      "  paceline simulate --plan plan.json --schedule gpipe\n"
      "  paceline simulate --devices 4 --slow d2@1=3:5 --fail d1@0.5:10");
}

void AddBenchOptions(CLI::App* app, bool train, BenchOptions& options) {
  AddValue(app, "--model", options.model, "MODEL",
           "Name of a model, as 'model list' has it")
      ->required();
  AddValue(app, "--stages", options.stages, "S,S,...",
           "Numbers of stages; default: 1 and as many as there are workers")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  AddValue(app, "--policy", options.policies, "POLICY,...",
           "Policies that cut; default: dp")
      ->delimiter(',')
      ->check(CheckPolicy, "");
  AddValue(app, "--micro-batch", options.micro_batch, "B",
           "Samples of one micro-batch")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  AddValue(app, "--micro-batches", options.micro_batches, "M",
           "Number of micro-batches that pass through")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 20))
      ->capture_default_str();
  AddValue(app, "--tries", options.tries, "N",
           "Rounds through all cases; the result of median speed-up is "
           "shown")
      ->check(CLI::Range(1, 99))
      ->capture_default_str();
  AddValue(app, "--paired", options.paired, "N",
           "Runs one worker alone before and after every case, for N "
           "micro-batches (training: steps): for machines whose speed "
           "changes")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 20));
  app->add_flag(
      "!--no-profile", options.profile,
      "Plans without measuring first, with earlier measurements if any");
  app->add_flag("--keep-jobs", options.keep_jobs,
                "Keeps the jobs, for 'job show'");
  if (!train) {
    app->footer(
        "Samples are made up and weights are random: only the time counts.\n"
        "Examples:\n"
        "  paceline bench infer --model lenet\n"
        "  paceline bench infer --model deit_small_patch16_224 "
        "--stages 1,2,3,4,6 --policy equal,min-cut,dp\n"
        "  paceline bench infer --model vit --set pipeline.codec=bf16 -o json");
    return;
  }
  AddValue(app, "--schedule", options.schedules, "SCHEDULE,...",
           "Schedules, as pipeline.schedule; default: 1f1b")
      ->delimiter(',')
      ->check(
          [](const std::string& word) {
            return WhyNotAmong("schedule", word, ScheduleNames());
          },
          "");
  AddValue(app, "--steps", options.steps, "N",
           "Number of batches; the first one is not counted")
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
