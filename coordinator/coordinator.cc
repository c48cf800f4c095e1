#include "coordinator/coordinator.h"

#include <time.h>

#include <algorithm>
#include <future>
#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "coordinator/jobs/list_page.h"
#include "core/base/errors.h"
#include "core/base/version.h"
#include "core/obs/log.h"

namespace paceline {
namespace {

constexpr absl::Duration kMetricsPeriod = absl::Milliseconds(500);
// Events within this time form one batch: to wake this thread for each
// heartbeat of a thousand workers costs more than the heartbeats.
constexpr absl::Duration kBatchPause = absl::Milliseconds(2);
// Heartbeats per lease: two may be lost and one late.
constexpr int kHeartbeatsALease = 6;

// The pause after an error of the store.
constexpr absl::Duration kUpkeepPause = absl::Seconds(10);

absl::Duration ThreadCpuTime() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return absl::DurationFromTimespec(time);
}

absl::Status Stopping() { return Unavailable("the coordinator is stopping"); }

void LogNotice(const Notice& notice) {
  std::vector<LogField> fields;
  if (notice.job.assigned()) fields.emplace_back("job", notice.job.value);
  if (notice.worker.assigned()) {
    fields.emplace_back("worker", notice.worker.value);
  }
  Log(notice.warn ? LogLevel::kWarn : LogLevel::kInfo, notice.text, fields);
}

}  // namespace

Coordinator::Coordinator(const BrainPolicy& policy, StoredState stored,
                         JobStore& store, WeightsStore& weights_store,
                         CheckpointStore& checkpoints, const Clock& clock,
                         CoordinatorMetrics& metrics)
    : policy_(policy),
      store_(store),
      weights_store_(weights_store),
      checkpoints_(checkpoints),
      clock_(clock),
      metrics_(metrics),
      brain_(policy, std::move(stored), Now()),
      ticked_(clock.Now()),
      metrics_updated_(clock.Now()),
      loop_("brain", [this] { AfterBatch(); }),
      planner_("planner") {
  // Dispatches the decisions on the stored state.
  Post([this] {
    brain_.SetPlaceLater(std::bind_front(&Coordinator::PlaceLater, this));
  });
}

Coordinator::~Coordinator() { Stop(); }

void Coordinator::Stop() {
  stopping_ = true;
  planner_.Stop();
  loop_.Stop();
}

void Coordinator::PlaceLater(std::weak_ptr<const void> wanted,
                             MakePlacement make,
                             std::function<void(PlacementVerdict)> done) {
  planner_.Post([this, wanted = std::move(wanted), make = std::move(make),
                 done = std::move(done)] {
    if (stopping_ || wanted.expired()) return;
    auto placed = [done, verdict = make()] { done(verdict); };
    absl::MutexLock lock(&placed_mutex_);
    placed_.push_back(std::move(placed));
    if (placed_.size() == 1) Post([this] { TakePlaced(); });
  });
}

void Coordinator::TakePlaced() {
  std::vector<TaskLoop::Task> placed;
  {
    absl::MutexLock lock(&placed_mutex_);
    placed.swap(placed_);
  }
  for (const TaskLoop::Task& take : placed) take();
  brain_.OnPlaced(Now());
}

TaskLoop::Task Coordinator::Counted(TaskLoop::Task task) {
  metrics_.SetQueueDepth(++queued_);
  return [this, task = std::move(task)] {
    metrics_.SetQueueDepth(--queued_);
    Measure(LoopWork::kEvent, [&] {
      NoticeStandstill(Now());
      task();
    });
  };
}

void Coordinator::Measure(LoopWork kind, absl::FunctionRef<void()> work) {
  const absl::Duration before = ThreadCpuTime() - commit_cpu_;
  work();
  metrics_.ObserveLoop(kind, ThreadCpuTime() - commit_cpu_ - before);
}

