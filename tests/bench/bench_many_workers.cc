// One coordinator, the real program, with a thousand workers that compute
// nothing: what it costs, how soon an event leads to orders, and whether all
// come back when all were lost at once.
//
//   bench_many_workers [--check] [--workers 1000] [--events 100]
//                      [--coordinator PROGRAM]
//   bench_many_workers [--check] --watchers 20 [--workers 200]
//   bench_many_workers --serve SECONDS [--workers 200]
//
// --check: exits 1 when it takes more than half a core, an order comes later
// than 50 ms after its event (the 99th of a hundred), memory exceeds 200 MB, or
// the mesh is not settled 10 s after all came back.  With watchers, which all
// jobs that have room compute for: when these take more than 5 % of a core, the
// first message takes a second, the 99th of a hundred changes is seen after
// 100 ms, or one that does not read is not dropped.  --serve only says where
// the page of such a mesh is, for a browser.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/os/thread.h"
#include "core/rpc/channel.h"
#include "paceline/v1/control.grpc.pb.h"
#include "tests/bench/peers/scripted_worker.h"

namespace paceline {
namespace {

constexpr absl::Duration kPeriod = absl::Milliseconds(500);
constexpr absl::Duration kLevel = absl::Seconds(10);
constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr absl::Duration kGone = absl::Seconds(6);  // two leases
constexpr int kStages = 4;

constexpr double kMostCores = 0.5;
constexpr absl::Duration kMostDelay = absl::Milliseconds(50);
constexpr int64_t kMostBytes = 200'000'000;
constexpr absl::Duration kMostReturn = absl::Seconds(10);

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Looks every millisecond; crashes after kPatience.
void Await(const std::string& what, const std::function<bool()>& is_so) {
  const Instant end = SteadyNow() + kPatience;
  while (!is_so()) {
    PACELINE_CHECK(SteadyNow() < end, what, " did not come");
    absl::SleepFor(absl::Milliseconds(1));
  }
}

// The coordinator's program in a folder of its own.  Made before any thread.
class CoordinatorProgram {
 public:
  explicit CoordinatorProgram(const std::string& program) {
    folder_ = std::filesystem::temp_directory_path() /
              absl::StrCat("paceline-bench-", getpid());
    std::filesystem::create_directory(folder_);
    const std::string ports = folder_ + "/ports.json";
    Start(program, ports);
    Await("the port file", [&] { return !ReadFile(ports).empty(); });
    // {"grpc": "127.0.0.1:41021", ...}
    const std::string text = ReadFile(ports);
    address_ = Entry(text, "\"grpc\"");
    http_ = Entry(text, "\"http\"");
  }
  ~CoordinatorProgram() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    std::filesystem::remove_all(folder_);
  }

  const std::string& address() const { return address_; }
  int http_port() const {
    return std::stoi(http_.substr(http_.rfind(':') + 1));
  }

  double CpuSeconds() const {
    const std::string text = ReadFile(absl::StrCat("/proc/", pid_, "/stat"));
    std::istringstream fields(text.substr(text.rfind(')') + 2));
    std::string skipped;
    double user = 0;
    double system = 0;
    for (int i = 3; i < 14; ++i) fields >> skipped;
    fields >> user >> system;
    return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }

  int64_t PeakBytes() const {
    std::ifstream status(absl::StrCat("/proc/", pid_, "/status"));
    int64_t kib = 0;
    for (std::string line; std::getline(status, line);) {
      if (absl::StartsWith(line, "VmHWM:")) {
        std::istringstream(line.substr(6)) >> kib;
      }
    }
    return kib * 1024;
  }

 private:
  void Start(const std::string& program, const std::string& ports) {
    const std::string state = folder_ + "/state";
    const std::string log = folder_ + "/log";
    pid_ = fork();
    PACELINE_CHECK(pid_ >= 0, "fork");
    if (pid_ > 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int file = open(log.c_str(), O_CREAT | O_WRONLY, 0600);
    dup2(file, STDOUT_FILENO);
    dup2(file, STDERR_FILENO);
    execl(program.c_str(), program.c_str(), "--listen", "127.0.0.1:0", "--http",
          "127.0.0.1:0", "--state", state.c_str(), "--port-file", ports.c_str(),
          nullptr);
    _exit(127);
  }

  std::string folder_;
  static std::string Entry(const std::string& text, const char* key) {
    const size_t begin = text.find("127.0.0.1", text.find(key));
    return text.substr(begin, text.find('"', begin) - begin);
  }

  std::string address_;
  std::string http_;
  pid_t pid_ = -1;
};

// All workers, one thread that makes them beat, and when orders came.
class Crowd {
 public:
  struct Order {
    bool runs = false;
    int64_t attempt = 0;
    Instant at;
  };

