#include "client/commands/mesh/mesh.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "core/trust/secret.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fakes.h"

namespace paceline {
namespace {

using testing::HasSubstr;

// Blocks until the child has ended, without reaping it.
void AwaitEnd(pid_t pid) {
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, pid, &info, WEXITED | WNOWAIT), 0);
}

absl::StatusOr<ChildProcess> StartShell(const TemporaryFolder& folder,
                                        const std::string& script) {
  return ChildProcess::Start({"/bin/sh", "-c", script}, folder.Path("log"));
}

TEST(ChildProcess, TellsItsDeathOnceAndKeepsItsOutput) {
  for (const auto& [script, death] :
       {std::pair{"echo said; echo wrong >&2; exit 3",
                  "ended with exit code 3"},
        {"echo said; echo wrong >&2; kill -9 $$", "was killed by SIGKILL"}}) {
    const TemporaryFolder folder;
    auto child = StartShell(folder, script).value();
    AwaitEnd(child.pid());

    EXPECT_EQ(child.TakeDeath(), death);
    EXPECT_EQ(child.TakeDeath(), std::nullopt);
    EXPECT_FALSE(child.running());
    EXPECT_EQ(folder.Read("log"), "said\nwrong\n");
  }
}

TEST(ChildProcess, AProgramThatIsNotThereIsAnError) {
  const TemporaryFolder folder;
  const auto child =
      ChildProcess::Start({"/nowhere/program"}, folder.Path("log"));

  EXPECT_THAT(child.status().message(),
              HasSubstr("cannot run /nowhere/program: No such file"));
}