absl::Status Coordinator::Commit(const StoreBatch& batch) {
  const Instant begin = clock_.Now();
  const absl::Duration cpu = ThreadCpuTime();
  const absl::Status stored = store_.Commit(batch);
  commit_cpu_ += ThreadCpuTime() - cpu;
  metrics_.ObserveTransaction(clock_.Now() - begin, stored.ok());
  return stored;
}

void Coordinator::PostRequest(const StatusDone& refuse, TaskLoop::Task task) {
  if (loop_.TryPost(Counted(std::move(task)))) return;
  metrics_.SetQueueDepth(--queued_);
  refuse(Unavailable("the coordinator is overloaded: try again in a moment"));
}

// --- the loop ---------------------------------------------------------------

void Coordinator::AfterBatch() {
  const bool was_working = store_works_;
  const absl::Status stored = StoreBatchOfBrain();
  std::vector<Reply> replies = std::exchange(replies_, {});
  for (const Reply& reply : replies) {
    Measure(LoopWork::kAnswer, [&] { reply(stored); });
  }
  if (stored.ok()) {
    Measure(LoopWork::kOrders, [&] {
      watch_.OnActions(brain_.actions());
      Dispatch(brain_.TakeActions());
      if (!was_working) brain_.OnStoreWorks(Now());
    });
  }
  Measure(LoopWork::kWatch, [&] { watch_.Publish(brain_, store_, Now()); });
  Measure(LoopWork::kMetrics, [&] { UpdateMetrics(); });
  if (std::exchange(ticked_in_batch_, false)) {
    Measure(LoopWork::kUpkeep, [&] { KeepStore(); });
  }
  absl::SleepFor(kBatchPause);
}

void Coordinator::KeepStore() {
  if (clock_.Now() < keeps_store_) return;
  const absl::Status kept = store_.Upkeep();
  if (kept.ok()) return;
  keeps_store_ = clock_.Now() + kUpkeepPause;
  Log(LogLevel::kWarn, "old records stay in the store; trying again",
      {{"why", kept.message()}});
}

void Coordinator::Recall(JobId job) {
  if (brain_.FindRecord(job).ok()) return;
  const int64_t newest = std::numeric_limits<int64_t>::max() - 1;
  const JobId below{std::min(job.value, newest) + 1};
  const auto stored = store_.JobsBelow(below, 1, 1);
  if (!stored.ok() || stored->empty() || stored->front().id() != job) return;
  brain_.Recall(stored->front());
}

void Coordinator::UpdateMetrics() {
  const Instant now = clock_.Now();
  if (now - metrics_updated_ < kMetricsPeriod) return;
  metrics_updated_ = now;
  metrics_.Update(brain_.ViewWorkers(now), brain_.ViewRunningJobs(),
                  brain_.CountJobs());
  metrics_.CountLosses(brain_.losses());
  metrics_.CountGroups(brain_.group_counts());
  for (const v1::Recovery& recovery : brain_.TakeRecoveries()) {
    metrics_.CountRecovery(recovery);
  }
  metrics_.CountCheckpoints(brain_.checkpoints().counts());
}

absl::Status Coordinator::StoreBatchOfBrain() {
  const StoreBatch& writes = brain_.actions().writes;
  if (writes.empty()) return absl::OkStatus();
  absl::Status stored = Commit(writes);
  store_works_ = stored.ok();
  if (stored.ok()) {
    store_error_.clear();
    return stored;
  }
  brain_.OnStoreFailed(stored, Now());
  if (store_error_ != stored.message()) {
    store_error_ = std::string(stored.message());
    Log(LogLevel::kError, "the store refuses writes; trying again",
        {{"error", store_error_}});
  }
  return stored;
}

