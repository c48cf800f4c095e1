// A mesh whose workers are members of a data-parallel job.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "tests/coordinator/mesh.h"
#include "tests/support/text_proto.h"

namespace paceline {

// Worker `name` has the incarnation that it attached with last; what it says of
// itself is kept, and sent whole in every heartbeat.
class GroupMesh : public Mesh {
 public:
  struct Worker {
    std::string name;
    int64_t id = 0;  // they count from 1 in the order in which they attach
    uint64_t incarnation = 0;
    StreamId stream;
    bool silent = false;  // sends no heartbeats while time passes
    bool hangs = false;   // its heartbeats say the same for ever
    // It is sent for ever, and no order is carried out.
    std::optional<v1::Heartbeat> stuck_in;
    v1::RunState::Phase phase = kRunning;
    MemberReport report;
    int64_t progress = 0;
    Fence fence;                  // that the report is of
    std::optional<RunOrder> ran;  // the newest order with a run
  };

  using Mesh::Mesh;

  // Attaches workers "w1", "w2", ... in this order, so that their ids are 1, 2.
  void AttachAll(int count) {
    for (int i = 1; i <= count; ++i) {
      Attach("w" + std::to_string(i), 100 + i);
    }
  }
  using Mesh::Attach;
  // about: fields of its registration, as text.
  void Attach(const std::string& name, uint64_t incarnation,
              const std::string& about = "") {
    Worker& worker = workers_[name];
    const int64_t id = worker.id > 0 ? worker.id : std::ssize(workers_);
    if (worker.incarnation != incarnation) worker = Worker();
    worker.name = name;
    worker.id = id;
    worker.incarnation = incarnation;
    v1::Registration registration = WorkerNamed(name, incarnation);
    MergeText(about, registration);
    worker.stream = Attach(registration);
    if (last_attach().ok()) Say(name);
  }
  // The workers of `before` still run, and attach to this coordinator later.
  void GoOnWith(const GroupMesh& before) {
    workers_ = before.workers_;
    for (auto& [name, worker] : workers_) worker.stream = {};
  }

  Worker& worker(const std::string& name) { return workers_.at(name); }
  std::map<std::string, Worker>& workers() { return workers_; }
  MemberId Id(const std::string& name) {
    return {WorkerId{worker(name).id}, {worker(name).incarnation}};
  }

  // The newest order of that worker; nothing: it has no run.
  std::optional<RunOrder> Run(const std::string& name) {
    const StreamId stream = worker(name).stream;
    return Orders(stream) == 0 ? std::nullopt : Order(stream).run;
  }

  // It takes the newest order's view over, and says what it says.
  void Say(const std::string& name, int64_t next) {
    Worker& worker = workers_.at(name);
    worker.report.next = next;
    ++worker.progress;
    Say(name);
  }
  void Say(const std::string& name) { Send(name, Beat(name)); }
  v1::Heartbeat Beat(const std::string& name) {
    Worker& worker = workers_.at(name);
    if (worker.stuck_in.has_value()) return *worker.stuck_in;
    std::optional<RunOrder> run = Run(name);
    // Without any order of this coordinator it runs on.
    if (Orders(worker.stream) == 0) run = worker.ran;
    worker.ran = run;
    if (run.has_value() && run->fence != worker.fence) {
      if (worker.fence != Fence()) {
        worker.report = {};
        worker.report.next = run->base.step;
      }
      worker.fence = run->fence;
    }
    if (!run.has_value()) {
      v1::Heartbeat idle;
      idle.set_progress(worker.progress);
      return idle;
    }
    if (run->group.has_value()) {  // not of another job that it has by now
      worker.report.view = run->group->view.id;
      worker.report.has_taken_part =
          worker.report.has_taken_part ||
          (worker.report.next > 0 && Contains(run->group->view, Id(name)));
    }
    v1::Heartbeat heartbeat =
        Mesh::Beat(worker.phase, worker.report.next, run->fence.job);
    heartbeat.set_progress(worker.progress);
    *heartbeat.mutable_run()->mutable_member() = ToProto(worker.report);
    return heartbeat;
  }
  using Mesh::Send;
  void Send(const std::string& name, const v1::Heartbeat& heartbeat) {
    EXPECT_TRUE(Send(worker(name).stream, heartbeat).ok());
  }
  // It has all of the state by now, and `next` steps applied.
  void Level(const std::string& name, int64_t next) {
    worker(name).report.level = true;
    Say(name, next);
  }

  // All say that they have applied `next` steps.
  void SayAll(int64_t next) {
    for (auto& [name, worker] : workers_) {
      if (!worker.silent && worker.stream.assigned()) Say(name, next);
    }
  }

  using Mesh::Break;
  void Break(const std::string& name) {
    Break(worker(name).stream);
    workers_.at(name).stream = StreamId{};
    workers_.at(name).silent = true;
  }

  // Time passes in ticks of 50 ms, with heartbeats of all that are not silent.
  void Pass(int64_t ms, bool progress = true) {
    for (int64_t passed = 0; passed < ms; passed += 50) {
      for (auto& [name, worker] : workers_) {
        if (worker.silent || !worker.stream.assigned()) continue;
        if (progress) ++worker.progress;
        Send(worker.stream, Beat(name)).IgnoreError();
      }
      Mesh::Pass(50);
    }
  }

 private:
  std::map<std::string, Worker> workers_;
};

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

// Under a coordinator that comes after that of `before`.
inline GroupMesh Later(const GroupMesh& before) {
  GroupMesh mesh(before.stored(), before.ms());
  mesh.GoOnWith(before);
  return mesh;
}

}  // namespace paceline
