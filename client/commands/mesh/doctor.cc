#include <netdb.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/commands/mesh/mesh.h"
#include "client/render/report.h"
#include "client/values/text.h"
#include "core/base/text.h"
#include "core/base/version.h"
#include "core/data/data_sets.h"
#include "core/os/daemon_process.h"
#include "core/os/host_port.h"
#include "core/rpc/convert/job_convert.h"
#include "core/trust/secret.h"

namespace paceline {
namespace {

namespace fs = std::filesystem;

enum Grade { kOk, kWarning, kProblem };
constexpr const char* kGrades[] = {"ok", "warning", "problem"};

// With more between two clocks, a new certificate is not valid yet.
constexpr absl::Duration kClocksMayDiffer = absl::Minutes(5);
constexpr int kNewestJobs = 50;
constexpr char kSeeCoordinator[] =
    "systemctl status paceline-coordinator, on its host; or name another one "
    "with --coordinator HOST:PORT";

constexpr char kOlderWorker[] = "all that the user of an older worker may";

constexpr char kSeeMesh[] =
    "it looks at the mesh too after 'paceline login HOST:PORT TOKEN', or with "
    "--coordinator HOST:PORT where there is no TLS";

using Properties = std::map<std::string, std::string>;

// Asks systemd about a unit.  Empty without systemd.
Properties ShowUnit(const std::string& unit) {
  Properties properties;
  FILE* const out =
      popen(absl::StrCat("systemctl show ", unit, " 2>/dev/null").c_str(), "r");
  if (out == nullptr) return properties;
  for (char line[4096]; fgets(line, sizeof(line), out) != nullptr;) {
    properties.insert(std::pair<std::string, std::string>(absl::StrSplit(
        absl::StripAsciiWhitespace(line), absl::MaxSplits('=', 1))));
  }
  pclose(out);
  return properties;
}

// Whether anybody listens on the port, as the kernel's table of sockets says.
bool IsInUse(const std::string& proc, int port) {
  for (const char* const table : {"/net/tcp", "/net/tcp6"}) {
    std::ifstream file(proc + table);
    for (std::string line; std::getline(file, line);) {
      const std::vector<std::string> columns =
          absl::StrSplit(line, ' ', absl::SkipEmpty());
      if (columns.size() > 3 && columns[3] == "0A" &&
          absl::EndsWith(columns[1], absl::StrFormat(":%04X", port))) {
        return true;
      }
    }
  }
  return false;
}

// Collects what was found.  Thread-compatible; the arguments outlive it.
class Doctor {
 public:
  Doctor(const CommandContext& context, const OpenTrust& trust,
         const DoctorOptions& options)
      : context_(context), trust_(trust), options_(options) {}

  ExitCode Run() {
    LookAtCertificate(options_.tls_folder, options_.coordinator,
                      "paceline login HOST:PORT TOKEN");
    const bool is_client = has_certificate_;
    LookAtDaemon("coordinator",
                 {{"listen", "127.0.0.1:7400"}, {"http", "127.0.0.1:7480"}});
    for (const std::string& instance : Instances()) {
      LookAtDaemon("worker",
                   {{"listen", "127.0.0.1:7401"},
                    {"http", "127.0.0.1:7481"},
                    {"coordinator", options_.coordinator}},
                   instance);
    }
    // A daemon's certificate opens no call of a client, and nobody has said
    // that this client calls the worker's coordinator.
    const bool asks = is_client || !(has_certificate_ || elsewhere_);
    if (asks) LookAtMesh();
    context_.console.PrintList(lines_, "checks", std::move(documents_));
    if (!asks) context_.console.Note(kSeeMesh);
    if (needs_root_) context_.console.Note("with sudo it looks at more files");
    return is_well_ ? kExitOk : kExitFailed;
  }