void Coordinator::Dispatch(const Actions& actions) {
  for (const Notice& notice : actions.notices) LogNotice(notice);
  for (const Actions::Weights& weights : actions.weights) {
    DispatchWeights(weights);
  }
  for (const Actions::Checkpoint& checkpoint : actions.checkpoints) {
    DispatchCheckpoint(checkpoint);
  }
  for (const auto& [job, answer] : actions.exports) {
    const auto [first, last] = exports_.equal_range(job);
    for (auto waiting = first; waiting != last; ++waiting) {
      waiting->second.done(answer);
    }
    exports_.erase(first, last);
  }
  const auto find = [this](StreamId id) {
    const auto stream = streams_.find(id);
    return stream == streams_.end() ? nullptr : stream->second;
  };
  for (const Actions::Ack& ack : actions.acks) {
    if (const auto stream = find(ack.stream)) stream->SendAck(ack.sequence);
  }
  for (const Actions::Order& order : actions.orders) {
    if (const auto stream = find(order.stream)) stream->SendOrder(order.order);
  }
  metrics_.CountOrders(actions.orders.size());
  for (const Actions::End& end : actions.ends) {
    if (const auto stream = find(end.stream)) stream->End(end.status);
    streams_.erase(end.stream);
  }
}

void Coordinator::DispatchWeights(const Actions::Weights& weights) {
  const Fence fence = weights.fence;
  switch (weights.kind) {
    case Actions::Weights::Kind::kOpen:
      weights_store_.Open(fence, weights.layout,
                          [this, fence](absl::Status opened) {
                            if (!opened.ok()) FailWeights(fence, opened);
                          });
      break;
    case Actions::Weights::Kind::kSave:
      weights_store_.Save(fence,
                          [this, fence](absl::StatusOr<SavedWeights> saved) {
                            Post([this, fence, saved = std::move(saved)] {
                              brain_.OnWeightsSaved(fence, saved, Now());
                            });
                          });
      break;
    case Actions::Weights::Kind::kForget:
      weights_store_.Forget(fence.job);
      break;
  }
}

void Coordinator::DispatchCheckpoint(const Actions::Checkpoint& checkpoint) {
  switch (checkpoint.kind) {
    case Actions::Checkpoint::Kind::kFetch:
      checkpoints_.Fetch(checkpoint.order, [this](auto fetched) {
        Post([this, fetched = std::move(fetched)] {
          brain_.OnCheckpointFetched(fetched, Now());
        });
      });
      break;
    case Actions::Checkpoint::Kind::kKeep:
      checkpoints_.Keep(checkpoint.id, [this](const absl::Status& kept) {
        Post([this, kept] { brain_.OnCheckpointKept(kept, Now()); });
      });
      break;
    case Actions::Checkpoint::Kind::kRetain:
      checkpoints_.Retain(checkpoint.id.job, checkpoint.steps);
      break;
  }
}

void Coordinator::Tick() {
  // A second tick in the queue would see the same time.
  if (tick_is_queued_.exchange(true)) return;
  Post([this] {
    tick_is_queued_ = false;
    ticked_in_batch_ = true;
    const Moment moment = Now();
    NoticeStandstill(moment);
    ticked_ = moment.now;
    granted_ = absl::ZeroDuration();
    EndExports();
    brain_.OnTick(moment);
  });
}

// The tick is overdue: this process, its machine or its disk stood still.  The
// workers' messages of that time may be queued behind the present event, which
// may be a stream that broke for the same reason.  One heartbeat period is not
// granted, or a coordinator that is always late would never notice a death.
void Coordinator::NoticeStandstill(Moment moment) {
  const absl::Duration due =
      moment.now - ticked_ - policy_.membership.lease / kHeartbeatsALease;
  if (due <= granted_) return;
  brain_.OnStandstill(due - granted_, moment);
  granted_ = due;
}

std::optional<std::string> Coordinator::Summary(absl::Duration patience) {
  // Shared with the task, which may run after this has given up.
  const auto line = std::make_shared<std::promise<std::string>>();
  std::future<std::string> answer = line->get_future();
  Post([this, line] { line->set_value(brain_.Summary()); });
  const auto state = answer.wait_for(absl::ToChronoMilliseconds(patience));
  if (state != std::future_status::ready) return std::nullopt;
  return answer.get();
}

