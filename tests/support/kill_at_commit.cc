// A library to preload into a coordinator.  The file that KILL_AT_COMMIT names
// holds a number n: the process dies when the n-th commit from then on is
// written, before anybody hears of it, and the file is gone.
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

extern "C" ssize_t pwrite64(int file, const void* data, size_t size,
                            off64_t offset) {
  static const auto real =
      reinterpret_cast<decltype(&pwrite64)>(dlsym(RTLD_NEXT, "pwrite64"));
  thread_local bool commits = false;
  const ssize_t written = real(file, data, size, offset);
  const char* const counter = getenv("KILL_AT_COMMIT");
  std::error_code error;
  const std::string path = std::filesystem::read_symlink(
      "/proc/self/fd/" + std::to_string(file), error);
  if (counter == nullptr || !path.ends_with("-wal")) return written;
  // SQLite writes the header of a frame, which says whether the frame is the
  // last of a commit, and then the frame's page.
  constexpr size_t kFrameHeader = 24;
  if (size == kFrameHeader) {
    constexpr char kNoCommit[4] = {};
    commits =
        std::memcmp(static_cast<const char*>(data) + 4, kNoCommit, 4) != 0;
    return written;
  }
  int n = 0;
  if (!commits || !(std::ifstream(counter) >> n)) return written;
  commits = false;
  if (n <= 1) {
    unlink(counter);
    raise(SIGKILL);
  }
  std::ofstream(counter) << n - 1;
  return written;
}
