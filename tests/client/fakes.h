// Fakes and builders for the tests of the client's commands.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/commands/command.h"
#include "client/commands/reference.h"
#include "client/render/report.h"
#include "client/rpc/control_client.h"
#include "core/model/description.h"
#include "core/rpc/convert/job_convert.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/fake_clock.h"
#include "tests/support/says.h"
#include "tests/support/text_proto.h"
#include "tests/support/well_said.h"

namespace paceline {

// Golden texts hold times of day.
inline const int kTimeZone = setenv("TZ", "UTC", /*overwrite=*/1);

// Sleeping moves the clock.  Says "leave" from the `leave_at`th sleep on.
class FakePauser final : public Pauser {
 public:
  explicit FakePauser(FakeClock& clock) : clock_(clock) {}

  bool Sleep(absl::Duration duration) override {
    if (++sleeps_ >= leave_at) return true;
    clock_.Advance(std::max(duration, least));
    return false;
  }
  int sleeps() const { return sleeps_; }

  int leave_at = 100'000;  // far more than any test needs
  absl::Duration least;    // that a sleep takes

 private:
  FakeClock& clock_;
  int sleeps_ = 0;
};

// Gives what it was given, in order; then an end.
class FakeMeshStream final : public MeshStream {
 public:
  using Answer = absl::StatusOr<std::optional<v1::MeshUpdate>>;

  explicit FakeMeshStream(std::deque<Answer> answers)
      : answers_(std::move(answers)) {}

  Answer Next(absl::Duration) override {
    if (answers_.empty()) return absl::UnavailableError("it is stopping");
    Answer answer = std::move(answers_.front());
    answers_.pop_front();
    return answer;
  }

 private:
  std::deque<Answer> answers_;
};

// Answers what the test put in.  Thread-compatible.
class FakeControlClient : public ControlClient {
 public:
  absl::StatusOr<v1::SubmitJobResponse> SubmitJob(
      const v1::SubmitJobRequest& request) override {
    submitted.push_back(request);
    return Next(submissions);
  }
  absl::StatusOr<v1::ListJobsResponse> ListJobs(int) override { return jobs; }
  absl::StatusOr<v1::Job> GetJob(int64_t id, int, int64_t) override {
    asked.push_back(id);
    return Next(job_answers);
  }
  absl::StatusOr<v1::Job> GetWholeJob(int64_t id) override {
    asked_whole.push_back(id);
    return GetJob(id, 0, 0);
  }
  absl::StatusOr<v1::GetEventsResponse> GetEvents(int64_t,
                                                  int64_t after) override {
    // Two a page, as below.
    v1::GetEventsResponse page;
    for (const v1::JobEvent& event : events.events()) {
      // One without a number cannot be stored yet, and comes every time.
      const bool is_due = event.sequence() == 0 || event.sequence() > after;
      if (is_due && page.events_size() < 2) *page.add_events() = event;
    }
    return page;
  }
  absl::StatusOr<v1::GetLogsResponse> GetLogs(int64_t, int64_t after) override {
    // Two lines a page, so that paging shows.
    v1::GetLogsResponse page;
    page.set_last(after);
    while (page.lines_size() < 2 && page.last() < logs.lines_size()) {
      *page.add_lines() = logs.lines(static_cast<int>(page.last()));
      page.set_last(page.last() + 1);
    }
    return page;
  }
  absl::StatusOr<v1::Job> StopJob(int64_t) override {
    return Next(job_answers);
  }
  absl::Status DeleteJob(int64_t id) override {
    removed.push_back(id);
    return deleted;
  }
  absl::StatusOr<int64_t> ExportWeights(int64_t, TakeBytes take) override {
    for (const std::string& chunk : chunks) {
      const absl::Status taken = take(chunk);
      if (!taken.ok()) return taken;
    }
    if (!exported.ok()) return exported;
    return exported_step;
  }
  absl::StatusOr<std::unique_ptr<MeshStream>> WatchMesh() override {
    if (meshes.empty()) return absl::UnavailableError("it is away");
    auto stream = std::make_unique<FakeMeshStream>(std::move(meshes.front()));
    meshes.pop_front();
    return stream;
  }
  absl::StatusOr<v1::ListWorkersResponse> ListWorkers() override {
    return workers;
  }
  absl::StatusOr<v1::Worker> DrainWorker(const std::string& worker,
                                         bool drain) override {
    drained.emplace_back(worker, drain);
    return drain_answer;
  }
  absl::StatusOr<v1::Worker> ForgetWorker(const std::string& worker) override {
    forgotten.push_back(worker);
    return drain_answer;
  }