// --- workers' streams -------------------------------------------------------

void Coordinator::Attach(StreamId id, std::shared_ptr<WorkerStream> stream,
                         v1::Registration registration,
                         Done<v1::Welcome> done) {
  Post([this, id, stream, registration = std::move(registration), done] {
    // Another gRPC thread may have called OnBroken() before this.
    if (stream->ended()) {
      done(Cancelled("the worker has left"));
      return;
    }
    const absl::StatusOr<AttachVerdict> verdict =
        brain_.OnAttach(registration, id, Now());
    if (verdict.ok()) streams_[id] = stream;
    replies_.push_back([this, id, verdict, done](const absl::Status& stored) {
      if (!verdict.ok()) return done(verdict.status());
      if (!stored.ok()) {
        // After a restart, the coordinator would not know this worker.
        streams_.erase(id);
        brain_.OnStreamBroken(id, Now());
        return done(Unavailable(stored.message()));
      }
      const absl::Duration lease = policy_.membership.lease;
      v1::Welcome welcome;
      welcome.set_worker_id(verdict->id.value);
      welcome.set_heartbeat_period_ms(
          absl::ToInt64Milliseconds(lease / kHeartbeatsALease));
      welcome.set_lease_ms(absl::ToInt64Milliseconds(lease));
      done(std::move(welcome));
    });
  });
}

void Coordinator::OnReport(StreamId id, WorkerReport report, StatusDone done) {
  // Shared with the task because std::function wants to be copied.
  const auto shared = std::make_shared<WorkerReport>(std::move(report));
  Post([this, id, shared, done] {
    done(brain_.OnReport(id, std::move(*shared), Now()));
  });
}

void Coordinator::OnBroken(StreamId id) {
  Post([this, id] {
    streams_.erase(id);
    brain_.OnStreamBroken(id, Now());
  });
}

// --- weights ----------------------------------------------------------------

void Coordinator::AdmitUpload(const Fence& fence, const std::string& peer,
                              StatusDone done) {
  Post([this, fence, peer, done] {
    const auto from = absl::c_find_if(streams_, [&peer](const auto& at) {
      return at.second->peer() == peer;
    });
    done(brain_.CheckUpload(fence,
                            from == streams_.end() ? StreamId{} : from->first));
  });
}

void Coordinator::WriteWeights(v1::WeightsPiece piece, StatusDone done) {
  const Fence fence = FenceOf(piece);
  weights_store_.Write(
      std::move(piece), [this, fence, done](absl::Status status) {
        if (absl::IsResourceExhausted(status) || absl::IsInternal(status)) {
          FailWeights(fence, status);
        }
        done(std::move(status));
      });
}

void Coordinator::ReadWeights(JobId job, int64_t step, int64_t offset,
                              int64_t limit, std::function<bool()> has_left,
                              Done<v1::WeightsChunk> done) {
  PostRequest(done, [this, job, step, offset, limit, has_left, done] {
    Recall(job);
    const absl::StatusOr<const JobRecord*> found = brain_.FindRecord(job);
    if (!found.ok()) return done(found.status());
    const JobRecord& record = **found;
    const auto read = [this, offset, limit, done](auto checkpoint) {
      if (!checkpoint.ok()) return done(checkpoint.status());
      checkpoints_.ReadWeights(*checkpoint, offset, limit, done);
    };
    if (step > 0) {
      const JobId of = step == record.job.resumed().step()
                           ? JobId{record.job.resumed().job()}
                           : job;
      return read(absl::StatusOr<CheckpointId>(CheckpointId{of, step}));
    }
    if (!record.job.weights_path().empty()) {
      // The state folder may have moved since; the file's name is the same.
      const std::string& path = record.job.weights_path();
      return weights_store_.Read(job, path.substr(path.rfind('/') + 1), offset,
                                 limit, done);
    }
    const auto checkpoint = brain_.OnExport(job, Now());
    if (!checkpoint.ok()) return done(checkpoint.status());
    if (checkpoint->has_value()) {
      return read(absl::StatusOr<CheckpointId>(**checkpoint));
    }
    if (refuses_exports_) return done(Stopping());
    exports_.emplace(job, Export{has_left, read});
  });
}