  Crowd(const std::string& coordinator, int count)
      : orders_(count), beats_("beats", [this] { BeatLoop(); }) {
    absl::MutexLock lock(&mutex_);
    for (int i = 0; i < count; ++i) {
      workers_.push_back(std::make_unique<ScriptedWorker>(
          coordinator, i, [this](int worker, const v1::StandingOrder& order) {
            const Instant now = SteadyNow();
            absl::MutexLock order_lock(&orders_mutex_);
            orders_[worker].push_back(
                {order.has_run(), order.run().attempt(), now});
          }));
    }
  }
  ~Crowd() {
    StopAll();
    stop_ = true;
    beats_.Join();
  }

  void StartAll() {
    for (const auto& worker : workers_) worker->Start();
  }
  void StopAll() {
    for (const auto& worker : workers_) worker->Stop();
    for (const auto& worker : workers_) worker->Wait();
    absl::MutexLock lock(&orders_mutex_);
    for (std::vector<Order>& orders : orders_) orders.clear();
  }
  bool AllWelcomed() const {
    return std::all_of(workers_.begin(), workers_.end(),
                       [](const auto& worker) { return worker->welcomed(); });
  }
  ScriptedWorker& At(int worker) { return *workers_[worker]; }
  // Those that came, oldest first.
  std::vector<Order> OrdersOf(int worker) const {
    absl::MutexLock lock(&orders_mutex_);
    return orders_[worker];
  }
  // Those whose newest order is to run an attempt after this one.
  std::vector<int> MembersAfter(int64_t attempt) const {
    absl::MutexLock lock(&orders_mutex_);
    std::vector<int> members;
    for (size_t i = 0; i < orders_.size(); ++i) {
      if (!orders_[i].empty() && orders_[i].back().runs &&
          orders_[i].back().attempt > attempt) {
        members.push_back(static_cast<int>(i));
      }
    }
    return members;
  }

 private:
  // Spread over the period, as workers that know nothing of each other are.
  void BeatLoop() {
    Instant due = SteadyNow();
    for (size_t i = 0; !stop_; ++i) {
      size_t count = 0;
      {
        absl::MutexLock lock(&mutex_);
        count = workers_.size();
        if (count > 0) workers_[i % count]->Beat();
      }
      due = due + kPeriod / std::max<int64_t>(1, static_cast<int64_t>(count));
      if (due > SteadyNow()) absl::SleepFor(due - SteadyNow());
    }
  }

