// deploy/testbed.sh: emulated machines, as slow as asked for, and gone without
// a trace.  What makes machines needs root, and is skipped without.

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <regex>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/mesh.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kLongest(250);

// CPU seconds a second of a process that never rests.
constexpr char kBurn[] = R"(
import time
cpu, wall = time.process_time(), time.monotonic()
while time.monotonic() < wall + 1.2: pass
print((time.process_time() - cpu) / (time.monotonic() - wall))
)";

// Says "listening", takes what one sender sends, prints bits a second; not
// counting what came first, since a bucket full of tokens goes ahead of it.
constexpr char kReceive[] = R"(
import socket, sys, time
listener = socket.create_server((sys.argv[1], 5555))
print("listening", flush=True)
peer, _ = listener.accept()
bits, begin = 0, None
while data := peer.recv(1 << 16):
    bits += 8 * len(data)
    if begin is None and bits > 1e6: bits, begin = 0, time.monotonic()
print(bits / (time.monotonic() - begin))
)";

constexpr char kSend[] = R"(
import socket, sys
socket.create_connection((sys.argv[1], 5555)).sendall(bytes(int(sys.argv[2])))
)";

std::string Script() {
  return std::string(PACELINE_SOURCE_DIR) + "/deploy/testbed.sh";
}

Finished Testbed(std::vector<std::string> arguments,
                 const ChildOptions& options = {}) {
  arguments.insert(arguments.begin(), Script());
  return RunCommand(arguments, kLongest, options);
}

// Nor is a zombie alive: that it is collected is init's concern.
bool Alive(pid_t pid) {
  const std::string status =
      ReadWholeFile("/proc/" + std::to_string(pid) + "/status");
  return !status.empty() && status.find("State:\tZ") == std::string::npos;
}

