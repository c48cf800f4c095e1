// paceline: the client.

#include <iostream>
#include <random>
#include <set>
#include <vector>

#include "absl/strings/str_format.h"
#include "client/dispatch.h"
#include "client/files/whole_file.h"
#include "client/rpc/grpc_control_client.h"
#include "core/base/errors.h"
#include "core/os/host_port.h"
#include "core/rpc/tls.h"
#include "core/trust/secret.h"
#include "core/weights/load.h"
#include "core/weights/safetensors.h"

namespace paceline {
namespace {

absl::StatusOr<Settings> SettingsFor(const ClientOptions& options,
                                     Needs needs) {
  if (needs == Needs::kNothing) return Settings();
  SettingsSource flags = options;
  flags.where = "command line";
  return needs == Needs::kContexts
             ? ResolveSettings({flags, EnvironmentSettings()})
             : GatherSettings(flags, options.context);
}

std::string RandomId() {  // 128 bits
  std::random_device device;
  std::string id;
  for (int i = 0; i < 4; ++i) absl::StrAppendFormat(&id, "%08x", device());
  return id;
}

absl::StatusOr<ParsedJob> FileJob(const std::string& file,
                                  const std::vector<std::string>& sets) {
  PACELINE_ASSIGN_OR_RETURN(const std::string text, ReadJobFile(file));
  return ParseJobFile(
      {.name = file == "-" ? "<stdin>" : file, .text = text, .sets = sets});
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

// Commands that call a coordinator, with TLS where there is a certificate for
// it.
Outcome RunOverNetwork(const CommandRow& row, Call call) {
  const ClientOptions& options = call.options;
  std::string& coordinator = call.settings.coordinator;
  if (!options.host.empty()) {
    coordinator = options.host;
    PACELINE_RETURN_IF_ERROR(CheckCoordinator(coordinator));
  }
  call.named = coordinator;
  call.tls_folder = TlsFolder(options.tls_dir, coordinator);
  const bool logs_in = row.needs == Needs::kLogin;
  PACELINE_ASSIGN_OR_RETURN(
      coordinator,
      FindCoordinator(coordinator,
                      logs_in || TlsFiles(call.tls_folder).exist()));
  PACELINE_RETURN_IF_ERROR(UseSecretOf(coordinator, call.settings.secret_file));
  // A certificate that is being replaced may be of no use.
  const absl::Status used =
      logs_in ? absl::OkStatus() : UseClientTls(coordinator, call.tls_folder);
  if (!used.ok() && row.needs != Needs::kDoctor) return used;
  if (logs_in || row.needs == Needs::kTrust) return row.run(call);
  SignalPauser pauser;
  const auto client = MakeControlClient(coordinator);
  const CommandContext mesh = {.client = *client,
                               .console = call.console,
                               .clock = call.clock,
                               .pauser = pauser,
                               .program = ProgramText(options)};
  call.mesh = &mesh;
  return row.run(call);
}

ExitCode Run(const ClientOptions& options) {
  const CommandRow& row = RowOf(options);
  const auto settings = SettingsFor(options, row.needs);
  if (!settings.ok()) {
    Console early(std::cout, std::cerr, OutputFormat::kTable, {});
    return ReportError(early, settings.status());
  }
  const Tools tools = {
      .read_job = FileJob,
      .read_metadata = ReadSafetensorsMetadata,
      .load_weights = LoadWeights,
      .read_weights = SummarizeSafetensors,
      .read_tensors = ReadAllTensors,
      .connect =
          [](const std::string& address) { return MakeControlClient(address); },
      .open_trust = MakeTrustClient,
      .request_id = RandomId()};
  Console console(std::cout, std::cerr, settings->output, DetectTraits());
  const SystemClock clock;
  const Call call = {options, tools, console, clock, *settings};
  return CodeOf(console, row.needs < Needs::kMesh ? row.run(call)
                                                  : RunOverNetwork(row, call));
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
  if (argc > 1 && argv[1] == kCompleteCommand) {
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
  if (!std::cout.flush() && code == kExitOk && options.command != "up") {
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
