// Runs a schedule on a placement as events, to find the time of a step, the
// waits, the memory in use, and the cost of a failure.  Pure.
//
// Each worker runs its instruction list (core/schedule) on one compute thread.
// A frame's way: CPU of the sender, credit of its boundary, the sender's port,
// the link, the receiver's port, CPU of the receiver.  See README.md for what
// is simulated how, and what is not.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/plan/cost.h"
#include "core/plan/problem.h"
#include "core/simulate/simulation.h"

namespace paceline {

// A device computes more slowly for a while: everything on its CPU takes
// `factor` times as long; its network does not change.  Several at once
// multiply.
struct SimulatedSlowDown {
  double at_seconds = 0;  // since the first step began
  int device = 0;         // index into PlanProblem::devices
  double factor = 1;      // at least 1; 2: half as fast
  double for_seconds = std::numeric_limits<double>::infinity();
};

// A device is gone.  All that the step had done is lost.
struct SimulatedFailure {
  double at_seconds = 0;
  int device = 0;
  // After this time the device or a stand-in is there, and all workers run the
  // step again from its start.  Without: the simulation ends at the failure.
  std::optional<double> recover_after_seconds = std::nullopt;
};

// A device may compute `share` of every period, at full speed, and then stops
// until the next one (containers, CPUQuota= of systemd).  Frames' CPU counts.
struct CpuQuota {
  double share = 1;           // above 0; 1: no quota
  double period_seconds = 0;  // 0: no quota
};

struct SimulationOptions {
  std::string schedule = "1f1b";  // one of ScheduleNames()
  bool vertical_sync = false;     // pipedream
  int steps = 1;
  // [stages], on a device of speed 1, of each update (of a step; pipedream: of
  // a micro-batch); empty: none.
  std::vector<double> optimizer_seconds;
  // From the last report to the verdict, each step; pipedream has no gate.
  double gate_seconds = 0;
  double load_seconds = 0;  // of the first stage, for each micro-batch
  // [devices]; empty: none.  Where there is one, PlanProblem's times of the
  // device are CPU times at full speed.
  std::vector<CpuQuota> quotas;
  // Frames sent and not yet received, of one boundary, direction and pair of
  // workers.  0: as the data plane grants them, which holds nothing back
  // inside a batch.
  int credit_frames = 0;
  // Devices of one machine (Device::machine) share a port for frames to and
  // from other machines; else each has one of its own.
  bool machine_ports = false;
  int64_t micro_batch_samples = 0;  // 0: not known
  std::vector<SimulatedSlowDown> slow_downs;
  std::vector<SimulatedFailure> failures;
  bool keep_trace = false;
};

// One device's seconds from begin to end.  For a device that is used:
//   load + forward + backward + optimizer + send + receive + wait =
//   SimulationResult::seconds
struct DeviceUse {
  bool used = false;
  std::vector<int> stages;  // that it holds, ascending
  double load_seconds = 0;
  double forward_seconds = 0;
  double backward_seconds = 0;
  double optimizer_seconds = 0;
  double send_seconds = 0;     // CPU of frames that leave
  double receive_seconds = 0;  // CPU of frames that come
  double wait_seconds = 0;     // the compute thread has nothing to do
  double egress_seconds = 0;   // its port was sending
  double ingress_seconds = 0;  // its port was receiving
  int64_t frames_sent = 0;     // that left the port; with the replicas' parts
  int64_t frames_received = 0;
  double bytes_sent = 0;
  double bytes_received = 0;
  // Parameters and their copies, versions of them that forwards in flight have
  // used, the reserve, what is kept for backward, and frames: a sender holds
  // one until it is received, a receiver until the compute that uses it has
  // ended.
  double peak_bytes = 0;
};

// The track of a slice of the trace.
enum class TraceTrack : uint8_t { kCompute, kFrames, kLink };

struct TraceSlice {
  double begin_seconds = 0;
  double seconds = 0;
  int device = 0;
  int peer = -1;  // kLink: the device that it goes to
  TraceTrack track = TraceTrack::kCompute;
  // For people: an instruction's operation, STEP for every update; of a frame
  // F (an activation), B (a gradient) or part (of the replicas' exchange).
  absl::string_view what = "LOAD";
  bool receives = false;  // kFrames: the CPU is the receiver's
  int stage = 0;
  int micro_batch = 0;  // of a part: its round
  int step = 0;
};

// Memory of `device` from here on.
struct MemorySample {
  double at_seconds = 0;
  int device = 0;
  double bytes = 0;
};

// In the order in which slices ended and memory changed.
struct SimulationTrace {
  std::vector<TraceSlice> slices;
  std::vector<MemorySample> memory;
  int64_t dropped = 0;  // beyond kMaxTraceEntries
};

struct SimulationResult {
  double seconds = 0;  // from the begin to the last step's end, or the failure
  std::vector<double> all_step_seconds;  // of each step that was finished
  // Mean of the steady steps: all but the first when there are more; 0 when
  // no step was finished.
  double step_seconds = 0;
  double micro_batches_per_second = 0;  // of steady steps
  double samples_per_second = 0;        // 0: micro_batch_samples not known
  // 1 - busy / (devices used x seconds); busy is what a device's CPU did, with
  // frames.
  double bubble_share = 0;
  std::vector<DeviceUse> devices;  // [devices]

  // Micro-batches of a step that was not finished which were done on all
  // stages.
  int64_t unfinished_micro_batches = 0;
  int restarts = 0;         // steps begun again after a failure
  double lost_seconds = 0;  // from the begin of such a step to its new begin
  std::optional<int> failed_device;  // that ended the simulation

  SimulationTrace trace;  // empty unless asked for
};

// stages x micro-batches x steps.
inline constexpr int64_t kMaxSimulatedCells = int64_t{1} << 24;
inline constexpr int64_t kMaxTraceEntries = int64_t{1} << 21;

// Simulates options.steps steps of problem.micro_batches micro-batches each
// (training: with the step gate and the optimizer, or under pipedream without a
// gate and without a flush between steps, so that only the last one runs empty;
// else batches of forwards back to back).  A device may stand in several stages
// of `placement` as long as each of these has no other: then its worker holds
// them all.
//
// Same arguments, same answer.  O(n log w) of n = stages x micro-batches x
// steps and w workers; a million cells take about a second, and 250 bytes each.
//
// Errors: InvalidArgument  CheckProblem's and MakeSchedule's; no micro-batches;
//         not a placement of this problem; an option of the wrong size or that
//         is negative or not finite; a slow-down or failure of a device that
//         there is not; more than kMaxSimulatedCells
//         FailedPrecondition  no devices
absl::StatusOr<SimulationResult> Simulate(const PlanProblem& problem,
                                          const Placement& placement,
                                          const SimulationOptions& options);

// Returns a trace as text that ui.perfetto.dev and chrome://tracing open:
// Chrome's "Trace Event Format" (JSON object form): a process a device, a
// thread a track (compute; frames: CPU work of frames; one for each link), a
// complete event a slice, a counter for memory.  Slices are named "F 3"
// (forward of micro-batch 3), "B 3", "LOAD 3", "STEP", "send F 3", "receive B
// 3", "part 0"; on links "F 3", "B 3", "part 0".  Time stamps are microseconds
// since the begin and never go back.  About 150 bytes a slice.
std::string TraceText(const PlanProblem& problem, const SimulationTrace& trace);

}  // namespace paceline
