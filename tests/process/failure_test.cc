// A failure names the thing that failed, ends with the right exit code, and
// crashes nobody.

#include <signal.h>

#include <chrono>
#include <filesystem>
#include <set>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/mesh.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kLongJob[] = R"(
name: long
model: {name: lenet}
data: {name: synthetic, train_samples: 256, test_samples: 32}
train: {steps: 1000000, batch: 32, micro_batch: 8}
pipeline: {stages: 3}
)";

std::set<pid_t> Pids(const Mesh& mesh) {
  std::set<pid_t> pids;
  for (const nlohmann::json& worker : mesh.Workers()) {
    pids.insert(worker["pid"].get<pid_t>());
  }
  return pids;
}

int Count(const std::string& text, const std::string& word) {
  int count = 0;
  for (size_t at = text.find(word); at != std::string::npos;
       at = text.find(word, at + 1)) {
    ++count;
  }
  return count;
}

// Job 1's weights stay where they were; what comes then must not be taken for
// it, nor write over it.
TEST(Failure, ADatabaseThatIsMovedAwayLeavesItsJobsNumbersTaken) {
  const Mesh mesh(1);
  const std::string file = mesh.Write(R"(
name: short
model: {name: lenet}
data: {name: synthetic, train_samples: 64, test_samples: 32}
train: {steps: 2, batch: 32, micro_batch: 8}
)");
  const nlohmann::json first = mesh.Submit(file);
  const pid_t coordinator = mesh.pid_of_coordinator();

  ASSERT_EQ(kill(coordinator, SIGKILL), 0);
  for (const char* ending : {"", "-wal", "-shm"}) {
    std::filesystem::remove(mesh.folder() +
                            "/state/coordinator/coordinator.db" + ending);
  }
  ASSERT_TRUE(Eventually([&] {
    return mesh.Run({"job", "list"}).exit_code == 0;
  }));
  const nlohmann::json second = mesh.Submit(file, {"train.seed=3"});

  EXPECT_EQ(second["id"], 2);
  EXPECT_NE(second["weights_sha256"], first["weights_sha256"]);
  EXPECT_NE(second["weights_path"], first["weights_path"]);
}

TEST(Failure, AWorkerKilledInTheMiddleFailsTheJobByNameAndComesBack) {
  const Mesh mesh(3);
  const std::unique_ptr<Child> client =
      mesh.Start({"job", "submit", mesh.Write(kLongJob)});
  ASSERT_TRUE(Eventually([&] {
    const nlohmann::json jobs = mesh.Json({"job", "list"})["jobs"];
    return !jobs.empty() && jobs[0]["step"].get<int64_t>() > 0;
  }));
  const pid_t victim = mesh.pid_of_worker("w2");

  ASSERT_GT(victim, 1);  // kill(-1) would end every process there is
  kill(victim, SIGKILL);

  const Finished finished = client->Wait(std::chrono::seconds(60));
  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_THAT(finished.errors, HasSubstr("w2"));
  EXPECT_THAT(finished.errors, HasSubstr("paceline job submit"));
  EXPECT_TRUE(Eventually([&] {
    for (const nlohmann::json& worker : mesh.Workers()) {
      if (worker["name"] == "w2") {
        return worker["state"] == "idle" && worker["pid"] != victim;
      }
    }
    return false;
  })) << "w2 did not come back under its name";

  // The mesh is whole again: a new job runs.
  const Finished again =
      mesh.TrySubmit(mesh.Write(kLongJob), {"train.steps=3"});
  EXPECT_EQ(again.exit_code, 0) << again.errors;
}