 private:
  // Returns NAME of each unit paceline-worker@NAME that has a configuration
  // file, and "" for paceline-worker itself.
  std::set<std::string> Instances() const {
    std::set<std::string> found = {""};
    std::error_code error;
    for (fs::directory_iterator entry(options_.root + "/etc/paceline", error),
         end;
         !error && entry != end; entry.increment(error)) {
      const std::string file = entry->path().filename();
      absl::string_view name = file;
      const bool is_worker = absl::ConsumePrefix(&name, "worker") &&
                             absl::ConsumeSuffix(&name, ".toml");
      // Others must not reach a shell.
      if (is_worker && absl::c_all_of(name, [](char c) {
            return absl::ascii_isalnum(c) || absl::StrContains("-_.", c);
          })) {
        found.emplace(name);
      }
    }
    return found;
  }

  // settings: the daemon's defaults
  // instance: of its unit; usually ""
  void LookAtDaemon(const std::string& kind, Properties settings,
                    const std::string& instance = "") {
    const std::string name =
        absl::StrCat("paceline-", kind, instance.empty() ? "" : "@", instance);
    const std::string config =
        absl::StrCat(options_.root, "/etc/paceline/", kind, instance, ".toml");
    const std::string state =
        absl::StrCat(options_.root, "/var/lib/paceline-", kind, instance);
    Properties unit = ShowUnit(name);
    const auto entries = ReadConfigFile(config);
    const bool has_unit = unit["LoadState"] == "loaded";
    if (!has_unit && absl::IsNotFound(entries.status())) return;
    worker_is_here_ = worker_is_here_ || kind == "worker";
    if (!entries.ok() && !absl::IsNotFound(entries.status())) {
      Add(kProblem, "configuration", std::string(entries.status().message()),
          "sudoedit " + config);
    }
    for (const auto& entry : entries.value_or(std::vector<ConfigEntry>())) {
      settings[entry.key] = entry.value;
    }
    const auto found = FindCoordinator(settings["coordinator"], true);
    if (found.ok()) settings["coordinator"] = *found;
    const bool same = settings["coordinator"] == options_.coordinator;
    elsewhere_ = elsewhere_ || (kind == "worker" && !same);
    if (has_unit) LookAtUnit(name, unit);
    for (const char* key : {"listen", "http"}) {
      const auto where = ParseHostPort(settings[key]);
      const bool down =
          unit["ActiveState"] == "inactive" || unit["ActiveState"] == "failed";
      if (!down || !where.ok() || !has_unit ||
          unit["UnitFileState"] == "disabled") {
        continue;
      }
      const bool taken = IsInUse(options_.root + "/proc", where->port);
      Add(taken ? kProblem : kOk, "port",
          absl::StrCat(
              settings[key],
              taken ? " is taken by another program than " : " is free for ",
              name),
          absl::StrCat("sudo ss -tlnp; or another '", key, "' in ", config));
    }
    LookAtDisk(state);
    LookAtDisk(settings["checkpoint-dir"]);
    auto own = ParseHostPort(settings["listen"]);
    if (own.ok() && (own->host.empty() || own->host == "::")) {
      own->host = "127.0.0.1";
    }
    const bool serves = own.ok() && unit["ActiveState"] == "active";
    LookAtCertificate(
        settings["tls-dir"].empty() ? state + "/tls" : settings["tls-dir"],
        kind == "worker" ? settings["coordinator"]
        : serves         ? JoinHostPort(own->host, own->port)
                         : "",
        kind == "worker"
            ? absl::StrCat("sudo paceline-worker ",
                           instance.empty()
                               ? ""
                               : absl::StrCat("--config ", config, " --state ",
                                              state, " "),
                           "join HOST:PORT TOKEN")
            : "sudo systemctl restart " + name);
  }

  // coordinator: empty: is not asked
  // again: how to get another one
  void LookAtCertificate(const std::string& folder,
                         const std::string& coordinator,
                         const std::string& again) {
    if (access((folder + "/certificate.pem").c_str(), R_OK) != 0) {
      needs_root_ = needs_root_ || errno == EACCES;
      return;
    }
    has_certificate_ = true;
    const std::unique_ptr<TrustClient> trust = trust_(coordinator, folder);
    auto shown = trust->Inspect();
    const auto tried =
        shown.ok() && !coordinator.empty() ? trust->Check() : shown;
    const bool away = absl::IsUnavailable(tried.status());
    // Whether the user's coordinator is away, LookAtMesh() says.
    if (!away || folder != options_.tls_folder) shown = tried;
    if (!shown.ok()) {
      return Add(kProblem, away ? "coordinator" : "certificate",
                 absl::StrCat(folder, ": ", shown.status().message()),
                 away ? kSeeCoordinator : again);
    }
    const absl::Time now = context_.clock.Today();
    const bool late =
        now > shown->renewal + (shown->not_after - shown->renewal) / 4;
    Add(late ? kWarning : kOk, "certificate",
        absl::StrCat(shown->role, " ", shown->name, " in ", folder,
                     late ? ": was not renewed in time," : ":", " expires at ",
                     HumanTime(absl::ToUnixMillis(shown->not_after))),
        again);
  }

