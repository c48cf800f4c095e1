// What all parts of a plane (of data, of rounds) use: counters, timers,
// options.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "core/rpc/stranger_limit.h"
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
  std::atomic<int64_t> bytes_borrowed{0};  // of those received
  std::atomic<double> codec_error{0};
};

// Thread-safe.  Shared by the DataPlane and by the streams, which gRPC may
// keep for a moment longer; DataPlane::Shutdown() stops the timers.  The first
// one tells the allocator of the process to keep freed memory.
struct PlaneShared {
  explicit PlaneShared(const DataPlaneOptions& o,
                       std::string thread_name = "data-plane");

  const DataPlaneOptions options;
  PlaneCounters counters;
  StrangerLimit strangers;
  CallChannels channels;
  TimerThread timers;
};

}  // namespace paceline
