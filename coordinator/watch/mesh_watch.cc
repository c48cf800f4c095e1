#include "coordinator/watch/mesh_watch.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "core/base/version.h"
#include "core/rpc/convert/json_convert.h"

namespace paceline {
namespace {

constexpr absl::Duration kPeriod = absl::Seconds(1);
constexpr absl::Duration kNewsPeriod = absl::Milliseconds(80);
constexpr size_t kNewestEvents = 200;
// The most jobs shown that wait, and the most that have ended.
constexpr int kMostOthers = kEndedInMemory;
constexpr size_t kMostBytes = 4 << 20;  // of a message
// The points of a curve, and the new ones of a message.
constexpr int64_t kCurvePoints = 200;
constexpr int64_t kFreshPoints = 10;
// The newest points of a curve may still get another member's part.
constexpr int64_t kOpenPoints = 50;
// The shortest time over which traffic is measured.
constexpr absl::Duration kTrafficPeriod = absl::Milliseconds(800);

// Reduces more than `most` points to about most / 2, evenly apart, and the
// `newest`.
void Thin(int64_t most, int64_t newest, std::vector<v1::StepRecord>& points) {
  if (std::ssize(points) <= most) return;
  const int64_t last = points[points.size() - newest].step();
  const int64_t gap = 2 * (points.back().step() - points.front().step()) / most;
  std::vector<v1::StepRecord> kept;
  for (v1::StepRecord& point : points) {
    if (kept.empty() || point.step() >= last ||
        point.step() - kept.back().step() >= gap) {
      kept.push_back(std::move(point));
    }
  }
  points = std::move(kept);
}

v1::StepRecord PointOf(const v1::StepRecord& record) {
  v1::StepRecord point;
  point.set_step(record.step());
  point.set_loss(record.loss());
  point.set_skipped(record.skipped());
  return point;
}

// The first point at `step` or later.
auto PlaceOf(int64_t step, std::vector<v1::StepRecord>& curve) {
  return absl::c_lower_bound(curve, step,
                             [](const v1::StepRecord& point, int64_t at) {
                               return point.step() < at;
                             });
}

// Inserts by step.  A repeated step, with more parts of its batch, replaces the
// old point.
void AddPoint(const v1::StepRecord& point, std::vector<v1::StepRecord>& curve) {
  const auto place = PlaceOf(point.step(), curve);
  if (place != curve.end() && place->step() == point.step()) {
    *place = point;
  } else {
    curve.insert(place, point);
  }
}

// Leaves only the fields that `top` and the page show.
void Trim(v1::Job& job) {
  const v1::JobSpec whole = job.spec();
  v1::JobSpec& spec = *job.mutable_spec();
  spec.Clear();
  spec.set_name(whole.name());
  spec.set_kind(whole.kind());
  spec.mutable_model()->set_name(whole.model().name());
  spec.mutable_data()->set_name(whole.data().name());
  spec.mutable_train()->set_batch(whole.train().batch());
  spec.mutable_pipeline()->set_schedule(whole.pipeline().schedule());
  spec.mutable_aggregation()->set_mode(whole.aggregation().mode());
  job.clear_request_id();
  job.clear_stages();
  job.clear_stage_times();
  job.clear_attempts();
  job.clear_predicted();
  job.clear_predicted_base();
  job.clear_inputs();
  job.clear_names();
  job.clear_notes();
  job.clear_unreadable();
  job.clear_skip_runs();
  job.clear_estimate();
  job.clear_versions();
  for (v1::JobWorker& worker : *job.mutable_workers()) {
    v1::RunState& run = *worker.mutable_run();
    run.clear_flow();
    run.clear_inputs();
    run.clear_predicted();
    run.clear_sent();
    for (v1::StagePlacement& stage : *worker.mutable_stages()) {
      stage.clear_address();
      stage.clear_worker_name();
    }
  }
}

// Splits a large update into several messages.
std::vector<SharedUpdate> PartsOf(v1::MeshUpdate update) {
  std::vector<v1::MeshUpdate> parts(1);
  size_t bytes = 0;
  const auto make_room = [&](size_t element_bytes) -> v1::MeshUpdate& {
    bytes += element_bytes;
    if (bytes > kMostBytes) {
      parts.back().set_more(true);
      v1::MeshUpdate& next = parts.emplace_back();
      next.set_unix_ms(update.unix_ms());
      *next.mutable_job_counts() = update.job_counts();
      bytes = element_bytes;
    }
    return parts.back();
  };
  if (update.ByteSizeLong() <= kMostBytes) {
    return {std::make_shared<PublishedUpdate>(std::move(update))};
  }
  v1::MeshUpdate lists;
  lists.mutable_workers()->Swap(update.mutable_workers());
  lists.mutable_jobs()->Swap(update.mutable_jobs());
  parts.back() = update;
  for (v1::Worker& worker : *lists.mutable_workers()) {
    make_room(worker.ByteSizeLong()).add_workers()->Swap(&worker);
  }
  for (v1::Job& job : *lists.mutable_jobs()) {
    make_room(job.ByteSizeLong()).add_jobs()->Swap(&job);
  }
  std::vector<SharedUpdate> messages;
  for (v1::MeshUpdate& part : parts) {
    messages.push_back(std::make_shared<PublishedUpdate>(std::move(part)));
  }
  return messages;
}

// False: the watcher takes no more.
bool TakesAll(MeshWatcher& watcher, const std::vector<SharedUpdate>& parts) {
  return absl::c_all_of(parts,
                        [&](const auto& part) { return watcher.Take(part); });
}

void CountJobs(const Brain& brain, v1::MeshUpdate& update) {
  for (const auto& [state, count] : brain.CountJobs()) {
    if (count == 0) continue;
    (*update.mutable_job_counts())[JobStateName(state)] = count;
  }
}

}  // namespace

const std::string& PublishedUpdate::Json() const {
  absl::call_once(once_, [this] { json_ = ToJson(message_, /*lines=*/false); });
  return json_;
}

void MeshWatch::End(const absl::Status& why) {
  end_ = why;
  for (const auto* list : {&joining_, &watchers_}) {
    for (const auto& watcher : *list) watcher->End(why);
  }
  joining_.clear();
  watchers_.clear();
}

void MeshWatch::OnActions(const Actions& actions) {
  news_ = news_ || !actions.notices.empty();
  for (const auto& [job, record] : actions.writes.jobs) changed_.insert(job);
  for (const auto& [job, step] : actions.writes.restarted) {
    const auto known = jobs_.find(job);
    if (known != jobs_.end()) known->second.GoBackTo(step);
  }
  for (const auto& [job, records] : actions.writes.records) {
    for (const v1::JobEvent& event : records.events) {
      news_ = true;
      events_.push_back(event);
      fresh_events_ = std::min(fresh_events_ + 1, kNewestEvents);
      if (events_.size() > kNewestEvents) events_.pop_front();
    }
    const auto known = jobs_.find(job);
    if (known == jobs_.end()) continue;
    for (const v1::StepRecord& step : records.steps) {
      AddPoint(PointOf(step), known->second.fresh);
    }
  }
}

void MeshWatch::Publish(const Brain& brain, JobStore& store, Moment moment) {
  if (watchers_.empty()) {
    workers_.clear();
    jobs_.clear();
    changed_.clear();
    fresh_events_ = 0;
    if (joining_.empty()) return;
  }
  const bool soon = news_ || !joining_.empty();
  if (moment.now - published_ < (soon ? kNewsPeriod : kPeriod)) return;
  published_ = moment.now;
  news_ = false;
  if (!has_events_) {
    const auto stored = store.NewestEvents(kNewestEvents);
    if (stored.ok()) events_.assign(stored->begin(), stored->end());
    has_events_ = stored.ok();
  }
  v1::MeshUpdate changes;
  changes.set_unix_ms(moment.unix_ms);
  CountJobs(brain, changes);
  RefreshWorkers(brain, moment, changes);
  RefreshJobs(brain, store, moment, changes);
  ReadCurve(store);
  changes.mutable_events()->Add(events_.end() - fresh_events_, events_.end());
  fresh_events_ = 0;
  if (!watchers_.empty()) {
    const std::vector<SharedUpdate> parts = PartsOf(std::move(changes));
    std::erase_if(watchers_, [&](const auto& watcher) {
      return !TakesAll(*watcher, parts);
    });
  }
  if (joining_.empty()) return;
  const std::vector<SharedUpdate> whole = PartsOf(Whole(brain, moment));
  for (auto& watcher : joining_) {
    if (TakesAll(*watcher, whole)) watchers_.push_back(std::move(watcher));
  }
  joining_.clear();
}

void MeshWatch::RefreshWorkers(const Brain& brain, Moment moment,
                               v1::MeshUpdate& changes) {
  std::set<int64_t> there;
  for (v1::Worker& view : brain.ViewWorkers(moment.now)) {
    there.insert(view.id());
    const double heard = view.last_heard_seconds();
    view.clear_last_heard_seconds();  // it always changes
    std::string bytes = view.SerializeAsString();
    view.set_last_heard_seconds(heard);
    auto& [known, known_bytes] = workers_[view.id()];
    known = std::move(view);
    if (known_bytes == bytes) continue;
    known_bytes = std::move(bytes);
    *changes.add_workers() = known;
  }
  std::erase_if(workers_, [&](const auto& known) {
    if (there.contains(known.first)) return false;
    changes.add_forgotten_workers(known.first);
    return true;
  });
}

void MeshWatch::RefreshJobs(const Brain& brain, JobStore& store, Moment moment,
                            v1::MeshUpdate& changes) {
  const std::set<JobId> changed = std::exchange(changed_, {});
  std::set<JobId> there;
  for (const JobId id : brain.ShownJobs(kMostOthers)) {
    there.insert(id);
    KnownJob& known = jobs_[id];
    const bool is_new = known.bytes.empty();
    if (!is_new && !changed.contains(id) && known.fresh.empty() &&
        HasEnded(known.view.state())) {
      continue;
    }
    v1::Job view = *brain.ViewJob(id);
    AddLinks(brain, known, moment, view);
    Trim(view);
    if (view.evaluated_step() == known.view.evaluated_step() && !is_new) {
      *view.mutable_evaluations() = known.view.evaluations();
    } else if (const auto stored = store.Evaluations(id, 1); stored.ok()) {
      view.mutable_evaluations()->Add(stored->begin(), stored->end());
    }
    std::string bytes = view.SerializeAsString();
    if (bytes == known.bytes && known.fresh.empty()) continue;
    known.bytes = std::move(bytes);
    known.view = view;
    v1::Job& change = *changes.add_jobs();
    change = std::move(view);
    known.TakeFresh(change);
  }
  std::erase_if(jobs_, [&](const auto& known) {
    if (there.contains(known.first)) return false;
    changes.add_forgotten_jobs(known.first.value);
    return true;
  });
}

// A step that was sent is sent again with its new loss, if the curve still has
// it.
void MeshWatch::KnownJob::TakeFresh(v1::Job& change) {
  std::vector<v1::StepRecord> points = std::exchange(fresh, {});
  const auto told =
      PlaceOf(curve.empty() ? 0 : curve.back().step() + 1, points);
  std::vector<v1::StepRecord> untold(told, points.end());
  points.erase(told, points.end());
  std::erase_if(points, [this](const v1::StepRecord& point) {
    return PlaceOf(point.step(), curve)->step() != point.step();
  });
  Thin(std::exchange(most_fresh, kFreshPoints), 1, untold);
  for (const auto* list : {&points, &untold}) {
    for (const v1::StepRecord& point : *list) {
      *change.add_curve() = point;
      AddPoint(point, curve);
    }
  }
  Thin(kCurvePoints, kOpenPoints, curve);
}

// The next message has all remaining points.
void MeshWatch::KnownJob::GoBackTo(int64_t step) {
  for (const v1::StepRecord& point : fresh) AddPoint(point, curve);
  curve.erase(PlaceOf(step + 1, curve), curve.end());
  fresh = std::exchange(curve, {});
  most_fresh = kCurvePoints;
}

void MeshWatch::AddLinks(const Brain& brain, KnownJob& known, Moment moment,
                         v1::Job& view) {
  std::map<int64_t, std::string> names;
  for (const v1::JobWorker& worker : view.workers()) {
    names[worker.id()] = worker.name();
  }
  for (const v1::JobWorker& worker : view.workers()) {
    if (worker.let_go()) continue;
    for (const v1::SentBytes& sent : worker.run().sent()) {
      Traffic& traffic = known.traffic[{worker.id(), sent.worker_id()}];
      const absl::Duration lap = moment.now - traffic.since;
      if (lap >= kTrafficPeriod || sent.bytes() < traffic.bytes) {
        // A new run counts from 0 again, and the first lap has no start.
        const bool whole = traffic.bytes > 0 && sent.bytes() >= traffic.bytes;
        traffic.bytes_per_second =
            whole ? static_cast<double>(sent.bytes() - traffic.bytes) /
                        absl::ToDoubleSeconds(lap)
                  : 0;
        traffic.bytes = sent.bytes();
        traffic.since = moment.now;
      }
      v1::JobLink& link = *view.add_links();
      link.set_from(worker.name());
      link.set_to(names[sent.worker_id()]);
      link.set_sent_bytes_per_second(traffic.bytes_per_second);
      const auto& measured = brain.links();
      const auto capacity = measured.find({link.from(), link.to()});
      if (capacity == measured.end() || !capacity->second.error.empty()) {
        continue;
      }
      link.set_capacity_bytes_per_second(capacity->second.bytes_per_second);
    }
  }
}

void MeshWatch::ReadCurve(JobStore& store) {
  for (auto job = jobs_.rbegin(); job != jobs_.rend(); ++job) {
    auto& [id, known] = *job;
    if (std::exchange(known.has_curve, true)) continue;
    const auto stored = store.Curve(id, 0, kCurvePoints);
    if (!stored.ok() || stored->points.empty()) continue;
    known.fresh.clear();
    for (const v1::StepRecord& step : stored->points) {
      known.fresh.push_back(PointOf(step));
    }
    known.curve.clear();
    known.most_fresh = kCurvePoints;
    news_ = true;
    return;
  }
}

v1::MeshUpdate MeshWatch::Whole(const Brain& brain, Moment moment) const {
  v1::MeshUpdate whole;
  whole.set_whole(true);
  whole.set_unix_ms(moment.unix_ms);
  whole.set_version(kVersion);
  CountJobs(brain, whole);
  for (const auto& [id, known] : workers_) *whole.add_workers() = known.first;
  for (const auto& [id, known] : jobs_) {
    v1::Job& job = *whole.add_jobs();
    job = known.view;
    job.mutable_curve()->Add(known.curve.begin(), known.curve.end());
  }
  whole.mutable_events()->Add(events_.begin(), events_.end());
  return whole;
}

}  // namespace paceline