  void LookAtMesh() {
    const auto where = ParseHostPort(options_.coordinator);  // was checked
    addrinfo* addresses = nullptr;
    const int unknown =
        getaddrinfo(where->host.c_str(), nullptr, nullptr, &addresses);
    if (unknown != 0) {
      return Add(kProblem, "name",
                 absl::StrCat(where->host,
                              ", the coordinator's host, is not known here: ",
                              gai_strerror(unknown)),
                 "--coordinator ADDRESS:PORT; for a name in .local: sudo apt "
                 "install libnss-mdns");
    }
    freeaddrinfo(addresses);
    const auto workers = context_.client.ListWorkers();
    if (!workers.ok()) {
      return Add(kProblem, "coordinator",
                 std::string(workers.status().message()), kSeeCoordinator);
    }
    Add(kOk, "coordinator", options_.coordinator + " answers");
    if (!has_certificate_) LookAtSecret();
    if (workers->has_free_bytes()) {
      SayFree("the coordinator's disk",
              static_cast<double>(workers->free_bytes()),
              "df -h, on its host; paceline job delete JOB");
    }
    LookAtWorkers(*workers);
    if (live_.size() > 1) LookAtLinks();
    if (worker_is_here_) LookAtData();
  }

  void LookAtSecret() {
    const std::string shown = ExchangeSecret("");
    const bool is_open = shown.empty() || context_.client.ListWorkers().ok();
    ExchangeSecret(shown);
    Add(is_open ? kWarning : kOk, "secret",
        is_open ? "every user who reaches the coordinator may submit jobs"
                : "calls without the mesh's secret are refused",
        "paceline-coordinator --secret-file FILE, and each worker too; or "
        "--tls");
  }

  void Add(Grade grade, absl::string_view check, const std::string& what,
           const std::string& advice = "") {
    is_well_ = is_well_ && grade != kProblem;
    absl::StrAppendFormat(&lines_, "%-8s %-14s %s\n", kGrades[grade], check,
                          Printable(what));
    if (grade != kOk) {
      absl::StrAppendFormat(&lines_, "%24stype: %s\n", "", Printable(advice));
    }
    documents_.push_back({{"check", std::string(check)},
                          {"state", kGrades[grade]},
                          {"what", what},
                          {"advice", NullUnless(grade != kOk, advice)}});
  }
  // wrong: what is, after `what`; nothing: `right` holds
  void AddList(Grade grade, absl::string_view check,
               const std::vector<std::string>& wrong, const std::string& what,
               const std::string& advice, const std::string& right) {
    if (wrong.empty()) return Add(kOk, check, right);
    Add(grade, check, absl::StrCat(what, absl::StrJoin(wrong, ", ")), advice);
  }

  void LookAtUnit(const std::string& name, Properties& unit) {
    const std::string& restarts = unit["NRestarts"];
    const std::string log = "journalctl -u " + name;
    const bool enabled = unit["UnitFileState"] != "disabled";
    if (unit["ActiveState"] != "active") {
      const bool unwanted = !enabled && unit["ActiveState"] == "inactive";
      Add(unwanted ? kWarning : kProblem, "unit",
          absl::StrCat(name, " is ", unit["ActiveState"], " (", unit["Result"],
                       ")"),
          absl::StrCat(log, " -n 20; sudo systemctl enable --now ", name));
    } else if (!enabled) {
      Add(kWarning, "unit", name + " does not start with the machine",
          "sudo systemctl enable " + name);
    } else {
      Add(restarts.empty() || restarts == "0" ? kOk : kWarning, "unit",
          absl::StrCat(name, " runs; restarts: ", restarts), log);
    }
  }

