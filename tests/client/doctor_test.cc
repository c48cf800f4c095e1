// `paceline doctor` on a machine of the test's: each check is made to fail.
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <regex>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/commands/mesh/mesh.h"
#include "core/base/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fakes.h"
#include "tests/support/golden.h"

namespace paceline {
namespace {

// A machine with nothing but the client, of a mesh of two where all is well.
struct DoctorBed : CommandBed {
  DoctorBed() {
    options.coordinator = "127.0.0.1:7400";
    options.tls_folder = folder.Path("tls");
    options.root = folder.path();
    options.least_free_bytes = 0;
    *client.workers = IdleWorkers({"w1", "w2"});
    client.workers->set_version(kVersion);
    client.workers->set_unix_ms(absl::ToUnixMillis(clock.Today()));
    for (v1::Worker& worker : *client.workers->mutable_workers()) {
      worker.mutable_registration()->set_version(kVersion);
      worker.mutable_registration()->set_cpu_capability("avx2");
    }
    client.measurements->links[{"w1", "w2"}] = {};
    client.measurements->links[{"w2", "w1"}] = {};
    // Systemd of the test's machine knows no unit unless the test says so.
    SetUnits("LoadState=not-found");
    setenv("PATH", absl::StrCat(folder.path(), ":", path).c_str(), 1);
  }
  ~DoctorBed() { setenv("PATH", path.c_str(), 1); }

  v1::Worker& Worker(int i) { return *client.workers->mutable_workers(i); }
  v1::Registration& About(int i) { return *Worker(i).mutable_registration(); }
  void SetUnits(const std::string& says) {
    const std::string program = folder.Write(
        "systemctl", absl::StrCat("#!/bin/sh\necho '", says, "'\n"));
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  }
  void HaveCertificate(const std::string& in, int hours_left) {
    folder.Write(in + "/certificate.pem", "");
    trust.shown.not_after = clock.Today() + absl::Hours(hours_left);
    trust.shown.renewal = trust.shown.not_after - absl::Hours(24 * 30);
  }
  ExitCode Run() {
    return Code(DoctorCommand(
        context,
        [this](const std::string& coordinator, const std::string& in) {
          tried.emplace(in, coordinator);
          return std::make_unique<FakeTrustClient>(trust);
        },
        options));
  }

