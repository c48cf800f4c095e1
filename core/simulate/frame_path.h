// A frame's way from one worker to another: CPU of the sender, credit, ports
// and link, CPU of the receiver.  And the frames at the end of a step.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "core/simulate/world.h"

namespace paceline {

enum class SimFrameKind : uint8_t { kActivation, kGradient, kPart };

struct SimFrame {
  SimFrameKind kind = SimFrameKind::kActivation;
  int stage = 0;        // that receives it
  int micro_batch = 0;  // of a part: 1 where it is a sum
  int from = 0;         // workers
  int to = 0;
  double bytes = 0;
  int step = 0;
  int channel = -1;  // -1: no credit needed
  double link_begin_seconds = 0;
  double link_seconds = 0;
};

// Frames are numbered; a number is used again after Drop().  Thread-compatible.
class FramePath {
 public:
  // world: outlives the path.
  explicit FramePath(World& world);

  // Begins the way of `frame`, of which kind, stage, micro_batch, from, to and
  // bytes are set.
  int Send(SimFrame frame);

  // Reactions to the events of the same names.  They return a frame that has
  // come to its receiver: the caller hands it over and calls Drop().
  std::optional<int> OnFrameCpuDue(int worker, uint32_t version);
  void OnReachPort(int frame);
  std::optional<int> OnArrived(int frame);
  // Returns the worker that may send one frame more.
  int OnCredit(int channel);

  const SimFrame& at(int frame) const { return frames_[frame]; }
  void Drop(int frame) { unused_.push_back(frame); }

  // A receive took the frame of this micro-batch over the boundary before
  // `stage` (gradients: after it): the sender hears of it.
  void OnConsumed(SimFrameKind kind, int stage, int micro_batch);

  // Whether a batch of forwards may begin: every other worker that `stage`
  // sends to has room for the batch, or for half of its credit.
  bool HasRoomForBatch(int stage, int worker) const;

  // All frames are lost.
  void Clear();

 private:
  // Frames of one boundary and direction between two workers.
  struct Channel {
    int from = 0;
    int to = 0;
    int batch_frames = 0;  // of one batch
    int on_the_way = 0;    // sent, and not known to be received
    std::deque<int> waiting;
  };

  int ChannelOf(SimFrameKind kind, int stage, int micro_batch) const;
  void Depart(int frame);
  double CpuSeconds(int worker, double bytes) const;
  void PushFrameCpu(int worker, int frame, CpuPart part);

  World& world_;
  std::vector<SimFrame> frames_;
  std::vector<int> unused_;

  // Empty where credit holds nothing back.  By boundary, replica before it,
  // replica after it, direction.
  std::vector<Channel> channels_;
  std::vector<int> first_channel_;  // [boundaries]
  int credit_frames_ = 0;
};

// Ends a training step: replicas sum their gradients, every worker reports to
// the step gate and hears the verdict.
//
// Each of m replicas sends 1 / m of its gradient to every other one, and then
// the sum of what it gets back, as frames through the same ports as all others
// (worker/pipeline/step_exchange.h).  It sends to the next one first, so
// that no two come to one port; real streams run at the same time.  Then each
// worker reports to the first stage's first worker, one latency away; with all
// reports in and gate_seconds later the verdict goes back.  Thread-compatible.
class StepEnd {
 public:
  // Both outlive this.
  StepEnd(World& world, FramePath& path);

  // A worker has computed all of its step.
  void OnComputed(int worker);
  // A part has come to its receiver.
  void OnPart(const SimFrame& part);
  // Reaction to kReport.
  void OnReport();

  // The step begins again.
  void Clear();

 private:
  struct Exchange {
    int stage = 0;
    int others = 0;  // 0: no replicas
    bool computed = false;
    bool summed = false;
    int parts = 0;  // received
    int sums = 0;   // received

    void Begin() {
      computed = summed = false;
      parts = sums = 0;
    }
  };

  void GoOn(int worker);
  void SendToOthers(int worker, bool sum);

  World& world_;
  FramePath& path_;
  std::vector<Exchange> exchanges_;  // [workers]
  int reports_ = 0;
};

}  // namespace paceline
