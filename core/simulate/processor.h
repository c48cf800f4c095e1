// The CPU of one device: its compute thread and the frames that pass.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "core/simulate/quota.h"

namespace paceline {

// Where CPU seconds go.
enum class CpuPart : uint8_t {
  kLoad,
  kForward,
  kBackward,
  kOptimizer,
  kSend,
  kReceive,
};
inline constexpr int kCpuParts = 6;

// Frames are done one after the other, in the order in which they come.  Where
// the CPU is shared they interrupt the compute thread, as the threads of a
// network library do that wake up under a quota; else they have a core of their
// own.  Times are seconds since the begin of the simulation, and never go back.
// Thread-compatible.
class Processor {
 public:
  // A frame whose CPU work is under way.
  struct FrameJob {
    int frame = 0;
    CpuPart part = CpuPart::kSend;
    double start_seconds = 0;
    double due_seconds = 0;
  };

  // A CPU under a quota is always shared.
  explicit Processor(bool shared, Quota quota = {})
      : shared_(shared || quota.limits()), quota_(quota) {}

  // The compute thread is free; begins `seconds` of work.
  void StartWork(CpuPart part, double seconds, double now);
  bool working() const { return working_; }
  // When the work ends, if nothing more comes in between.
  double work_due_seconds() const { return work_due_; }
  double work_start_seconds() const { return work_start_; }
  // Changes whenever an event made for the work has lost its meaning.
  uint32_t work_version() const { return work_version_; }
  // The work has reached its due time.
  void FinishWork();

  // Takes a frame in and returns when it is done, if nothing changes.
  double PushFrame(int frame, CpuPart part, double seconds, double now);
  bool has_frames() const { return !frames_.empty(); }
  // The oldest one, which has reached its due time.
  FrameJob PopFrame();
  const std::deque<FrameJob>& frames() const { return frames_; }
  uint32_t frame_version() const { return frame_version_; }

  // Everything takes `factor` times as long as at first, from now on.  All due
  // times and both versions change.
  void SetFactor(double factor, double now);

  // Everything under way is lost; what was done of it counts.
  void Abandon(double now);

  double busy_seconds(CpuPart part) const {
    return busy_[static_cast<size_t>(part)];
  }
  bool shared() const { return shared_; }

 private:
  void Count(CpuPart part, double seconds) {
    busy_[static_cast<size_t>(part)] += seconds;
  }

  const bool shared_;
  Quota quota_;
  double factor_ = 1;

  std::deque<FrameJob> frames_;
  double frames_clear_ = 0;  // when all of frames_ are done
  uint32_t frame_version_ = 0;

  bool working_ = false;
  CpuPart work_part_ = CpuPart::kLoad;
  double work_start_ = 0;
  double work_due_ = 0;
  double interrupted_ = 0;  // of [work_start_, work_due_], for frames
  uint32_t work_version_ = 0;

  std::array<double, kCpuParts> busy_{};
};

}  // namespace paceline
