#include "client/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace paceline {

void GuardStandardStreams() {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO;
       ++descriptor) {
    if (fcntl(descriptor, F_GETFD) != -1 || errno != EBADF) continue;
    // Open for the other direction, so that using it is still EBADF.  The
    // lowest free number is this one.
    const int mode = descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    if (open("/dev/null", mode) != descriptor) return;
  }
}

}  // namespace paceline
