#include "client/options.h"

#include <CLI/CLI.hpp>
#include <limits>
#include <memory>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/commands/command.h"
#include "client/commands/job/job.h"
#include "client/study/study.h"
#include "client/usage.h"
#include "client/values/text.h"
#include "core/base/version.h"
#include "core/job/spec/job_spec.h"
#include "core/plan/problem.h"
#include "core/plan/search/policy.h"
#include "core/schedule/schedule.h"

namespace paceline {
namespace {

// The type of an argument that names a file: completion offers files for it.
constexpr char kFile[] = "FILE";
constexpr int64_t kMostSamples = int64_t{1} << 40;
// The coordinator's bounds of its --lease.
constexpr absl::Duration kShortestLease = absl::Milliseconds(300);
constexpr absl::Duration kLongestLease = absl::Hours(1);
// Options of `simulate` that a plan file takes the place of.
constexpr char kMachinesGroup[] = "Machines and model, without --plan";
constexpr char kLayersGroup[] = "Equal layers, without --plan and --model";

bool IsInPlan(const CLI::Option& option) {
  return option.get_group() == kMachinesGroup ||
         option.get_group() == kLayersGroup;
}

// Help as CLI11 writes it, but for options that may also stand without their
// name: one of the two forms is enough, so neither is marked as required.  The
// headings of groups say what excludes their options.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string text = CLI::Formatter::make_option_opts(option);
    if (IsInPlan(*option) || option->get_excludes().size() > 2) {
      return text.substr(0, text.find(" Excludes:"));
    }
    return option->get_positional() && option->nonpositional()
               ? absl::StrReplaceAll(text, {{" REQUIRED", ""}})
               : text;
  }
};

std::string CheckPolicy(const std::string& word) {
  return WhyNotAmong("policy", PresentPolicy(word), PolicyNames());
}

std::string CheckSchedule(const std::string& word) {
  return WhyNotAmong("schedule", word, ScheduleNames());
}

// Adds an option with a value, which the help calls `type`.
template <typename T>
CLI::Option* AddValue(CLI::App* app, const char* name, T& value,
                      const char* type, const char* help) {
  return app->add_option(name, value, help)->type_name(type);
}

// Adds a number; the help has its default, unless that is nothing or 0.
template <typename T>
CLI::Option* AddNumber(CLI::App* app, const char* name, T& value,
                       const char* type, int64_t least, int64_t most,
                       const char* help) {
  CLI::Option* const option =
      AddValue(app, name, value, type, help)->check(CLI::Range(least, most));
  if constexpr (std::is_arithmetic_v<T>) {
    if (value != 0) option->capture_default_str();
  }
  return option;
}

// Adds an option that takes a time, into an absl::Duration or an optional one.
template <typename T>
CLI::Option* AddTime(CLI::App* app, const char* name, T& time,
                     const char* help) {
  return app
      ->add_option_function<std::string>(
          name, [](const std::string&) {}, help)
      ->type_name("TIME")
      ->check([&time](const std::string& text) -> std::string {
        absl::Duration parsed;
        if (!ParseTimeout(text, &parsed)) {
          return absl::StrCat("'", text, "' is no time, as 90, 90s, 5m or 2h");
        }
        time = parsed;
        return "";
      });
}

CLI::Option* AddModel(CLI::App* app, std::string& model) {
  return AddValue(app, "--model", model, "MODEL",
                  "Name of a model, as 'model list' has it");
}

CLI::Option* AddBatch(CLI::App* app, std::optional<int64_t>& batch) {
  return AddNumber(app, "--batch", batch, "B", 1, kMostSamples,
                   "Samples of one micro-batch (train.batch is the "
                   "samples of a step)");
}

void AddSets(CLI::App* app, std::vector<std::string>& sets) {
  AddValue(app, "--set", sets, "KEY=VALUE",
           "Overrides one value of the job: KEY=VALUE, as in "
           "train.steps=60; may be given again")
      ->allow_extra_args(false);
}

// The help of `app` ends with `note` and with command lines that work.
//   arguments  of each, without the program
void PutExamples(CLI::App* app, const std::vector<std::string>& arguments,
                 const std::string& note = "") {
  app->footer(absl::StrCat(
      note, note.empty() ? "" : "\n",
      arguments.size() == 1 ? "Example:" : "Examples:", "\n  paceline ",
      absl::StrJoin(arguments, "\n  paceline ")));
}

