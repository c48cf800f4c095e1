// The CPU of one device: its compute thread, the frames that pass, and the
// quota that may stop both.  Ports and links between devices.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "core/plan/problem.h"

namespace paceline {

// Pieces of use come one after the other: each begins when it asks, or at the
// end of the one before.  Thread-compatible.
class Quota {
 public:
  // No quota.
  Quota() = default;
  // share: CPU seconds a second, in (0, 1].  period_seconds > 0.
  // phase_seconds: when a period begins.
  Quota(double share, double period_seconds, double phase_seconds)
      : budget_(share * period_seconds),
        period_(period_seconds),
        phase_(phase_seconds) {}

  bool limits() const { return period_ > 0; }

  // Takes `seconds` of CPU, asked for now; when they are used up.  Calls must
  // not go back in time.
  double Take(double now, double seconds);

  // When `seconds` would be used up that go before everything taken and not
  // yet used.  Changes nothing.
  double Peek(double now, double seconds) const;

  // Nothing that was taken is used beyond now.
  void Forget(double now) {
    if (now < end_) end_ = now;
  }

 private:
  // Returns what is used of the present period, at `at`.
  double UsedAt(double at) const;
  double PeriodBegin(double at) const;
  double Walk(double from, double used, double seconds) const;

  double budget_ = 0;  // a period
  double period_ = 0;  // 0: no quota
  double phase_ = 0;

  // The present stretch without a pause, and what its first period had used
  // before.
  double base_ = 0;
  double base_used_ = 0;
  double end_ = 0;
};

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

// Frames are done one after the other, in the order in which they come.  They
// interrupt the compute thread, as the threads of a network library do.  Times
// are seconds since the begin of the simulation, and never go back.
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

  explicit Processor(Quota quota = {}) : quota_(quota) {}

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

 private:
  void Count(CpuPart part, double seconds) {
    busy_[static_cast<size_t>(part)] += seconds;
  }

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

// A device has one port for all its links, which sends and receives at the same
// time: the rate of a port and direction is that of its fastest link.  Frames
// pass one at a time, whole, in the order in which they come to the port; a
// frame for a slower link leaves the port at the port's rate and then trickles
// over the link, so that it does not hold up frames for others.  Alone, a frame
// takes bytes / bandwidth of its link + latency.  Thread-compatible.
class Network {
 public:
  // problem: CheckProblem is OK; outlives the network.  O(devices^2).
  // machine_ports: SimulationOptions has it.
  explicit Network(const PlanProblem& problem, bool machine_ports = false);

  struct Departure {
    double begin_seconds = 0;  // on the link
    double end_seconds = 0;
    // When the frame asks for the receiver's port.
    double reach_seconds = 0;
  };
  // A frame comes to the sender's port now.  Calls must not go back in time.
  Departure Send(int from, int to, double bytes, double now);

  // A frame asks for the receiver's port now; returns when all of it is there.
  double Receive(int from, int to, double bytes, double now);

  double latency_seconds(int from, int to) const {
    return from == to ? 0 : problem_.links[from][to].latency_seconds;
  }
  double egress_seconds(int from, int to, double bytes) const {
    return bytes / out_[PortOf(from, to)].bytes_per_second;
  }
  double ingress_seconds(int from, int to, double bytes) const {
    return bytes / in_[PortOf(to, from)].bytes_per_second;
  }

  // Nothing is under way any more.
  void Clear();

 private:
  struct Port {
    double bytes_per_second = 0;
    double free_seconds = 0;
  };
  struct BusyLink {
    int to = 0;
    double free_seconds = 0;
  };

  // The port that `device` has for frames to and from `other`.
  size_t PortOf(int device, int other) const {
    const int machine = problem_.devices[device].machine;
    const bool far =
        machine_ports_ && machine != problem_.devices[other].machine;
    return far ? problem_.devices.size() + machine : device;
  }

  const PlanProblem& problem_;
  const bool machine_ports_;
  // [devices], and behind them [machines] where they have ports.
  std::vector<Port> out_;
  std::vector<Port> in_;
  // [devices]: the links that were used; a device sends to few.
  std::vector<std::vector<BusyLink>> links_;
};

}  // namespace paceline