std::set<std::string> NamesIn(const std::string& folder) {
  std::set<std::string> names;
  std::error_code ignored;
  for (const auto& entry :
       std::filesystem::directory_iterator(folder, ignored)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

// Everything on this machine whose name a bed makes from its own.
std::vector<std::string> LeftOf(const std::string& bed) {
  const std::regex of_bed("paceline-" + bed + "\\.(net|coordinator|[0-9]+)");
  std::vector<std::string> left;
  for (const char* folder :
       {"/run/netns", "/sys/fs/cgroup", "/sys/fs/cgroup/cpu",
        "/sys/fs/cgroup/cpu,cpuacct", "/var/lib/paceline-testbed"}) {
    for (const std::string& name : NamesIn(folder)) {
      if (name == bed || name == "paceline-" + bed ||
          std::regex_match(name, of_bed)) {
        left.push_back(std::string(folder) + "/" + name);
      }
    }
  }
  for (const std::string& pid : NamesIn("/proc")) {
    const std::string command = ReadWholeFile("/proc/" + pid + "/cmdline");
    if (command.find("paceline-" + bed + ".") != std::string::npos) {
      left.push_back("process " + pid);
    }
  }
  return left;
}

// Why no bed can stand here; empty when one can.
std::string WhyNoBed() {
  if (geteuid() != 0) return "needs root";
  const std::string space = "paceline-probe" + std::to_string(getpid());
  const std::string probe =
      "set -e; grep -qE ' cgroup2 | cgroup .*[, ]cpu[, ]' /proc/self/mounts;"
      "ip netns add " +
      space + "; trap 'ip netns del " + space +
      "' EXIT;"
      "ip -n " +
      space +
      " link add probe0 type veth peer name probe1;"
      "ip -n " +
      space +
      " link add probe2 type bridge;"
      "tc -n " +
      space + " qdisc add dev probe0 root tbf rate 1mbit burst 8k limit 8k";
  const Finished probed = RunCommand({"bash", "-c", probe});
  return probed.exit_code == 0
             ? ""
             : "no network namespaces or cgroups here: " + probed.errors;
}

// Gives each test a name for its bed, and looks for what it left.
class TestbedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoBed(); !why.empty()) GTEST_SKIP() << why;
    links_ = NamesIn("/sys/class/net");
  }

  void TearDown() override {
    if (IsSkipped()) return;
    const Finished down = Run({"down"});
    EXPECT_EQ(down.exit_code, 0) << down.errors;
    EXPECT_THAT(LeftOf(name_), ::testing::IsEmpty());
    EXPECT_EQ(NamesIn("/sys/class/net"), links_);
  }

  std::vector<std::string> UpArguments(
      const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {
        "up",    "--name",         name_,    "--nodes", "2",
        "--bin", PACELINE_BIN_DIR, "--rate", "1gbit"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  Finished Up(const std::vector<std::string>& more = {}) const {
    return Testbed(UpArguments(more));
  }

  // `testbed.sh COMMAND --name NAME MORE...`
  Finished Run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin() + 1, {"--name", name_});
    return Testbed(arguments);
  }

  nlohmann::json Status() const {
    const Finished status = Run({"status", "-o", "json"});
    EXPECT_EQ(status.exit_code, 0) << status.errors;
    return nlohmann::json::parse(status.output, nullptr, false);
  }

  // bash's arguments to run a Python program as if on node `number`.
  std::vector<std::string> OnNode(int number,
                                  std::vector<std::string> arguments) const {
    const nlohmann::json node = Status()["nodes"][number - 1];
    arguments.insert(
        arguments.begin(),
        {"bash", "-c",
         "echo $$ > \"$0/cgroup.procs\" && "
         "exec nsenter --net=/run/netns/\"$1\" python3 -c \"${@:2}\"",
         node["cgroup"].get<std::string>(),
         node["namespace"].get<std::string>()});
    return arguments;
  }

  double BurnOnNode(int number) const {
    const Finished burnt = RunCommand(OnNode(number, {kBurn}));
    EXPECT_EQ(burnt.exit_code, 0) << burnt.errors;
    return std::atof(burnt.output.c_str());
  }

  std::string AddressOf(int number) const {
    const std::string address = Status()["nodes"][number - 1]["address"];
    return address.substr(0, address.find(':'));
  }

  double BitsPerSecond(int from, int to, int payload_bytes) const {
    const std::string address = AddressOf(to);
    Child receiver(OnNode(to, {kReceive, address}));
    EXPECT_TRUE(Eventually([&] { return !receiver.output().empty(); }));
    const Finished sent = RunCommand(
        OnNode(from, {kSend, address, std::to_string(payload_bytes)}));
    EXPECT_EQ(sent.exit_code, 0) << sent.errors;
    const Finished received = receiver.Wait(std::chrono::seconds(30));
    EXPECT_EQ(received.exit_code, 0) << received.errors;
    const size_t number = received.output.find('\n');
    return std::atof(received.output.c_str() + number);
  }

  // As after a kill -9 of the script when all machines are made.
  void BreakOffAnUp() const {
    std::vector<std::string> arguments = UpArguments({});
    arguments.insert(arguments.begin(), Script());
    Child up(arguments);
    const std::string last = "/run/netns/paceline-" + name_ + ".2";
    ASSERT_TRUE(Eventually(
        [&] { return std::filesystem::exists(last) || !up.Running(); }));
    up.Signal(SIGKILL);
    ASSERT_EQ(up.Wait(kLongest).exit_code, 128 + SIGKILL);
    ASSERT_THAT(LeftOf(name_), ::testing::Not(::testing::IsEmpty()));
  }

  const std::string name_ = "t" + std::to_string(getpid());

 private:
  std::set<std::string> links_;
};

TEST_F(TestbedTest, ExecSeesAWorkerOnEachMachine) {
  const Finished up = Up();
  ASSERT_EQ(up.exit_code, 0) << up.errors;

  const Finished list =
      Run({"exec", "--", "paceline", "node", "list", "-o", "json"});

  ASSERT_EQ(list.exit_code, 0) << list.errors;
  const nlohmann::json workers = nlohmann::json::parse(list.output)["workers"];
  ASSERT_EQ(workers.size(), 2u) << list.output;
  EXPECT_EQ(workers[0]["name"], "node-1");
  EXPECT_EQ(workers[0]["state"], "idle");
  EXPECT_EQ(workers[0]["address"], AddressOf(1) + ":7401");
  EXPECT_EQ(workers[1]["name"], "node-2");
  EXPECT_EQ(workers[1]["state"], "idle");
  EXPECT_EQ(workers[1]["address"], AddressOf(2) + ":7401");
}