void Coordinator::EndExports() {
  std::erase_if(exports_, [](const auto& each) {
    if (!each.second.has_left()) return false;
    each.second.done(Cancelled("the client has left"));
    return true;
  });
}

void Coordinator::RefuseWaiters() {
  Post([this] {
    watch_.End(Stopping());
    refuses_exports_ = true;
    for (const auto& [job, waiting] : exports_) waiting.done(Stopping());
    exports_.clear();
  });
}

// --- checkpoints ------------------------------------------------------------

void Coordinator::FindCheckpoint(JobId job, Cut cut, Done<CheckpointId> done) {
  PostRequest(done, [this, job, cut, done] {
    done(brain_.checkpoints().Find(job, cut));
  });
}

void Coordinator::ReadPiece(JobId job, CheckpointId checkpoint, int layer,
                            int64_t offset, int64_t limit,
                            Done<v1::PieceChunk> done) {
  checkpoints_.ReadPiece(
      checkpoint, layer, offset, limit,
      [this, job, checkpoint, done](absl::StatusOr<v1::PieceChunk> chunk) {
        if (absl::IsDataLoss(chunk.status()) ||
            absl::IsNotFound(chunk.status())) {
          Post([this, job, checkpoint, why = chunk.status()] {
            brain_.OnCheckpointDamaged(job, checkpoint, why, Now());
          });
        }
        done(std::move(chunk));
      });
}

// --- clients ----------------------------------------------------------------

// The whole checkpoint is checked before a job may go on from it.
void Coordinator::Submit(const v1::SubmitJobRequest& request,
                         Done<v1::SubmitJobResponse> done) {
  if (!request.has_resume()) return SubmitChecked(request, std::move(done));
  PostRequest(done, [this, request, done] {
    Recall(JobId{request.resume().job()});
    const auto resumption = brain_.checkpoints().CheckResume(request);
    if (!resumption.ok()) return done(resumption.status());
    v1::SubmitJobRequest checked = request;
    checked.mutable_resume()->set_step(resumption->checkpoint.step);
    checkpoints_.Check(resumption->checkpoint, resumption->wants,
                       [this, checked, done](const absl::Status& status) {
                         if (!status.ok()) return done(status);
                         SubmitChecked(checked, done);
                       });
  });
}

void Coordinator::SubmitChecked(const v1::SubmitJobRequest& request,
                                Done<v1::SubmitJobResponse> done) {
  PostRequest(done, [this, request, done] {
    const bool dry_run = request.dry_run();
    if (request.has_resume()) Recall(JobId{request.resume().job()});
    if (const auto known = store_.FindRequest(request.request_id());
        known.ok() && known->assigned()) {
      Recall(*known);
    }
    brain_.CheckSubmit(
        request, Now(),
        [this, dry_run, done](absl::StatusOr<Submission> submission) {
          OnChecked(std::move(submission), dry_run, done);
        });
  });
}

void Coordinator::OnChecked(absl::StatusOr<Submission> submission, bool dry_run,
                            const Done<v1::SubmitJobResponse>& done) {
  if (submission.ok() && !submission->repeated && !dry_run) {
    // A transaction of its own: the job is on the disk, or it is not a job.
    const absl::Status stored = Commit(
        {.durable = true, .jobs = {{submission->job.id(), submission->job}}});
    if (stored.ok()) {
      brain_.OnSubmitted(submission->job, Now());
    } else {
      // Not ResourceExhausted: that would say that no worker has room.
      submission = Internal("the job could not be stored: ", stored.message());
    }
  }
  if (submission.ok() && !dry_run) {
    submission->answer.set_id(submission->job.job.id());
  }
  replies_.push_back([submission, done](const absl::Status& /*stored*/) {
    if (!submission.ok()) return done(submission.status());
    done(submission->answer);
  });
}