TEST(ChildProcess, IsKilledWhenDropped) {
  const TemporaryFolder folder;
  pid_t pid = 0;
  {
    auto child = StartShell(folder, "exec sleep 1000").value();
    pid = child.pid();
  }

  EXPECT_EQ(kill(pid, 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

TEST(ChildProcess, DiesWithAParentThatIsKilled) {
  const TemporaryFolder folder;
  // The orphan becomes ours, so that its end can be awaited.
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t parent = fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    auto child = StartShell(folder, "exec sleep 1000");
    const pid_t pid = child.ok() ? child->pid() : -1;
    if (write(ends[1], &pid, sizeof(pid)) != sizeof(pid)) _exit(1);
    for (;;) pause();
  }
  pid_t grandchild = -1;
  ASSERT_EQ(read(ends[0], &grandchild, sizeof(grandchild)),
            static_cast<ssize_t>(sizeof(grandchild)));
  ASSERT_GT(grandchild, 0);

  kill(parent, SIGKILL);

  int status = 0;
  EXPECT_EQ(waitpid(parent, &status, 0), parent);
  EXPECT_EQ(waitpid(grandchild, &status, 0), grandchild);
  EXPECT_EQ(DescribeExit(status), "was killed by SIGKILL");
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  close(ends[0]);
  close(ends[1]);
}

TEST(RotateLog, LeavesASmallOneAlone) {
  const TemporaryFolder folder;
  const std::string log = folder.Write("log", "12345678");

  EXPECT_FALSE(RotateLog(log, 8));
  EXPECT_FALSE(RotateLog(folder.Path("none"), 8));

  EXPECT_EQ(folder.Read("log"), "12345678");
  EXPECT_FALSE(std::filesystem::exists(log + ".1"));
}

TEST(RotateLog, KeepsTheOneBeforeAndTheProcessWritesOn) {
  const TemporaryFolder folder;
  const std::string log = folder.Write("log", "");
  std::ofstream process(log, std::ios::app);  // as ChildProcess opens it

  for (const char* said : {"first one\n", "second one\n"}) {
    process << said << std::flush;
    EXPECT_TRUE(RotateLog(log, 8));
    EXPECT_EQ(folder.Read("log.1"), said);
  }
  process << "on" << std::flush;

  EXPECT_EQ(folder.Read("log"), "on");
}

TEST(RotateLog, OneThatCannotBeCopiedIsEmptiedAllTheSame) {
  const TemporaryFolder folder;
  const std::string log = folder.Write("log", "123456789");
  std::filesystem::create_directory(log + ".1");  // as a full disk would

  EXPECT_TRUE(RotateLog(log, 8));

  EXPECT_EQ(folder.Read("log"), "");
}

TEST(CheckPortFree, NamesAPortInUseAndTheFlag) {
  const Port taken(/*listening=*/true);

  const absl::Status refused = CheckPortFree(taken.number(), "--port");

  EXPECT_THAT(refused.message(), Says(absl::StrCat("port ", taken.number(),
                                                   " of 127.0.0.1 is in use"),
                                      "--port P"));
  EXPECT_TRUE(CheckPortFree(0, "--port").ok());
}

TEST(FindProgram, SaysWhatIsMissing) {
  EXPECT_THAT(FindProgram("paceline-nothing").status().message(),
              HasSubstr("cannot find the program paceline-nothing"));
  EXPECT_TRUE(FindProgram("sh").ok());
}

// A mesh whose daemons are shell scripts.
class UpTest : public testing::Test {
 protected:
  std::string Script(const std::string& name, const std::string& body) {
    const std::string path = folder_.Write(name, "#!/bin/sh\n" + body);
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }
  UpOptions Options(const std::string& coordinator) {
    UpOptions options;
    options.mesh.coordinator_program = coordinator;
    options.mesh.worker_program = "/bin/false";
    options.mesh.port = 0;
    options.mesh.http_port = 0;
    options.mesh.state = folder_.Path("state");
    options.ready_file = folder_.Path("ready.json");
    return options;
  }

  const TemporaryFolder folder_;
  CommandBed bed_;
  const SystemClock clock_;
};

std::unique_ptr<ControlClient> NoCoordinator(const std::string&) {
  return std::make_unique<FakeControlClient>();
}

TEST_F(UpTest, ADaemonThatDiesAtOnceIsNamedWithTheEndOfItsLog) {
  const std::string coordinator =
      Script("coordinator", "echo the disk is on fire >&2\nexit 9\n");
  SignalPauser pauser;

  EXPECT_EQ(bed_.Code(UpCommand(Options(coordinator), bed_.console, clock_,
                                pauser, NoCoordinator)),
            kExitFailed);

  EXPECT_THAT(bed_.err.str(), Says("coordinator ended with exit code 9 "
                                   "before the mesh was ready",
                                   "  the disk is on fire"));
  EXPECT_EQ(bed_.out.str(), "");
  EXPECT_FALSE(std::filesystem::exists(folder_.Path("ready.json")));
}

TEST_F(UpTest, CtrlCBeforeItIsReadyStopsEverything) {
  const std::string coordinator =
      Script("coordinator",
             "echo $$ > " + folder_.Path("pid") + "\nexec sleep 1000\n");
  bed_.pauser.leave_at = 1;

  EXPECT_EQ(bed_.Code(UpCommand(Options(coordinator), bed_.console, clock_,
                                bed_.pauser, NoCoordinator)),
            kExitOk);

  // Nobody is left of this process's children.
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST_F(UpTest, AStubbornDaemonIsKilledAfterItsGrace) {
  const std::string coordinator = Script(
      "coordinator", "trap '' TERM\necho up\nwhile :; do sleep 1; done\n");
  Mesh mesh(Options(coordinator).mesh, NoCoordinator, clock_);
  ASSERT_TRUE(mesh.Start().ok());
  const Instant begin = clock_.Now();

  mesh.Stop(absl::Milliseconds(200));

  EXPECT_LT(clock_.Now() - begin, absl::Seconds(5));
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
}

TEST_F(UpTest, TwoMeshesDoNotShareAState) {
  const std::string coordinator = Script("coordinator", "exec sleep 1000\n");
  Mesh first(Options(coordinator).mesh, NoCoordinator, clock_);
  ASSERT_TRUE(first.Start().ok());
  Mesh second(Options(coordinator).mesh, NoCoordinator, clock_);

  const absl::Status refused = second.Start();

  EXPECT_THAT(refused.message(),
              Says("another 'paceline up' runs", "--state DIR"));
}

TEST_F(UpTest, AnUnwritableStateIsNamed) {
  UpOptions options = Options("/bin/false");
  options.mesh.state = "/proc/nowhere";

  EXPECT_EQ(bed_.Code(UpCommand(options, bed_.console, clock_, bed_.pauser,
                                NoCoordinator)),
            kExitFailed);

  EXPECT_THAT(bed_.err.str(),
              HasSubstr("cannot make the folder /proc/nowhere"));
}

TEST_F(UpTest, AStateThatOthersMayChangeIsRefusedAndNamed) {
  namespace fs = std::filesystem;
  const auto refused = [this](const std::string& state) {
    UpOptions options = Options("/bin/false");
    options.mesh.state = state;
    return std::string(
        Mesh(options.mesh, NoCoordinator, clock_).Start().message());
  };
  const std::string state = folder_.Path("state");
  fs::create_directory(state);
  fs::create_directory_symlink(state, folder_.Path("link"));
  EXPECT_THAT(refused(folder_.Path("link")), Says("is a link", "--state DIR"));

  for (const fs::perms others :
       {fs::perms::group_write, fs::perms::others_write}) {
    fs::permissions(state, fs::perms::owner_all | others);
    EXPECT_THAT(refused(state), Says(state, "others may write", "chmod go-w"));
  }
  fs::permissions(state, fs::perms::owner_all);
  fs::permissions(folder_.Path(""), fs::perms::all);
  EXPECT_THAT(refused(state), Says("others may change", "which holds it"));
  fs::permissions(folder_.Path(""), fs::perms::owner_all);
  if (geteuid() != 0) GTEST_SKIP() << "only root makes a folder of another";
  ASSERT_EQ(chown(state.c_str(), 12345, 12345), 0);
  EXPECT_THAT(refused(state), Says("user 12345 has made it", "--state DIR"));
}

TEST(DefaultUpState, IsInAHomeOfTheUsersOwn) {
  unsetenv("XDG_STATE_HOME");
  setenv("HOME", "/some/home", 1);
  EXPECT_EQ(DefaultUpState(), "/some/home/.local/state/paceline/up");
  setenv("XDG_STATE_HOME", "/some/state", 1);
  EXPECT_EQ(DefaultUpState(), "/some/state/paceline/up");

  unsetenv("XDG_STATE_HOME");
  unsetenv("HOME");

  // The list of users says it.
  EXPECT_EQ(DefaultUpState().rfind("/tmp", 0), std::string::npos);
  EXPECT_THAT(DefaultUpState(), HasSubstr("/.local/state/paceline/up"));
}

// A coordinator whose list of workers is what their port files say.
struct ListingCoordinator {
  std::unique_ptr<ControlClient> Connect() {
    auto made = std::make_unique<FakeControlClient>();
    client = made.get();
    Refresh();
    return made;
  }
  void Refresh() {
    if (client == nullptr) return;
    client->workers->Clear();
    for (const char* name : {"w1", "w2"}) {
      const auto ports = ReadPortFile(state + "/" + name + "/ports.json");
      if (!ports.has_value()) continue;
      v1::Worker& worker = *client->workers->add_workers();
      worker = AWorker(1, name);
      worker.mutable_registration()->set_pid(ports->pid);
    }
  }

  const std::string state;
  FakeControlClient* client = nullptr;
};

constexpr char kDaemon[] =
    "while [ $# -gt 0 ]; do\n"
    "  [ \"$1\" = --port-file ] && file=$2\n"
    "  shift\n"
    "done\n"
    "echo \"{\\\"grpc\\\": \\\"127.0.0.1:1\\\", \\\"http\\\": "
    "\\\"127.0.0.1:2\\\", \\\"pid\\\": $$}\" > \"$file\"\n"
    "exec sleep 1000\n";

// Leaves when the mesh is announced.
struct UntilReady : Pauser {
  explicit UntilReady(const std::ostringstream& out) : out(out) {}
  bool Sleep(absl::Duration) override {
    poll(nullptr, 0, 5);
    return absl::StrContains(out.str(), "is ready");
  }
  const std::ostringstream& out;
};

TEST_F(UpTest, PrintsACommandThatWorksInAnotherTerminal) {
  // Where this one has a flag or a variable that names the coordinator, too.
  for (const char* const usual : {"127.0.0.1:7400", "127.0.0.1:1"}) {
    CommandBed bed;
    UpOptions options = Options(Script("daemon", kDaemon));
    options.mesh.workers = 0;
    options.usual_coordinator = usual;
    UntilReady pauser(bed.out);

    EXPECT_EQ(bed.Code(UpCommand(options, bed.console, clock_, pauser,
                                 NoCoordinator)),
              kExitOk);

    EXPECT_THAT(bed.out.str(),
                HasSubstr("paceline --coordinator 127.0.0.1:1 job submit"));
  }
}

TEST_F(UpTest, AWorkerThatDiesIsStartedAgainAfterItsPause) {
  UpOptions options = Options(Script("daemon", kDaemon));
  options.mesh.worker_program = options.mesh.coordinator_program;
  options.mesh.workers = 2;
  ListingCoordinator coordinator{options.mesh.state};
  FakeClock clock;
  Mesh mesh(
      options.mesh, [&](const std::string&) { return coordinator.Connect(); },
      clock);
  std::vector<std::string> news;
  ASSERT_TRUE(mesh.Start().ok());
  while (!mesh.ready()) {
    coordinator.Refresh();
    ASSERT_TRUE(mesh.Tick(&news).ok());
  }
  ASSERT_TRUE(news.empty());
  const int generation = mesh.generation();
  const auto before = ReadPortFile(options.mesh.state + "/w2/ports.json");

  kill(static_cast<pid_t>(before->pid), SIGKILL);
  AwaitEnd(static_cast<pid_t>(before->pid));
  ASSERT_TRUE(mesh.Tick(&news).ok());

  ASSERT_EQ(news.size(), 1u);
  EXPECT_THAT(news[0], HasSubstr("w2 (pid " + std::to_string(before->pid) +
                                 ") was killed by SIGKILL; starting it again "
                                 "in 500ms"));
  ASSERT_TRUE(mesh.Tick(&news).ok());
  EXPECT_EQ(mesh.generation(), generation) << "its pause is not over";

  clock.Advance(absl::Milliseconds(500));
  ASSERT_TRUE(mesh.Tick(&news).ok());

  EXPECT_EQ(mesh.generation(), generation + 1);
  ASSERT_EQ(news.size(), 2u);
  EXPECT_THAT(news[1], HasSubstr("w2 runs again"));
}

TEST_F(UpTest, ItsSecretIsItsUsersAloneAndFoundByItsPort) {
  setenv("XDG_STATE_HOME", folder_.Path("home").c_str(), 1);
  UpOptions options = Options(Script("daemon", kDaemon));
  options.mesh.workers = 1;
  options.mesh.worker_program = options.mesh.coordinator_program;
  ListingCoordinator coordinator{options.mesh.state};
  Mesh mesh(
      options.mesh, [&](const std::string&) { return coordinator.Connect(); },
      clock_);
  std::vector<std::string> news;
  ASSERT_TRUE(mesh.Start().ok());
  while (!mesh.ready()) {
    coordinator.Refresh();
    ASSERT_TRUE(mesh.Tick(&news).ok());
  }
  const std::string link = SecretLink("localhost:1");  // as kDaemon says

  EXPECT_EQ(std::filesystem::read_symlink(link),
            options.mesh.state + "/secret");
  EXPECT_EQ(
      std::filesystem::status(link).permissions(),
      std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  mesh.Stop(absl::Seconds(1));
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::symlink_status(link)));
  unsetenv("XDG_STATE_HOME");
}

TEST(PortFile, IsReadOnlyWhole) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("ports.json");
  EXPECT_FALSE(ReadPortFile(path).has_value());

  for (const char* bad :
       {"", "{", "[]", "{\"grpc\": \"a:1\"}",
        "{\"grpc\": 1, \"http\": \"b:2\", \"pid\": 3}",
        "{\"grpc\": \"a:1\", \"http\": \"b:2\", \"pid\": \"x\"}"}) {
    std::ofstream(path) << bad;
    EXPECT_FALSE(ReadPortFile(path).has_value()) << bad;
  }
  std::ofstream(path) << R"({"grpc": "a:1", "http": "b:2", "pid": 3})";
  const auto ports = ReadPortFile(path);

  ASSERT_TRUE(ports.has_value());
  EXPECT_EQ(ports->grpc, "a:1");
  EXPECT_EQ(ports->http, "b:2");
  EXPECT_EQ(ports->pid, 3);
}

}  // namespace
}  // namespace paceline