  absl::StatusOr<v1::StartProfileResponse> StartProfile(
      const v1::StartProfileRequest& request) override {
    ordered.push_back(request);
    return started;
  }
  absl::StatusOr<ProfileProgress> GetProfile(int64_t) override {
    return Next(progress);
  }
  absl::StatusOr<Measurements> ListMeasurements(
      const std::string& model) override {
    if (!measurements.ok()) return measurements;
    Measurements found;
    found.links = measurements->links;
    for (const auto& [key, profile] : measurements->profiles) {
      if (model.empty() || key.model == model) {
        found.profiles.emplace(key, profile);
      }
    }
    return found;
  }
  void AddProfile(const DeviceProfile& profile) {
    measurements->profiles[profile.key] = profile;
  }

  // Answers in order; the last one stays.
  std::deque<absl::StatusOr<v1::SubmitJobResponse>> submissions;
  std::deque<absl::StatusOr<v1::Job>> job_answers;
  std::deque<absl::StatusOr<ProfileProgress>> progress;
  // Each stream gives these; then the coordinator is away.
  std::deque<std::deque<FakeMeshStream::Answer>> meshes;
  v1::ListJobsResponse jobs;
  absl::StatusOr<v1::ListWorkersResponse> workers = v1::ListWorkersResponse();
  absl::StatusOr<v1::Worker> drain_answer = v1::Worker();
  std::vector<std::pair<std::string, bool>> drained;
  std::vector<std::string> forgotten;
  v1::GetEventsResponse events;
  v1::GetLogsResponse logs;
  std::vector<std::string> chunks;
  absl::Status exported;
  int64_t exported_step = 0;
  absl::Status deleted;
  std::vector<int64_t> removed;

  std::vector<v1::SubmitJobRequest> submitted;
  std::vector<int64_t> asked;
  std::vector<int64_t> asked_whole;
  absl::StatusOr<v1::StartProfileResponse> started =
      Parse<v1::StartProfileResponse>(R"(id: 3 workers: "w1" workers: "w2")");
  std::vector<v1::StartProfileRequest> ordered;
  absl::StatusOr<Measurements> measurements = Measurements();

 private:
  template <typename Answer>
  static Answer Next(std::deque<Answer>& answers) {
    if (answers.empty()) return absl::InternalError("no answer is set up");
    Answer answer = answers.front();
    if (answers.size() > 1) answers.pop_front();
    return answer;
  }
};

// A coordinator's tokens and certificates, as a test says they are.
// Thread-compatible.
class FakeTrustClient final : public TrustClient {
 public:
  absl::StatusOr<v1::CreateTokenResponse> CreateToken(
      const v1::CreateTokenRequest& request) override {
    v1::CreateTokenResponse response;
    response.set_token("id.secret.print");
    v1::JoinToken& kept = *response.mutable_kept();
    kept.set_id("id");
    kept.set_role(request.role());
    kept.set_uses_left(request.uses());
    kept.set_for_name(request.for_name());
    kept.set_expires_unix_ms(1000 * request.ttl_seconds());
    return Answer(response);
  }
  absl::StatusOr<v1::ListTokensResponse> ListTokens() override {
    v1::ListTokensResponse response;
    response.add_tokens()->set_id("abcd");
    return Answer(response);
  }
  absl::StatusOr<v1::JoinToken> RevokeToken(const std::string&) override {
    return Answer(v1::JoinToken());
  }
  absl::StatusOr<v1::Revocation> Revoke(const std::string& role,
                                        const std::string& name) override {
    v1::Revocation revocation;
    revocation.set_role(role);
    revocation.set_known(name == "pi-1");
    return Answer(revocation);
  }
  absl::StatusOr<ShownCertificate> Login(
      const std::string&, const std::string& user,
      absl::FunctionRef<void(const std::string&)> say) override {
    say("it is away");
    return Answer(
        ShownCertificate{"client", user, absl::UnixEpoch(), "/tls", {}});
  }
  absl::StatusOr<ShownCertificate> Inspect() override { return Answer(shown); }
  absl::StatusOr<ShownCertificate> Check() override {
    if (!check_error.ok()) return check_error;
    return Answer(shown);
  }