// All commands, with the places in ClientOptions that their options fill.
// Thread-compatible; `options` outlives it.
class CommandLine {
 public:
  explicit CommandLine(ClientOptions& options)
      : options_(options),
        app_("Trains neural networks over a row of small machines.",
             "paceline") {
    app_.formatter(std::make_shared<HelpFormatter>());  // for commands too
    app_.set_version_flag("--version", absl::StrCat("paceline ", kVersion));
    AddValue(&app_, "--coordinator", options_.coordinator, "HOST:PORT",
             "Where the coordinator is (default 127.0.0.1:7400; or "
             "$PACELINE_COORDINATOR, paceline.yaml); auto: the only one that "
             "Avahi finds");
    AddValue(&app_, "--context", options_.context, "CONTEXT",
             "The mesh of this name, as 'context set' made it (default: the "
             "one of 'context use'; or $PACELINE_CONTEXT)");
    AddValue(&app_, "-o,--output", options_.output, "FORMAT",
             "How the result is printed: table, wide (a table with more "
             "columns, of lists), json, jsonl or yaml")
        ->check(CLI::IsMember({"table", "wide", "json", "jsonl", "yaml"}));
    AddValue(&app_, "--tls-dir", options_.tls_dir, "DIR",
             "Folder of certificate and key (default: where 'login' wrote "
             "them for the coordinator; or $PACELINE_TLS_DIR)");
    AddValue(&app_, "--secret-file", options_.secret_file, kFile,
             "File of the coordinator's secret (default: that of your own "
             "'up'; or $PACELINE_SECRET_FILE, paceline.yaml)");
    app_.require_subcommand(1);
    app_.fallthrough();
    app_.footer(kProgramFooter);
    AddUp();
    AddSubmit(AddGroup("job", "Submits and watches jobs"));
    AddJobs(app_.get_subcommand("job"));
    AddNodes(AddGroup("node", "Shows and drains workers"));
    AddModels(AddGroup("model",
                       "Shows models and weights files; needs no coordinator"));
    AddReport();
    AddStudy();
    AddProfile();
    AddBench(AddGroup("bench", "Compares this mesh with one worker of it"));
    AddPlan();
    AddPredict();
    AddSimulate();
    AddTrust();
    AddContexts(AddGroup("context", "Gives names to meshes; needs none"));
    Add(&app_, "top", "Shows the mesh as it changes, until Ctrl-C",
        {"top", "top | tee mesh.txt   (a line for each change)"});
    AddCompletion();
  }

  CLI::App& app() { return app_; }

 private:
  // examples, note: as PutExamples() has them
  CLI::App* Add(CLI::App* parent, const char* name, const char* help,
                const std::vector<std::string>& examples = {},
                const std::string& note = "") {
    CLI::App* const app = parent->add_subcommand(name, help);
    PutExamples(app, examples, note);
    return app;
  }

  // A command that only has commands below it.
  CLI::App* AddGroup(const char* name, const char* help) {
    CLI::App* const app = app_.add_subcommand(name, help);
    app->footer("");
    app->require_subcommand(1);
    return app;
  }

  void AddTarget(CLI::App* command, const char* name, const char* type,
                 const char* help) {
    AddValue(command, name, options_.target, type, help)->required();
  }

  void AddWatch(CLI::App* command) {
    command->add_flag("-w,--watch", options_.watch,
                      "Goes on and shows what changes, until Ctrl-C");
  }

  void AddTimeout(CLI::App* command) {
    AddTime(command, "--timeout", options_.timeout,
            "Waits no longer than this (seconds, or 90s, 5m, 2h); the "
            "job goes on");
  }

  void AddUp() {
    MeshOptions& mesh = options_.up.mesh;
    mesh.state = DefaultUpState();
    CLI::App* const up =
        Add(&app_, "up",
            "Runs a coordinator and workers on this machine until Ctrl-C",
            {"up", "up --workers 2 --port 0 --http-port 0 --state mesh"});
    AddNumber(up, "--workers", mesh.workers, "N", 1, 256, "How many workers");
    AddNumber(up, "--port", mesh.port, "P", 0, 65535,
              "The coordinator's port; 0: any");
    AddNumber(up, "--http-port", mesh.http_port, "P", 0, 65535,
              "The port of the coordinator's /metrics; 0: any");
    AddValue(up, "--state", mesh.state, "DIR",
             "Folder for jobs, weights and logs")
        ->check([](const std::string& text) {
          return text.empty() ? "need the name of a folder" : "";
        })
        ->capture_default_str();
    AddValue(up, "--log-level", mesh.log_level, "LEVEL", "What the daemons log")
        ->check(CLI::IsMember({"debug", "info", "warn", "error"}))
        ->capture_default_str();
    AddTime(up, "--lease", mesh.lease,
            "A worker that is silent for as long counts as lost; raise it on a "
            "box that is busy with other work")
        ->default_str("3s")
        ->check([&mesh](const std::string&) {
          return mesh.lease >= kShortestLease && mesh.lease <= kLongestLease
                     ? ""
                     : "need 300ms to 1h";
        });
    AddValue(up, "--ready-file,--port-file", options_.up.ready_file, kFile,
             "Writes this file, as JSON, once all workers have registered");
  }