void Coordinator::Stop(JobId job, Done<v1::Job> done) {
  Change(done, [=, this](Brain& brain, Moment now) -> absl::StatusOr<v1::Job> {
    Recall(job);
    PACELINE_RETURN_IF_ERROR(brain.OnStop(job, now));
    return brain.ViewJob(job);
  });
}

void Coordinator::Delete(JobId job, Done<v1::DeleteJobResponse> done) {
  PostRequest(done, [this, job, done] {
    Recall(job);
    absl::Status deleted = brain_.CheckDelete(job);
    if (deleted.ok()) {
      // A transaction of its own: the job is gone from the disk, or it stays.
      deleted = Commit({.deleted = {job}});
      if (deleted.ok()) {
        brain_.OnDeleted(job);
        const auto last = store_.LastEnded(kEndedInMemory);
        for (const JobRecord& ended : last.value_or(std::vector<JobRecord>())) {
          brain_.Recall(ended);
        }
      } else {
        // Not ResourceExhausted: that would say that no worker has room.
        deleted = Internal("job ", job.value,
                           " is still there, its deletion "
                           "could not be stored: ",
                           deleted.message());
      }
    }
    replies_.push_back([deleted, done](const absl::Status& /*stored*/) {
      if (!deleted.ok()) return done(deleted);
      done(v1::DeleteJobResponse());
    });
  });
}

void Coordinator::ListJobs(const v1::ListJobsRequest& request,
                           Done<v1::ListJobsResponse> done) {
  using Answer = v1::ListJobsResponse;
  Ask(done, [this, request](Brain& brain, Moment) -> absl::StatusOr<Answer> {
    PACELINE_ASSIGN_OR_RETURN(
        const int64_t below,
        ListPage::Parse(request.page_token(),
                        std::numeric_limits<int64_t>::max()));
    const ListPage page(0, request.page_size(), kMostJobs);
    PACELINE_ASSIGN_OR_RETURN(
        std::vector<JobRecord> records,
        store_.JobsBelow(JobId{below}, page.left(), kAnswerBytes));
    Answer answer;
    for (JobRecord& record : records) {
      const JobId id = record.id();
      PACELINE_ASSIGN_OR_RETURN(const auto evaluations,
                                store_.Evaluations(id, 1));
      v1::Job& job = *answer.add_jobs();
      job = brain.ViewStored(std::move(record));
      // Thousands of numbers that no list shows.
      job.clear_unreadable();
      job.clear_skip_runs();
      job.mutable_evaluations()->Add(evaluations.begin(), evaluations.end());
    }
    if (answer.jobs().empty()) return answer;
    const JobId last{answer.jobs().rbegin()->id()};
    PACELINE_ASSIGN_OR_RETURN(const auto more, store_.JobsBelow(last, 1, 1));
    if (!more.empty()) answer.set_next_page_token(absl::StrCat(last.value));
    return answer;
  });
}

