// sd_notify(3): tells systemd that the daemon is ready or stopping.
#pragma once

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace paceline {

// Sends `state` ("READY=1", "STOPPING=1", "STATUS=...") to $NOTIFY_SOCKET.
// Does nothing if the variable is not set or no process listens.  Never blocks.
// Thread-safe as long as no thread changes the environment.
void NotifySupervisor(absl::string_view state);

// A quarter of the time after which systemd takes a process for hung that does
// not send WATCHDOG=1; infinite: it does not watch.
absl::Duration WatchdogPeriod();

}  // namespace paceline