// As a coordinator on a laptop that was shut for a while.
TEST(Failure, ACoordinatorStoppedBeyondTheLeaseAccusesNobody) {
  Mesh mesh(2);
  mesh.Detach(mesh.Write(kLongJob), {"pipeline.stages=2"});
  ASSERT_TRUE(mesh.StepPasses(0));
  const pid_t coordinator = mesh.pid_of_coordinator();
  ASSERT_GT(coordinator, 1);

  ASSERT_EQ(kill(coordinator, SIGSTOP), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(4500));  // 1.5 leases
  ASSERT_EQ(kill(coordinator, SIGCONT), 0);

  const int64_t before = mesh.Step("1");
  EXPECT_TRUE(mesh.StepPasses(before));
  EXPECT_EQ(mesh.Job("1")["state"], "running");
  for (const nlohmann::json& worker : mesh.Workers()) {
    EXPECT_NE(worker["state"], "lost") << worker;
  }
  EXPECT_EQ(mesh.Run({"job", "stop", "1"}).exit_code, 0);
}

// `paceline-worker ... 2>&1 | head`: its next line finds no reader.
TEST(Failure, NoDaemonDiesWithTheReaderOfItsLog) {
  const std::string any = "127.0.0.1:0";
  const std::vector<std::vector<std::string>> daemons = {
      {"paceline-coordinator", "--listen", any, "--http", any},
      {"paceline-worker", "--listen", any, "--http", any, "--coordinator",
       "127.0.0.1:1"},
      {"paceline", "up", "--workers", "1", "--port", "0", "--http-port", "0"}};
  for (std::vector<std::string> command : daemons) {
    const TemporaryFolder folder;
    command[0] = Program(command[0]);
    command.insert(command.end(), {"--state", folder / "state"});
    // Every one says that it stops.
    command.insert(command.begin(),
                   {"bash", "-c",
                    "mkfifo log; \"$@\" > log 2>&1 & pid=$!; "
                    "head -n 1 log; kill -TERM $pid; wait $pid",
                    "bash"});

    const Finished ended = RunCommand(command, std::chrono::seconds(60),
                                      {.directory = folder.path()});

    EXPECT_FALSE(ended.output.empty());
    EXPECT_NE(ended.exit_code, 128 + SIGPIPE) << command[4];
    EXPECT_NE(ended.exit_code, -1) << command[4];
  }
}

TEST(Failure, AMissingDataFileFailsTheJobAndNamesTheFile) {
  const Mesh mesh(2);

  const Finished finished = mesh.TrySubmit(
      mesh.Write(kLongJob), {"data.name=idx", "data.path=/no/such/folder"});

  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_THAT(finished.errors, HasSubstr("/no/such/folder"));
  EXPECT_THAT(finished.errors, Not(HasSubstr("submit it again")));
}

TEST(Failure, APortInUseIsNamedAndNothingIsLeftRunning) {
  const Mesh mesh(1);
  TemporaryFolder folder;
  const std::string port =
      mesh.coordinator().substr(mesh.coordinator().find(':') + 1);

  const Finished finished =
      RunCommand({Program("paceline"), "up", "--workers", "1", "--port", port,
                  "--http-port", "0", "--state", folder / "state"},
                 std::chrono::seconds(30));

  EXPECT_EQ(finished.exit_code, 1) << finished.errors;
  EXPECT_THAT(finished.errors, HasSubstr(port));
  EXPECT_EQ(RunCommand({"pgrep", "-f", folder.path()}).output, "");
}

TEST(Failure, AWorkerWithoutACoordinatorSaysSoOnceAndFindsItWhenItComes) {
  TemporaryFolder folder;
  const std::string coordinator_address = "127.0.0.1:" + FreePort();
  Child worker({Program("paceline-worker"), "--coordinator",
                coordinator_address, "--name", "lonely", "--listen",
                "127.0.0.1:0", "--http", "127.0.0.1:0", "--state",
                folder.path(), "--port-file", folder / "ports.json",
                "--log-level", "debug"});
  ASSERT_TRUE(Eventually([&] {
    return Count(worker.errors(), "no coordinator") > 0;
  })) << worker.errors();
  const nlohmann::json ports =
      nlohmann::json::parse(ReadWholeFile(folder / "ports.json"));
  EXPECT_EQ(Mesh::Get(ports["http"], "/healthz"), "ok\n");
  EXPECT_THAT(Mesh::Get(ports["http"], "/readyz"), HasSubstr("not attached"));

  Child coordinator({Program("paceline-coordinator"), "--listen",
                     coordinator_address, "--http", "127.0.0.1:0", "--state",
                     folder / "coordinator"});

  EXPECT_TRUE(Eventually([&] {
    return Mesh::Get(ports["http"], "/readyz") == "ready\n";
  })) << worker.errors();
  worker.Signal(SIGTERM);
  const Finished finished = worker.Wait(std::chrono::seconds(10));
  EXPECT_EQ(finished.exit_code, 0) << finished.errors;
  EXPECT_EQ(Count(finished.errors, "no coordinator"), 1) << finished.errors;
  const Finished listed =
      RunCommand({Program("paceline"), "--coordinator", coordinator_address,
                  "node", "list", "-o", "json"});
  EXPECT_EQ(nlohmann::json::parse(listed.output)["workers"][0]["state"],
            "stopped")
      << listed.output << listed.errors;
}