void Coordinator::GetJob(const v1::GetJobRequest& request, Done<v1::Job> done) {
  Ask(done, [this, request](Brain& brain, Moment) -> absl::StatusOr<v1::Job> {
    const JobId id{request.id()};
    Recall(id);
    PACELINE_ASSIGN_OR_RETURN(v1::Job job, brain.ViewJob(id));
    const int64_t points = std::min<int64_t>(request.points(), kMostPoints);
    PACELINE_ASSIGN_OR_RETURN(StoredCurve curve,
                              store_.Curve(id, request.after_step(),
                                           request.in_order() ? 0 : points));
    StoredRows rows;
    if (request.in_order()) {
      PACELINE_ASSIGN_OR_RETURN(rows,
                                store_.RowsAfter(id, request.after_step(),
                                                 std::max<int64_t>(points, 1)));
    } else {
      rows.steps = std::move(curve.points);
      PACELINE_ASSIGN_OR_RETURN(rows.evaluations,
                                store_.Evaluations(id, kMostEvaluations));
    }
    job.mutable_curve()->Add(rows.steps.begin(), rows.steps.end());
    job.set_curve_stride(curve.stride);
    job.mutable_evaluations()->Add(rows.evaluations.begin(),
                                   rows.evaluations.end());
    return job;
  });
}

void Coordinator::GetEvents(const v1::GetEventsRequest& request,
                            Done<v1::GetEventsResponse> done) {
  using Answer = v1::GetEventsResponse;
  Ask(done, [this, request](Brain& brain, Moment) -> absl::StatusOr<Answer> {
    const JobId job{request.id()};
    Recall(job);
    PACELINE_RETURN_IF_ERROR(brain.FindRecord(job).status());
    PACELINE_ASSIGN_OR_RETURN(std::vector<v1::JobEvent> events,
                              store_.Events(job, request.after(), kMostEvents));
    if (!store_works_ && request.after() <= 0 &&
        std::ssize(events) < kMostEvents) {
      // The store numbers them later: a client that reads on from here sees
      // them again under those numbers.
      const int64_t last = events.empty() ? 0 : events.back().sequence();
      for (v1::JobEvent& event : brain.PendingEvents(job)) {
        event.set_sequence(last);
        events.push_back(std::move(event));
      }
    }
    Answer answer;
    ListPage(0, 0, kMostEvents).Add(events, *answer.mutable_events());
    return answer;
  });
}

void Coordinator::GetLogs(const v1::GetLogsRequest& request,
                          Done<v1::GetLogsResponse> done) {
  using Answer = v1::GetLogsResponse;
  Ask(done, [this, request](Brain& brain, Moment) -> absl::StatusOr<Answer> {
    const JobId job{request.id()};
    Recall(job);
    PACELINE_RETURN_IF_ERROR(brain.FindRecord(job).status());
    const int64_t limit =
        request.limit() > 0 ? request.limit() : kDefaultLogLines;
    PACELINE_ASSIGN_OR_RETURN(const std::vector<v1::LogLine> lines,
                              store_.Logs(job, request.after(), limit));
    Answer answer;
    answer.mutable_lines()->Add(lines.begin(), lines.end());
    answer.set_last(lines.empty() ? request.after() : lines.back().sequence());
    return answer;
  });
}

void Coordinator::ListWorkers(const v1::ListWorkersRequest& request,
                              Done<v1::ListWorkersResponse> done) {
  using Answer = v1::ListWorkersResponse;
  Ask(done, [=, this](Brain& brain, Moment now) -> absl::StatusOr<Answer> {
    PACELINE_ASSIGN_OR_RETURN(const int64_t after,
                              ListPage::Parse(request.page_token(), -1));
    Answer answer;
    answer.set_version(kVersion);
    answer.set_unix_ms(now.unix_ms);
    if (free_bytes_ >= 0) answer.set_free_bytes(free_bytes_);
    ListPage page(0, request.page_size(), kMostWorkers);
    page.Add(brain.ViewWorkers(now.now, WorkerId{after}, page.left() + 1),
             *answer.mutable_workers());
    if (!page.next().empty()) {
      answer.set_next_page_token(absl::StrCat(answer.workers().rbegin()->id()));
    }
    return answer;
  });
}

void Coordinator::WatchMesh(std::shared_ptr<MeshWatcher> watcher) {
  PostRequest([watcher](const absl::Status& why) { watcher->End(why); },
              [this, watcher] { watch_.Add(watcher); });
}

}  // namespace paceline
