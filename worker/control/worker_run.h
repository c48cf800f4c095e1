// A run of a standing order, as the agent sees it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/cluster/eviction.h"
#include "core/cluster/run_order.h"
#include "core/model/description.h"
#include "core/os/thread.h"
#include "worker/control/run_factory.h"
#include "worker/control/run_recorder.h"
#include "worker/meters/time_meter.h"
#include "worker/pipeline/piece_store.h"
#include "worker/rounds/faults.h"
#include "worker/rounds/parts/round_event_log.h"

namespace paceline {

// The parts that a run is made from.  All borrowed parts outlive the run.
struct RunContext {
  RunOrder order;  // checked, for this model and worker
  ModelDescription model;
  WorkerId self;
  RunFactory& factory;
  const Clock& clock;
  TimeMeter& time;
  RunRecorder& recorder;
  const CancelToken& cancel;              // told before Cancel() is called
  int64_t memory_bytes = 0;               // of this worker; 0: not known
  FaultActions* fault_actions = nullptr;  // round groups have them
  // Has the process execute itself anew, at that CPU capability.
  std::function<void(const std::string& capability)> restart;
  // Both or none: without them no state is kept, and no run begins with one.
  PieceStore* pieces = nullptr;
  PieceExchange* exchange = nullptr;
  // When a coordinator that computes the job's floor acknowledged something
  // last.
  std::function<Instant()> acknowledged = nullptr;
};

// Made and destroyed on the compute thread, while no other thread uses it;
// otherwise thread-safe.  Connections that it opened stay open until it is
// destroyed, so that neighbours can ask again.
class WorkerRun {
 public:
  virtual ~WorkerRun() = default;

  // Runs to the end.  The first error of an engine, a neighbour, the data or
  // the coordinator ends it; Cancelled where somebody wanted that.
  virtual absl::Status Run() = 0;
  // Ends every wait of Run() with `why`.
  virtual void Cancel(const absl::Status& why) = 0;
  // The order wants the walk to end with the batch that it is at.
  virtual void OnStop() {}
  // After Run(), on the compute thread: closes what it opened, and says what it
  // keeps nevertheless.  Nothing: it is of no use any more.
  virtual std::optional<v1::KeptState> Leave() { return std::nullopt; }
  // After Leave(): applies the step that another worker has applied, if this
  // one holds its sum.  On the compute thread.  Returns what it keeps now.
  virtual v1::KeptState Finish(const FinishOrder& /*finish*/) { return {}; }
  // The standing order's group, whole: the newest.
  virtual void OnGroup(const GroupOrder& /*group*/) {}
  // The report of a member of a round group.  Stages of a pipeline say which of
  // their neighbours are out of reach, and in `turn` whether they compute.
  virtual std::optional<MemberReport> Member() const { return std::nullopt; }
  virtual RoundReading Rounds() const { return {}; }
  // As Link::SentBytes().
  virtual std::map<WorkerId, int64_t> SentBytes() const { return {}; }
};

// Stages of a pipeline; trains or infers.
std::unique_ptr<WorkerRun> MakePipelineRun(RunContext context);
// A member of a round group: data parallelism.
std::unique_ptr<WorkerRun> MakeGroupRun(RunContext context);

// Makes an engine, with a teacher where the job has one, and with the weights
// of the job's file if the run begins with them, whose origin it tells.
absl::StatusOr<std::unique_ptr<StageEngine>> MakeRunEngine(
    const RunContext& run, EngineOptions options, WeightsOrigin& origin);

// Opens the data of the run and notes what was found in it.  Adds its memory to
// the prediction, and its fingerprints to `inputs`.
//   origin  of the weights that the run begins with; empty: none
// Errors: those of RunFactory::OpenData(), PredictWithData(), CheckClasses()
//         and TakeInputs(); InvalidArgument  the order begins behind the end
absl::StatusOr<v1::NameBytes> OpenRunData(const RunContext& run,
                                          const WeightsOrigin& origin,
                                          v1::Inputs& inputs,
                                          std::unique_ptr<BatchSource>& source);

// Engines by the first of their layers.
using StageEngines = std::map<int, StageEngine*>;

// Reads the fingerprints of the weights file and the teacher's, as far as the
// run reads these, into `inputs`.
absl::Status ReadWeightInputs(const RunContext& run, v1::Inputs& inputs);
// Others than the job began with must not reach the first step.
absl::Status TakeInputs(const RunContext& run, const v1::Inputs& inputs);

// Fetches the engines' pieces of `cut`.
// Errors: Unimplemented  this worker keeps no pieces
//         those of PieceExchange::Gather()
absl::StatusOr<std::vector<PiecePtr>> FetchCut(
    const RunContext& run, const StageEngines& engines, Cut cut,
    const std::vector<PieceSource>& sources);
// Brings the engines to the base of the order, which has one, and deposits it
// under the order's attempt.  Errors: those of FetchCut()
absl::Status RestoreBase(const RunContext& run, const StageEngines& engines);
// Copies the state, which has `step` steps.
std::vector<PiecePtr> CopyState(const RunContext& run,
                                const StageEngines& engines, int64_t step);

// Hands the engine's weights over to the coordinator.
absl::Status UploadWeights(const RunContext& run, StageEngine& engine);

}  // namespace paceline