  ShownCertificate shown = {"client", "kim", absl::UnixEpoch(), "/tls", {}};
  absl::Status error;        // OK: every call succeeds
  absl::Status check_error;  // of Check() alone

 private:
  template <typename T>
  absl::StatusOr<T> Answer(T answer) const {
    if (!error.ok()) return error;
    return answer;
  }
};

// A weights file that is what the test put in.
struct FakeWeights {
  ReadWeights reader() {
    return [this](const std::string& path) {
      asked.push_back(path);
      return answer;
    };
  }

  absl::StatusOr<WeightsSummary> answer = WeightsSummary();
  std::vector<std::string> asked;
};

// Matches a document that has all keys of the JSON text `part`, with their
// values.
MATCHER_P(Includes, part, "") {
  const nlohmann::json wanted = nlohmann::json::parse(part);
  for (const auto& [key, value] : wanted.items()) {
    if (arg.contains(key) && arg[key] == value) continue;
    *result_listener << "not " << key << ": " << value.dump();
    return false;
  }
  return true;
}

// A folder that goes with the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    char pattern[] = "/tmp/paceline-client-XXXXXX";
    path_ = mkdtemp(pattern);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }

  const std::string& path() const { return path_; }
  std::string Path(const std::string& name) const {
    return absl::StrCat(path_, "/", name);
  }
  std::string Write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(
        std::filesystem::path(Path(name)).parent_path());
    std::ofstream(Path(name), std::ios::binary) << text;
    return Path(name);
  }
  std::string Read(const std::string& name) const {
    std::ifstream file(Path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::string path_;
};

// A port that nobody listens on: bound, so that nobody else gets it.
class Port {
 public:
  explicit Port(bool listening) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* raw = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(socket_, raw, size), 0);
    if (listening) {
      EXPECT_EQ(listen(socket_, 8), 0);
    }
    EXPECT_EQ(getsockname(socket_, raw, &size), 0);
    number_ = ntohs(address.sin_port);
  }
  ~Port() { close(socket_); }
  int socket() const { return socket_; }
  int number() const { return number_; }
  std::string address() const { return absl::StrCat("127.0.0.1:", number_); }

 private:
  const int socket_;
  int number_ = 0;
};

// A command's surroundings, with what it printed; all of that is well said.
struct CommandBed {
  explicit CommandBed(OutputFormat format = OutputFormat::kTable,
                      Console::Traits traits = {})
      : console(out, err, format, traits) {}
  ~CommandBed() {
    EXPECT_EQ(IllSaid(out.str()), "");
    EXPECT_EQ(IllSaid(err.str()), "");
  }
  nlohmann::json Output() const { return nlohmann::json::parse(out.str()); }
  // Says an error, as the program does.
  ExitCode Code(const Outcome& outcome) { return CodeOf(console, outcome); }
  // Everything that a person sees: notes, the output, the exit code.
  std::string Said(const Outcome& outcome) {
    const ExitCode code = Code(outcome);
    return absl::StrCat(err.str(), out.str(), "exit code ", code, "\n");
  }
  // The printed lines that have `part` in them.
  std::string LinesWith(const std::string& part) const {
    std::string found;
    for (const auto line : absl::StrSplit(out.str(), '\n')) {
      if (absl::StrContains(line, part)) absl::StrAppend(&found, line, "\n");
    }
    return found;
  }

