// The coordinator without its network.  It carries events to the brain, and the
// brain's decisions to the stores and the workers' streams.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "coordinator/brain.h"
#include "coordinator/jobs/checkpoint_store.h"
#include "coordinator/jobs/job_store.h"
#include "coordinator/jobs/records.h"
#include "coordinator/jobs/weights_store.h"
#include "coordinator/watch/mesh_watch.h"
#include "coordinator/watch/metrics.h"
#include "core/base/clock.h"
#include "core/os/thread.h"

namespace paceline {

// The coordinator's end of one Attach stream.  Thread-safe; no call blocks; a
// call after the stream has ended does nothing.
class WorkerStream {
 public:
  virtual ~WorkerStream() = default;

  // Replaces an order or an acknowledgement that was not sent yet: only the
  // newest one matters.
  virtual void SendOrder(const StandingOrder& order) = 0;
  virtual void SendAck(int64_t sequence) = 0;
  virtual void End(const absl::Status& status) = 0;
  // True once either side has ended it, even before OnBroken() is called.
  virtual bool ended() const = 0;
  // The peer's address, as gRPC writes it; empty: not known.
  virtual std::string peer() const { return ""; }
};

// Bounds of one answer: it fits into a message however long a job was, and
// takes a few milliseconds to make.
inline constexpr int64_t kMostPoints = 2000;
inline constexpr int64_t kMostEvaluations = 1000;
inline constexpr int64_t kMostEvents = 1000;
inline constexpr int64_t kDefaultLogLines = 1000;
inline constexpr int64_t kMostJobs = 100;
inline constexpr int64_t kMostWorkers = 1000;

// Thread-safe; no call blocks.  One loop thread, "brain", owns the Brain and
// the store.  It takes all posted tasks as one batch: the brain decides, one
// transaction stores, and only then answers, acknowledgements and orders go
// out.  So a crash cannot undo anything that was told.
//
// Every `done` is called exactly once: from the loop, or from a store's thread
// where it reads or writes files.  With too many clients' requests in the queue
// it is called at once, with Unavailable.  Calls of workers, the weights store
// and the ticker are never refused: each of them has one under way.  A
// transaction that fails is tried again with the next batch; its waiters get
// the store's error.
class Coordinator {
 public:
  // stored: the result of store.Load().  All references outlive this.
  Coordinator(const BrainPolicy& policy, StoredState stored, JobStore& store,
              WeightsStore& weights_store, CheckpointStore& checkpoints,
              const Clock& clock, CoordinatorMetrics& metrics);
  ~Coordinator();  // Stop()

  // Runs the posted tasks, then ends the loop.  Called after the network was
  // shut down: later calls are dropped.
  void Stop();

  // --- workers' streams ---

  // A new stream's id; its owner passes it with every call.
  StreamId NextStream() { return StreamId{next_stream_.fetch_add(1)}; }

  // The stream is shared: by gRPC, which ends its reactor's life, and by this,
  // while it may still send.  A stream that has ended before the task runs gets
  // Cancelled and changes nothing.
  void Attach(StreamId id, std::shared_ptr<WorkerStream> stream,
              v1::Registration registration, Done<v1::Welcome> done);
  void OnReport(StreamId id, WorkerReport report, StatusDone done);
  void OnBroken(StreamId id);

  // --- weights ---

  // Checks that the worker at the other end of a connection has a stage of the
  // job, and so may upload a part of its result.
  //   peer  of the connection, as WorkerStream has it
  // Errors: Aborted           another run is under way
  //         Unavailable       no worker is attached over it: try again later
  //         PermissionDenied  the worker has no stage of the job
  void AdmitUpload(const Fence& fence, const std::string& peer,
                   StatusDone done);
  // As WeightsStore.  ResourceExhausted and Internal also fail the job.
  void WriteWeights(v1::WeightsPiece piece, StatusDone done);
  void SyncWeights(const Fence& fence, StatusDone done) {
    weights_store_.Sync(fence, std::move(done));
  }

  // step: the checkpoint's; 0: the result, or else the newest checkpoint, which
  // a job that trains makes now.  has_left: while that is made, returns whether
  // the client has left.
  // Errors: NotFound; FailedPrecondition  the job has no weights yet;
  //         Cancelled  has_left
  void ReadWeights(JobId job, int64_t step, int64_t offset, int64_t limit,
                   std::function<bool()> has_left, Done<v1::WeightsChunk> done);

  // --- checkpoints ---

  // Errors: NotFound
  void FindCheckpoint(JobId job, Cut cut, Done<CheckpointId> done);
  // Reads a checkpoint of `job`, as CheckpointStore does.
  void ReadPiece(JobId job, CheckpointId checkpoint, int layer, int64_t offset,
                 int64_t limit, Done<v1::PieceChunk> done);

  // --- clients ---

  void Submit(const v1::SubmitJobRequest& request,
              Done<v1::SubmitJobResponse> done);
  void Stop(JobId job, Done<v1::Job> done);
  void Delete(JobId job, Done<v1::DeleteJobResponse> done);
  // Newest first; no curves, and only the last evaluation.
  void ListJobs(const v1::ListJobsRequest& request,
                Done<v1::ListJobsResponse> done);
  // With in_order: the next records of each kind, by step.  Else evenly spaced
  // points of the curve, and the kMostEvaluations newest evaluations.
  void GetJob(const v1::GetJobRequest& request, Done<v1::Job> done);
  // Returns at most kMostEvents; none: there are no more so far.
  void GetEvents(const v1::GetEventsRequest& request,
                 Done<v1::GetEventsResponse> done);
  void GetLogs(const v1::GetLogsRequest& request,
               Done<v1::GetLogsResponse> done);
  void ListWorkers(const v1::ListWorkersRequest& request,
                   Done<v1::ListWorkersResponse> done);