  // These options are the same however a job is submitted.
  void AddSubmission(CLI::App* command) {
    AddSets(command, options_.source.sets);
    AddTimeout(command);
    command
        ->add_flag("--detach", options_.detach,
                   "Returns at once instead of waiting for the end")
        ->excludes("--timeout");
    command->add_flag("--dry-run", options_.dry_run,
                      "Prints the plan and what it needs, and submits nothing");
  }

  void AddSubmit(CLI::App* job) {
    CLI::App* const submit =
        Add(job, "submit", "Submits a job and waits for its end",
            {"job submit job.yaml",
             "job submit job.yaml --set pipeline.stages=2 --dry-run",
             "job submit --again last --set train.epochs=3",
             "job submit - < job.yaml"});
    CLI::Option* const file =
        AddValue(submit, "file,-f,--file", options_.target, kFile,
                 "The job file (YAML); - reads standard input");
    CLI::Option* const again =
        AddValue(submit, "--again", options_.again, "JOB",
                 "Submits this job (its number, or 'last') once more, from its "
                 "beginning")
            ->excludes(file);
    submit->callback([file, again] {
      if (!*file && !*again) throw CLI::RequiredError("FILE or --again JOB");
    });
    AddSubmission(submit);
    AddValue(submit, "--plan", options_.plan_file, kFile,
             "Follows this plan file of 'plan --save': its cuts and workers");
  }

  void AddJobList(CLI::App* job) {
    CLI::App* const list =
        Add(job, "list", "Lists jobs, newest first",
            {"job list --limit 10 -o wide",
             "job list --state queued,running --model lenet"});
    JobFilter& filter = options_.filter;
    AddNumber(list, "--limit", filter.limit, "N", 0, 1'000'000'000,
              "Lists at most so many; 0: all");
    AddValue(list, "--state", filter.states, "STATE,...",
             "Lists only jobs in these states")
        ->delimiter(',')
        ->check(CLI::IsMember(
            {"queued", "running", "succeeded", "failed", "stopped"}));
    AddValue(list, "--model", filter.model, "MODEL",
             "Lists only jobs of this model");
    AddValue(list, "--name", filter.name, "TEXT",
             "Lists only jobs with this in their names");
    AddWatch(list);
  }

  void AddJobs(CLI::App* job) {
    AddJobList(job);
    const auto with_job = [&](const char* name, const char* help,
                              const std::vector<std::string>& examples = {}) {
      CLI::App* const app = Add(
          job, name, help,
          examples.empty() ? std::vector{absl::StrCat("job ", name, " last")}
                           : examples);
      AddTarget(app, "job", "JOB", "Number of the job, or 'last'");
      return app;
    };
    AddWatch(
        with_job("show", "Shows a job: progress, loss, accuracy, time split"));
    for (CLI::App* const app :
         {with_job("logs", "Prints what the job's workers logged"),
          with_job("events", "Prints what happened to the job")}) {
      app->add_flag("-f,--follow", options_.follow,
                    "Goes on until the job ends");
    }
    AddTimeout(with_job("wait", "Waits for the job's end"));
    AddTimeout(with_job(
        "watch", "Tells what happens to the job, and waits for its end"));
    with_job("stop", "Stops the job");
    CLI::App* const weights = with_job(
        "export",
        "Fetches the job's weights or predictions (safetensors).  A pipeline "
        "that trains makes a checkpoint for it, some steps old, which counts "
        "as one of the two that stay.  A job that was stopped gives its newest "
        "checkpoint",
        {"job export last -o model.safetensors",
         "job export last --adapters -o my-adapters"});
    AddValue(weights, "-o,--output-file", options_.export_file, kFile,
             "The file to write; - writes to standard output")
        ->required()
        ->check(WhyNoExportFile, "");
    CLI::Option* const merged = weights->add_flag_callback(
        "--merged", [this] { options_.export_form = ExportForm::kMerged; },
        "Of a job with model.lora: adds the adapters to the weights beside "
        "them; the file is one of the model without adapters");
    weights
        ->add_flag_callback(
            "--adapters",
            [this] { options_.export_form = ExportForm::kAdapters; },
            "Of a job with model.lora: writes what trained into the folder "
            "that -o names, as Hugging Face's PEFT loads it")
        ->excludes(merged);
    CLI::App* const resume = with_job(
        "resume",
        "Submits a new job that goes on from a checkpoint of an ended one",
        {"job resume last", "job resume 7 --from 200 --set pipeline.stages=2"});
    AddSubmission(resume);
    AddNumber(resume, "--from", options_.from_step, "STEP", 1, 1'000'000'000,
              "Goes on from the checkpoint of this step, not the newest one");
    resume->add_flag("--accept-changed-data", options_.accept_changed_data,
                     "Takes data or a teacher that is not what it was");
    with_job("delete", "Deletes an ended job, its weights and its checkpoints");
    AddValue(Add(job, "keys",
                 "Explains the keys of a job file; needs no coordinator",
                 {"job keys", "job keys train.optimizer"}),
             "section", options_.target, "SECTION",
             "Explains one section or key only, as train.optimizer");
  }

