// `paceline up`, `doctor`, `token ...`, `login` and `tls ...`.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/commands/command.h"
#include "client/files/settings.h"
#include "client/render/console.h"
#include "client/rpc/control_client.h"
#include "client/values/document.h"
#include "core/base/clock.h"

namespace paceline {

// --- mesh --------------------------------------------------------------------

// `paceline up`: a coordinator and its workers as child processes, which live
// no longer than this program.

// Thread-compatible; start and use on the main thread only: the kernel ties a
// child's life to the *thread* that forked it.
class ChildProcess {
 public:
  // In a process group of its own, so that a terminal's Ctrl-C reaches only
  // this process, which then ends it in order.  Killed by the kernel when this
  // process ends, however that happens.
  //   arguments  [0]: the program's path
  //   log        the file to which standard output and error are appended
  // Errors: FailedPrecondition  the log or the program cannot be opened or run
  static absl::StatusOr<ChildProcess> Start(
      const std::vector<std::string>& arguments, const std::string& log);

  ChildProcess() = default;
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  // Kills and reaps it when it still runs.
  ~ChildProcess();

  pid_t pid() const { return pid_; }  // -1: not running
  bool running() const { return pid_ > 0; }

  // How it ended, once, when it has; never blocks.  "was killed by SIGKILL",
  // "ended with exit code 3".
  std::optional<std::string> TakeDeath();

  void Signal(int signal);

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}

  pid_t pid_ = -1;
};

// Keeps a log of such a process small: beyond `most_bytes` its content moves to
// PATH.1, in the place of what was there, and PATH begins anew.  The process
// has PATH open and writes on; a line that it writes during the copy is lost.
// Returns whether it was so.
bool RotateLog(const std::string& path, uintmax_t most_bytes);

// wait(2)'s status in words.
std::string DescribeExit(int wait_status);

// Where a daemon listens, from its port file.
struct DaemonPorts {
  std::string grpc;  // host:port
  std::string http;
  int64_t pid = 0;
};

// From a port file, {"grpc": "host:port", "http": "host:port", "pid": N};
// nothing while the file is not there or not whole.
std::optional<DaemonPorts> ReadPortFile(const std::string& path);

// Gives a client for the coordinator at an address.
using Connect =
    std::function<std::unique_ptr<ControlClient>(const std::string& address)>;

struct MeshOptions {
  std::string coordinator_program;
  std::string worker_program;
  int workers = 4;
  int port = 7400;       // 0: any
  int http_port = 7480;  // 0: any
  std::string state;     // folder; made when missing
  std::string log_level = "info";
  absl::Duration lease = absl::Seconds(3);  // the coordinator's, and so all's
};

// When a daemon that died is started again.  Thread-compatible.
class RestartBackoff {
 public:
  // Half a second, doubled with each death up to 30 s: a daemon that dies at
  // once must not keep the machine busy, one that died of bad luck shall be
  // back before the mesh has given it up.
  static constexpr absl::Duration kFirst = absl::Milliseconds(500);
  static constexpr absl::Duration kLongest = absl::Seconds(30);
  // A daemon that lived this long starts again after kFirst.
  static constexpr absl::Duration kHealthy = absl::Seconds(60);

  // The pause before the next start.  lived: of the process that died.
  absl::Duration OnDeath(absl::Duration lived);

 private:
  absl::Duration next_ = kFirst;
};

// Thread-compatible; lives on the main thread (ChildProcess).  Dropped, it
// kills what still runs.
class Mesh {
 public:
  // clock outlives it.
  Mesh(MeshOptions options, Connect connect, const Clock& clock);
  ~Mesh();
  Mesh(const Mesh&) = delete;

  // Begins: takes the state folder, looks whether the ports are free, starts
  // the coordinator.
  // Errors: FailedPrecondition  a port or the folder is in use, a program
  //                             cannot be run; says what to do
  absl::Status Start();

  // One look at everything: starts the workers once the coordinator listens,
  // notices deaths, starts again what is due.  Until the mesh was ready once,
  // a death is an error, afterwards a line in `news`.
  // Errors: FailedPrecondition  a daemon died before the mesh was ready; with
  //                             the end of its log
  absl::Status Tick(std::vector<std::string>* news);

  // All workers have registered, at least once.
  bool ready() const { return ready_; }

  // Ends everything: SIGTERM, and after `grace` SIGKILL.  Blocks no longer than
  // a second more.
  void Stop(absl::Duration grace);