  void LookAtDisk(const std::string& folder) {
    struct statvfs disk = {};
    if (statvfs(folder.c_str(), &disk) != 0) return;
    // One with room may have no file left.
    const bool has_files = disk.f_files == 0 || disk.f_favail > 0;
    SayFree(folder,
            has_files ? static_cast<double>(disk.f_bavail) *
                            static_cast<double>(disk.f_frsize)
                      : 0,
            absl::StrCat("df -h ", folder, "; df -i ", folder,
                         "; paceline job delete JOB"));
  }

  void SayFree(const std::string& where, double free_bytes,
               const std::string& advice) {
    Add(free_bytes < static_cast<double>(options_.least_free_bytes) ? kProblem
                                                                    : kOk,
        "disk", absl::StrCat(where, ": ", HumanBytes(free_bytes), " are free"),
        advice);
  }

  // "WHAT on w1, w2; WHAT on w3", by what is so.
  static std::string Placed(
      const std::map<std::string, std::vector<std::string>>& workers) {
    return Joined(workers, "; ", [](const auto& each) {
      return absl::StrCat(each.first, " on ", absl::StrJoin(each.second, ", "));
    });
  }

  // Boards from one card image say that they are one machine.
  void LookForClones(const v1::ListWorkersResponse& workers) {
    // By machine id: its workers and their hosts.
    std::map<std::string,
             std::pair<std::vector<std::string>, std::set<std::string>>>
        machines;
    for (const v1::Worker& worker : workers.workers()) {
      const v1::Registration& about = worker.registration();
      if (!absl::c_linear_search(live_, about.name())) continue;
      auto& [names, hosts] = machines[about.machine_id()];
      names.push_back(about.name());
      hosts.insert(ParseHostPort(about.address()).value_or(HostPort()).host);
    }
    std::vector<std::string> cloned;
    for (const auto& [id, machine] : machines) {
      if (machine.second.size() < 2) continue;
      cloned.push_back(absl::StrJoin(machine.first, " and "));
    }
    AddList(kWarning, "machines", cloned,
            "count as one machine, which fails as a whole, and have several "
            "addresses: ",
            "where they are boards from one card image, give each a machine id "
            "of its own: sudo rm /etc/machine-id; sudo "
            "systemd-machine-id-setup",
            absl::StrCat("there are ", machines.size()));
  }