  mutable absl::Mutex orders_mutex_;
  std::vector<std::vector<Order>> orders_ ABSL_GUARDED_BY(orders_mutex_);
  absl::Mutex mutex_;
  std::vector<std::unique_ptr<ScriptedWorker>> workers_;
  std::atomic<bool> stop_{false};
  Thread beats_;
};

int64_t SubmitJob(v1::Control::Stub& control) {
  v1::SubmitJobRequest request;
  v1::JobSpec& spec = *request.mutable_spec();
  spec.set_name("bench");
  spec.mutable_model()->set_name("lenet");
  spec.mutable_data()->set_name("synthetic");
  spec.mutable_train()->set_steps(1'000'000);
  spec.mutable_pipeline()->set_stages(kStages);
  grpc::ClientContext context;
  v1::SubmitJobResponse response;
  const grpc::Status status = control.SubmitJob(&context, request, &response);
  PACELINE_CHECK(status.ok(), status.error_message());
  return response.id();
}

v1::Job GetJob(v1::Control::Stub& control, int64_t id) {
  v1::GetJobRequest request;
  request.set_id(id);
  grpc::ClientContext context;
  v1::Job job;
  PACELINE_CHECK(control.GetJob(&context, request, &job).ok(), "GetJob");
  return job;
}

bool AllAreThere(v1::Control::Stub& control, size_t count) {
  grpc::ClientContext context;
  v1::ListWorkersResponse response;
  if (!control.ListWorkers(&context, {}, &response).ok()) return false;
  return static_cast<size_t>(
             std::count_if(response.workers().begin(), response.workers().end(),
                           [](const v1::Worker& worker) {
                             return worker.state() == v1::WORKER_STATE_IDLE ||
                                    worker.state() == v1::WORKER_STATE_BUSY;
                           })) == count;
}

// A member of the job fails.  Two events follow, each with orders: its word,
// and the last word that all have left.
void AddDelays(Crowd& crowd, int64_t step,
               std::vector<absl::Duration>& delays) {
  const std::vector<int> before = crowd.MembersAfter(0);
  const int64_t attempt = crowd.OrdersOf(before[0]).back().attempt;
  const Instant begin = SteadyNow();
  crowd.At(before[0]).FailRun(step);
  Instant failed;
  Await("the word of a failure", [&] {
    failed = crowd.At(before[0]).said_at();
    return failed >= begin;
  });
  std::vector<int> next;
  Await("the next attempt", [&] {
    next = crowd.MembersAfter(attempt);
    return next.size() == kStages;
  });
  Instant left = failed;
  for (const int member : before) {
    for (const Crowd::Order& order : crowd.OrdersOf(member)) {
      if (order.runs || order.at < failed) continue;
      delays.push_back(order.at - failed);
      left = std::max(left, order.at);
      break;
    }
  }
  for (const int member : next) {
    delays.push_back(crowd.OrdersOf(member).back().at - left);
  }
}

struct Limits {
  bool kept = true;

  void Say(const std::string& what, double value, const char* unit,
           double most) {
    const bool good = value <= most;
    std::printf("%-34s %9.2f %-6s at most %.1f%s\n", what.c_str(), value, unit,
                most, good ? "" : "  TOO MUCH");
    std::fflush(stdout);
    kept = kept && good;
  }
};

bool Measure(const std::string& program, int workers, int events) {
  Limits limits;
  CoordinatorProgram coordinator(program);
  Crowd crowd(coordinator.address(), workers);
  const auto control = v1::Control::NewStub(MakeChannel(coordinator.address()));
  crowd.StartAll();
  Await("everybody's welcome", [&] { return crowd.AllWelcomed(); });
  const int64_t job = SubmitJob(*control);
  Await("the job", [&] { return crowd.MembersAfter(0).size() == kStages; });

  const double cpu = coordinator.CpuSeconds();
  const Instant begin = SteadyNow();
  absl::SleepFor(kLevel);
  limits.Say("CPU at 2 heartbeats/s each",
             (coordinator.CpuSeconds() - cpu) /
                 absl::ToDoubleSeconds(SteadyNow() - begin),
             "cores", kMostCores);

  std::vector<absl::Duration> delays;
  for (int i = 0; i < events; ++i) AddDelays(crowd, i + 1, delays);
  std::sort(delays.begin(), delays.end());
  std::printf("%-34s %9.2f ms\n", "event to order, median",
              absl::ToDoubleMilliseconds(delays[delays.size() / 2]));
  limits.Say("event to order, 99 of 100",
             absl::ToDoubleMilliseconds(delays[delays.size() * 99 / 100]), "ms",
             absl::ToDoubleMilliseconds(kMostDelay));

  crowd.StopAll();
  absl::SleepFor(kGone);
  const Instant back = SteadyNow();
  crowd.StartAll();
  Await("everybody's return", [&] { return crowd.AllWelcomed(); });
  Await("everybody's place", [&] { return AllAreThere(*control, workers); });
  // On those that were back first: on one, if the others came later.
  Await("the job's return", [&] {
    return !crowd.MembersAfter(0).empty() &&
           GetJob(*control, job).state() == v1::JOB_STATE_RUNNING;
  });
  limits.Say("all lost, and back", absl::ToDoubleSeconds(SteadyNow() - back),
             "s", absl::ToDoubleSeconds(kMostReturn));
  limits.Say("memory, at most", coordinator.PeakBytes() / 1e6, "MB",
             kMostBytes / 1e6);
  return limits.kept;
}

// A client of gRPC, which knows when it heard of a job first.
class Watcher {
 public:
  explicit Watcher(v1::Control::Stub& control)
      : begin_(SteadyNow()),
        reader_(control.WatchMesh(&context_, {})),
        thread_("watcher", [this] { Loop(); }) {}
  ~Watcher() { context_.TryCancel(); }