  void AddReport() {
    ReportOptions& report = options_.report;
    CLI::App* const app =
        Add(&app_, "report",
            "Shows what jobs did, side by side: loss, time, "
            "a step, faults, resources",
            {"report last -o report.html", "report 7 8 --format csv > jobs.csv",
             "report 7 --format perfetto -o step.json"});
    AddValue(app, "jobs", report.jobs, "JOB", "Numbers of jobs, or 'last'")
        ->required();
    AddValue(app, "--format", report.format, "FORMAT",
             "html: a page that stands alone; csv, latex: its tables; "
             "perfetto: a step for ui.perfetto.dev")
        ->check(CLI::IsMember(ReportFormats()))
        ->capture_default_str();
    AddValue(app, "-o,--output-file", report.file, kFile,
             "The file to write (default: standard output)")
        ->check(WhyNoExportFile, "");
  }

  void AddNodes(CLI::App* node) {
    AddWatch(Add(node, "list", "Lists all workers",
                 {"node list -o json", "node list --watch"}));
    const auto with_node = [&](const char* name, const char* help) {
      AddTarget(Add(node, name, help, {absl::StrCat("node ", name, " w1")}),
                "node", "NODE", "Name or number of the worker");
    };
    with_node("show", "Shows one worker");
    with_node("drain",
              "Gives a worker nothing new; what it holds of jobs moves to "
              "other workers");
    with_node("undrain", "Gives a drained worker work again");
    with_node("forget", "Takes a lost or stopped worker off the list");
  }

  void AddModels(CLI::App* model) {
    Add(model, "list", "Lists all models", {"model list"});
    CLI::App* const inspect =
        Add(model, "inspect",
            "Layers and sizes of a model, or what a weights file holds",
            {"model inspect vit --set model.depth=2",
             "model inspect weights.safetensors"});
    AddTarget(inspect, "model", kFile,
              "Name of a model, or of a .safetensors file");
    AddSets(inspect, options_.source.sets);
    AddPrune(model);
  }

  void AddPrune(CLI::App* model) {
    PruneOptions& options = options_.prune;
    CLI::App* const app = Add(
        model, "prune",
        "Takes heads, hidden units, channels and width that matter least out "
        "of the weights of a vit, deit, resnet or vgg.  Prints model.sizes, "
        "which a job with the new file needs",
        {"model prune vit.safetensors -f vit.yaml --target-macs "
         "0.5 -o pruned.safetensors"});
    AddValue(app, "weights", options.weights, kFile, "The .safetensors file")
        ->required();
    AddValue(app, "-o,--output-file", options.out, kFile, "The file to write")
        ->required()
        ->check(WhyNoExportFile, "");
    AddValue(app, "--target-macs", options.target_macs, "SHARE",
             "At most this share of a forward's multiply-adds stays")
        ->required();
    AddValue(app, "--score", options.score, "SCORE",
             "How units are scored: by the sum of absolute weights (l1), or by "
             "what the loss would change without them (taylor)")
        ->check(CLI::IsMember({"l1", "taylor"}));
    AddNumber(
        app, "--batches", options.batches, "N", 1, 1000,
        "With --score taylor: jobs of one step, a batch each (default: 8)");
    CLI::Option* const of_model = AddModel(app, options.model);
    CLI::Option* const job = AddValue(app, "-f,--file", options.file, kFile,
                                      "The job that the weights are of")
                                 ->excludes(of_model);
    app->callback([this, of_model, job] {
      if (!*of_model && !*job) throw CLI::RequiredError("--file or --model");
      options_.command = "model prune --score " + options_.prune.score;
    });
    AddSets(app, options.sets);
  }

