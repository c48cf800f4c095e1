// paceline: the client.

#include <algorithm>
#include <csignal>
#include <iostream>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/commands/command.h"
#include "client/commands/completion.h"
#include "client/commands/job/export.h"
#include "client/commands/job/jobs_and_nodes.h"
#include "client/commands/job/prune.h"
#include "client/commands/job/report.h"
#include "client/commands/job/study.h"
#include "client/commands/job/submit.h"
#include "client/commands/job/watch.h"
#include "client/commands/mesh/doctor.h"
#include "client/commands/mesh/mesh.h"
#include "client/commands/plan/plan.h"
#include "client/commands/plan/plan_question.h"
#include "client/commands/plan/predict.h"
#include "client/commands/plan/profile.h"
#include "client/commands/plan/simulate.h"
#include "client/commands/reference.h"
#include "client/commands/trust/trust.h"
#include "client/files/job_file.h"
#include "client/files/plan_file.h"
#include "client/files/profile_file.h"
#include "client/files/settings.h"
#include "client/files/whole_file.h"
#include "client/options.h"
#include "client/render/console.h"
#include "client/rpc/grpc_control_client.h"
#include "core/base/errors.h"
#include "core/job/job_model.h"
#include "core/os/host_port.h"
#include "core/rpc/convert/job_convert.h"
#include "core/rpc/tls.h"
#include "core/schedule/schedule.h"
#include "core/trust/secret.h"
#include "core/weights/load.h"
#include "core/weights/safetensors.h"