  absl::Duration first() const {
    absl::MutexLock lock(&mutex_);
    return first_;
  }
  std::optional<Instant> SawJob(int64_t id) const {
    absl::MutexLock lock(&mutex_);
    const auto found = jobs_.find(id);
    if (found == jobs_.end()) return std::nullopt;
    return found->second;
  }
  int64_t bytes() const { return bytes_; }

 private:
  void Loop() {
    for (v1::MeshUpdate update; reader_->Read(&update);) {
      absl::MutexLock lock(&mutex_);
      first_ = std::min(first_, SteadyNow() - begin_);
      bytes_ += static_cast<int64_t>(update.ByteSizeLong());
      for (const v1::Job& job : update.jobs()) {
        jobs_.emplace(job.id(), SteadyNow());
      }
    }
  }

  const Instant begin_;
  grpc::ClientContext context_;
  const std::unique_ptr<grpc::ClientReader<v1::MeshUpdate>> reader_;
  std::atomic<int64_t> bytes_{0};
  mutable absl::Mutex mutex_;
  absl::Duration first_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteDuration();
  std::map<int64_t, Instant> jobs_ ABSL_GUARDED_BY(mutex_);
  Thread thread_;
};

// A client of the page: the time to the end of its first event.
class PageClient {
 public:
  PageClient(int port, bool reads) : reads_(reads) {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<uint16_t>(port));
    PACELINE_CHECK(
        connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0,
        "connect");
    const std::string ask = "GET /watch HTTP/1.1\r\nHost: x\r\n\r\n";
    PACELINE_CHECK(write(fd_, ask.data(), ask.size()) > 0, "write");
    thread_ = Thread("page", [this] { Loop(); });
  }
  ~PageClient() {
    shutdown(fd_, SHUT_RDWR);
    thread_.Join();
    close(fd_);
  }

  absl::Duration first() const {
    absl::MutexLock lock(&mutex_);
    return first_;
  }
  int64_t bytes() const { return bytes_; }
  bool dropped() const { return dropped_; }
  void Read() { reads_ = true; }

 private:
  void Loop() {
    std::vector<char> buffer(1 << 16);
    std::string tail;
    while (!reads_) absl::SleepFor(absl::Milliseconds(10));
    for (;;) {
      const ssize_t got = recv(fd_, buffer.data(), buffer.size(), 0);
      if (got <= 0) break;
      bytes_ += got;
      absl::MutexLock lock(&mutex_);
      if (first_ != absl::InfiniteDuration()) continue;
      tail.append(buffer.data(), static_cast<size_t>(got));
      if (absl::EndsWith(tail, "}\n\n")) first_ = SteadyNow() - begin_;
    }
    dropped_ = true;
  }

