// paceline: the client.

#include <csignal>
#include <cstdio>
#include <iostream>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/command.h"
#include "client/completion.h"
#include "client/console.h"
#include "client/export.h"
#include "client/job_commands.h"
#include "client/model_commands.h"
#include "client/node_commands.h"
#include "client/options.h"
#include "client/pause.h"
#include "client/predict_commands.h"
#include "client/rpc/daemon_probe.h"
#include "client/rpc/grpc_control_client.h"
#include "client/rpc/job_file.h"
#include "client/rpc/settings_file.h"
#include "client/settings.h"
#include "client/standard_streams.h"
#include "client/submit.h"
#include "client/up.h"
#include "client/weights_file.h"
#include "core/base/status_macros.h"
#include "worker/weights/safetensors.h"

namespace paceline {
namespace {

// Flags, environment, files (DESIGN 9).
absl::StatusOr<Settings> GatherSettings(const ClientOptions& options) {
  std::vector<SettingsSource> sources = {{.where = "command line",
                                          .coordinator = options.coordinator,
                                          .output = options.output},
                                         EnvironmentSettings()};
  for (const std::string& path : SettingsFiles()) {
    PACELINE_ASSIGN_OR_RETURN(std::optional<SettingsSource> source,
                              ReadSettingsFile(path));
    if (source.has_value()) sources.push_back(*std::move(source));
  }
  return ResolveSettings(sources);
}

// 128 random bits: two submissions of the whole world never share one.
std::string RandomRequestId() {
  std::random_device device;
  std::string id;
  for (int i = 0; i < 4; ++i) absl::StrAppendFormat(&id, "%08x", device());
  return id;
}

class SafetensorsReader final : public WeightsFileReader {
 public:
  absl::StatusOr<WeightsSummary> Summarize(const std::string& path) override {
    return SummarizeSafetensors(path);
  }
};

ExitCode Submit(const CommandContext& context, const ClientOptions& options) {
  const auto text = ReadJobFile(options.target);
  if (!text.ok()) return ReportError(context.console, text.status());
  auto job =
      ParseJobFile({.name = options.target == "-" ? "<stdin>" : options.target,
                    .text = *text,
                    .sets = options.sets});
  if (!job.ok()) return ReportError(context.console, job.status());
  return SubmitCommand(context, {.spec = std::move(job->spec),
                                 .warnings = std::move(job->warnings),
                                 .request_id = RandomRequestId(),
                                 .detach = options.detach,
                                 .dry_run = options.dry_run,
                                 .timeout = options.timeout});
}

ExitCode RunOnJob(const CommandContext& context, const ClientOptions& options) {
  const auto job = ResolveJob(context.client, options.target);
  if (!job.ok()) return ReportError(context.console, job.status());
  switch (options.command) {
    case Command::kJobShow:
      return ShowJobCommand(context, *job);
    case Command::kJobLogs:
      return JobLogsCommand(context, *job, options.follow);
    case Command::kJobEvents:
      return JobEventsCommand(context, *job, options.follow);
    case Command::kJobWait:
      return WaitJobCommand(context, *job, options.timeout);
    case Command::kJobStop:
      return StopJobCommand(context, *job);
    case Command::kJobExport: {
      SafetensorsReader reader;
      return ExportJobCommand(context, reader, *job, options.export_file);
    }
    default:
      return DeleteJobCommand(context, *job);
  }
}

ExitCode RunWithCoordinator(const ClientOptions& options,
                            const Settings& settings, Console& console) {
  const SystemClock clock;
  SignalPauser pauser;
  GrpcControlClient client(settings.coordinator);
  const CommandContext context = {
      .client = client,
      .console = console,
      .clock = clock,
      .pauser = pauser,
      .program =
          settings.coordinator_from_flag
              ? absl::StrCat("paceline --coordinator ", settings.coordinator)
              : "paceline"};
  switch (options.command) {
    case Command::kJobSubmit:
      return Submit(context, options);
    case Command::kJobList:
      return ListJobsCommand(context, options.limit);
    case Command::kNodeList:
      return ListNodesCommand(context);
    case Command::kNodeShow:
      return ShowNodeCommand(context, options.target);
    default:
      return RunOnJob(context, options);
  }
}

ExitCode Up(const ClientOptions& options, Console& console) {
  UpOptions up = options.up;
  const auto coordinator = FindProgram("paceline-coordinator");
  if (!coordinator.ok()) return ReportError(console, coordinator.status());
  const auto worker = FindProgram("paceline-worker");
  if (!worker.ok()) return ReportError(console, worker.status());
  up.mesh.coordinator_program = *coordinator;
  up.mesh.worker_program = *worker;
  // Who reads our output may leave; the mesh stays.
  signal(SIGPIPE, SIG_IGN);
  const SystemClock clock;
  SignalPauser pauser;
  RealDaemonProbe probe;
  return UpCommand(up, console, clock, pauser, probe);
}

ExitCode InspectModel(const ClientOptions& options, Console& console) {
  if (!IsModel(options.target) && LooksLikeWeightsFile(options.target)) {
    if (!options.sets.empty()) {
      return ReportError(console, absl::InvalidArgumentError(absl::StrCat(
                                      "--set changes a model; ", options.target,
                                      " is a file, and shows what it holds")));
    }
    SafetensorsReader reader;
    return InspectWeightsCommand(console, reader, options.target);
  }
  const auto job = ParseModelSettings(options.target, options.sets);
  if (!job.ok()) return ReportError(console, job.status());
  for (const std::string& warning : job->warnings) {
    console.Note(absl::StrCat("paceline: warning: ", warning));
  }
  return InspectModelCommand(console, job->spec);
}

ExitCode Run(const ClientOptions& options) {
  Console early(std::cout, std::cerr, OutputFormat::kTable, {});
  if (options.command == Command::kCompletion) {
    const auto script = RenderCompletion(DescribeCommandLine(), options.target);
    if (!script.ok()) return ReportError(early, script.status());
    early.Print(*script);
    return kExitOk;
  }
  const auto settings = GatherSettings(options);
  if (!settings.ok()) return ReportError(early, settings.status());
  Console console(std::cout, std::cerr, settings->output, DetectTraits());
  switch (options.command) {
    case Command::kUp:
      return Up(options, console);
    case Command::kModelList:
      return ListModelsCommand(console);
    case Command::kModelInspect:
      return InspectModel(options, console);
    case Command::kPredict:
      return PredictFitCommand(console, options.predict);
    default:
      return RunWithCoordinator(options, *settings, console);
  }
}

int Main(int argc, char** argv) {
  ClientOptions options;
  int code = kExitOk;
  if (const auto stop = ParseClientOptions(argc, argv, &options);
      stop.has_value()) {
    std::cout << stop->out;
    std::cerr << stop->err;
    code = stop->exit_code;
  } else {
    code = Run(options);
  }
  // A full disk behind a redirection must not look like success.
  if (!std::cout.flush() && code == kExitOk &&
      options.command != Command::kUp) {
    std::cerr << "paceline: cannot write to standard output\n";
    code = kExitFailed;
  }
  return code;
}

}  // namespace
}  // namespace paceline

// Before the initialisers of shared libraries: gRPC's leave a descriptor open,
// which would be standard input if that was closed.
__attribute__((section(".preinit_array"),
               used)) void (*const kGuardStreams)(int, char**, char**) =
    [](int, char**, char**) { paceline::GuardStandardStreams(); };

int main(int argc, char** argv) { return paceline::Main(argc, argv); }
