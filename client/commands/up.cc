#include "client/commands/up.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "client/commands/command.h"
#include "client/files/settings.h"
#include "client/render/table.h"
#include "core/base/status_macros.h"

namespace paceline {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);
// Loading LibTorch takes seconds on a small machine, and N do it at once.
constexpr absl::Duration kReadyWithin = absl::Seconds(120);
// With the second that Stop may add, less than five.
constexpr absl::Duration kGrace = absl::Seconds(3);

// Whole or not at all: who waits for the file must not read half of it.
absl::Status WriteReadyFile(const std::string& path, const Document& document) {
  if (path.empty()) return absl::OkStatus();
  const std::string part = absl::StrCat(path, ".part");
  std::ofstream file(part, std::ios::trunc);
  file << ToJson(document, /*pretty=*/true) << '\n';
  file.close();
  if (!file || std::rename(part.c_str(), path.c_str()) != 0) {
    unlink(part.c_str());
    return absl::FailedPreconditionError(
        absl::StrCat("cannot write --ready-file ", path));
  }
  return absl::OkStatus();
}

void Announce(const UpOptions& options, const Mesh& mesh, Console& console) {
  if (!console.table()) {
    console.Print(mesh.Describe());
    console.Flush();
    return;
  }
  const std::string& address = mesh.coordinator().grpc;
  const std::string program =
      address == kDefaultCoordinator
          ? "paceline"
          : absl::StrCat("paceline --coordinator ", address);
  console.Print(absl::StrCat(
      "a mesh of ", options.mesh.workers,
      options.mesh.workers == 1 ? " worker" : " workers", " is ready\n",
      RenderFacts({{"coordinator", address},
                   {"http", absl::StrCat("http://", mesh.coordinator().http,
                                         "/metrics")},
                   {"state", options.mesh.state},
                   {"logs", options.mesh.state + "/logs"},
                   {"submit a job", program + " job submit FILE.yaml"},
                   {"stop", "Ctrl-C"}})));
  console.Flush();
}

// Runs the mesh until the user wants it to end.
absl::Status RunMesh(const UpOptions& options, Mesh& mesh, Console& console,
                     const Clock& clock, Pauser& pauser) {
  PACELINE_RETURN_IF_ERROR(mesh.Start());
  const Instant begin = clock.Now();
  bool announced = false;
  int written_generation = 0;
  do {
    std::vector<std::string> news;
    PACELINE_RETURN_IF_ERROR(mesh.Tick(&news));
    for (const std::string& line : news) console.Note(line);
    if (!mesh.ready()) {
      if (clock.Now() - begin < kReadyWithin) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("after ", absl::FormatDuration(kReadyWithin),
                       " these have not registered: ", mesh.Missing(), "; see ",
                       options.mesh.state, "/logs"));
    }
    if (written_generation != mesh.generation()) {
      PACELINE_RETURN_IF_ERROR(
          WriteReadyFile(options.ready_file, mesh.Describe()));
      written_generation = mesh.generation();
    }
    if (!announced) Announce(options, mesh, console);
    announced = true;
  } while (!pauser.Sleep(kTick));
  return absl::OkStatus();
}

}  // namespace

ExitCode UpCommand(const UpOptions& options, Console& console,
                   const Clock& clock, Pauser& pauser, Connect connect) {
  if (!options.ready_file.empty()) unlink(options.ready_file.c_str());
  Mesh mesh(options.mesh, std::move(connect), clock);
  const absl::Status run = RunMesh(options, mesh, console, clock, pauser);
  if (run.ok()) console.Note("stopping the mesh");
  mesh.Stop(kGrace);
  if (!options.ready_file.empty()) unlink(options.ready_file.c_str());
  if (!run.ok()) {
    ReportError(console, run);
    return kExitFailed;
  }
  return kExitOk;
}

std::string DefaultUpState() {
  if (const char* state = std::getenv("XDG_STATE_HOME");
      state != nullptr && *state != '\0') {
    return absl::StrCat(state, "/paceline/up");
  }
  if (const char* home = std::getenv("HOME");
      home != nullptr && *home != '\0') {
    return absl::StrCat(home, "/.local/state/paceline/up");
  }
  return absl::StrCat("/tmp/paceline-", getuid(), "/up");
}

}  // namespace paceline
