// What all parts of the data plane use: counters, timers, options.
#pragma once

#include <atomic>
#include <cstdint>

#include "worker/rpc/call_channels.h"
#include "worker/rpc/data_plane.h"
#include "worker/rpc/timer_thread.h"

namespace paceline {

// Thread-safe.
struct PlaneCounters {
  std::atomic<int64_t> frames_sent{0};
  std::atomic<int64_t> bytes_sent{0};
  std::atomic<int64_t> frames_received{0};
  std::atomic<int64_t> bytes_received{0};
  std::atomic<int64_t> frames_dropped_old{0};
  std::atomic<int64_t> frames_dropped_duplicate{0};
  std::atomic<int64_t> frames_refused{0};
  std::atomic<int64_t> checksum_errors{0};
  std::atomic<int64_t> reconnects{0};
  std::atomic<double> codec_error{0};
};

// Thread-safe.  Shared by the DataPlane and by the streams, which gRPC may
// keep for a moment longer; DataPlane::Shutdown() stops the timers.
struct PlaneShared {
  explicit PlaneShared(const DataPlaneOptions& o) : options(o) {}

  const DataPlaneOptions options;
  PlaneCounters counters;
  CallChannels channels;
  TimerThread timers{"data-plane"};
};

}  // namespace paceline
