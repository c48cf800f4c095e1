// A mesh whose workers are members of a data-parallel job.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/job_text.h"
#include "gtest/gtest.h"
#include "tests/coordinator/mesh.h"

namespace paceline {

// A small data-parallel job.
inline JobSpec GroupSpec() {
  JobSpec spec = SpecOf(1);
  spec.aggregation.mode = "rolling";
  return spec;
}

// Worker `name` has the incarnation that it attached with last; what it says of
// itself is kept, and sent whole in every heartbeat.
class GroupMesh {
 public:
  struct Worker {
    std::string name;
    uint64_t incarnation = 0;
    StreamId stream;
    bool silent = false;  // sends no heartbeats while time passes
    RunPhase phase = RunPhase::kRunning;
    MemberReport report;
    int64_t progress = 0;
  };

  explicit GroupMesh(StoredState stored = {}, int64_t start_ms = 0)
      : mesh_(std::move(stored), start_ms) {}

  // Attaches workers "w1", "w2", ... in this order, so that their ids are 1, 2.
  void AttachAll(int count) {
    for (int i = 1; i <= count; ++i) {
      Attach("w" + std::to_string(i), 100 + i);
    }
  }
  void Attach(const std::string& name, uint64_t incarnation) {
    Worker& worker = workers_[name];
    if (worker.incarnation != incarnation) worker = Worker();
    worker.name = name;
    worker.incarnation = incarnation;
    worker.stream = mesh_.Attach(name, incarnation);
  }

  JobId Submit(const JobSpec& spec) {
    job_ = mesh_.Submit(spec);
    EXPECT_TRUE(mesh_.submit_error().ok()) << mesh_.submit_error();
    return job_;
  }
  void SetJob(JobId job) { job_ = job; }

  Worker& worker(const std::string& name) { return workers_.at(name); }
  MemberId Id(const std::string& name) {
    return {WorkerId{name[1] - '0'}, {worker(name).incarnation}};
  }

  // The newest order of that worker; nothing: it has no run.
  std::optional<RunOrder> Run(const std::string& name) {
    return mesh_.Order(worker(name).stream).run;
  }
  bool IsAskedToRenew(const std::string& name) {
    return mesh_.Order(worker(name).stream).renew;
  }
  View ViewOf(const std::string& name) { return Run(name)->group->view; }
  // "w1 w2" of the view that `name` was told.
  std::string Members(const std::string& name) {
    std::string text;
    for (const ViewMember& member : ViewOf(name).members) {
      text +=
          (text.empty() ? "w" : " w") + std::to_string(member.id.worker.value);
    }
    return text;
  }
  // Of everybody who may send.
  std::string Workers(const std::string& name) {
    std::string text;
    const auto run = Run(name);  // outlives the loop over a part of it
    for (const GroupWorker& each : run->group->workers) {
      text += (text.empty() ? "" : " ") + each.name;
    }
    return text;
  }

  // It takes the newest order's view over, and says what it says.
  void Say(const std::string& name, int64_t next) {
    Worker& worker = workers_.at(name);
    worker.report.next = next;
    ++worker.progress;
    Say(name);
  }
  void Say(const std::string& name) {
    EXPECT_TRUE(mesh_.Send(worker(name).stream, Beat(name)).ok());
  }
  Heartbeat Beat(const std::string& name) {
    Worker& worker = workers_.at(name);
    Heartbeat heartbeat;
    heartbeat.sequence = ++sequence_;
    heartbeat.progress = worker.progress;
    const std::optional<RunOrder> run = Run(name);
    if (!run.has_value()) return heartbeat;
    worker.report.view = run->group->view.id;
    worker.report.has_taken_part =
        worker.report.has_taken_part ||
        (worker.report.next > 0 && Contains(run->group->view, Id(name)));
    heartbeat.run = RunReport{.fence = run->fence,
                              .phase = worker.phase,
                              .step = worker.report.next,
                              .steps = 60,
                              .member = worker.report};
    return heartbeat;
  }
  void Send(const std::string& name, const Heartbeat& heartbeat) {
    EXPECT_TRUE(mesh_.Send(worker(name).stream, heartbeat).ok());
  }

  // All say that they have applied `next` steps.
  void SayAll(int64_t next) {
    for (auto& [name, worker] : workers_) {
      if (!worker.silent && worker.stream.assigned()) Say(name, next);
    }
  }

  // A link from `from` to `to` breaks; zero: it works.
  void Link(const std::string& from, const std::string& to, bool broken,
            absl::Duration owing = absl::ZeroDuration()) {
    std::vector<PeerReport>& peers = worker(from).report.peers;
    std::erase_if(peers,
                  [&](const PeerReport& peer) { return peer.peer == Id(to); });
    if (broken || owing > absl::ZeroDuration()) {
      peers.push_back({Id(to),
                       broken ? absl::Milliseconds(1) : absl::ZeroDuration(),
                       false, owing});
    }
    Say(from);
  }

  // Nobody listens at `to`, says `from`.
  void Refuse(const std::string& from, const std::string& to) {
    worker(from).report.peers.push_back({Id(to), {}, /*refused=*/true, {}});
    Say(from);
  }

  void Break(const std::string& name) {
    mesh_.Break(worker(name).stream);
    workers_.at(name).stream = StreamId{};
    workers_.at(name).silent = true;
  }

  // Time passes in ticks of 50 ms, with heartbeats of all that are not silent.
  void Pass(int64_t ms, bool progress = true) {
    for (int64_t passed = 0; passed < ms; passed += 50) {
      for (auto& [name, worker] : workers_) {
        if (worker.silent || !worker.stream.assigned()) continue;
        if (progress) ++worker.progress;
        mesh_.Send(worker.stream, Beat(name)).IgnoreError();
      }
      mesh_.Pass(50);
    }
  }

  std::vector<std::string> Story() const { return mesh_.Story(job_); }
  JobView Job() const { return mesh_.Job(job_); }
  JobState State() const { return mesh_.State(job_); }
  std::string Why() const { return mesh_.Why(job_); }
  Mesh& mesh() { return mesh_; }
  JobId job() const { return job_; }

 private:
  Mesh mesh_;
  JobId job_;
  int64_t sequence_ = 0;
  std::map<std::string, Worker> workers_;
};

// All layers of the job's model measured on that worker, `seconds` each way.
inline DeviceProfile ProfileOf(const JobSpec& spec, const std::string& worker,
                               double seconds) {
  DeviceProfile profile;
  const ModelDescription model = *Describe(spec);
  profile.key = {ModelKey(spec.model, spec.data.shape, spec.data.classes),
                 spec.train.micro_batch, "f32", spec.threads, worker};
  for (const Layer& layer : model.layers) {
    LayerMeasurement measured;
    measured.name = layer.name;
    measured.forward.wall = measured.forward.cpu = seconds;
    measured.backward.wall = measured.backward.cpu = seconds;
    profile.layers.push_back(measured);
  }
  profile.cpu_capability = "avx512";
  profile.runs = 3;
  profile.cpu_share = 1;
  return profile;
}

// w1, w2, ... train together and have applied three steps.
inline GroupMesh Training(int workers, const JobSpec& spec = GroupSpec(),
                          StoredState stored = {}) {
  GroupMesh mesh(std::move(stored));
  mesh.AttachAll(workers);
  mesh.Submit(spec);
  mesh.SayAll(0);
  mesh.SayAll(3);
  return mesh;
}

}  // namespace paceline