TEST_F(TestbedTest, StatusTellsWhatWasAskedFor) {
  ASSERT_EQ(Up({"--cpu-of", "2=0.25", "--rate-of", "2=20mbit"}).exit_code, 0);

  const nlohmann::json status = Status();

  EXPECT_EQ(status["ready"], true);
  EXPECT_EQ(status["coordinator"]["cpu"], nullptr);
  EXPECT_EQ(status["nodes"][0]["cpu"], 0.4);
  EXPECT_EQ(status["nodes"][0]["rate"], "1gbit");
  EXPECT_EQ(status["nodes"][1]["cpu"], 0.25);
  EXPECT_EQ(status["nodes"][1]["rate"], "20mbit");
  EXPECT_EQ(status["nodes"][1]["rate_bits_per_second"], 20000000);
  EXPECT_EQ(status["nodes"][1]["alive"], true);
}

// Nobody gets more than the share, ever.  On a machine that others use as well
// all of it must be reached once in some tries.
bool ReachesShare(double share, const std::function<double()>& burn) {
  constexpr double kOff = 0.03;
  double most = 0;
  for (int i = 0; i < 8 && most < share - kOff; ++i) {
    most = std::max(most, burn());
  }
  EXPECT_NEAR(most, share, kOff);
  return most >= share - kOff && most <= share + kOff;
}

TEST_F(TestbedTest, ANodeComputesAtItsQuotaAndAtTheNextOne) {
  ASSERT_EQ(Up().exit_code, 0);

  EXPECT_TRUE(ReachesShare(0.4, [this] { return BurnOnNode(1); }));

  ASSERT_EQ(Run({"set", "--cpu-of", "1=0.15"}).exit_code, 0);
  EXPECT_TRUE(ReachesShare(0.15, [this] { return BurnOnNode(1); }));
  EXPECT_EQ(Status()["nodes"][0]["cpu"], 0.15);
}

// Two that want all of one core between them: who has to wait for the other
// gets what it missed in the next period.
TEST_F(TestbedTest, NodesOnOneCoreDoNotSlowEachOther) {
  ASSERT_EQ(Up({"--threads", "1", "--cpu", "0.45", "--lease", "7"}).exit_code,
            0);
  EXPECT_EQ(RunCommand({"pgrep", "-f", "paceline-coordinator .*--lease 7$"})
                .exit_code,
            0);
  const auto on_first_core = [this](int number) {
    std::vector<std::string> arguments = OnNode(number, {kBurn});
    arguments.insert(arguments.begin(), {"taskset", "-c", "0"});
    return arguments;
  };

  EXPECT_TRUE(ReachesShare(0.45, [&] {
    Child first(on_first_core(1));
    Child second(on_first_core(2));
    return std::min(std::stod(first.Wait(kLongest).output),
                    std::stod(second.Wait(kLongest).output));
  }));
}

TEST_F(TestbedTest, ALinkIsShapedBothWaysAndAnew) {
  ASSERT_EQ(Up({"--rate-of", "2=20mbit"}).exit_code, 0);

  EXPECT_NEAR(BitsPerSecond(1, 2, 2500000), 20e6, 3e6);
  EXPECT_NEAR(BitsPerSecond(2, 1, 2500000), 20e6, 3e6);

  ASSERT_EQ(Run({"set", "--rate-of", "2=40mbit"}).exit_code, 0);
  EXPECT_NEAR(BitsPerSecond(1, 2, 5000000), 40e6, 6e6);
}

TEST_F(TestbedTest, NodesSendAsDebianDoesWhateverTheHostDoes) {
  const std::string folder = "/proc/sys/net/ipv4/tcp_";
  const std::string allowed = folder + "allowed_congestion_control";
  // Another bed may be about to change it for a moment.
  const std::vector<std::string> read = {"flock", allowed, "cat", allowed};
  const std::string before = RunCommand(read).output;
  const bool can_be_had =
      ReadWholeFile(folder + "available_congestion_control").find("cubic") !=
          std::string::npos &&
      access(allowed.c_str(), W_OK) == 0;
  const Finished up = Up();
  ASSERT_EQ(up.exit_code, 0) << up.errors;

  const Finished run =
      Run({"exec", "--on", "1", "--", "cat", folder + "congestion_control"});

  EXPECT_EQ(run.exit_code, 0) << run.errors;
  EXPECT_EQ(RunCommand(read).output, before);
  EXPECT_EQ(run.output == "cubic\n", can_be_had) << run.output;
  EXPECT_EQ(up.errors.find("no cubic") == std::string::npos, can_be_had)
      << up.errors;
}