namespace paceline {
namespace {

// How a command ended, or why it could not begin.
using Outcome = absl::StatusOr<ExitCode>;

absl::StatusOr<Settings> SettingsFor(const ClientOptions& options) {
  const SettingsSource flags = {.where = "command line",
                                .coordinator = options.coordinator,
                                .output = options.output,
                                .secret_file = options.secret_file};
  // A context that is named need not exist yet.
  if (options.command >= Command::kContextList &&
      options.command <= Command::kContextDelete) {
    return ResolveSettings({flags, EnvironmentSettings()});
  }
  return GatherSettings(flags, options.context);
}

// How this program was called, without the command.
std::string ProgramText(const ClientOptions& options) {
  return absl::StrCat(
      "paceline",
      options.context ? absl::StrCat(" --context ", *options.context) : "",
      options.coordinator
          ? absl::StrCat(" --coordinator ", *options.coordinator)
          : "");
}

// 128 random bits: two submissions of the whole world never share one.
std::string RandomRequestId() {
  std::random_device device;
  std::string id;
  for (int i = 0; i < 4; ++i) absl::StrAppendFormat(&id, "%08x", device());
  return id;
}

// Returns the job; its warnings go to `console`.
JobSpec WithWarnings(const ParsedJob& job, Console& console) {
  for (const std::string& warning : job.warnings) {
    console.Note("paceline: warning: ", warning);
  }
  return job.spec;
}

// The job of a file that the command line names; its warnings go nowhere yet.
absl::StatusOr<ParsedJob> FileJob(const std::string& file,
                                  const std::vector<std::string>& sets) {
  PACELINE_ASSIGN_OR_RETURN(const std::string text, ReadJobFile(file));
  return ParseJobFile(
      {.name = file == "-" ? "<stdin>" : file, .text = text, .sets = sets});
}

// A command line names one of our models, else a file.
struct JobSource {
  std::string model;
  std::optional<int64_t> batch;  // samples of a micro-batch; with a model
  std::string file;
  std::vector<std::string> sets;
};

// The job that a command line names, with what a worker says of its script,
// where it is of one.  Warnings go to the console.
absl::StatusOr<JobSpec> JobOf(const CommandContext& context,
                              std::optional<absl::Duration> timeout,
                              const JobSource& from) {
  const bool of_model = !from.model.empty();
  PACELINE_ASSIGN_OR_RETURN(const ParsedJob job,
                            of_model ? ParseModelSettings(from.model, from.sets)
                                     : FileJob(from.file, from.sets));
  JobSpec spec = WithWarnings(job, context.console);
  if (of_model) {
    const int64_t batch = from.batch.value_or(spec.train.micro_batch);
    PACELINE_ASSIGN_OR_RETURN(
        spec, WithMicroBatch(std::move(spec), batch, from.sets));
  }
  PACELINE_RETURN_IF_ERROR(FillInSizes(ReadSafetensorsMetadata, spec.model));
  PACELINE_RETURN_IF_ERROR(FillInScript(context, timeout, &spec));
  return spec;
}

Outcome Plan(const PlanOptions& plan, const Settings& settings,
             Console& console) {
  PACELINE_RETURN_IF_ERROR(CheckPlanOptions(plan));
  const SystemClock clock;
  absl::StatusOr<PlanQuestion> question;
  if (plan.profile.empty()) {
    GrpcControlClient client(settings.coordinator);
    absl::StatusOr<JobSpec> spec;
    {
      // Ctrl-C is caught while this waits, not while the planner computes.
      SignalPauser pauser;
      spec = JobOf({client, console, clock, pauser}, std::nullopt,
                   {plan.model, plan.batch, plan.job_file, plan.sets});
    }
    PACELINE_RETURN_IF_ERROR(spec.status());
    question = AskForMesh(client, *spec, plan);
  } else {
    PACELINE_ASSIGN_OR_RETURN(const ProfileSource source,
                              ReadProfileFile(plan.profile));
    if (plan.cost_model == "pipedream") {
      return PipedreamPlanCommand(console, clock, source, plan);
    }
    question = AskForProfile(source, plan);
  }
  if (!question.ok()) return ReportSubmitError(console, question.status());
  return PlanCommand(console, clock, *question, plan);
}

Outcome Bench(const CommandContext& context, const ClientOptions& options) {
  BenchOptions bench = options.bench;
  bench.timeout = options.timeout;
  PACELINE_RETURN_IF_ERROR(CheckBenchSets(bench.sets, bench.train));
  // A key of one schedule may be set where the bench has that schedule.
  for (const std::string& schedule : bench.schedules) {
    if (!ScheduleTraitsOf(schedule).asynchronous) continue;
    bench.sets.push_back(absl::StrCat("pipeline.schedule=", schedule));
  }
  // In an inference every micro-batch is a batch of its own.
  bench.sets.push_back(absl::StrCat(
      "train.batch=",
      bench.micro_batch * (bench.train ? bench.micro_batches : 1)));
  PACELINE_ASSIGN_OR_RETURN(
      const JobSpec spec,
      JobOf(context, options.timeout,
            {bench.model, bench.micro_batch, "", bench.sets}));
  return BenchCommand(context, spec, bench, LoadWeights);
}

Outcome Profile(const CommandContext& context, const ClientOptions& options) {
  ProfileOptions profile = options.profile;
  profile.timeout = options.timeout;
  PACELINE_RETURN_IF_ERROR(CheckProfileOptions(profile));
  PACELINE_ASSIGN_OR_RETURN(
      const JobSpec spec,
      JobOf(context, options.timeout,
            {profile.model, profile.batch, profile.job_file, profile.sets}));
  return ProfileCommand(context, spec, profile);
}

Outcome PredictModel(const CommandContext& context,
                     const PredictModelOptions& predict) {
  PACELINE_ASSIGN_OR_RETURN(
      const JobSpec spec,
      JobOf(context, std::nullopt,
            {predict.model, predict.batch, "", predict.sets}));
  return PredictModelCommand(context, spec, predict);
}

// The job that is to be submitted, as the plan file says where there is one.
absl::StatusOr<ParsedJob> JobToSubmit(const CommandContext& context,
                                      const ClientOptions& options) {
  PACELINE_ASSIGN_OR_RETURN(
      ParsedJob job,
      options.again.empty()
          ? FileJob(options.target, options.sets)
          : JobAgain(context.client, options.again, options.sets));
  PACELINE_RETURN_IF_ERROR(
      FillInSizes(ReadSafetensorsMetadata, job.spec.model));
  PACELINE_RETURN_IF_ERROR(LookForFiles(context, job.spec, LoadWeights));
  PACELINE_RETURN_IF_ERROR(FillInScript(context, options.timeout, &job.spec));
  if (options.plan_file.empty()) return job;
  PACELINE_ASSIGN_OR_RETURN(const PlanFile plan,
                            ReadPlanFile(options.plan_file));
  PACELINE_ASSIGN_OR_RETURN(std::string warning,
                            FollowPlan(options.plan_file, plan, job.spec));
  if (!warning.empty()) job.warnings.push_back(std::move(warning));
  for (const std::string& key : KeysOfAPlan(options.sets)) {
    job.warnings.push_back(absl::StrCat(
        "--set ", key, " has no effect: --plan says where it is cut"));
  }
  return job;
}

// The job `id` as it was submitted, but for what `--set` changes.  It goes on
// with the CPU capability that it had: another one rounds differently.
absl::StatusOr<ParsedJob> JobToResume(const CommandContext& context, int64_t id,
                                      int64_t from_step,
                                      const std::vector<std::string>& sets,
                                      bool accept_changed_data) {
  PACELINE_ASSIGN_OR_RETURN(const v1::Job job, context.client.GetJob(id, 0, 0));
  JobSpec spec = FromProto(job.spec());
  if (!job.cpu_capability().empty()) spec.cpu_capability = job.cpu_capability();
  PACELINE_ASSIGN_OR_RETURN(ParsedJob changed, ChangeJob(spec, sets));
  JobSpec read = changed.spec;
  read.model.weights.clear();  // the checkpoint has newer ones
  v1::Inputs inputs;
  if (!accept_changed_data) {
    inputs = InputsToResume(job.inputs(), spec, changed.spec);
  }
  PACELINE_RETURN_IF_ERROR(LookForFiles(context, read, nullptr, inputs));
  for (std::string& note : ResumeNotes(job, changed.spec, from_step, sets)) {
    changed.warnings.push_back(std::move(note));
  }
  const auto before = DescribeModel(spec), after = DescribeModel(changed.spec);
  if (!before.ok() || !after.ok()) return changed;
  // The coordinator says of the rest that it is an error.
  std::vector<std::string> notes;
  CheckMadeWith(before->made_with, after->made_with, /*reset_head=*/true, notes)
      .IgnoreError();
  for (const std::string& note : notes) {
    changed.warnings.push_back(absl::StrCat("the checkpoint was ", note));
  }
  return changed;
}

Outcome Submit(const CommandContext& context, const ClientOptions& options,
               std::optional<int64_t> resumed = std::nullopt) {
  const Instant begin = context.clock.Now();
  PACELINE_ASSIGN_OR_RETURN(
      ParsedJob job,
      resumed.has_value()
          ? JobToResume(context, *resumed, options.from_step, options.sets,
                        options.accept_changed_data)
          : JobToSubmit(context, options));
  std::optional<v1::ResumedFrom> resume;
  if (resumed.has_value()) {
    resume.emplace();
    resume->set_job(*resumed);
    resume->set_step(options.from_step);
    resume->set_accept_changed_data(options.accept_changed_data);
  }
  // The job gets the rest of the time; with nothing left, it is asked about
  // once.
  std::optional<absl::Duration> timeout = options.timeout;
  if (timeout.has_value()) {
    timeout = std::max(absl::ZeroDuration(),
                       *timeout - (context.clock.Now() - begin));
  }
  return SubmitCommand(context, {.spec = std::move(job.spec),
                                 .warnings = std::move(job.warnings),
                                 .request_id = RandomRequestId(),
                                 .resume = resume,
                                 .detach = options.detach,
                                 .dry_run = options.dry_run,
                                 .timeout = timeout});
}

absl::StatusOr<std::vector<NamedTensor>> ReadAllTensors(
    const std::string& path) {
  return ReadSafetensors(path,
                         [](const std::vector<TensorPlace>& tensors)
                             -> absl::StatusOr<std::set<std::string>> {
                           std::set<std::string> names;
                           for (const TensorPlace& tensor : tensors) {
                             names.insert(tensor.name);
                           }
                           return names;
                         });
}

Outcome RunOnJob(const CommandContext& context, const ClientOptions& options) {
  PACELINE_ASSIGN_OR_RETURN(const int64_t job,
                            ResolveJob(context.client, options.target));
  switch (options.command) {
    case Command::kJobShow:
      return options.watch ? WatchOneJobCommand(context, job)
                           : ShowJobCommand(context, job);
    case Command::kJobLogs:
      return JobLogsCommand(context, job, options.follow);
    case Command::kJobEvents:
      return JobEventsCommand(context, job, options.follow);
    case Command::kJobWait:
    case Command::kJobWatch:
      return WaitJobCommand(context, job,
                            {.timeout = options.timeout,
                             .events = options.command == Command::kJobWatch});
    case Command::kJobStop:
      return StopJobCommand(context, job);
    case Command::kJobResume:
      return Submit(context, options, job);
    case Command::kJobExport:
      return ExportJobCommand(context, SummarizeSafetensors, ReadAllTensors,
                              {job, options.export_file, options.export_form});
    default:
      return DeleteJobCommand(context, job);
  }
}

Outcome PruneModel(const PruneOptions& prune, Console& console,
                   const CommandContext* mesh = nullptr) {
  PACELINE_ASSIGN_OR_RETURN(const ParsedJob job,
                            prune.job_file.empty()
                                ? ParseModelSettings(prune.model, prune.sets)
                                : FileJob(prune.job_file, prune.sets));
  JobSpec spec = WithWarnings(job, console);
  spec.model.weights = prune.weights;  // may have been pruned before
  PACELINE_RETURN_IF_ERROR(FillInSizes(ReadSafetensorsMetadata, spec.model));
  return PruneModelCommand(console, LoadWeights, spec, prune, mesh);
}

// folder: of the user's certificate
Outcome RunWithCoordinator(const ClientOptions& options,
                           const Settings& settings, const std::string& folder,
                           Console& console) {
  const SystemClock clock;
  SignalPauser pauser;
  GrpcControlClient client(settings.coordinator);
  const CommandContext context = {.client = client,
                                  .console = console,
                                  .clock = clock,
                                  .pauser = pauser,
                                  .program = ProgramText(options)};
  switch (options.command) {
    case Command::kJobSubmit:
      return Submit(context, options);
    case Command::kComplete:
      return AskCompletionCommand(context, options.completion);
    case Command::kJobList:
      return options.watch ? WatchJobsCommand(context, options.filter)
                           : ListJobsCommand(context, options.filter);
    case Command::kProfile:
      return Profile(context, options);
    case Command::kBench:
      return Bench(context, options);
    case Command::kPredictModel:
      return PredictModel(context, options.predict_model);
    case Command::kReport:
      return ReportCommand(context, options.report);
    case Command::kStudy:
      return StudyCommand(context, options.study, ReadSafetensorsMetadata,
                          LoadWeights);
    case Command::kModelPrune:
      return PruneModel(options.prune, console, &context);
    case Command::kNodeList:
      return options.watch ? WatchNodesCommand(context)
                           : ListNodesCommand(context);
    case Command::kTop:
      return TopCommand(context);
    case Command::kNodeShow:
      return ShowNodeCommand(context, options.target);
    case Command::kNodeDrain:
    case Command::kNodeUndrain:
      return DrainNodeCommand(context, options.target,
                              options.command == Command::kNodeDrain);
    case Command::kNodeForget:
      return ForgetNodeCommand(context, options.target);
    case Command::kDoctor:
      return DoctorCommand(
          context,
          [](const std::string& coordinator, const std::string& tls) {
            return std::make_unique<GrpcTrustClient>(coordinator, tls);
          },
          {.coordinator = settings.coordinator, .tls_folder = folder});
    default:
      return RunOnJob(context, options);
  }
}

// named: the coordinator as the user calls it.
ExitCode Trust(const ClientOptions& options, const std::string& coordinator,
               const std::string& named, const std::string& folder,
               Console& console) {
  GrpcTrustClient client(coordinator, folder);
  switch (options.command) {
    case Command::kTokenCreate:
      return CreateTokenCommand(client, console, coordinator, options.token);
    case Command::kTokenList:
      return ListTokensCommand(client, console);
    case Command::kTokenRevoke:
      return RevokeTokenCommand(client, console, options.target);
    case Command::kTlsRevoke:
      return RevokeCommand(client, console, options.token.role, options.target);
    case Command::kLogin:
      return LoginCommand(client, console, named, options.login_token,
                          options.user.empty() ? UserName() : options.user,
                          UserSettingsFile());
    default:
      return CheckTlsCommand(client, console, coordinator);
  }
}

// Commands that call a coordinator, with TLS where there is a certificate for
// it.
Outcome RunOverNetwork(const ClientOptions& options, Settings settings,
                       Console& console) {
  const bool names_host = options.command == Command::kLogin ||
                          options.command == Command::kTlsCheck;
  if (names_host && !options.target.empty()) {
    settings.coordinator = options.target;
    PACELINE_RETURN_IF_ERROR(CheckCoordinator(options.target));
  }
  const std::string named = settings.coordinator;
  const std::string folder = TlsFolder(options.tls_dir, named);
  PACELINE_ASSIGN_OR_RETURN(
      settings.coordinator,
      FindCoordinator(named, options.command == Command::kLogin ||
                                 TlsFiles(folder).exist()));
  PACELINE_RETURN_IF_ERROR(
      UseSecretOf(settings.coordinator, settings.secret_file));
  // A certificate that is being replaced may be of no use.
  if (options.command != Command::kLogin) {
    const absl::Status used = UseClientTls(settings.coordinator, folder);
    // The doctor says so too, among what else is wrong.
    if (!used.ok() && options.command != Command::kDoctor) return used;
  }
  switch (options.command) {
    case Command::kPlan:
      return Plan(options.plan, settings, console);
    case Command::kTokenCreate:
    case Command::kTokenList:
    case Command::kTokenRevoke:
    case Command::kLogin:
    case Command::kTlsCheck:
    case Command::kTlsRevoke:
      return Trust(options, settings.coordinator, named, folder, console);
    default:
      return RunWithCoordinator(options, settings, folder, console);
  }
}

Outcome Up(const ClientOptions& options, const Settings& settings,
           Console& console) {
  UpOptions up = options.up;
  up.usual_coordinator = settings.coordinator;
  PACELINE_ASSIGN_OR_RETURN(up.mesh.coordinator_program,
                            FindProgram("paceline-coordinator"));
  PACELINE_ASSIGN_OR_RETURN(up.mesh.worker_program,
                            FindProgram("paceline-worker"));
  // The reader of our output may leave; the mesh stays.
  signal(SIGPIPE, SIG_IGN);
  const SystemClock clock;
  SignalPauser pauser;
  return UpCommand(up, console, clock, pauser, [](const std::string& address) {
    return std::make_unique<GrpcControlClient>(address);
  });
}

Outcome InspectModel(const ClientOptions& options, Console& console) {
  if (!IsModel(options.target) && LooksLikeWeightsFile(options.target)) {
    if (!options.sets.empty()) {
      return InvalidArgument("--set changes a model; ", options.target,
                             " is a file, and shows what it holds");
    }
    return InspectWeightsCommand(console, SummarizeSafetensors, options.target);
  }
  PACELINE_ASSIGN_OR_RETURN(const ParsedJob job,
                            ParseModelSettings(options.target, options.sets));
  return InspectModelCommand(console, WithWarnings(job, console));
}

// Makes what the flags of `simulate` describe: a plan file, or machines and
// layers.
absl::StatusOr<SimulatedPlan> GatherPlan(const std::string& plan_file,
                                         const SimulateFlags& flags,
                                         Console& console) {
  if (!plan_file.empty()) {
    PACELINE_ASSIGN_OR_RETURN(const PlanFile plan, ReadPlanFile(plan_file));
    return SimulationOf(plan);
  }
  if (flags.model.empty()) return MakeSimulatedPlan(flags.machines, nullptr);
  PACELINE_ASSIGN_OR_RETURN(const ParsedJob job,
                            ParseModelSettings(flags.model, flags.sets));
  const JobSpec spec = WithWarnings(job, console);
  return MakeSimulatedPlan(flags.machines, &spec);
}

Outcome RunCommand(const ClientOptions& options, const Settings& settings,
                   Console& console) {
  switch (options.command) {
    case Command::kUp:
      return Up(options, settings, console);
    case Command::kContextList:
      return ListContextsCommand(console);
    case Command::kContextSet:
      return SetContextCommand(console, options.target, options.host);
    case Command::kContextUse:
      return UseContextCommand(console, options.target);
    case Command::kContextDelete:
      return DeleteContextCommand(console, options.target);
    case Command::kJobKeys:
      return JobKeysCommand(console, options.target);
    case Command::kModelList:
      return ListModelsCommand(console);
    case Command::kModelInspect:
      return InspectModel(options, console);
    case Command::kModelPrune:
      return options.prune.score == "taylor"
                 ? RunOverNetwork(options, settings, console)
                 : PruneModel(options.prune, console);
    case Command::kPredict:
      return PredictFitCommand(console, options.predict);
    case Command::kSimulate: {
      PACELINE_ASSIGN_OR_RETURN(
          SimulatedPlan plan,
          GatherPlan(options.plan_file, options.simulate, console));
      return SimulateCommand(console, options.simulate, std::move(plan));
    }
    default:
      return RunOverNetwork(options, settings, console);
  }
}

ExitCode Run(const ClientOptions& options) {
  Console early(std::cout, std::cerr, OutputFormat::kTable, {});
  if (options.command == Command::kCompletion) {
    early.Print(CompletionScript(options.target));
    return kExitOk;
  }
  const auto settings = SettingsFor(options);
  if (!settings.ok()) return ReportError(early, settings.status());
  Console console(std::cout, std::cerr, settings->output, DetectTraits());
  const auto code = RunCommand(options, *settings, console);
  return code.ok() ? *code : ReportError(console, code.status());
}

// A mesh is asked last: it may be away.
ExitCode CompleteWords(const std::vector<std::string>& words,
                       ClientOptions& options) {
  Completion& completion = options.completion;
  completion = CompleteCommandLine(words, &options);
  if (completion.ask == "CONTEXT") {
    for (std::string& name : ContextNames()) {
      completion.offers.push_back({std::move(name)});
    }
  }
  std::cout << CompletionText(completion);
  const bool asks = completion.ask == "JOB" || completion.ask == "NODE";
  return asks ? Run(options) : kExitOk;
}

int Main(int argc, char** argv) {
  SilenceGrpcLog();
  ClientOptions options;
  int code = kExitOk;
  if (argc > 1 && argv[1] == absl::string_view(kCompleteCommand)) {
    code = CompleteWords({argv + 2, argv + argc}, options);
  } else if (const auto stop = ParseClientOptions(argc, argv, &options);
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