  const DaemonPorts& coordinator() const { return ports_; }
  // {coordinator, http, pid, state, secret_file, workers: [{name, pid}]}
  Document Describe() const;
  // Grows with every start: Describe() has changed.
  int generation() const { return generation_; }
  // For error messages: who has not registered yet.
  std::string Missing() const;

 private:
  struct Daemon {
    std::string name;
    std::vector<std::string> arguments;
    std::string port_file;
    std::string log;
    int64_t log_begin = 0;  // bytes before this process's
    ChildProcess process;
    Instant started;
    RestartBackoff backoff;
    std::optional<Instant> start_again;
    bool registered = false;
  };

  // more: arguments behind those that all daemons get
  Daemon MakeDaemon(const std::string& name, const std::string& program,
                    std::vector<std::string> more) const;
  absl::Status StartDaemon(Daemon& daemon);
  absl::Status LookAfter(Daemon& daemon, std::vector<std::string>* news);
  absl::Status StartWorkers(std::vector<std::string>* news);
  // Lets other commands of this user find the secret.
  void LinkSecret(std::vector<std::string>* news);
  void FindRegistered();
  std::string LogTail(const Daemon& daemon) const;

  const MeshOptions options_;
  const std::string secret_;  // its file, anew with each start
  std::string secret_link_;   // for other commands
  const Connect connect_;
  const Clock& clock_;
  // Holds the lock on the state folder.
  int lock_ = -1;
  Daemon coordinator_;
  std::vector<Daemon> workers_;
  std::unique_ptr<ControlClient> client_;
  DaemonPorts ports_;
  bool ready_ = false;
  int generation_ = 0;
};

// The path of `program`: beside this one, else in $PATH.
// Errors: FailedPrecondition  it is in neither
absl::StatusOr<std::string> FindProgram(const std::string& program);

// Errors: FailedPrecondition  a program listens there; names `flag`
absl::Status CheckPortFree(int port, const std::string& flag);

struct UpOptions {
  MeshOptions mesh;
  std::string ready_file;  // written once ready; empty: none
  // Commands ask this one unless they are told otherwise.
  std::string usual_coordinator = kDefaultCoordinator;
};

// Runs until the pauser says so, and then ends with kExitOk: stopping is what
// Ctrl-C is for here.
Outcome UpCommand(const UpOptions& options, Console& console,
                  const Clock& clock, Pauser& pauser, Connect connect);

// `up` of UserStateFolder(); empty: the user has no home.
std::string DefaultUpState();

// --- doctor ------------------------------------------------------------------

// `paceline doctor`: looks at this machine and at its mesh, and says what is
// wrong and what to type.

struct DoctorOptions {
  std::string coordinator;  // host:port
  std::string tls_folder;   // of the user's certificate
  // In front of /etc, /proc and /var: a test has its own.
  std::string root = "";
  // A disk with less is nearly full.
  int64_t least_free_bytes = int64_t{1} << 30;
};

// The coordinator, called with the certificate in `folder`.
using OpenTrust = std::function<std::unique_ptr<TrustClient>(
    const std::string& coordinator, const std::string& folder)>;

// Checks what is here: the user's certificate, the units, configuration, ports,
// disks and certificates of daemons; and, where the coordinator answers, its
// workers.  kExitFailed where something is a problem; warnings alone are none.
Outcome DoctorCommand(const CommandContext& context, const OpenTrust& trust,
                      const DoctorOptions& options);

// --- trust -------------------------------------------------------------------

// `paceline token ...`, `paceline login` and `paceline tls ...`.

struct TokenOptions {
  std::string role = "worker";
  int64_t uses = 1;
  absl::Duration ttl = absl::Hours(1);
  std::string for_name = {};  // empty: any that is free
};

// Prints the token, and what to type on the other machine.
Outcome CreateTokenCommand(TrustClient& client, Console& console,
                           const std::string& coordinator,
                           const TokenOptions& options);
Outcome ListTokensCommand(TrustClient& client, Console& console);
Outcome RevokeTokenCommand(TrustClient& client, Console& console,
                           const std::string& id);

// Locks out the holders of certificates of that role and name.
Outcome RevokeCommand(TrustClient& client, Console& console,
                      const std::string& role, const std::string& name);

// settings: the user's file of settings, where `coordinator` is remembered if
// the file names none yet.
Outcome LoginCommand(TrustClient& client, Console& console,
                     const std::string& coordinator, const std::string& token,
                     const std::string& user, const std::string& settings);
Outcome CheckTlsCommand(TrustClient& client, Console& console,
                        const std::string& coordinator);

}  // namespace paceline
