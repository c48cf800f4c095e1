// `paceline doctor` on a machine of the test's: each check is made to fail.
#include "client/commands/doctor.h"

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fake_trust_client.h"
#include "tests/client/fakes.h"

namespace paceline {
namespace {

using testing::HasSubstr;
using testing::Not;

// A machine with nothing but the client, of a mesh of two where all is well.
class DoctorTest : public testing::Test {
 protected:
  DoctorTest() {
    options_.coordinator = "127.0.0.1:7400";
    options_.tls_folder = folder_.Path("tls");
    options_.root = folder_.path();
    options_.least_free_bytes = 0;
    v1::ListWorkersResponse& mesh = *bed_.client.workers;
    mesh = IdleWorkers({"w1", "w2"});
    mesh.set_version(kVersion);
    mesh.set_unix_ms(absl::ToUnixMillis(bed_.clock.Today()));
    for (v1::Worker& worker : *mesh.mutable_workers()) {
      worker.mutable_registration()->set_version(kVersion);
      worker.mutable_registration()->set_cpu_capability("avx2");
    }
    bed_.client.measurements->links[{"w1", "w2"}] = {};
    bed_.client.measurements->links[{"w2", "w1"}] = {};
    // Systemd of the test's machine knows no unit unless the test says so.
    SetUnits("LoadState=not-found");
    setenv("PATH", absl::StrCat(folder_.path(), ":", path_).c_str(), 1);
  }
  ~DoctorTest() override { setenv("PATH", path_.c_str(), 1); }

  v1::Registration& Worker(int i) {
    return *bed_.client.workers->mutable_workers(i)->mutable_registration();
  }
  void SetUnits(const std::string& says) {
    const std::string program = folder_.Write(
        "systemctl", absl::StrCat("#!/bin/sh\necho '", says, "'\n"));
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  }
  std::string Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(
        std::filesystem::path(folder_.Path(path)).parent_path());
    return folder_.Write(path, text);
  }
  void HaveCertificate(const std::string& folder, absl::Duration left) {
    Write(folder + "/certificate.pem", "");
    trust_.shown.not_after = bed_.clock.Today() + left;
    trust_.shown.renewal = trust_.shown.not_after - absl::Hours(24 * 30);
  }

  // "STATE: WHAT -> ADVICE" of each finding, by check.
  std::multimap<std::string, std::string> Run(ExitCode expected) {
    const auto trust = [this](const std::string& coordinator,
                              const std::string& folder) {
      tried_.emplace(folder, coordinator);
      return std::make_unique<FakeTrustClient>(trust_);
    };
    EXPECT_EQ(DoctorCommand(bed_.context, trust, options_), expected);
    std::multimap<std::string, std::string> found;
    const nlohmann::json output = bed_.Output();
    for (const auto& each : output["checks"]) {
      found.emplace(
          each["check"],
          absl::StrCat(
              std::string(each["state"]), ": ", std::string(each["what"]),
              " -> ",
              each["advice"].is_null() ? "" : std::string(each["advice"])));
    }
    return found;
  }
  // The one finding of a check.
  std::string RunFor(const std::string& check, ExitCode expected) {
    const auto found = Run(expected);
    EXPECT_EQ(found.count(check), 1u) << bed_.out.str();
    return found.count(check) > 0 ? found.find(check)->second : "";
  }