TEST_F(TestbedTest, AKilledNodeStaysDownUntilItIsStarted) {
  ASSERT_EQ(Up().exit_code, 0);
  const pid_t before = Status()["nodes"][0]["pid"];

  ASSERT_EQ(Run({"kill", "1"}).exit_code, 0);

  EXPECT_FALSE(Alive(before));
  EXPECT_EQ(Status()["nodes"][0]["alive"], false);
  EXPECT_EQ(Status()["nodes"][1]["alive"], true);
  ASSERT_EQ(Run({"start", "1"}).exit_code, 0);
  EXPECT_EQ(Status()["nodes"][0]["alive"], true);
  EXPECT_NE(Status()["nodes"][0]["pid"], before);
}

TEST_F(TestbedTest, DownEndsExactlyWhatTheBedStarted) {
  ASSERT_EQ(Up().exit_code, 0);
  const nlohmann::json status = Status();
  Child inside({Script(), "exec", "--name", name_, "sleep", "1000"});
  Child outside({"sleep", "1000"});
  const std::string group =
      std::filesystem::path(status["nodes"][0]["cgroup"].get<std::string>())
          .parent_path();
  ASSERT_TRUE(Eventually(
      [&] { return !ReadWholeFile(group + "/client/cgroup.procs").empty(); }));

  const Finished down = Run({"down"});

  EXPECT_EQ(down.exit_code, 0) << down.errors;
  EXPECT_THAT(LeftOf(name_), ::testing::IsEmpty());
  EXPECT_FALSE(Alive(status["coordinator"]["pid"]));
  EXPECT_FALSE(Alive(status["nodes"][0]["pid"]));
  EXPECT_FALSE(Alive(status["nodes"][1]["pid"]));
  EXPECT_EQ(inside.Wait(std::chrono::seconds(5)).exit_code, 128 + SIGKILL);
  EXPECT_TRUE(outside.Running());
}

TEST_F(TestbedTest, DownRemovesWhatAKilledUpLeft) {
  BreakOffAnUp();

  EXPECT_EQ(Run({"down"}).exit_code, 0);
  EXPECT_THAT(LeftOf(name_), ::testing::IsEmpty());
}

TEST_F(TestbedTest, DownNeedsNoRecord) {
  BreakOffAnUp();
  std::filesystem::remove_all("/var/lib/paceline-testbed/" + name_);
  // Killed before a namespace had its mark: only the record would know it.
  RunCommand({"ip", "-n", "paceline-" + name_ + ".2", "link", "set", "dev",
              "lo", "alias", "paceline-testbed:" + name_});
  const Finished down = Run({"down"});

  EXPECT_EQ(down.exit_code, 0) << down.errors;
  EXPECT_THAT(LeftOf(name_), ::testing::IsEmpty());
}

TEST_F(TestbedTest, UpBeginsAnewAfterAKilledUp) {
  BreakOffAnUp();

  const Finished up = Up();

  EXPECT_EQ(up.exit_code, 0) << up.errors;
  EXPECT_THAT(up.errors, HasSubstr("broken off"));
  EXPECT_EQ(Status()["nodes"][1]["alive"], true);
}

TEST_F(TestbedTest, AFailingUpTakesDownWhatItMade) {
  const TemporaryFolder folder;
  for (const char* program : {"paceline", "paceline-coordinator"}) {
    std::filesystem::create_symlink(Program(program), folder / program);
  }
  WriteWholeFile(folder / "paceline-worker", "#!/bin/sh\necho broken\nexit 7");
  chmod((folder / "paceline-worker").c_str(), 0755);

  const Finished up = Up({"--bin", folder.path()});

  EXPECT_EQ(up.exit_code, 1);
  EXPECT_THAT(up.errors, AllOf(HasSubstr("node-1 ended"), HasSubstr("broken")));
  EXPECT_THAT(LeftOf(name_), ::testing::IsEmpty());
}