  void AddStudy() {
    StudyOptions& study = options_.study;
    CLI::App* const app =
        Add(&app_, "study",
            "Runs a job with several settings, and compares what comes out",
            {"study deploy/studies/batch-size.yaml --dry-run",
             "study deploy/studies/batch-size.yaml --report out.html",
             "study batch.yaml --set train.steps=200 -o json",
             "study deploy/studies/pipedream.yaml"},
            "A study that was interrupted goes on where it was: type the "
            "same again.  A study file with 'plan' in place of 'base' "
            "plans and simulates, and asks no coordinator.");
    AddValue(app, "file", study.file, kFile, "The study file (YAML)")
        ->required();
    AddSets(app, study.sets);
    app->add_flag("--dry-run", study.dry_run,
                  "Checks all trials, prints how long a job of each takes, and "
                  "submits nothing");
    AddValue(app, "--report", study.report, kFile,
             "Also writes the results to this file: .html (a page that stands "
             "alone), .csv or .tex")
        ->check(WhyNoStudyReport, "");
    app->add_flag(
        "--yes", study.yes,
        absl::StrCat("Also where there are more than ", kManyJobs, " jobs"));
  }

  void AddProfile() {
    ProfileOptions& options = options_.profile;
    JobSource& source = options_.source;
    CLI::App* const app =
        Add(&app_, "profile",
            "Measures a model's layers on workers, and their links",
            {"profile --model lenet --batch 16",
             "profile --model vit --batch 8 --set model.depth=6 "
             "--worker w1 --worker w2",
             "profile -f job.yaml --set train.micro_batch=8",
             "profile --model lenet --batch 16 -o json > lenet.json"});
    CLI::Option* const model = AddModel(app, source.model);
    CLI::Option* const batch = AddBatch(app, source.batch);
    model->needs(batch);
    AddValue(app, "-f,--file", source.file, kFile,
             "Model, micro-batch and precision of a job, as YAML; - reads "
             "standard input")
        ->excludes(model)
        ->excludes(batch);
    CLI::Option* const worker =
        AddValue(app, "--worker", options.workers, "NODE",
                 "Measures on this worker; may be given again")
            ->allow_extra_args(false);
    app->add_flag("--all", options.all,
                  "Measures on all live workers; the default")
        ->excludes(worker);
    CLI::Option* const links = app->add_flag_function(
        "--links", [&options](int64_t) { options.links = true; },
        "Measures bandwidth and latency between the workers too; the default "
        "when there are several");
    app->add_flag_function(
           "--no-links", [&options](int64_t) { options.links = false; },
           "Measures no bandwidth and latency")
        ->excludes(links);
    AddSets(app, source.sets);
    AddTimeout(app);
  }

  void AddBench(CLI::App* bench) {
    AddBenchOptions(
        Add(bench, "infer",
            "Runs a model forward over 1, 2, ... stages: samples a "
            "second, latency, and where the rest goes",
            {"bench infer --model lenet",
             "bench infer --model deit_small_patch16_224 --stages 1,2,3,4,6 "
             "--policy equal,min-cut,optimal",
             "bench infer --model vit --set pipeline.codec=bf16 -o json"},
            "Samples are made up and weights are random: only the time "
            "counts."),
        /*train=*/false);
    CLI::App* const train =
        Add(bench, "train",
            "Trains for some steps over 1, 2, ... stages: samples a second, "
            "and where the rest goes",
            {"bench train --model lenet --micro-batch 8 --micro-batches 16",
             "bench train --model deit_small_patch16_224 --stages 1,4 "
             "--micro-batch 2 --micro-batches 32 --schedule 1f1b,zero-bubble"},
            "Samples are made up; micro-batches are those of a batch.");
    AddBenchOptions(train, /*train=*/true);
    train->preparse_callback([this](size_t) { options_.bench.train = true; });
  }

