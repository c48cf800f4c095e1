// sd_notify(3): tells systemd that the daemon is ready or stopping.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "core/os/thread.h"

namespace paceline {

// Sends `state` ("READY=1", "STOPPING=1", "STATUS=...") to $NOTIFY_SOCKET.
// Does nothing if the variable is not set or no process listens.
// Thread-safe as long as no thread changes the environment.
void NotifySupervisor(absl::string_view state);

// Says that the daemon is ready and, every few seconds, that it works and what
// it does.  Null where no supervisor listens.
//   status  a line for systemctl status; nothing: the daemon hangs, and systemd
//           kills it (WatchdogSec=).  Called on a thread of its own.
std::unique_ptr<Ticker> KeepNotifying(
    std::function<std::optional<std::string>()> status);

}  // namespace paceline