TEST(Failure, ValuesThatCouldNeverWorkAreRefusedAtTheStart) {
  TemporaryFolder folder;
  const struct {
    std::vector<std::string> command;
    const char* says;
    int exit_code = 78;
  } kCases[] = {
      {{Program("paceline-worker"), "--coordinator", "nowhere", "--listen",
        "127.0.0.1:0", "--http", "127.0.0.1:0", "--state", folder.path()},
       "--coordinator"},
      {{Program("paceline-coordinator"), "--lease", "nan", "--state",
        folder.path()},
       "--lease"},
      {{Program("paceline-coordinator"), "--state", ""}, "--state"},
      {{Program("paceline"), "up", "--state", ""}, "--state", 2}};

  for (const auto& bad : kCases) {
    const Finished finished = RunCommand(bad.command, std::chrono::seconds(20));
    EXPECT_EQ(finished.exit_code, bad.exit_code) << bad.says << finished.errors;
    EXPECT_THAT(finished.errors, HasSubstr(bad.says));
  }
}

TEST(Failure, AdvertisingPortZeroNamesThePortThatWasBound) {
  const Mesh mesh(1);
  TemporaryFolder folder;
  Child worker({Program("paceline-worker"), "--coordinator", mesh.coordinator(),
                "--name", "zero", "--machine-id", "zero", "--listen",
                "127.0.0.1:0", "--advertise", "localhost:0", "--http",
                "127.0.0.1:0", "--state", folder.path(), "--port-file",
                folder / "ports.json"});
  std::string advertised;
  ASSERT_TRUE(Eventually([&] {
    for (const nlohmann::json& one : mesh.Workers()) {
      if (one["name"] == "zero") advertised = one["address"];
    }
    return !advertised.empty();
  })) << worker.errors();

  const nlohmann::json ports =
      nlohmann::json::parse(ReadWholeFile(folder / "ports.json"));
  const std::string bound = ports["grpc"];
  EXPECT_EQ(advertised, "localhost" + bound.substr(bound.rfind(':')));
}

TEST(Failure, RandomBytesOnEveryPortHurtNobody) {
  const Mesh mesh(2);
  const std::set<pid_t> before = Pids(mesh);
  std::vector<std::string> addresses = {mesh.coordinator(), mesh.http()};
  for (const nlohmann::json& worker : mesh.Workers()) {
    addresses.push_back(worker["address"]);
    addresses.push_back(worker["http_address"]);
  }
  for (const std::string& address : addresses) {
    const std::string port = address.substr(address.rfind(':') + 1);
    RunCommand({"bash", "-c",
                "head -c 100000 /dev/urandom > /dev/tcp/127.0.0.1/" + port});
    RunCommand({"bash", "-c",
                "printf 'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n' "
                "> /dev/tcp/127.0.0.1/" +
                    port});
  }

  const Finished finished = mesh.TrySubmit(
      mesh.Write(kLongJob), {"train.steps=2", "pipeline.stages=2"});

  EXPECT_EQ(finished.exit_code, 0) << finished.errors;
  EXPECT_EQ(Pids(mesh), before) << "somebody died";
}

}  // namespace
}  // namespace paceline