  void AddBenchOptions(CLI::App* app, bool train) {
    BenchOptions& options = options_.bench;
    AddModel(app, options.model)->required();
    AddValue(app, "--stages", options.stages, "S,S,...",
             "Numbers of stages; default: 1 and as many as there are workers")
        ->delimiter(',')
        ->check(CLI::Range(1, 1024));
    AddValue(app, "--policy", options.policies, "POLICY,...",
             "Policies that cut; default: optimal")
        ->delimiter(',')
        ->check(CheckPolicy, "");
    AddNumber(app, "--micro-batch", options.micro_batch, "B", 1,
              int64_t{1} << 20, "Samples of one micro-batch");
    CLI::Option* const micro_batches = AddNumber(
        app, "--micro-batches", options.micro_batches, "M", 2, int64_t{1} << 20,
        train ? "Micro-batches of a batch"
              : "Number of micro-batches that pass through; without "
                "it more where these take no time");
    if (!train) {
      app->callback([this, micro_batches] {
        options_.bench.lengthen = micro_batches->count() == 0;
      });
    }
    AddNumber(app, "--tries", options.tries, "N", 1, 99,
              "Rounds through all cases; the result of median speed-up is "
              "shown");
    AddNumber(app, "--paired", options.paired, "N", 2, int64_t{1} << 20,
              "Runs one worker alone before and after every case, for N "
              "micro-batches (training: steps): for machines whose speed "
              "changes");
    app->add_flag_function(
        "--no-profile", [&options](int64_t) { options.profile = false; },
        "Plans without measuring first, with earlier measurements if any");
    app->add_flag("--keep-jobs", options.keep_jobs,
                  "Keeps the jobs, for 'job show'");
    if (train) {
      AddValue(app, "--schedule", options.schedules, "SCHEDULE,...",
               "Schedules, as pipeline.schedule; default: 1f1b")
          ->delimiter(',')
          ->check(CheckSchedule, "");
      AddNumber(app, "--steps", options.steps, "N", 2, 1'000'000,
                "Number of batches; the first one is not counted");
    }
    AddSets(app, options.sets);
    AddTimeout(app);
  }

  void AddPlan() {
    PlanOptions& options = options_.plan;
    CLI::App* const app =
        Add(&app_, "plan",
            "Plans which layers go where, says why, and how good it is",
            {"plan --model lenet --batch 16", "plan -f job.yaml --compare",
             "plan -f job.yaml --save plan.json",
             "plan --profile vgg16.txt --machines 4x4 --bandwidth "
             "1e10,1.25e9 --memory 16e9"},
            "Layers are numbered from 0; in -o json last_layer is one past "
            "the last.");
    AddModel(app, options.model);
    AddValue(app, "-f,--file", options.job_file, kFile,
             "A job, as YAML; - reads standard input");
    AddValue(app, "--profile", options.profile, kFile,
             "Layers from a file: the published graph format, what 'profile -o "
             "json' prints, or a plan file; asks no coordinator");
    AddNumber(app, "--batch", options.batch, "B", 1, kMostSamples,
              "Samples of one micro-batch");
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
    AddPolicy(app);
    AddGoal(app);
    AddValue(app, "--save", options.save, kFile,
             "Writes a plan file, for 'simulate --plan' and 'job submit "
             "--plan'");
    AddSets(app, options.sets);
  }

  void AddPolicy(CLI::App* app) {
    PlanOptions& options = options_.plan;
    app->add_option("--policy", options.policy,
                    "How to plan; default: the job's policy, else optimal")
        ->type_name(
            absl::StrCat("POLICY:{", absl::StrJoin(PolicyNames(), ","), "}"))
        ->check(CheckPolicy, "");
    app->add_flag("--compare", options.compare,
                  "Asks all policies: cost, gap and time in one table");
    AddNumber(app, "--seed", options.seed, "N", 0,
              std::numeric_limits<int64_t>::max(), "Seed of mcmc and soft");
    app->add_option("--cost-model", options.cost_model,
                    "paceline, or pipedream: the formula of PipeDream's "
                    "optimizer")
        ->check(CLI::IsMember({"paceline", "pipedream"}));
    app->add_flag("--count-transfers", options.count_transfers,
                  "pipedream: activations and gradients cost time");
  }

