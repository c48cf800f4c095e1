// What the client's commands are tested against.
#pragma once

#include <deque>
#include <functional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "client/command.h"
#include "client/weights_file.h"
#include "tests/support/fake_clock.h"

namespace paceline {

// Sleeping moves the clock.  Says "leave" from the `leave_at`th sleep on.
class FakePauser final : public Pauser {
 public:
  explicit FakePauser(FakeClock& clock) : clock_(clock) {}

  bool Sleep(absl::Duration duration) override {
    if (++sleeps_ >= leave_at) return true;
    clock_.Advance(duration);
    return false;
  }
  int sleeps() const { return sleeps_; }

  int leave_at = 100'000;  // far more than any test needs

 private:
  FakeClock& clock_;
  int sleeps_ = 0;
};

// Answers what the test put in.  Thread-compatible.
class FakeControlClient final : public ControlClient {
 public:
  absl::StatusOr<Submission> SubmitJob(const SubmitRequest& request) override {
    submitted.push_back(request);
    return Next(submissions);
  }
  absl::StatusOr<std::vector<JobView>> ListJobs(int) override { return jobs; }
  absl::StatusOr<JobView> GetJob(int64_t id, int, int64_t) override {
    asked.push_back(id);
    return Next(job_answers);
  }
  absl::StatusOr<std::vector<EventView>> GetEvents(int64_t,
                                                   int64_t after) override {
    // Two a page, as below.
    std::vector<EventView> later;
    for (const EventView& event : events) {
      if (event.sequence > after && later.size() < 2) later.push_back(event);
    }
    return later;
  }
  absl::StatusOr<LogPage> GetLogs(int64_t, int64_t after) override {
    // Two lines a page, so that paging shows.
    LogPage page;
    page.last = after;
    while (page.lines.size() < 2 &&
           page.last < static_cast<int64_t>(logs.size())) {
      page.lines.push_back(logs[page.last++]);
    }
    return page;
  }
  absl::StatusOr<JobView> StopJob(int64_t) override {
    return Next(job_answers);
  }
  absl::Status DeleteJob(int64_t) override { return deleted; }
  absl::Status ExportWeights(int64_t, ByteSink& sink) override {
    for (const std::string& chunk : chunks) {
      const absl::Status written = sink.Write(chunk);
      if (!written.ok()) return written;
    }
    return exported;
  }
  absl::StatusOr<std::vector<WorkerView>> ListWorkers() override {
    return workers;
  }
  absl::StatusOr<WorkerView> DrainWorker(const std::string& worker,
                                         bool drain) override {
    drained.emplace_back(worker, drain);
    return drain_answer;
  }

  absl::StatusOr<WorkerView> ForgetWorker(const std::string& worker) override {
    forgotten.push_back(worker);
    return drain_answer;
  }

  // Answers in order; the last one stays.
  std::deque<absl::StatusOr<Submission>> submissions;
  std::deque<absl::StatusOr<JobView>> job_answers;
  absl::StatusOr<std::vector<JobView>> jobs = std::vector<JobView>();
  absl::StatusOr<std::vector<WorkerView>> workers = std::vector<WorkerView>();
  absl::StatusOr<WorkerView> drain_answer = WorkerView();
  std::vector<std::pair<std::string, bool>> drained;
  std::vector<std::string> forgotten;
  std::vector<EventView> events;
  std::vector<LogLineView> logs;
  std::vector<std::string> chunks;
  absl::Status exported;
  absl::Status deleted;

  std::vector<SubmitRequest> submitted;
  std::vector<int64_t> asked;

 private:
  template <typename Answer>
  static Answer Next(std::deque<Answer>& answers) {
    if (answers.empty()) return absl::InternalError("no answer is set up");
    Answer answer = answers.front();
    if (answers.size() > 1) answers.pop_front();
    return answer;
  }
};

// Answers what the test put in.  Thread-compatible.
class FakeWeightsFileReader final : public WeightsFileReader {
 public:
  absl::StatusOr<WeightsSummary> Summarize(const std::string& path) override {
    asked.push_back(path);
    return answer;
  }

  absl::StatusOr<WeightsSummary> answer = WeightsSummary();
  std::vector<std::string> asked;
};

// A command's surroundings, with what it printed.
struct CommandBed {
  explicit CommandBed(OutputFormat format = OutputFormat::kTable,
                      Console::Traits traits = {})
      : console(out, err, format, traits) {}

  FakeControlClient client;
  FakeClock clock;
  FakePauser pauser{clock};
  std::ostringstream out;
  std::ostringstream err;
  Console console;
  CommandContext context{client, console, clock, pauser};
};

inline JobView RunningJob(int64_t step, int64_t steps) {
  JobView job;
  job.id = 7;
  job.spec.name = "first";
  job.spec.model.name = "lenet";
  job.spec.data.name = "synthetic";
  job.spec.train.batch = 64;
  job.state = JobState::kRunning;
  job.phase = "training";
  job.step = step;
  job.steps = steps;
  job.samples_per_second = 640;
  job.threads = 1;
  job.cpu_capability = "avx2";
  return job;
}

inline JobView SucceededJob() {
  JobView job = RunningJob(20, 20);
  job.state = JobState::kSucceeded;
  job.phase = "";
  job.started_unix_ms = 1'000'000;
  job.ended_unix_ms = 1'065'000;
  job.curve = {{1, 2.5}, {10, 1.25}, {20, 0.5}};
  job.evaluations = {{10, 0.75, 0.8125, 1000}, {20, 0.375, 0.90125, 1000}};
  job.weights_path = "/state/jobs/7/weights.safetensors";
  job.weights_sha256 = "00ff";
  JobWorkerView worker;
  worker.id = 1;
  worker.name = "w1";
  worker.stages = {{0, 0, 4, 1, "w1"}, {1, 4, 8, 1, "w1"}};
  worker.seconds = {
      .forward = 2, .backward = 4, .unexplained = 0.25, .wall = 10};
  job.workers = {worker};
  return job;
}

}  // namespace paceline
