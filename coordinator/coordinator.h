// The coordinator without its network: carries events to the brain, and what
// the brain decides to the store, the weights store and the workers' streams.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/brain.h"
#include "coordinator/checkpoint_store.h"
#include "coordinator/job_store.h"
#include "coordinator/mesh_watch.h"
#include "coordinator/metrics.h"
#include "coordinator/records.h"
#include "coordinator/weights_store.h"
#include "core/base/clock.h"
#include "core/base/task_loop.h"

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
  // Whoever ended it, and before OnBroken() is called.
  virtual bool ended() const = 0;
  // The other end of its connection, as gRPC writes it; empty: not known.
  virtual std::string peer() const { return ""; }
};

// In one answer, so that it fits into a message however long a job was, and is
// made in a few milliseconds.
inline constexpr int64_t kMostPoints = 2000;
inline constexpr int64_t kMostEvaluations = 1000;
inline constexpr int64_t kMostEvents = 1000;
inline constexpr int64_t kDefaultLogLines = 1000;
inline constexpr int64_t kMostJobs = 100;
inline constexpr int64_t kMostWorkers = 1000;

// Thread-safe; no call blocks.  One loop thread, "brain", owns the Brain and
// the store.  It takes what was posted as one batch: the brain decides, one
// transaction stores, and only then do answers, acknowledgements and orders go
// out.  So nobody ever hears of what a crash could undo.
//
// Every `done` is called exactly once, from the loop; or at once with
// Unavailable when so many requests of clients wait that a further one is
// refused.  What workers, the weights store and the ticker say is never
// refused: each of them has one thing under way.  A transaction that fails is
// tried again with the next batch; who waited for it is told the store's error.
class Coordinator {
 public:
  template <typename T>
  using Done = std::function<void(absl::StatusOr<T>)>;
  using StatusDone = std::function<void(absl::Status)>;

  // `stored` is what store.Load() gave.  All references outlive this.
  Coordinator(const BrainPolicy& policy, StoredState stored, JobStore& store,
              WeightsStore& weights_store, CheckpointStore& checkpoints,
              const Clock& clock, CoordinatorMetrics& metrics);
  ~Coordinator();  // Stop()

  // Ends the loop after what was posted.  After the network was shut down: what
  // is said afterwards is dropped.
  void Stop();

  // --- workers' streams ---

  // The id of the next stream; its owner names it in every call.
  StreamId NextStream() { return StreamId{next_stream_.fetch_add(1)}; }

  // Shared by its reactor, which lives as long as gRPC says, and by this, as
  // long as it may still send over it.  One that has ended by the time of its
  // turn is told Cancelled, and changes nothing.
  void Attach(StreamId id, std::shared_ptr<WorkerStream> stream,
              v1::Registration registration, Done<v1::Welcome> done);
  void OnReport(StreamId id, WorkerReport report, StatusDone done);
  void OnBroken(StreamId id);

  // --- weights ---

  // Whether the worker at the other end of a connection may hand over some of
  // the job's result: it has a stage.
  //   peer  of the connection, as WorkerStream has it
  // Errors: Aborted           another run is under way
  //         Unavailable       no worker is attached over it: try again later
  //         PermissionDenied  the worker has no stage of the job
  void AdmitUpload(const Fence& fence, const std::string& peer,
                   StatusDone done);
  // As WeightsStore; what makes the weights of a job impossible also fails it.
  void WriteWeights(v1::WeightsPiece piece, StatusDone done);
  void SyncWeights(const Fence& fence, StatusDone done);

  // step: of the checkpoint; 0: the result, else the newest checkpoint, which
  // is made where the job trains.  has_left: asked while that is made, whether
  // nobody wants it any more.
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
  // Newest first, without curves and with the last evaluation only.
  void ListJobs(const v1::ListJobsRequest& request,
                Done<v1::ListJobsResponse> done);
  // With kMostEvaluations at most, or what the request names in order.
  void GetJob(const v1::GetJobRequest& request, Done<v1::Job> done);
  // The next kMostEvents at most; none: that is all so far.
  void GetEvents(const v1::GetEventsRequest& request,
                 Done<v1::GetEventsResponse> done);
  void GetLogs(const v1::GetLogsRequest& request,
               Done<v1::GetLogsResponse> done);
  void ListWorkers(const v1::ListWorkersRequest& request,
                   Done<v1::ListWorkersResponse> done);
  // Errors: NotFound.
  void Drain(const std::string& worker, bool drain, Done<v1::Worker> done);
  // Errors: NotFound; FailedPrecondition  it is there, or a job waits for it.
  void Forget(const std::string& worker, Done<v1::Worker> done);
  void StartProfile(const v1::StartProfileRequest& request,
                    Done<v1::StartProfileResponse> done);
  void GetProfile(const v1::GetProfileRequest& request,
                  Done<v1::GetProfileResponse> done);
  void ListMeasurements(const v1::ListMeasurementsRequest& request,
                        Done<v1::ListMeasurementsResponse> done);