  FakeControlClient client;
  FakeClock clock;
  FakePauser pauser{clock};
  std::ostringstream out;
  std::ostringstream err;
  Console console;
  CommandContext context{client, console, clock, pauser};
};

inline v1::SubmitJobResponse Submitted(
    const std::vector<std::string>& notes = {}) {
  v1::SubmitJobResponse response;
  response.set_id(7);
  response.mutable_notes()->Add(notes.begin(), notes.end());
  return response;
}

struct Stage {
  int stage, first_layer, last_layer;
  int64_t worker_id;
  std::string worker_name;
  double share = 1;
};

inline Placements Placed(const std::vector<Stage>& stages) {
  Placements placements;
  for (const Stage& from : stages) {
    v1::StagePlacement& to = *placements.Add();
    to.set_stage(from.stage);
    to.set_first_layer(from.first_layer);
    to.set_last_layer(from.last_layer);
    to.set_worker_id(from.worker_id);
    to.set_worker_name(from.worker_name);
    to.set_share(from.share);
  }
  return placements;
}

struct Point {
  int64_t step;
  double loss;
  bool skipped = false;
};

inline v1::StepRecord Loss(const Point& point) {
  v1::StepRecord record;
  record.set_step(point.step);
  record.set_loss(point.loss);
  record.set_skipped(point.skipped);
  return record;
}

inline LossCurve Losses(const std::vector<Point>& points) {
  LossCurve curve;
  for (const Point& point : points) *curve.Add() = Loss(point);
  return curve;
}

inline v1::Worker AWorker(int64_t id, const std::string& name,
                          v1::WorkerState state = v1::WORKER_STATE_IDLE) {
  v1::Worker worker;
  worker.set_id(id);
  worker.mutable_registration()->set_name(name);
  worker.set_state(state);
  return worker;
}

inline v1::Job RunningJob(int64_t step, int64_t steps) {
  v1::Job job = Parse<v1::Job>(R"(
    id: 7
    spec { name: "first" model { name: "lenet" } data { name: "synthetic" }
           train { batch: 64 micro_batch: 16 } }
    state: JOB_STATE_RUNNING phase: "training" samples_per_second: 640
    threads: 1 cpu_capability: "avx2")");
  // A coordinator sends every field.
  *job.mutable_spec() = ToProto(FromProto(job.spec()));
  job.set_step(step);
  job.set_steps(steps);
  return job;
}

