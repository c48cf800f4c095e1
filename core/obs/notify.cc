#include "core/obs/notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "absl/strings/numbers.h"

namespace paceline {
namespace {

// The address that sd_notify(3) describes: a path, or '@' and an abstract
// name.  False when `name` is neither or too long.
bool ParseSocketName(absl::string_view name, sockaddr_un* address,
                     socklen_t* length) {
  if (name.size() < 2 || (name[0] != '/' && name[0] != '@')) return false;
  if (name.size() >= sizeof(address->sun_path)) return false;
  *address = {};
  address->sun_family = AF_UNIX;
  std::memcpy(address->sun_path, name.data(), name.size());
  if (name[0] == '@') address->sun_path[0] = '\0';
  *length =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  return true;
}

}  // namespace

void NotifySupervisor(absl::string_view state) {
  const char* name = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address;
  socklen_t length = 0;
  if (name == nullptr || !ParseSocketName(name, &address, &length)) return;
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return;
  // A supervisor that does not read is its own trouble: nothing to do about an
  // error here.
  (void)sendto(fd, state.data(), state.size(), MSG_NOSIGNAL,
               reinterpret_cast<const sockaddr*>(&address), length);
  close(fd);
}

absl::Duration WatchdogPeriod() {
  const char* const text = std::getenv("WATCHDOG_USEC");
  int64_t micros = 0;
  if (text == nullptr || !absl::SimpleAtoi(text, &micros) || micros < 1) {
    return absl::InfiniteDuration();
  }
  return absl::Microseconds(micros) / 4;
}

}  // namespace paceline
