#include "core/obs/notify.h"

#include <systemd/sd-daemon.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"

namespace paceline {
namespace {

// No status is older than that.
constexpr absl::Duration kLongestPeriod = absl::Seconds(5);

// A quarter of the time after which systemd takes a process for hung that does
// not send WATCHDOG=1, so that one late answer costs nothing yet.
absl::Duration NotifyPeriod() {
  uint64_t micros = 0;
  if (sd_watchdog_enabled(/*unset_environment=*/0, &micros) <= 0) {
    return kLongestPeriod;
  }
  return std::min(absl::Microseconds(micros) / 4, kLongestPeriod);
}

}  // namespace

void NotifySupervisor(absl::string_view state) {
  sd_notify(/*unset_environment=*/0, std::string(state).c_str());
}

std::unique_ptr<Ticker> KeepNotifying(
    std::function<std::optional<std::string>()> status) {
  if (std::getenv("NOTIFY_SOCKET") == nullptr) return nullptr;
  NotifySupervisor(absl::StrCat("READY=1\nSTATUS=", status().value_or("")));
  return std::make_unique<Ticker>(
      "watchdog", NotifyPeriod(), [status = std::move(status)] {
        if (const std::optional<std::string> line = status()) {
          NotifySupervisor(absl::StrCat("WATCHDOG=1\nSTATUS=", *line));
        }
      });
}

}  // namespace paceline
