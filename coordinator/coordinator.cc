#include "coordinator/coordinator.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "coordinator/job_text.h"
#include "core/base/status_macros.h"
#include "core/obs/log.h"

namespace paceline {
namespace {

constexpr absl::Duration kMetricsPeriod = absl::Milliseconds(500);
// Heartbeats a lease: two may be lost and one late.
constexpr int kHeartbeatsALease = 6;

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
                         JobStore& store, WeightsDesk& desk, const Clock& clock,
                         CoordinatorMetrics& metrics)
    : policy_(policy),
      store_(store),
      desk_(desk),
      clock_(clock),
      metrics_(metrics),
      brain_(policy, std::move(stored), Now()),
      ticked_(clock.Now()),
      metrics_updated_(clock.Now()),
      loop_("brain", [this] { AfterBatch(); }) {
  Post([] {});  // dispatches what the brain decided on what was stored
}

Coordinator::~Coordinator() { Stop(); }

void Coordinator::Stop() { loop_.Stop(); }

Moment Coordinator::Now() const {
  return {clock_.Now(), absl::ToUnixMillis(clock_.Today())};
}

TaskLoop::Task Coordinator::Counted(TaskLoop::Task task) {
  metrics_.SetQueueDepth(++queued_);
  return [this, task = std::move(task)] {
    metrics_.SetQueueDepth(--queued_);
    NoticeStandstill(Now());
    task();
  };
}

void Coordinator::Post(TaskLoop::Task task) {
  loop_.Post(Counted(std::move(task)));
}

void Coordinator::PostRequest(const StatusDone& refuse, TaskLoop::Task task) {
  if (loop_.TryPost(Counted(std::move(task)))) return;
  metrics_.SetQueueDepth(--queued_);
  refuse(absl::UnavailableError(
      "the coordinator is overloaded: try again in a moment"));
}

template <typename T>
void Coordinator::Ask(Done<T> done, std::function<absl::StatusOr<T>()> ask) {
  PostRequest(done, [this, done, ask = std::move(ask)] {
    replies_.push_back(
        [done, ask](const absl::Status& /*stored*/) { done(ask()); });
  });
}

// --- the loop ---------------------------------------------------------------

void Coordinator::AfterBatch() {
  const bool was_working = store_works_;
  const absl::Status stored = StoreBatchOfBrain();
  std::vector<Reply> replies = std::exchange(replies_, {});
  for (const Reply& reply : replies) reply(stored);
  if (stored.ok()) {
    Dispatch(brain_.TakeActions());
    if (!was_working) brain_.OnStoreWorks(Now());
  }
  const Instant now = clock_.Now();
  if (now - metrics_updated_ < kMetricsPeriod) return;
  metrics_updated_ = now;
  metrics_.Update(brain_.ViewWorkers(now), brain_.ViewOpenJobs(),
                  brain_.CountJobs());
  metrics_.CountGroups(brain_.group_counts());
}

absl::Status Coordinator::StoreBatchOfBrain() {
  const StoreBatch& writes = brain_.actions().writes;
  if (writes.empty()) return absl::OkStatus();
  const Instant begin = clock_.Now();
  absl::Status stored = store_.Commit(writes);
  metrics_.ObserveTransaction(clock_.Now() - begin, stored.ok());
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
  for (const Actions::Ack& ack : actions.acks) {
    const auto stream = streams_.find(ack.stream);
    if (stream != streams_.end()) stream->second->SendAck(ack.sequence);
  }
  for (const Actions::Order& order : actions.orders) {
    const auto stream = streams_.find(order.stream);
    if (stream != streams_.end()) stream->second->SendOrder(order.order);
  }
  metrics_.CountOrders(actions.orders.size());
  for (const Actions::End& end : actions.ends) {
    const auto stream = streams_.find(end.stream);
    if (stream == streams_.end()) continue;
    stream->second->End(end.status);
    streams_.erase(stream);
  }
}

void Coordinator::DispatchWeights(const Actions::Weights& weights) {
  const Fence fence = weights.fence;
  switch (weights.kind) {
    case Actions::Weights::Kind::kOpen:
      desk_.Open(fence, weights.layout, [this, fence](absl::Status opened) {
        if (!opened.ok()) FailWeights(fence, opened);
      });
      break;
    case Actions::Weights::Kind::kSave:
      desk_.Save(fence, [this, fence](absl::StatusOr<SavedWeights> saved) {
        Post([this, fence, saved = std::move(saved)] {
          brain_.OnWeightsSaved(fence, saved, Now());
        });
      });
      break;
    case Actions::Weights::Kind::kForget:
      desk_.Forget(fence.job);
      break;
  }
}

void Coordinator::FailWeights(const Fence& fence, const absl::Status& error) {
  Post([this, fence, error] { brain_.OnWeightsFailed(fence, error, Now()); });
}

void Coordinator::Tick() {
  // One is enough: a second one in the queue would see the same time.
  if (tick_is_queued_.exchange(true)) return;
  Post([this] {
    tick_is_queued_ = false;
    const Moment moment = Now();
    NoticeStandstill(moment);
    ticked_ = moment.now;
    granted_ = absl::ZeroDuration();
    brain_.OnTick(moment);
  });
}

// A tick that is overdue: this process was stopped, its machine was, or the
// disk; what workers said meanwhile may wait behind the event that comes now,
// which may be a stream that broke for the very reason.  Not all of it is
// granted, or who dies would never be missed by one that is always late.
void Coordinator::NoticeStandstill(Moment moment) {
  const absl::Duration due =
      moment.now - ticked_ - policy_.membership.lease / kHeartbeatsALease;
  if (due <= granted_) return;
  brain_.OnStandstill(due - granted_, moment);
  granted_ = due;
}

bool Coordinator::Answers(absl::Duration patience) {
  // Shared with the task, which may run after this has given up.
  const auto answered = std::make_shared<absl::Notification>();
  Post([answered] { answered->Notify(); });
  return answered->WaitForNotificationWithTimeout(patience);
}

// --- workers' streams -------------------------------------------------------

void Coordinator::Attach(StreamId id, std::shared_ptr<WorkerStream> stream,
                         Registration registration, Done<WelcomeInfo> done) {
  Post([this, id, stream, registration = std::move(registration), done] {
    // OnBroken() may have come before this, by another thread of gRPC.
    if (stream->ended()) {
      done(absl::CancelledError("the worker has left"));
      return;
    }
    const absl::StatusOr<AttachVerdict> verdict =
        brain_.OnAttach(registration, id, Now());
    if (verdict.ok()) streams_[id] = stream;
    replies_.push_back([this, id, verdict, done](const absl::Status& stored) {
      if (!verdict.ok()) {
        done(verdict.status());
      } else if (!stored.ok()) {
        // Not yet anybody's worker as far as a restart would know.
        streams_.erase(id);
        brain_.OnStreamBroken(id, Now());
        done(absl::UnavailableError(stored.message()));
      } else {
        const absl::Duration lease = policy_.membership.lease;
        done(WelcomeInfo{verdict->id, lease / kHeartbeatsALease, lease});
      }
    });
  });
}

void Coordinator::OnHeartbeat(StreamId id, Heartbeat heartbeat,
                              StatusDone done) {
  // Shared with the task because std::function wants to be copied.
  const auto shared = std::make_shared<Heartbeat>(std::move(heartbeat));
  Post([this, id, shared, done] {
    done(brain_.OnHeartbeat(id, std::move(*shared), Now()));
  });
}

void Coordinator::OnBroken(StreamId id) {
  Post([this, id] {
    streams_.erase(id);
    brain_.OnStreamBroken(id, Now());
  });
}

// --- weights ----------------------------------------------------------------

void Coordinator::WriteWeights(WeightsPiece piece, StatusDone done) {
  const Fence fence = piece.fence;
  desk_.Write(std::move(piece), [this, fence, done](absl::Status status) {
    if (absl::IsResourceExhausted(status) || absl::IsInternal(status)) {
      FailWeights(fence, status);
    }
    done(std::move(status));
  });
}

void Coordinator::SyncWeights(const Fence& fence, StatusDone done) {
  desk_.Sync(fence, std::move(done));
}

void Coordinator::ReadWeights(JobId job, int64_t offset, int64_t limit,
                              Done<WeightsPart> done) {
  PostRequest(done, [this, job, offset, limit, done] {
    const absl::StatusOr<JobView> view = brain_.ViewJob(job);
    if (!view.ok()) {
      done(view.status());
    } else if (view->record.weights_path.empty()) {
      done(absl::FailedPreconditionError(absl::StrCat(
          "job ", job.value, " is ", JobStateName(view->record.state),
          " and has no ", ResultName(view->record.spec),
          "; only a succeeded job has")));
    } else {
      // The state folder may have moved since, the file's name has not.
      const std::string& path = view->record.weights_path;
      desk_.Read(job, path.substr(path.rfind('/') + 1), offset, limit, done);
    }
  });
}

// --- clients ----------------------------------------------------------------

void Coordinator::Submit(SubmitRequest request, bool dry_run,
                         Done<Submission> done) {
  PostRequest(done, [this, request = std::move(request), dry_run, done] {
    absl::StatusOr<Submission> submission = brain_.CheckSubmit(request, Now());
    if (submission.ok() && !submission->repeated && !dry_run) {
      // A transaction of its own: the job is on the disk, or it is not a job.
      StoreBatch batch;
      batch.durable = true;
      batch.jobs[submission->job.id] = submission->job;
      const absl::Status stored = store_.Commit(batch);
      if (stored.ok()) {
        brain_.OnSubmitted(submission->job, Now());
      } else {
        // Not ResourceExhausted: that would say that no worker has room.
        submission = absl::InternalError(
            absl::StrCat("the job could not be stored: ", stored.message()));
      }
    }
    if (submission.ok() && dry_run) submission->job.id = JobId{0};
    replies_.push_back(
        [submission, done](const absl::Status&) { done(submission); });
  });
}

void Coordinator::Stop(JobId job, Done<JobView> done) {
  PostRequest(done, [this, job, done] {
    const absl::Status stopped = brain_.OnStop(job, Now());
    replies_.push_back([this, job, stopped, done](const absl::Status& stored) {
      if (!stopped.ok() || !stored.ok()) {
        done(stopped.ok() ? stored : stopped);
      } else {
        done(brain_.ViewJob(job));
      }
    });
  });
}

void Coordinator::Delete(JobId job, StatusDone done) {
  PostRequest(done, [this, job, done] {
    absl::Status deleted = brain_.CheckDelete(job);
    if (deleted.ok()) {
      // A transaction of its own: the job is gone from the disk, or it stays.
      StoreBatch batch;
      batch.deleted.push_back(job);
      deleted = store_.Commit(batch);
      if (deleted.ok()) {
        brain_.OnDeleted(job);
      } else {
        // Not ResourceExhausted: that would say that no worker has room.
        deleted =
            absl::InternalError(absl::StrCat("job ", job.value,
                                             " is still there, its deletion "
                                             "could not be stored: ",
                                             deleted.message()));
      }
    }
    replies_.push_back(
        [deleted, done](const absl::Status& /*stored*/) { done(deleted); });
  });
}

void Coordinator::ListJobs(int64_t limit, Done<std::vector<JobDetails>> done) {
  Ask<std::vector<JobDetails>>(
      std::move(done),
      [this, limit]() -> absl::StatusOr<std::vector<JobDetails>> {
        std::vector<JobDetails> jobs;
        for (JobView& view : brain_.ViewJobs(limit)) {
          JobDetails details;
          PACELINE_ASSIGN_OR_RETURN(details.evaluations,
                                    store_.Evaluations(view.record.id, 1));
          details.view = std::move(view);
          jobs.push_back(std::move(details));
        }
        return jobs;
      });
}

void Coordinator::GetJob(JobId job, int64_t points, int64_t after_step,
                         Done<JobDetails> done) {
  Ask<JobDetails>(
      std::move(done),
      [this, job, points, after_step]() -> absl::StatusOr<JobDetails> {
        JobDetails details;
        PACELINE_ASSIGN_OR_RETURN(details.view, brain_.ViewJob(job));
        PACELINE_ASSIGN_OR_RETURN(details.curve,
                                  store_.Curve(job, after_step, points));
        PACELINE_ASSIGN_OR_RETURN(details.evaluations,
                                  store_.Evaluations(job, kMostEvaluations));
        return details;
      });
}

void Coordinator::GetEvents(JobId job, int64_t after,
                            Done<std::vector<EventRecord>> done) {
  Ask<std::vector<EventRecord>>(
      std::move(done),
      [this, job, after]() -> absl::StatusOr<std::vector<EventRecord>> {
        PACELINE_RETURN_IF_ERROR(brain_.ViewJob(job).status());
        PACELINE_ASSIGN_OR_RETURN(std::vector<EventRecord> events,
                                  store_.Events(job, after, kMostEvents));
        if (store_works_ || after > 0 || std::ssize(events) == kMostEvents) {
          return events;
        }
        // They get their numbers when they are stored: who reads on from here
        // will see them again, under these.
        const int64_t last = events.empty() ? 0 : events.back().sequence;
        for (EventRecord& event : brain_.PendingEvents(job)) {
          event.sequence = last;
          events.push_back(std::move(event));
        }
        return events;
      });
}

void Coordinator::GetLogs(JobId job, int64_t after, int64_t limit,
                          Done<std::vector<LogRecord>> done) {
  Ask<std::vector<LogRecord>>(
      std::move(done),
      [this, job, after, limit]() -> absl::StatusOr<std::vector<LogRecord>> {
        PACELINE_RETURN_IF_ERROR(brain_.ViewJob(job).status());
        return store_.Logs(job, after, limit);
      });
}

void Coordinator::ListWorkers(Done<std::vector<WorkerView>> done) {
  Ask<std::vector<WorkerView>>(
      std::move(done), [this] { return brain_.ViewWorkers(clock_.Now()); });
}

void Coordinator::Drain(const std::string& worker, bool drain,
                        Done<WorkerView> done) {
  ChangeWorker(std::move(done), [this, worker, drain] {
    return brain_.OnDrain(worker, drain, Now());
  });
}

void Coordinator::Forget(const std::string& worker, Done<WorkerView> done) {
  ChangeWorker(std::move(done),
               [this, worker] { return brain_.OnForget(worker, Now()); });
}

void Coordinator::ChangeWorker(
    Done<WorkerView> done, std::function<absl::StatusOr<WorkerView>()> change) {
  PostRequest(done, [this, change = std::move(change), done] {
    const absl::StatusOr<WorkerView> view = change();
    replies_.push_back([view, done](const absl::Status& stored) {
      done(view.ok() && !stored.ok() ? absl::StatusOr<WorkerView>(stored)
                                     : view);
    });
  });
}

void Coordinator::StartProfile(ProfileRequest request,
                               Done<ProfileTicket> done) {
  Ask<ProfileTicket>(std::move(done), [this, request = std::move(request)] {
    return brain_.OnProfile(request, Now());
  });
}

void Coordinator::GetProfile(int64_t id, Done<ProfileView> done) {
  Ask<ProfileView>(std::move(done),
                   [this, id] { return brain_.ViewProfile(id, Now().now); });
}

void Coordinator::ListMeasurements(const std::string& model,
                                   Done<StoredMeasurements> done) {
  Ask<StoredMeasurements>(std::move(done), [this, model] {
    return brain_.ViewMeasurements(model);
  });
}

}  // namespace paceline
