// Keeps gRPC's waits with a time on the monotonic clock.
//
// gRPC 1.51 reckons by the monotonic clock, but it waits with Abseil's
// condition variables, and Debian 12's sleep until a time of day.  When
// somebody sets the clock back by an hour, the thread that runs gRPC's timers
// sleeps for an hour more: no keepalive, no deadline of a call, no dial after a
// backoff, no certificate that is read again (tests/process/clock_test.py).
//
// A program's own functions replace those of the libraries: see grpc_waits.cc.
#pragma once

namespace paceline {

// Says whether gRPC calls this program's waits.
bool GrpcWaitsSteadily();

}  // namespace paceline