  void AddGoal(CLI::App* app) {
    PlanOptions& options = options_.plan;
    AddNumber(app, "--micro-batches", options.micro_batches, "M", 0,
              kMaxPlannedMicroBatches,
              "Micro-batches of a step; 0: an endless stream, where only the "
              "bottleneck counts.  Default: train.batch / train.micro_batch; 0 "
              "with --profile");
    app->add_flag("--inference", options.inference,
                  "Plans the forward pass only");
    AddNumber(app, "--stages", options.stages, "S", 1, 100'000,
              "Exactly so many stages");
    app->add_flag("--replicas", options.replicas,
                  "Several workers a stage, where that is faster.  The "
                  "default, except for training on a mesh without "
                  "pipeline.replicate=allowed");
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

  void AddPredict() {
    JobSource& source = options_.source;
    CLI::App* const app =
        Add(&app_, "predict",
            "Predicts times of layers.  --fit tests the prediction on a file; "
            "--model predicts a model's layers",
            {"predict --model vit --batch 8",
             "predict --fit collectives.csv --fit dot.csv",
             "predict --fit collectives.csv --at "
             "op=all_reduce,dtype=f16,group_size=4,elements=100000"});
    CLI::Option* const fit =
        AddValue(app, "--fit", options_.predict.files, kFile,
                 "Measured times: comma separated, a header line, one size "
                 "column (elements, bytes, flops or size), one called "
                 "seconds, all others features; may be given again")
            ->allow_extra_args(false);
    AddValue(app, "--at", options_.predict.at, "COLUMN=VALUE,...",
             "Predicts one time, with an interval: the features and the "
             "size; may be given again")
        ->allow_extra_args(false)
        ->needs(fit);
    CLI::Option* const model = AddModel(app, source.model)->excludes(fit);
    AddBatch(app, source.batch)->needs(model);
    AddValue(app, "--device", options_.device, "NODE",
             "With --model: predicts for this worker; default: all")
        ->needs(model);
    AddSets(app, source.sets);
    app->callback([this, fit, model] {
      if (!*fit && !*model) throw CLI::RequiredError("--fit or --model");
      if (*model && !options_.source.batch) {
        throw CLI::RequiredError("--batch, beside --model,");
      }
      options_.command = *fit ? "predict --fit" : "predict --model";
    });
  }

  void AddSimulate() {
    SimulateFlags& flags = options_.simulate;
    CLI::App* const app =
        Add(&app_, "simulate",
            "Simulates a pipeline, event by event; needs no coordinator",
            {"simulate --devices 4 --speed 1,1,1,0.5 --micro-batches 16",
             "simulate --model vit --batch 8 --devices 3 --trace t.json",
             "simulate --plan plan.json --schedule gpipe",
             "simulate --devices 4 --slow d2@1=3:5 --fail d1@0.5:10"});
    AddMachineFlags(app);
    CLI::Option* const plan =
        AddValue(app, "--plan", options_.plan_file, kFile,
                 "Simulates this plan file of 'plan --save': its machines and "
                 "stages");
    for (CLI::Option* option : app->get_options()) {
      if (IsInPlan(*option)) plan->excludes(option);
    }
    AddValue(app, "--schedule", flags.schedule, "SCHEDULE",
             "Order of forwards and backwards (default 1f1b)");
    AddValue(app, "--micro-batches", flags.micro_batches, "M",
             "Micro-batches of a step (default 32)");
    AddNumber(app, "--steps", flags.steps, "K", 1, 100'000, "Number of steps");
    app->add_flag("--inference", flags.inference,
                  "Simulates forward passes only, batch after batch");
    AddNumber(app, "--credit", flags.credit_frames, "N", 0, 1 << 20,
              "Frames that may be on their way over one boundary in one "
              "direction; 0: as many as workers grant");
    AddValue(app, "--slow", flags.slow, "DEVICE@TIME=FACTOR[:DURATION]",
             "A device takes FACTOR times as long from TIME on; may be "
             "given again")
        ->allow_extra_args(false);
    AddValue(app, "--fail", flags.fail, "DEVICE@TIME[:BACK]",
             "A device is gone at TIME; BACK seconds later the step is "
             "run again; may be given again")
        ->allow_extra_args(false);
    AddValue(app, "--trace", flags.trace_file, kFile,
             "Writes what happened for ui.perfetto.dev");
  }

  void AddMachineFlags(CLI::App* app) {
    MachineFlags& flags = options_.simulate.machines;
    const auto add = [&](const char* name, auto& value, const char* type,
                         const char* help) {
      return AddValue(app, name, value, type, help)->group(kMachinesGroup);
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
    CLI::Option* const model =
        add("--model", options_.source.model, "MODEL",
            "Takes the layers of a model, by their flops");
    // Without a model: equal layers.
    for (CLI::Option* const of_equal_layers :
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
      of_equal_layers->group(kLayersGroup)->excludes(model);
    }
    add("--batch", flags.micro_batch_samples, "SAMPLES",
        "Samples of a micro-batch");
    add("--flops", flags.flops_per_second, "FLOP/S",
        "Flops a second of a device of speed 1 (default 1e10)")
        ->needs(model);
    add("--set", options_.source.sets, "KEY=VALUE",
        "Overrides one value of the model: KEY=VALUE, as in "
        "model.depth=2; may be given again")
        ->allow_extra_args(false)
        ->needs(model);
  }

  void AddRole(CLI::App* command, const char* help) {
    AddValue(command, "--role", options_.token.role, "ROLE", help)
        ->check(CLI::IsMember({"worker", "client"}))
        ->capture_default_str();
  }

  void AddTrust() {
    CLI::App* const token =
        AddGroup("token", "Makes tokens with which machines and people join");
    CLI::App* const create =
        Add(token, "create", "Prints a new token",
            {"token create --role worker",
             "token create --role client --uses 5 --ttl 10m"});
    AddRole(create, "What the token makes: worker or client");
    AddNumber(create, "--uses", options_.token.uses, "N", 1, 1000,
              "How many may join with it");
    AddValue(create, "--for", options_.token.for_name, "NAME",
             "The only name that it is good for, also where it is taken");
    AddTime(create, "--ttl", options_.token.ttl,
            "How long it is good for: 90s, 5m or 2h (default 1h)");
    Add(token, "list", "Shows tokens that are still good",
        {"token list -o json"});
    AddTarget(Add(token, "revoke", "Makes a token useless",
                  {"token revoke 489c576a"}),
              "id", "ID", "As 'token list' shows it");
    AddLogin();
  }

  void AddLogin() {
    CLI::App* const login =
        Add(&app_, "login", "Gets a client's certificate with a token",
            {"login pi-1.local:7400 TOKEN"});
    AddValue(login, "host", options_.host, "HOST:PORT",
             "Where the coordinator is")
        ->required();
    AddValue(login, "token", options_.login_token, "TOKEN",
             "As 'token create --role client' prints it")
        ->required();
    AddValue(login, "--user", options_.user, "NAME",
             "Name in the certificate (default: yours on this machine)");
    AddTls(AddGroup("tls", "Tries and revokes certificates"));
    Add(&app_, "doctor",
        "Looks at this machine and at the mesh; says what is wrong and what to "
        "type",
        {"doctor"},
        "It exits with 1 where something is a problem; a warning is none.");
  }

  void AddTls(CLI::App* tls) {
    CLI::App* const revoke =
        Add(tls, "revoke",
            "Locks out a machine or person; a new token lets it join again",
            {"tls revoke kim --role client"});
    AddTarget(revoke, "name", "NAME", "The worker's, or the person's");
    AddRole(revoke, "What NAME is: worker or client");
    AddValue(Add(tls, "check",
                 "Tries a coordinator with the certificate here, and says what "
                 "is wrong",
                 {"tls check pi-1.local:7400"}),
             "host", options_.host, "HOST:PORT",
             "Where the coordinator is (default: --coordinator)");
  }

  void AddContexts(CLI::App* context) {
    Add(context, "list", "Lists contexts", {"context list"});
    CLI::App* const set = Add(context, "set", "Makes a context, or changes it",
                              {"context set lab pi-1.local:7400"});
    AddTarget(set, "context", "CONTEXT", "A name for the mesh");
    AddValue(set, "host", options_.host, "HOST:PORT",
             "Where its coordinator is")
        ->required();
    AddValue(Add(context, "use", "All later commands are about this mesh",
                 {"context use lab"}),
             "context", options_.target, "CONTEXT",
             "The context; without one: none is in use any more");
    AddTarget(
        Add(context, "delete", "Deletes a context", {"context delete lab"}),
        "context", "CONTEXT", "The context");
  }

  void AddCompletion() {
    CLI::App* const app =
        Add(&app_, "completion", "Prints a completion script for a shell");
    AddTarget(app, "shell", "SHELL", "bash, zsh or fish");
    app->get_option("shell")->check(CLI::IsMember({"bash", "zsh", "fish"}));
    app->footer("Example:\n  source <(paceline completion bash)");
  }

  ClientOptions& options_;
  CLI::App app_;
};

}  // namespace

std::optional<ParseStop> ParseClientOptions(int argc, const char* const* argv,
                                            ClientOptions* options) {
  CommandLine line(*options);
  options->command.clear();
  try {
    line.app().parse(argc, argv);
    if (options->command.empty()) options->command = NameOf(line.app());
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
      std::ostringstream out, err;
      line.app().exit(error, out, err);
      return ParseStop{.out = out.str(), .err = ""};
    }
    return ParseStop{.exit_code = kExitUsage,
                     .out = "",
                     .err = ExplainMistake(line.app(), error, argc, argv)};
  }
}

Completion CompleteCommandLine(const std::vector<std::string>& words,
                               ClientOptions* options) {
  Completion completion = Complete(CommandLine(*options).app(), words);
  std::vector<const char*> of_mesh = {"paceline", "top"};
  for (const std::string& word : completion.mesh) {
    of_mesh.push_back(word.c_str());
  }
  // Without the mesh that they name, nothing is asked.
  if (ParseClientOptions(static_cast<int>(of_mesh.size()), of_mesh.data(),
                         options)) {
    completion.ask.clear();
  }
  options->command = std::string(kCompleteCommand);
  options->output.reset();
  return completion;
}

}  // namespace paceline
