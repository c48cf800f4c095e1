// The interpreter of instruction lists, in simulated time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/schedule/asynchronous.h"
#include "core/simulate/frame_path.h"
#include "core/simulate/world.h"

namespace paceline {

// Thread-compatible; runs once.
class Runner {
 public:
  // All outlive the runner; they have passed the simulator's checks.
  Runner(const PlanProblem& problem, const SimulationOptions& options,
         const Program& program, const std::vector<StageWork>& stages);

  // Errors: InvalidArgument  no worker can go on: credit is too small for
  //                          transfers that stop the senders.
  absl::StatusOr<SimulationResult> Run();

 private:
  enum class Wait : uint8_t {
    kNothing,   // works, or is at the end
    kRoom,      // before a batch
    kFrame,     // for the frame of its next instruction
    kDelivery,  // until what it sent is there (no overlap)
    kVerdict,
  };

  struct WorkerState {
    size_t next = 0;  // instruction
    int replica = 0;
    int steps_reported = 0;  // of its stages, in this step
    Wait wait = Wait::kNothing;
    bool finished = false;
  };

  void PushPlannedEvents();
  void React(const SimEvent& event);

  // Runs a worker's instructions until one takes time.
  void Proceed(int worker);
  // True when the next instruction can follow at once.
  bool Execute(int worker, const Instruction& instruction);
  bool HasRoom(int worker);
  bool Receive(int worker, const Instruction& instruction);
  bool Send(int worker, const Instruction& instruction);
  bool EndStep(int worker);
  void StartWork(int worker, CpuPart part, double seconds);
  void OnWorkDue(int worker, uint32_t version);
  void TraceWork(int worker);  // the part of its work that is done
  void OnForwardDone(int worker, const Instruction& instruction);
  void OnInputGradientDone(int worker, int stage);
  void OnWeightGradientDone(int worker, int stage, bool split);
  // After any instruction that took time.
  void OnDone(int worker, const Instruction& done);
  void FollowVersions(int worker, const Instruction& done);
  void OnVerdict(int worker);
  void OnListDone(int worker);
  void OnStepDone(int worker);
  void HandOver(int frame);

  void OnSlow(int device);
  void OnFail(const SimulatedFailure& failure);
  void OnRecover();

  bool IsLocal(int stage, int other_stage, int micro_batch) const;
  uint32_t& Arrived(SimFrameKind kind, int stage, int micro_batch);
  int WorkerOfDevice(int device) const;
  // Seconds of a stage on one of its workers, from a table by replica.
  double SecondsOf(const std::vector<double>& by_replica, int worker) const {
    return by_replica[workers_[worker].replica];
  }
  SimulationResult Summarize();

  World world_;
  FramePath path_;
  StepEnd step_end_;
  std::vector<WorkerState> workers_;
  std::vector<uint32_t> arrived_;         // by stage, micro-batch, kind
  std::vector<bool> slow_now_;            // [slow-downs]
  std::vector<VersionCounter> versions_;  // [workers]; no stream: empty

  std::vector<int> workers_done_;  // [steps]
  std::vector<double> step_ends_;
  double step_began_ = 0;
  double attempt_began_ = 0;  // of the step; later, after a failure
  int64_t micro_batches_done_ = 0;
  int recoveries_due_ = 0;
  bool stopped_ = false;
  SimulationResult result_;
};

}  // namespace paceline