TEST_F(TestbedTest, AStateFolderStaysAndTheDaemonsLogThere) {
  const TemporaryFolder folder;
  ASSERT_EQ(Up({"--state", folder / "state"}).exit_code, 0);

  ASSERT_EQ(Run({"down"}).exit_code, 0);

  EXPECT_THAT(ReadWholeFile(folder / "state/logs/node-2.log"),
              HasSubstr("worker is ready"));
}

TEST_F(TestbedTest, BedsStandSideBySide) {
  const std::string other = name_ + "-1";
  ASSERT_EQ(Up().exit_code, 0);
  std::vector<std::string> arguments = UpArguments({"--name", other});
  ASSERT_EQ(Testbed(arguments).exit_code, 0);

  EXPECT_EQ(Testbed({"down", "--name", other}).exit_code, 0);

  EXPECT_THAT(LeftOf(other), ::testing::IsEmpty());
  EXPECT_EQ(Run({"exec", "paceline", "node", "list"}).exit_code, 0);
  EXPECT_EQ(Status()["nodes"][1]["alive"], true);
}

TEST_F(TestbedTest, ABedThatStandsIsNotMadeAgain) {
  ASSERT_EQ(Up().exit_code, 0);
  const nlohmann::json before = Status();

  const Finished again = Up();

  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.errors, AllOf(HasSubstr("stands already"),
                                  HasSubstr("down --name " + name_)));
  EXPECT_EQ(Status(), before);
}

TEST_F(TestbedTest, ATakenNamespaceIsNamedAndLeftAlone) {
  const std::string taken = "paceline-" + name_ + ".2";
  ASSERT_EQ(RunCommand({"ip", "netns", "add", taken}).exit_code, 0);

  const Finished up = Up();
  const Finished down = Run({"down"});

  EXPECT_EQ(up.exit_code, 2);
  EXPECT_THAT(up.errors, HasSubstr("ip netns del " + taken));
  EXPECT_EQ(down.exit_code, 0);
  EXPECT_THAT(LeftOf(name_), ::testing::ElementsAre("/run/netns/" + taken));
  RunCommand({"ip", "netns", "del", taken});
}

TEST_F(TestbedTest, WithoutACgroupItSaysWhatToDo) {
  const TemporaryFolder empty;
  ChildOptions options;
  options.environment["PACELINE_CGROUP_ROOT"] = empty.path();

  const Finished up = Testbed(UpArguments({}), options);

  EXPECT_EQ(up.exit_code, 2);
  EXPECT_THAT(up.errors,
              AllOf(HasSubstr("no cgroup with a CPU controller"),
                    HasSubstr(empty.path()), HasSubstr("mount -t cgroup2")));
}

TEST_F(TestbedTest, WithoutProgramsItSaysHowToBuildThem) {
  const TemporaryFolder empty;

  const Finished up = Up({"--bin", empty.path()});

  EXPECT_EQ(up.exit_code, 2);
  EXPECT_THAT(up.errors, AllOf(HasSubstr(empty.path()),
                               HasSubstr("deploy/build.sh release")));
}

TEST_F(TestbedTest, WithoutABedExecIsNotFoundAndDownHasNothingToDo) {
  const Finished exec = Run({"exec", "true"});

  EXPECT_EQ(exec.exit_code, 3);
  EXPECT_THAT(exec.errors, HasSubstr("no bed '" + name_ + "'"));
  EXPECT_EQ(Run({"status"}).exit_code, 3);
  EXPECT_EQ(Run({"set", "--cpu-of", "1=0.2"}).exit_code, 3);
  EXPECT_EQ(Run({"kill", "1"}).exit_code, 3);
  EXPECT_EQ(Run({"down"}).exit_code, 0);
}

TEST_F(TestbedTest, ExecEndsWithTheCommandsExitCode) {
  ASSERT_EQ(Up().exit_code, 0);

  EXPECT_EQ(Run({"exec", "--", "bash", "-c", "exit 42"}).exit_code, 42);
  EXPECT_EQ(Run({"exec", "paceline-no-such-command"}).exit_code, 127);
}