  void LookAtWorkers(const v1::ListWorkersResponse& workers) {
    std::vector<std::string> lost, versions, clocks, cpus;
    std::set<std::string> levels;
    std::map<std::string, std::vector<std::string>> readers, scripts;
    const auto compare = [&](const std::string& who, const std::string& version,
                             absl::Duration ahead) {
      if (version != workers.version()) {
        versions.push_back(absl::StrCat(who, " is ", version));
      }
      if (absl::AbsDuration(ahead) > kClocksMayDiffer) {
        clocks.push_back(absl::StrCat(
            who, " ",
            absl::FormatDuration(absl::Trunc(ahead, absl::Seconds(1)))));
      }
    };
    compare("this machine", kVersion,
            context_.clock.Today() - absl::FromUnixMillis(workers.unix_ms()));
    for (const v1::Worker& worker : workers.workers()) {
      const v1::Registration& about = worker.registration();
      const bool is_lost = worker.state() == v1::WORKER_STATE_LOST;
      if (is_lost) lost.push_back(about.name());
      if (is_lost || worker.state() == v1::WORKER_STATE_STOPPED) continue;
      compare(about.name(), about.version(),
              absl::Milliseconds(about.clock_ahead_ms()));
      levels.insert(about.cpu_capability());
      cpus.push_back(absl::StrCat(about.name(), " ", about.cpu_capability()));
      live_.push_back(about.name());
      readers[about.data_dirs().empty()
                  ? kOlderWorker
                  : absl::StrJoin(about.data_dirs(), ", ")]
          .push_back(about.name());
      scripts[about.no_scripts()
                  ? "forbidden (--no-scripts)"
                  : "may run (they are code of those who submit jobs)"]
          .push_back(about.name());
    }
    const bool none = live_.empty() && lost.empty();
    if (none) lost = {"no worker is attached, and every job waits"};
    AddList(kProblem, "workers", lost, none ? "" : "lost: ",
            none ? "paceline-worker --coordinator HOST:PORT, or sudo systemctl "
                   "start paceline-worker, on each machine that shall compute"
                 : "systemctl status paceline-worker, on that host; or, where "
                   "it will not come back: paceline node forget NAME",
            absl::StrCat("there are ", live_.size(), ", and none is lost"));
    AddList(kWarning, "version", versions,
            absl::StrCat("the coordinator is ", workers.version(), ", "),
            "sudo apt install ./paceline-*.deb, of one release; first on the "
            "coordinator's host",
            "all are " + workers.version());
    LookForClones(workers);
    AddList(kProblem, "clock", clocks,
            "ahead of the coordinator's (a worker's when it attached): ",
            "sudo timedatectl set-ntp true, on that machine; a worker says its "
            "time again when it attaches",
            "all clocks agree");
    // Workers of an older release say neither.
    if (readers.size() > readers.count(kOlderWorker)) {
      Add(kOk, "jobs may read", Placed(readers));
      Add(kOk, "scripts", Placed(scripts));
    }
    if (levels.size() < 2) cpus.clear();
    if (levels.empty()) return;
    AddList(kWarning, "cpu", cpus,
            "a job computes at the lowest level of its workers: ",
            "paceline node drain NAME, of the lowest, where speed counts",
            "one level: " + absl::StrJoin(levels, ""));
  }

  void LookAtLinks() {
    const auto measured = context_.client.ListMeasurements("");
    if (!measured.ok()) {
      return Add(kWarning, "links", std::string(measured.status().message()),
                 "paceline doctor, again");
    }
    std::vector<std::string> unknown, refused;
    for (const std::string& from : live_) {
      for (const std::string& to : live_) {
        const auto link = measured->links.find({from, to});
        if (from == to) continue;
        if (link == measured->links.end()) {
          unknown.push_back(absl::StrCat(from, " to ", to));
        } else if (!link->second.error.empty()) {
          refused.push_back(absl::StrCat(from, " ", link->second.error));
        }
      }
    }
    if (!refused.empty()) {
      AddList(kProblem, "links", refused, "",
              "paceline-worker --advertise HOST:PORT that others reach, on the "
              "host that cannot be dialled; or open that port in its firewall",
              "");
      if (unknown.empty()) return;
    }
    AddList(
        kWarning, "links", unknown,
        "not measured: ", "paceline profile --model lenet --batch 16 --links",
        absl::StrCat("all between ", live_.size(), " workers are measured"));
  }

  void LookAtData() {
    const v1::ListJobsResponse jobs =
        context_.client.ListJobs(kNewestJobs).value_or(v1::ListJobsResponse());
    std::vector<std::string> missing;
    for (const v1::Job& job : jobs.jobs()) {
      if (HasEnded(job.state())) continue;
      const JobSpec spec = FromProto(job.spec());
      for (const auto& [key, path] : FilesOf(spec)) {
        if (path.empty() || access(path.c_str(), R_OK) == 0) continue;
        missing.push_back(absl::StrCat(path, " of job ", job.id()));
      }
    }
    AddList(kWarning, "data", missing, "not on this machine: ",
            "scp it from the machine that has it, to the same path",
            "the files of open jobs are here");
  }

  const CommandContext& context_;
  const OpenTrust& trust_;
  const DoctorOptions& options_;
  std::string lines_;
  Document documents_ = Document::array();
  bool is_well_ = true;
  std::vector<std::string> live_;  // workers
  bool worker_is_here_ = false;
  bool has_certificate_ = false;
  bool elsewhere_ = false;  // the worker's coordinator is another one
  bool needs_root_ = false;
};

}  // namespace

Outcome DoctorCommand(const CommandContext& context, const OpenTrust& trust,
                      const DoctorOptions& options) {
  return Doctor(context, trust, options).Run();
}

}  // namespace paceline
