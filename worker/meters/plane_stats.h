#pragma once

#include <cstdint>

namespace paceline {

// The traffic of a data plane since the process started.
struct PlaneStats {
  int64_t frames_sent = 0;
  int64_t bytes_sent = 0;  // of payload
  int64_t frames_received = 0;
  int64_t bytes_received = 0;
  int64_t frames_dropped_old = 0;        // of an older fence, or forgotten
  int64_t frames_dropped_duplicate = 0;  // sent again after a break
  int64_t frames_refused = 0;            // no peer of this run would send them
  int64_t checksum_errors = 0;           // or sequence: the sender starts over
  int64_t reconnects = 0;                // streams opened again after a break
  // |x - what arrives| / |x| of the last frame that was looked at; 0: raw.
  double codec_error = 0;
};

}  // namespace paceline