TEST_F(TestbedTest, ANodeThatIsNotThereIsRefused) {
  ASSERT_EQ(Up().exit_code, 0);

  const Finished killed = Run({"kill", "3"});
  const Finished set = Run({"set", "--rate-of", "3=1gbit"});

  EXPECT_EQ(killed.exit_code, 2);
  EXPECT_THAT(killed.errors, HasSubstr("no node 3; this bed has 1 to 2"));
  EXPECT_EQ(set.exit_code, 2);
  EXPECT_THAT(set.errors, HasSubstr("no node 3; this bed has 1 to 2"));
}

// --- As anybody: refused before anything is made.

TEST(Testbed, WithoutRootItSaysSo) {
  std::vector<std::string> as_nobody = {"bash", Script(), "up"};
  if (geteuid() == 0) {
    const std::vector<std::string> to_nobody = {
        "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"};
    std::vector<std::string> look = to_nobody;
    look.insert(look.end(), {"test", "-r", Script()});
    if (RunCommand(look).exit_code != 0) {
      GTEST_SKIP() << "nobody may read " << Script();
    }
    as_nobody.insert(as_nobody.begin(), to_nobody.begin(), to_nobody.end());
  }

  const Finished up = RunCommand(as_nobody);

  EXPECT_EQ(up.exit_code, 2);
  EXPECT_THAT(up.errors, AllOf(HasSubstr("needs root"), HasSubstr("sudo")));
}

TEST(Testbed, WithoutCubicItSaysSoAndGoesOn) {
  const std::string script =
      "set -e; mark() { echo x; }; . \"$0/deploy/testbed/machine.sh\";"
      " ip() { [[ $2 != exec ]]; }; add_namespace x";

  const Finished finished =
      RunCommand({"bash", "-c", script, PACELINE_SOURCE_DIR});

  EXPECT_EQ(finished.exit_code, 0) << finished.errors;
  EXPECT_THAT(finished.errors, HasSubstr("no cubic"));
}

// A version 2 kernel reads this form; the machine at hand may have version 1.
TEST(Testbed, QuotasOfVersionTwoHaveItsForm) {
  const TemporaryFolder root;
  for (const char* node : {"1", "2", "3"}) {
    std::filesystem::create_directories(root / "paceline-x" + "/" + node);
    WriteWholeFile(root / "paceline-x" + "/" + node + "/cpu.max.burst", "");
  }
  const std::string script =
      "set -e; declare -A bed=([cgroup]=$1 [cgroup_version]=2 [cpu.1]=400"
      " [cpu.2]=50 [cpu.3]=max); name=x;"
      " . \"$0/deploy/testbed/record.sh\"; . \"$0/deploy/testbed/machine.sh\";"
      " set_cpu 1; set_cpu 2; set_cpu 3";

  const Finished finished =
      RunCommand({"bash", "-c", script, PACELINE_SOURCE_DIR, root.path()});

  ASSERT_EQ(finished.exit_code, 0) << finished.errors;
  const auto text = [&root](const std::string& file) {
    return ReadWholeFile(root / "paceline-x/" + file);
  };
  EXPECT_EQ(text("1/cpu.max"), "2000 5000\n");
  EXPECT_EQ(text("1/cpu.max.burst"), "2000\n");
  EXPECT_EQ(text("2/cpu.max"), "1000 20000\n");
  EXPECT_EQ(text("3/cpu.max"), "max 5000\n");
  EXPECT_EQ(text("3/cpu.max.burst"), "0\n");
}

TEST(Testbed, TheFolderWithTheCpuControllerIsFound) {
  const TemporaryFolder one;
  const TemporaryFolder two;
  WriteWholeFile(one / "cgroup.procs", "");
  WriteWholeFile(one / "cpu.cfs_quota_us", "-1\n");
  WriteWholeFile(two / "cgroup.controllers", "cpuset cpu io\n");
  const auto find = [](const std::string& folder) {
    ChildOptions options;
    options.environment["PACELINE_CGROUP_ROOT"] = folder;
    return RunCommand(
               {"bash", "-c", ". \"$0/deploy/testbed/input.sh\"; find_cgroup",
                PACELINE_SOURCE_DIR},
               kLongest, options)
        .output;
  };

  EXPECT_EQ(find(one.path()), "1 " + one.path() + "\n");
  EXPECT_EQ(find(two.path()), "2 " + two.path() + "\n");
}

}  // namespace
}  // namespace paceline
