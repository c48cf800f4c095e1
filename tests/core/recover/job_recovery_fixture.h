// One job's recovery, with the store and the workers that it talks to.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/recover/job_recovery.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {

inline constexpr int kLayers = 4;

// A coordinator's side with workers that answer at once, unless held.
class JobRecoveryTest : public ::testing::Test {
 protected:
  struct Worker {
    MemberId process;
    MachineId machine;
    JobReport report;
    std::set<Piece> pieces;
    bool answers = true;
    WorkPhase begins = WorkPhase::kRunning;  // what it says of a run
  };

  JobRecoveryTest() { Make(); }

  void Make() {
    job_.emplace(
        policy_, counter_,
        [this](const std::vector<RunCandidate>& all) { return Plan(all); });
  }

  // Two stages on the first two that are fit.
  absl::StatusOr<std::vector<RunPlace>> Plan(
      const std::vector<RunCandidate>& candidates) const {
    std::vector<RunPlace> places;
    std::string why = "no worker";
    std::vector<RunCandidate> order = candidates;
    std::stable_partition(
        order.begin(), order.end(),
        [](const RunCandidate& each) { return each.no_data.empty(); });
    for (const RunCandidate& each : order) {
      if (!each.unfit.empty()) {
        why = each.unfit;
      } else if (policy_.views) {
        places.push_back({{0, kLayers}, each.process});
      } else if (places.empty() && !each.no_data.empty()) {
        why = each.no_data;
      } else if (places.size() < 2) {
        const int first = places.empty() ? 0 : 2;
        places.push_back({{first, first + 2}, each.process});
      }
    }
    if (places.empty() || !plans_) return absl::UnavailableError(why);
    if (places.size() == 1) places[0].layers.last = kLayers;
    return places;
  }

  void Attach(int64_t id, int64_t machine = 0, uint64_t incarnation = 1) {
    Worker& worker = workers_[id];
    if (worker.process.incarnation.value != incarnation) worker = Worker();
    worker.process = {{id}, {incarnation}};
    worker.machine = {machine == 0 ? id : machine};
    job_->OnAttached(worker.process, worker.machine, NameOf(id), now_,
                     actions_);
    worker.report.pieces = worker.pieces;
    Report(id);
  }
  static std::string NameOf(int64_t id) { return "w" + std::to_string(id); }

  void Report(int64_t id) {
    Worker& worker = workers_[id];
    const JobReport report = worker.report;
    worker.report.pieces.reset();
    job_->OnReport(worker.process, report, now_, actions_);
    Settle();
  }
  // Orders and the store are answered until nothing is left to do.
  void Settle() {
    while (!actions_.empty()) {
      const RecoveryAction action = std::move(actions_.front());
      actions_.erase(actions_.begin());
      if (const auto* store = std::get_if<StoreAttempt>(&action)) {
        stored_.push_back(store->row);
        if (store_answers_) {
          job_->OnStored(store->row.attempt, store_ok_, now_, actions_);
        }
      } else if (const auto* send = std::get_if<SendOrder>(&action)) {
        OnOrder(send->to.worker.value, send->order);
      } else if (const auto* event = std::get_if<RecoveryEvent>(&action)) {
        events_.push_back(*event);
      }
    }
  }
  void OnOrder(int64_t id, const JobOrder& order) {
    Worker& worker = workers_[id];
    orders_[id] = order;
    if (!worker.answers) return;
    worker.report.echo = order.number;
    const int64_t attempt = order.run.has_value() ? order.run->attempt : 0;
    if (attempt != worker.report.attempt) {
      worker.report.attempt = attempt;
      worker.report.phase = attempt == 0 ? WorkPhase::kIdle : worker.begins;
      worker.report.step = attempt > 0 ? order.run->base.step : 0;
    }
    if (order.settle) worker.report.settled = true;
    job_->OnReport(worker.process, worker.report, now_, actions_);
  }
  void Lose(int64_t id) {
    job_->OnLost({id}, "its process is gone", now_, actions_);
    Settle();
  }
  void Hold(int64_t id, Cut cut, std::vector<int> layers) {
    for (const int layer : layers) workers_[id].pieces.insert({cut, layer});
    workers_[id].report.pieces = workers_[id].pieces;
    Report(id);
  }
  void MoveTo(const std::string& why) {
    job_->OnBetterPlan(why, now_, actions_);
    Settle();
  }
  void Drain(int64_t id, bool draining = true) {
    job_->SetDraining({id}, draining, now_, actions_);
    Settle();
  }
  void Hang(int64_t id) {
    workers_[id].answers = false;
    job_->OnStuck(workers_[id].process, "it hangs", now_, actions_);
    Settle();
  }
  // Workers 1 and 2 stop at step 7; each holds these layers of it.
  void StopAtSeven(const std::vector<int>& of_first,
                   const std::vector<int>& of_second) {
    for (const int64_t id : {1, 2}) {
      workers_[id].report.phase = WorkPhase::kStopped;
      workers_[id].report.step = 7;
      Hold(id, {1, 7}, id == 1 ? of_first : of_second);
    }
  }
  void FailWith(int64_t id, const absl::Status& error) {
    workers_[id].report.phase = WorkPhase::kFailed;
    workers_[id].report.error = error;
    Report(id);
  }
  void Pass(absl::Duration duration) {
    now_ = now_ + duration;
    job_->OnTick(now_, actions_);
    Settle();
  }
  void BeginWith(int64_t count) {
    for (int64_t id = 1; id <= count; ++id) Attach(id);
    job_->Begin(now_, actions_);
    Settle();
  }
  // Everybody holds all of it.
  void Snapshot(Cut cut) {
    for (const auto& [id, worker] : workers_) Hold(id, cut, {0, 1, 2, 3});
  }
  std::vector<std::string> Kinds() const {
    std::vector<std::string> kinds;
    for (const RecoveryEvent& event : events_) kinds.push_back(event.kind);
    return kinds;
  }
  bool Has(const std::string& kind) const {
    const std::vector<std::string> kinds = Kinds();
    return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
  }

  RecoveryPolicy policy_{.layers = kLayers, .copies = 1};
  OrderCounter counter_{{1, 0}};
  std::optional<JobRecovery> job_;
  std::map<int64_t, Worker> workers_;
  std::map<int64_t, JobOrder> orders_;
  std::vector<AttemptRow> stored_;
  std::vector<RecoveryEvent> events_;
  RecoveryActions actions_;
  Instant now_{absl::Seconds(100)};
  bool plans_ = true;  // the planner finds one
  bool store_answers_ = true;
  bool store_ok_ = true;
};

}  // namespace paceline