  // A question that the brain answers: ask(brain, now) returns the answer,
  // which `done` gets once the batch is stored.
  template <typename Answer, typename Question>
  void Ask(Answer done, Question ask) {
    PostRequest(done, [this, done, ask = std::move(ask)] {
      replies_.push_back([this, done, ask](const absl::Status& /*stored*/) {
        done(ask(brain_, Now()));
      });
    });
  }
  // A change that the brain makes: `done` gets what change(brain, now) returns
  // once that is stored, or else the store's error.
  template <typename Answer, typename Act>
  void Change(Answer done, Act change) {
    PostRequest(done, [this, done, change = std::move(change)] {
      const auto changed = change(brain_, Now());
      replies_.push_back([changed, done](const absl::Status& stored) {
        done(changed.ok() && !stored.ok() ? decltype(changed)(stored)
                                          : changed);
      });
    });
  }

  // Sends the mesh's state and changes to the watcher; refuses it with End().
  void WatchMesh(std::shared_ptr<MeshWatcher> watcher);

  // --- the daemon ---

  // From now on, tells clients that watch, or wait for a checkpoint, to try
  // again.
  void RefuseWaiters();

  // Called by a Ticker.
  void Tick();

  // The numbers of workers and jobs, in a line; nothing: the loop does not
  // answer within `patience`.  Blocks up to that.
  std::optional<std::string> Summary(
      absl::Duration patience = absl::Seconds(10));
  // Whether the last transaction was stored.
  bool StoreWorks() const { return store_works_; }
  // The free disk space that ListWorkers() reports.
  void SetFreeBytes(int64_t bytes) { free_bytes_ = bytes; }

 private:
  // Runs after the batch's transaction, with its result.
  using Reply = std::function<void(const absl::Status& stored)>;

  // Posts an event of a worker, the weights store or the ticker.
  void Post(TaskLoop::Task task) { loop_.Post(Counted(std::move(task))); }
  // Posts a client's request, or refuses it at once.
  void PostRequest(const StatusDone& refuse, TaskLoop::Task task);
  TaskLoop::Task Counted(TaskLoop::Task task);
  // Does `work`, and counts its CPU time, without commits, in the metrics.
  void Measure(LoopWork kind, absl::FunctionRef<void()> work);
  absl::Status Commit(const StoreBatch& batch);
  void KeepStore();
  // Loads a stored job that has ended into the brain's memory.
  void Recall(JobId job);
  void NoticeStandstill(Moment moment);
  void EndExports();
  void AfterBatch();
  void UpdateMetrics();
  absl::Status StoreBatchOfBrain();
  void Dispatch(const Actions& actions);
  void DispatchWeights(const Actions::Weights& weights);
  void DispatchCheckpoint(const Actions::Checkpoint& checkpoint);
  void SubmitChecked(const v1::SubmitJobRequest& request,
                     Done<v1::SubmitJobResponse> done);
  // Takes a submission whose placement is made.
  void OnChecked(absl::StatusOr<Submission> submission, bool dry_run,
                 const Done<v1::SubmitJobResponse>& done);
  // As the type; on the thread "planner".
  void PlaceLater(std::weak_ptr<const void> wanted, MakePlacement make,
                  std::function<void(PlacementVerdict)> done);
  void TakePlaced();
  void FailWeights(const Fence& fence, const absl::Status& error) {
    Post([this, fence, error] { brain_.OnWeightsFailed(fence, error, Now()); });
  }
  Moment Now() const {
    return {clock_.Now(), absl::ToUnixMillis(clock_.Today())};
  }

  // Constant after construction.
  const BrainPolicy policy_;
  JobStore& store_;  // the loop's
  WeightsStore& weights_store_;
  CheckpointStore& checkpoints_;
  const Clock& clock_;
  CoordinatorMetrics& metrics_;

  std::atomic<int64_t> next_stream_{1};
  std::atomic<int64_t> queued_{0};
  std::atomic<bool> tick_is_queued_{false};
  std::atomic<bool> store_works_{true};
  std::atomic<int64_t> free_bytes_{-1};  // -1: not known yet

  // The loop's.
  Brain brain_;
  std::map<StreamId, std::shared_ptr<WorkerStream>> streams_;
  std::vector<Reply> replies_;
  // A client that waits for a checkpoint.
  struct Export {
    std::function<bool()> has_left;
    Done<CheckpointId> done;
  };
  std::multimap<JobId, Export> exports_;
  bool refuses_exports_ = false;
  MeshWatch watch_;
  std::string store_error_;    // logged last
  absl::Duration commit_cpu_;  // by all commits
  bool ticked_in_batch_ = false;
  Instant keeps_store_;     // earliest next time
  Instant ticked_;          // when the last tick was taken
  absl::Duration granted_;  // standstill reported since then
  Instant metrics_updated_;

  std::atomic<bool> stopping_{false};
  absl::Mutex placed_mutex_;
  // Results of the planner that the loop has not taken.
  std::vector<TaskLoop::Task> placed_ ABSL_GUARDED_BY(placed_mutex_);
  TaskLoop loop_;
  TaskLoop planner_;
};

}  // namespace paceline