inline v1::Job SucceededJob() {
  v1::Job job = RunningJob(20, 20);
  job.MergeFrom(Parse<v1::Job>(R"(
    state: JOB_STATE_SUCCEEDED
    started_unix_ms: 1000000 ended_unix_ms: 1065000
    evaluations { step: 10 loss: 0.75 accuracy: 0.8125 samples: 1000 }
    evaluations { step: 20 loss: 0.375 accuracy: 0.90125 samples: 1000 }
    weights_path: "/state/jobs/7/weights.safetensors" weights_sha256: "00ff"
    workers {
      id: 1 name: "w1"
      run { seconds { forward: 2 backward: 4 unexplained: 0.25 wall: 10 } } })"));
  job.clear_phase();
  *job.mutable_curve() = Losses({{1, 2.5}, {10, 1.25}, {20, 0.5}});
  *job.mutable_workers(0)->mutable_stages() =
      Placed({{0, 0, 4, 1, "w1"}, {1, 4, 8, 1, "w1"}});
  return job;
}

// Attached workers of these names, each a machine of its own.
inline v1::ListWorkersResponse IdleWorkers(
    const std::vector<std::string>& names) {
  v1::ListWorkersResponse listed;
  for (const std::string& name : names) {
    v1::Worker& worker = *listed.add_workers();
    worker = AWorker(listed.workers_size(), name);
    worker.mutable_registration()->set_machine_id(name);
    worker.mutable_registration()->set_memory_bytes(int64_t{8} << 30);
  }
  return listed;
}

// Two workers that train in two stages, an idle one and a lost one.
inline v1::MeshUpdate WholeMesh() {
  v1::MeshUpdate mesh = Parse<v1::MeshUpdate>(R"(
    whole: true unix_ms: 1000 version: "1"
    job_counts { key: "queued" value: 31 } job_counts { key: "running" value: 1 }
    events { unix_ms: 500 job: 7 kind: "running" text: "on w1, w2" })");
  for (int i = 1; i <= 2; ++i) {
    v1::Worker& worker = *mesh.add_workers();
    worker = AWorker(i, absl::StrCat("w", i), v1::WORKER_STATE_BUSY);
    worker.set_job(7);
    worker.add_stages(i - 1);
  }
  *mesh.add_workers() = AWorker(3, "w3");
  *mesh.add_workers() = AWorker(4, "w4", v1::WORKER_STATE_LOST);
  v1::Job& job = *mesh.add_jobs();
  job = RunningJob(10, 40);
  job.set_loss(0.5);
  job.MergeFrom(Parse<v1::Job>(R"(
    workers { id: 1 name: "w1"
      run { seconds { forward: 2 backward: 3 receive_wait: 4 wall: 10 } } }
    workers { id: 2 name: "w2" }
    drift { stage: 0 worker_id: 1 measured_seconds: 0.012 }
    links { from: "w1" to: "w2" capacity_bytes_per_second: 1048576
            sent_bytes_per_second: 262144 })"));
  *job.mutable_workers(0)->mutable_stages() = Placed({{0, 0, 4, 1, "w1"}});
  *job.mutable_workers(1)->mutable_stages() = Placed({{1, 4, 8, 2, "w2"}});
  return mesh;
}

inline JobSpec LenetSpec(int64_t micro_batch) {
  JobSpec spec;
  spec.name = "lenet";
  spec.model.name = "lenet";
  spec.data.name = "synthetic";
  spec.train.micro_batch = micro_batch;
  spec.train.batch = 4 * micro_batch;
  return spec;
}

// Every layer of the spec's model takes `layer_seconds` forward and twice that
// back.
inline DeviceProfile ProfileOf(const JobSpec& spec, const std::string& device,
                               double layer_seconds) {
  const auto model =
      DescribeModel(spec.model, spec.data.shape, spec.data.classes);
  DeviceProfile profile;
  profile.key = {ModelKey(spec.model, spec.data.shape, spec.data.classes),
                 spec.train.micro_batch, "f32", spec.threads, device};
  profile.cpu_capability = "avx2";
  profile.runs = 5;
  profile.frame_seconds = 1e-5;
  for (const Layer& layer : model->layers) {
    const auto batch = static_cast<double>(spec.train.micro_batch);
    profile.layers.push_back(
        {.name = layer.name,
         .kind = MainOperation(layer),
         .forward = {layer_seconds, layer_seconds / 50, layer_seconds},
         .backward = {2 * layer_seconds, layer_seconds / 50, 2 * layer_seconds},
         .update_seconds = 1e-6,
         .flops = layer.forward_flops * batch,
         .output_bytes = layer.output_bytes * spec.train.micro_batch,
         .parameter_bytes = layer.parameter_bytes,
         .kept_bytes = layer.activation_bytes * spec.train.micro_batch});
  }
  return profile;
}

// All that `profile` measures on two workers.
inline ProfileProgress TwoProfiles() {
  ProfileProgress progress;
  progress.profiles = {ProfileOf(LenetSpec(16), "w1", 1e-3),
                       ProfileOf(LenetSpec(16), "w2", 2e-3)};
  progress.links = {{"w1", "w2", 1.25e8, 1e-4, 0}, {"w2", "w1", 2e8, 2e-4, 0}};
  return progress;
}

}  // namespace paceline