  const std::string path_ = std::getenv("PATH");
  TemporaryFolder folder_;
  CommandBed bed_{OutputFormat::kJson};
  FakeTrustClient trust_;
  DoctorOptions options_;
  std::map<std::string, std::string> tried_;  // coordinators, by folder
};

TEST_F(DoctorTest, FindsNothingWhereAllIsWellAndSkipsWhatIsNotHere) {
  const auto found = Run(kExitOk);

  std::vector<std::string> checks;
  for (const auto& [check, text] : found) {
    checks.push_back(check);
    // This mesh has no secret.
    EXPECT_THAT(text, testing::StartsWith(check == "secret" ? "warning: every"
                                                            : "ok: "));
  }
  EXPECT_THAT(checks,
              testing::ElementsAre("clock", "coordinator", "cpu", "links",
                                   "machines", "secret", "version", "workers"));
}

TEST_F(DoctorTest, PrintsALineACheckAndWhatToType) {
  CommandBed bed;
  bed.client.workers = bed_.client.workers;
  bed.client.workers->mutable_workers(0)->set_state(v1::WORKER_STATE_LOST);

  EXPECT_EQ(DoctorCommand(bed.context, nullptr, options_), kExitFailed);

  EXPECT_THAT(bed.out.str(), HasSubstr("problem  workers        lost: w1\n"));
  EXPECT_THAT(bed.out.str(), HasSubstr("type: systemctl status"));
  EXPECT_THAT(bed.out.str(), HasSubstr("ok       coordinator"));
}

TEST_F(DoctorTest, ANameThatDoesNotResolve) {
  options_.coordinator = std::string(300, 'x') + ":7400";

  EXPECT_THAT(RunFor("name", kExitFailed), HasSubstr("libnss-mdns"));
}

TEST_F(DoctorTest, ACoordinatorThatDoesNotAnswer) {
  bed_.client.workers = absl::UnavailableError("nobody there");

  EXPECT_THAT(RunFor("coordinator", kExitFailed),
              testing::AllOf(HasSubstr("problem: nobody there"),
                             HasSubstr("paceline-coordinator")));
}

TEST_F(DoctorTest, AWorkerThatIsLostButNotOneThatWasStopped) {
  bed_.client.workers->mutable_workers(0)->set_state(v1::WORKER_STATE_STOPPED);
  EXPECT_THAT(RunFor("workers", kExitOk), HasSubstr("there are 1"));
  bed_.out.str("");
  bed_.client.workers->mutable_workers(1)->set_state(v1::WORKER_STATE_LOST);

  EXPECT_THAT(RunFor("workers", kExitFailed),
              testing::AllOf(HasSubstr("lost: w2"), HasSubstr("forget NAME")));
}

TEST_F(DoctorTest, WhatJobsMayReadAndWhereScriptsRun) {
  Worker(0).add_data_dirs("/srv/paceline");
  Worker(0).add_data_dirs("/usr/share/datasets");
  Worker(1).set_no_scripts(true);

  EXPECT_THAT(
      RunFor("jobs may read", kExitOk),
      testing::AllOf(HasSubstr("/srv/paceline, /usr/share/datasets on w1"),
                     HasSubstr("older worker may on w2")));
  bed_.out.str("");
  EXPECT_THAT(RunFor("scripts", kExitOk),
              testing::AllOf(HasSubstr("forbidden (--no-scripts) on w2"),
                             HasSubstr("may run")));
}

TEST_F(DoctorTest, AMeshWithoutWorkers) {
  bed_.client.workers->clear_workers();

  const auto found = Run(kExitFailed);

  EXPECT_THAT(found.find("workers")->second,
              testing::AllOf(HasSubstr("problem: no worker is attached"),
                             HasSubstr("-> paceline-worker --coordinator")));
  EXPECT_EQ(found.count("cpu"), 0u) << "there is none";
}

TEST_F(DoctorTest, ADiskOfTheCoordinatorThatIsFullWhereverItRuns) {
  options_.least_free_bytes = 1 << 20;
  bed_.client.workers->set_free_bytes(4096);
  EXPECT_THAT(RunFor("disk", kExitFailed),
              testing::AllOf(HasSubstr("problem: the coordinator's disk"),
                             HasSubstr("4.00 KiB are free")));
  bed_.out.str("");
  bed_.client.workers->set_free_bytes(1 << 21);

  EXPECT_THAT(RunFor("disk", kExitOk), HasSubstr("ok: "));
}

TEST_F(DoctorTest, OtherWorkersOfTheMachine) {
  SetUnits("LoadState=loaded\nActiveState=failed\nResult=exit-code");
  Write("etc/paceline/worker2.toml", "name\n");
  Write("etc/paceline/worker;x.toml", "");
  HaveCertificate("var/lib/paceline-worker2/tls", absl::Hours(24));
  trust_.error = absl::FailedPreconditionError("it has expired");

  const auto found = Run(kExitFailed);

  std::string all;
  for (const auto& [check, text] : found) absl::StrAppend(&all, text, "\n");
  EXPECT_THAT(all, Says("paceline-worker@2 is failed",
                        "journalctl -u paceline-worker@2",
                        "worker2.toml:1: name: need KEY = VALUE",
                        "--state " + folder_.Path("var/lib/paceline-worker2") +
                            " join HOST:PORT TOKEN"));
  EXPECT_THAT(all, Not(HasSubstr(";x")));
}

TEST_F(DoctorTest, VersionsThatDiffer) {
  Worker(1).set_version("9.1");

  EXPECT_THAT(RunFor("version", kExitOk),
              testing::AllOf(HasSubstr("warning: the coordinator is"),
                             HasSubstr("w2 is 9.1 ->"),
                             HasSubstr("first on the coordinator's host")));
}

TEST_F(DoctorTest, AClockTenMinutesOffHereOrOnAWorker) {
  Worker(1).set_clock_ahead_ms(600'000);
  bed_.client.workers->set_unix_ms(
      absl::ToUnixMillis(bed_.clock.Today() + absl::Minutes(10)));

  EXPECT_THAT(RunFor("clock", kExitFailed),
              testing::AllOf(HasSubstr("this machine -10m, w2 10m"),
                             HasSubstr("timedatectl")));
}

TEST_F(DoctorTest, TwoMachinesThatSayThatTheyAreOne) {
  Worker(1).set_machine_id(Worker(0).machine_id());
  Worker(1).set_address("10.0.0.2:7401");

  EXPECT_THAT(RunFor("machines", kExitOk),
              testing::AllOf(HasSubstr("warning: "), HasSubstr("w1 and w2"),
                             HasSubstr("machine-id")));
}

TEST_F(DoctorTest, CpusOfTwoLevels) {
  Worker(1).set_cpu_capability("avx512");

  EXPECT_THAT(RunFor("cpu", kExitOk), HasSubstr("w1 avx2, w2 avx512 ->"));
}

TEST_F(DoctorTest, ALinkThatWasNeverMeasured) {
  bed_.client.measurements->links.erase({"w2", "w1"});

  EXPECT_THAT(RunFor("links", kExitOk),
              testing::AllOf(HasSubstr("warning: not measured: w2 to w1 ->"),
                             HasSubstr("paceline profile")));
}

TEST_F(DoctorTest, ALinkThatCannotBeDialled) {
  bed_.client.measurements->links[{"w1", "w2"}].error = "cannot dial w2 (:9)";

  EXPECT_THAT(RunFor("links", kExitFailed),
              testing::AllOf(HasSubstr("problem: w1 cannot dial w2 (:9) ->"),
                             HasSubstr("--advertise")));
}

TEST_F(DoctorTest, ACertificateNearItsEndOrRefused) {
  HaveCertificate("tls", absl::Hours(24 * 29));
  EXPECT_THAT(RunFor("certificate", kExitOk), HasSubstr("ok: client kim"));
  bed_.out.str("");
  HaveCertificate("tls", absl::Hours(24 * 2));
  EXPECT_THAT(
      RunFor("certificate", kExitOk),
      testing::AllOf(HasSubstr("warning"), HasSubstr("in time"),
                     HasSubstr("expires at "), HasSubstr("paceline login")));
  bed_.out.str("");

  trust_.error = absl::FailedPreconditionError("it has expired");
  EXPECT_THAT(RunFor("certificate", kExitFailed), HasSubstr("it has expired"));
}

TEST_F(DoctorTest, ACoordinatorThatIsAwayIsSaidOnce) {
  trust_.check_error = absl::UnavailableError("away");
  bed_.client.workers = absl::UnavailableError("away");
  HaveCertificate("tls", absl::Hours(24 * 29));

  EXPECT_THAT(RunFor("certificate", kExitFailed), HasSubstr("ok: "));
  bed_.out.str("");
  EXPECT_THAT(RunFor("coordinator", kExitFailed), HasSubstr("away"));
  bed_.out.str("");
  // On a worker's host it is said of the worker's coordinator.
  std::filesystem::remove_all(folder_.Path("tls"));
  Write("etc/paceline/worker.toml", "");
  HaveCertificate("var/lib/paceline-worker/tls", absl::Hours(24 * 29));
  EXPECT_THAT(RunFor("coordinator", kExitFailed), HasSubstr("away"));
}

TEST_F(DoctorTest, AWorkersHostIsLookedAtWithTheWorkersCertificate) {
  Write("etc/paceline/worker.toml", "coordinator = \"first:7400\"\n");
  HaveCertificate("var/lib/paceline-worker/tls", absl::Hours(24 * 29));
  bed_.client.workers = absl::UnavailableError("a client's call");

  const auto found = Run(kExitOk);

  EXPECT_EQ(tried_[folder_.Path("var/lib/paceline-worker/tls")], "first:7400");
  EXPECT_EQ(found.count("coordinator"), 0u);
  EXPECT_EQ(found.count("disk"), 1u);
  EXPECT_THAT(bed_.err.str(), HasSubstr("paceline login"));
}

TEST_F(DoctorTest, AFileOfConfigurationThatCannotBeRead) {
  Write("etc/paceline/worker.toml", "name\n");

  EXPECT_THAT(RunFor("configuration", kExitFailed),
              HasSubstr("worker.toml:1: name: need KEY = VALUE"));
}

TEST_F(DoctorTest, AUnitThatHasFailedOrDoesNotComeBackOrRestarts) {
  const auto say = [this](const std::string& what) {
    SetUnits("LoadState=loaded\nId=x=y\n" + what);
    bed_.out.str("");
    return Run(absl::StrContains(what, "failed") ? kExitFailed : kExitOk)
        .find("unit")
        ->second;
  };

  EXPECT_THAT(say("ActiveState=failed\nResult=exit-code"),
              testing::AllOf(HasSubstr("is failed (exit-code)"),
                             HasSubstr("journalctl -u paceline-")));
  EXPECT_THAT(say("ActiveState=inactive\nUnitFileState=disabled"),
              testing::AllOf(HasSubstr("warning"), HasSubstr("is inactive"),
                             HasSubstr("enable --now")));
  EXPECT_THAT(say("ActiveState=active\nUnitFileState=disabled"),
              testing::AllOf(HasSubstr("warning"), HasSubstr("enable")));
  EXPECT_THAT(say("ActiveState=active\nUnitFileState=enabled\nNRestarts=7"),
              HasSubstr("warning: paceline-coordinator runs; restarts: 7"));
  EXPECT_THAT(say("ActiveState=active\nUnitFileState=enabled\nNRestarts=0"),
              HasSubstr("ok: "));
}

TEST_F(DoctorTest, APortThatAnotherProgramHas) {
  SetUnits("LoadState=loaded\nActiveState=inactive\nResult=success");
  Write("etc/paceline/worker.toml", "http = \"127.0.0.1:0\"\n");
  const std::string before =
      "  sl  local_address rem_address   st\n"
      "   0: 0100007F:1CE9 0100007F:9999 01 0\n";  // 7401, but no listener
  Write("proc/net/tcp", before);
  EXPECT_THAT(
      Run(kExitFailed),
      Not(testing::Contains(testing::Pair("port", HasSubstr("problem")))));
  bed_.out.str("");

  Write("proc/net/tcp6",
        "   0: 00000000000000000000000000000000:1CE9 0:0 0A 0\n");
  EXPECT_THAT(Run(kExitFailed),
              testing::Contains(testing::Pair(
                  "port", testing::AllOf(HasSubstr("problem"),
                                         HasSubstr("127.0.0.1:7401 is taken"),
                                         HasSubstr("sudo ss")))));
}

TEST_F(DoctorTest, ADiskThatIsNearlyFull) {
  Write("etc/paceline/coordinator.toml", "");
  Write("var/lib/paceline-coordinator/coordinator.db", "");
  options_.least_free_bytes = int64_t{1} << 62;

  EXPECT_THAT(
      RunFor("disk", kExitFailed),
      testing::AllOf(HasSubstr("paceline-coordinator"), HasSubstr("df -h")));
}

TEST_F(DoctorTest, DataThatAnOpenJobNeedsAndAWorkersHostLacks) {
  v1::Job open = RunningJob(1, 2);
  open.mutable_spec()->mutable_data()->set_name("idx");
  open.mutable_spec()->mutable_data()->set_path("/no/such/data");
  v1::Job ended = SucceededJob();
  ended.mutable_spec()->mutable_model()->set_weights("/no/such/weights");
  *bed_.client.jobs.add_jobs() = open;
  *bed_.client.jobs.add_jobs() = ended;
  EXPECT_EQ(Run(kExitOk).count("data"), 0u) << "no worker's host";
  bed_.out.str("");
  Write("etc/paceline/worker.toml", "");

  EXPECT_THAT(RunFor("data", kExitOk),
              testing::AllOf(HasSubstr("/no/such/data of job 7 ->"),
                             Not(HasSubstr("weights"))));
}

}  // namespace
}  // namespace paceline