  const Instant begin_ = SteadyNow();
  int fd_ = -1;
  std::atomic<bool> reads_;
  std::atomic<bool> dropped_{false};
  std::atomic<int64_t> bytes_{0};
  mutable absl::Mutex mutex_;
  absl::Duration first_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteDuration();
  Thread thread_;
};

double CoresOver(const CoordinatorProgram& coordinator,
                 absl::Duration duration) {
  const double cpu = coordinator.CpuSeconds();
  const Instant begin = SteadyNow();
  absl::SleepFor(duration);
  return (coordinator.CpuSeconds() - cpu) /
         absl::ToDoubleSeconds(SteadyNow() - begin);
}

// Half of the watchers come over gRPC, half for the page.
bool MeasureWatchers(const std::string& program, int workers, int watchers,
                     int serve_seconds) {
  Limits limits;
  CoordinatorProgram coordinator(program);
  Crowd crowd(coordinator.address(), workers);
  const auto control = v1::Control::NewStub(MakeChannel(coordinator.address()));
  for (int i = 0; i < workers; ++i) crowd.At(i).Compute();
  crowd.StartAll();
  Await("everybody's welcome", [&] { return crowd.AllWelcomed(); });
  for (int i = 0; i < workers / kStages; ++i) SubmitJob(*control);
  Await("all jobs", [&] {
    return crowd.MembersAfter(0).size() == static_cast<size_t>(workers);
  });
  if (serve_seconds > 0) {
    std::printf("http://127.0.0.1:%d/\n", coordinator.http_port());
    std::fflush(stdout);
    absl::SleepFor(absl::Seconds(serve_seconds));
    return true;
  }
  absl::SleepFor(absl::Seconds(5));
  const double before = CoresOver(coordinator, 2 * kLevel);

  std::vector<std::unique_ptr<Watcher>> clients;
  std::vector<std::unique_ptr<PageClient>> pages;
  for (int i = 0; i < watchers; ++i) {
    if (i % 2 == 0) {
      clients.push_back(std::make_unique<Watcher>(*control));
    } else {
      pages.push_back(
          std::make_unique<PageClient>(coordinator.http_port(), true));
    }
  }
  absl::SleepFor(absl::Seconds(3));
  absl::Duration first;
  for (const auto& client : clients) first = std::max(first, client->first());
  for (const auto& page : pages) first = std::max(first, page->first());
  limits.Say("the last watcher's first message", absl::ToDoubleSeconds(first),
             "s", 1);
  const int64_t bytes = pages[0]->bytes();
  const double with = CoresOver(coordinator, 2 * kLevel);
  std::printf("%-34s %9.2f cores\n", "CPU without watchers", before);
  std::printf("%-34s %9.0f kB/s\n", "a page gets",
              static_cast<double>(pages[0]->bytes() - bytes) / 1e3 /
                  absl::ToDoubleSeconds(2 * kLevel));
  limits.Say("CPU for the watchers", 100 * (with - before), "%", 5);

  std::vector<absl::Duration> delays;
  for (int i = 0; i < 100; ++i) {
    const Instant begin = SteadyNow();
    const int64_t job = SubmitJob(*control);
    for (const auto& client : clients) {
      Await("the job at a watcher",
            [&] { return client->SawJob(job).has_value(); });
      delays.push_back(*client->SawJob(job) - begin);
    }
    // It would be one of many that wait.
    v1::StopJobRequest stop;
    stop.set_id(job);
    grpc::ClientContext context;
    v1::Job stopped;
    PACELINE_CHECK(control->StopJob(&context, stop, &stopped).ok(), "StopJob");
    absl::SleepFor(absl::Milliseconds(137));
  }
  std::sort(delays.begin(), delays.end());
  std::printf("%-34s %9.2f ms\n", "change to watcher, median",
              absl::ToDoubleMilliseconds(delays[delays.size() / 2]));
  limits.Say("change to watcher, 99 of 100",
             absl::ToDoubleMilliseconds(delays[delays.size() * 99 / 100]), "ms",
             100);

  PageClient slow(coordinator.http_port(), false);
  absl::SleepFor(absl::Seconds(30));
  slow.Read();
  absl::SleepFor(absl::Seconds(1));
  limits.Say("clients that do not read and stay", slow.dropped() ? 0 : 1, "",
             0);
  return limits.kept;
}

int Main(int argc, char** argv) {
  int workers = 1000;
  int watchers = 0;
  int serve_seconds = 0;
  int events = 100;
  bool check = false;
  std::string program =
      (std::filesystem::path(argv[0]).parent_path() / "paceline-coordinator")
          .string();
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (word == "--check") {
      check = true;
      continue;
    }
    ++i;
    if (word == "--coordinator" && !value.empty()) {
      program = value;
      continue;
    }
    const std::map<std::string, int*> numbers = {{"--workers", &workers},
                                                 {"--events", &events},
                                                 {"--watchers", &watchers},
                                                 {"--serve", &serve_seconds}};
    const auto number = numbers.find(word);
    if (number == numbers.end()) {
      std::fprintf(stderr, "%s is not known\n", word.c_str());
      return 2;
    }
    if (!absl::SimpleAtoi(value, number->second) || workers < kStages ||
        events < 1) {
      std::fprintf(stderr, "%s needs a number\n", word.c_str());
      return 2;
    }
  }
  // A connection each.
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  const bool kept =
      watchers > 1 || serve_seconds > 0
          ? MeasureWatchers(program, workers, watchers, serve_seconds)
          : Measure(program, workers, events);
  return kept || !check ? 0 : 1;
}

}  // namespace
}  // namespace paceline

int main(int argc, char** argv) { return paceline::Main(argc, argv); }