  const std::string path = std::getenv("PATH");
  TemporaryFolder folder;
  FakeTrustClient trust;
  DoctorOptions options;
  std::map<std::string, std::string> tried;  // coordinators, by folder
};

const struct {
  const char* what;
  void (*change)(DoctorBed&);
} kMachines[] = {
    {"all is well; what is not here is skipped", [](DoctorBed&) {}},
    {"a name that does not resolve",
     [](DoctorBed& on) {
       on.options.coordinator = std::string(300, 'x') + ":7400";
     }},
    {"a coordinator that does not answer",
     [](DoctorBed& on) {
       on.client.workers = absl::UnavailableError("nobody there");
     }},
    {"a worker that was stopped",
     [](DoctorBed& on) { on.Worker(0).set_state(v1::WORKER_STATE_STOPPED); }},
    {"a worker that is lost",
     [](DoctorBed& on) { on.Worker(1).set_state(v1::WORKER_STATE_LOST); }},
    {"what jobs may read and where scripts run",
     [](DoctorBed& on) {
       on.About(0).add_data_dirs("/srv/paceline");
       on.About(0).add_data_dirs("/usr/share/datasets");
       on.About(1).set_no_scripts(true);
     }},
    {"no workers", [](DoctorBed& on) { on.client.workers->clear_workers(); }},
    {"a disk of the coordinator that is full, wherever that runs",
     [](DoctorBed& on) {
       on.options.least_free_bytes = 1 << 20;
       on.client.workers->set_free_bytes(4096);
     }},
    {"a disk of the coordinator with room",
     [](DoctorBed& on) {
       on.options.least_free_bytes = 1 << 20;
       on.client.workers->set_free_bytes(1 << 21);
     }},
    {"other workers of the machine",
     [](DoctorBed& on) {
       on.SetUnits("LoadState=loaded\nActiveState=failed\nResult=exit-code");
       on.folder.Write("etc/paceline/worker2.toml", "name\n");
       on.folder.Write("etc/paceline/worker;x.toml", "");
       on.HaveCertificate("var/lib/paceline-worker2/tls", 24);
       on.trust.error = absl::FailedPreconditionError("it has expired");
     }},
    {"versions that differ",
     [](DoctorBed& on) { on.About(1).set_version("9.1"); }},
    {"a clock ten minutes off, here and on a worker",
     [](DoctorBed& on) {
       on.About(1).set_clock_ahead_ms(600'000);
       on.client.workers->set_unix_ms(
           absl::ToUnixMillis(on.clock.Today() + absl::Minutes(10)));
     }},
    {"two machines that say that they are one",
     [](DoctorBed& on) {
       on.About(1).set_machine_id(on.About(0).machine_id());
       on.About(1).set_address("10.0.0.2:7401");
     }},
    {"CPUs of two levels",
     [](DoctorBed& on) { on.About(1).set_cpu_capability("avx512"); }},
    {"a link that was never measured",
     [](DoctorBed& on) {
       on.client.measurements->links.erase({"w2", "w1"});
     }},
    {"a link that cannot be dialled",
     [](DoctorBed& on) {
       on.client.measurements->links[{"w1", "w2"}].error =
           "cannot dial w2 (:9)";
     }},
    {"a certificate for 29 days",
     [](DoctorBed& on) { on.HaveCertificate("tls", 24 * 29); }},
    {"a certificate near its end",
     [](DoctorBed& on) { on.HaveCertificate("tls", 24 * 2); }},
    {"a certificate that is refused",
     [](DoctorBed& on) {
       on.HaveCertificate("tls", 24 * 2);
       on.trust.error = absl::FailedPreconditionError("it has expired");
     }},
    {"a coordinator that is away is said once",
     [](DoctorBed& on) {
       on.trust.check_error = absl::UnavailableError("away");
       on.client.workers = absl::UnavailableError("away");
       on.HaveCertificate("tls", 24 * 29);
     }},
    {"and on a worker's host of the worker's coordinator",
     [](DoctorBed& on) {
       on.trust.check_error = absl::UnavailableError("away");
       on.client.workers = absl::UnavailableError("away");
       on.folder.Write("etc/paceline/worker.toml", "");
       on.HaveCertificate("var/lib/paceline-worker/tls", 24 * 29);
     }},
    {"a file of configuration that cannot be read",
     [](DoctorBed& on) {
       on.folder.Write("etc/paceline/worker.toml", "name\n");
     }},
    {"a disk that is nearly full",
     [](DoctorBed& on) {
       on.folder.Write("etc/paceline/coordinator.toml", "");
       on.folder.Write("var/lib/paceline-coordinator/coordinator.db", "");
       on.options.least_free_bytes = int64_t{1} << 62;
     }},
    {"a port that another program dials from",
     [](DoctorBed& on) {
       on.SetUnits("LoadState=loaded\nActiveState=inactive\nResult=success");
       on.folder.Write("etc/paceline/worker.toml", "http = \"127.0.0.1:0\"\n");
       on.folder.Write("proc/net/tcp",
                       "  sl  local_address rem_address   st\n"
                       "   0: 0100007F:1CE9 0100007F:9999 01 0\n");
     }},
    {"a port that another program listens on",
     [](DoctorBed& on) {
       on.SetUnits("LoadState=loaded\nActiveState=inactive\nResult=success");
       on.folder.Write("etc/paceline/worker.toml", "http = \"127.0.0.1:0\"\n");
       on.folder.Write(
           "proc/net/tcp6",
           "   0: 00000000000000000000000000000000:1CE9 0:0 0A 0\n");
     }},
};

// The whole answer of each is in the golden text, with its exit code.
TEST(Doctor, SaysWhatIsWrongAndWhatToType) {
  Golden golden("client/doctor", {{kVersion, "VERSION"}});
  for (const auto& test : kMachines) {
    DoctorBed bed;
    test.change(bed);

    const ExitCode code = bed.Run();

    // How much is free of the test's disk is not the test's to know.
    golden.Add(test.what,
               std::regex_replace(
                   absl::StrReplaceAll(bed.Said(code),
                                       {{bed.folder.path(), "ROOT"},
                                        {std::string(300, 'x'), "X..."}}),
                   std::regex("(ROOT[^:]*: )[0-9.]+ .iB"), "$1SOME"));
  }
}

TEST(Doctor, SaysWhatAUnitIsAndHowToStartIt) {
  Golden golden("client/doctor_units");
  for (const std::string says :
       {"ActiveState=failed\nResult=exit-code",
        "ActiveState=inactive\nUnitFileState=disabled",
        "ActiveState=active\nUnitFileState=disabled",
        "ActiveState=active\nUnitFileState=enabled\nNRestarts=7",
        "ActiveState=active\nUnitFileState=enabled\nNRestarts=0"}) {
    DoctorBed bed;
    bed.SetUnits("LoadState=loaded\nId=x=y\n" + says);

    EXPECT_EQ(bed.Run(),
              absl::StrContains(says, "failed") ? kExitFailed : kExitOk);

    golden.Add(absl::StrReplaceAll(says, {{"\n", ", "}}),
               bed.LinesWith("unit"));
  }
}

TEST(Doctor, LooksAtAWorkersHostWithTheWorkersCertificate) {
  DoctorBed bed;
  bed.folder.Write("etc/paceline/worker.toml",
                   "coordinator = \"first:7400\"\n");
  bed.HaveCertificate("var/lib/paceline-worker/tls", 24 * 29);
  bed.client.workers = absl::UnavailableError("a client's call");

  EXPECT_EQ(bed.Run(), kExitOk);

  EXPECT_EQ(bed.tried[bed.folder.Path("var/lib/paceline-worker/tls")],
            "first:7400");
  EXPECT_EQ(bed.LinesWith(" coordinator "), "");
  EXPECT_NE(bed.LinesWith(" disk "), "");
  EXPECT_THAT(bed.err.str(), testing::HasSubstr("paceline login"));
}

TEST(Doctor, NamesDataThatAnOpenJobNeedsAndAWorkersHostLacks) {
  for (const bool host : {false, true}) {
    DoctorBed bed;
    v1::Job& open = *bed.client.jobs.add_jobs() = RunningJob(1, 2);
    open.mutable_spec()->mutable_data()->set_name("idx");
    open.mutable_spec()->mutable_data()->set_path("/no/such/data");
    v1::Job& ended = *bed.client.jobs.add_jobs() = SucceededJob();
    ended.mutable_spec()->mutable_model()->set_weights("/no/such/weights");
    if (host) bed.folder.Write("etc/paceline/worker.toml", "");

    EXPECT_EQ(bed.Run(), kExitOk);

    EXPECT_EQ(
        bed.LinesWith("of job"),
        host ? "warning  data           not on this machine: /no/such/data of "
               "job 7\n"
             : "");
  }
}

TEST(Doctor, PrintsADocumentForPrograms) {
  DoctorBed bed;
  std::ostringstream out;
  Console console(out, bed.err, OutputFormat::kJson, {});
  EXPECT_EQ(bed.Code(DoctorCommand({bed.client, console, bed.clock, bed.pauser},
                                   nullptr, bed.options)),
            kExitOk);

  EXPECT_THAT(nlohmann::json::parse(out.str())["checks"][0], Includes(R"({
    "check": "coordinator", "state": "ok", "what": "127.0.0.1:7400 answers",
    "advice": null})"));
}

}  // namespace
}  // namespace paceline