  // --- tokens ---

  // As Tokens.
  void CreateToken(const v1::CreateTokenRequest& request, const std::string& id,
                   const std::string& secret_sha256, Done<v1::JoinToken> done);
  void UseToken(const TokenUse& use, StatusDone done);
  void CheckKey(const std::string& name, const std::string& key,
                StatusDone done);
  void RevokeToken(const std::string& id, Done<v1::JoinToken> done);
  void ListTokens(const v1::ListTokensRequest& request,
                  Done<v1::ListTokensResponse> done);
  // As Brain::OnRevoke().
  // at_once: called before the revocation is stored.
  void Revoke(const v1::RevokeRequest& request,
              std::function<void(const v1::Revocation&)> at_once,
              Done<v1::Revocation> done);

  // Tells the watcher of the mesh from now on; refuses it with End().
  void WatchMesh(std::shared_ptr<MeshWatcher> watcher);

  // --- the daemon ---

  // Clients that wait for a checkpoint or watch are told to try again, from now
  // on.
  void RefuseWaiters();

  // Time has passed; from a Ticker.
  void Tick();

  // Whether the loop answers within `patience`; blocks up to that.
  bool Answers(absl::Duration patience);
  // How many workers and jobs there are, in a line; nothing: the loop does not
  // answer.  Blocks up to ten seconds.
  std::optional<std::string> Summary();
  // Whether the last transaction was stored.
  bool StoreWorks() const { return store_works_; }
  // ListWorkers() tells it.
  void SetFreeBytes(int64_t bytes) { free_bytes_ = bytes; }

 private:
  // Runs after the batch's transaction, with its result.
  using Reply = std::function<void(const absl::Status& stored)>;

  // Posts what workers, the weights store or the ticker say.
  void Post(TaskLoop::Task task);
  // Posts a client's request, or refuses it at once.
  void PostRequest(const StatusDone& refuse, TaskLoop::Task task);
  TaskLoop::Task Counted(TaskLoop::Task task);
  // Does `work`, and tells the metrics of the CPU time that it took, without
  // commits.
  void Measure(LoopWork kind, absl::FunctionRef<void()> work);
  absl::Status Commit(const StoreBatch& batch);
  void KeepStore();
  // Has a job that has ended in the brain's memory, where it is stored.
  void Recall(JobId job);
  // Posts a client's question that `ask` answers after the batch is stored.
  template <typename T>
  void Ask(Done<T> done, std::function<absl::StatusOr<T>()> ask);
  // Posts what a client wants changed.  The answer is that of `change`, once
  // it is stored.
  template <typename T>
  void Change(Done<T> done, std::function<absl::StatusOr<T>()> change);
  void NoticeStandstill(Moment moment);
  // Ends the exports of clients that have left.
  void EndExports();
  void AfterBatch();
  void UpdateMetrics();
  absl::Status StoreBatchOfBrain();
  void Dispatch(const Actions& actions);
  void DispatchWeights(const Actions::Weights& weights);
  void DispatchCheckpoint(const Actions::Checkpoint& checkpoint);
  void SubmitChecked(const v1::SubmitJobRequest& request,
                     Done<v1::SubmitJobResponse> done);
  void FailWeights(const Fence& fence, const absl::Status& error);
  Moment Now() const;

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
  // A client waits for a checkpoint.
  struct Export {
    std::function<bool()> has_left;
    Done<CheckpointId> done;
  };
  std::multimap<JobId, Export> exports_;
  bool refuses_exports_ = false;
  MeshWatch watch_;
  std::string store_error_;    // last one logged
  absl::Duration commit_cpu_;  // of all commits
  bool ticked_in_batch_ = false;
  Instant keeps_store_;     // not before
  Instant ticked_;          // when the last tick was taken
  absl::Duration granted_;  // as a standstill, since then
  Instant metrics_updated_;

  TaskLoop loop_;
};

}  // namespace paceline
