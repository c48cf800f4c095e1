// A library to preload into a program whose clock is to be set while it runs.
// The file that SET_CLOCK names holds a number of the machine's own kind, 64
// bits: by how many nanoseconds the program's time of day is ahead of the true
// one.  A test writes it at any moment.
//
// Why this is what setting the clock does.  A program meets the time of day in
// two places: it reads the clock, and it has the kernel wait until the clock
// shows a time.  The first is a function of libc (Abseil, gRPC and libstdc++
// call it).  The second is a futex with FUTEX_CLOCK_REALTIME, which Abseil asks
// for by libc's syscall(); when the clock is set, the kernel moves such a wait,
// and ends it as soon as the clock shows the time.  Here it is cut into short
// waits, and ends as soon as the program's clock shows the time.  All other
// waits (epoll, poll, nanosleep, pthread_cond_clockwait) are relative or on the
// monotonic clock; neither the kernel nor this touches them.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>

namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kSlice = 5'000'000;

int64_t Ahead() {
  static const auto* const ahead = [] {
    static const int64_t none = 0;
    const char* const path = getenv("SET_CLOCK");
    const int file = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    void* const page =
        file < 0 ? MAP_FAILED
                 : mmap(nullptr, sizeof(none), PROT_READ, MAP_SHARED, file, 0);
    if (file >= 0) close(file);
    return static_cast<const volatile int64_t*>(page == MAP_FAILED ? &none
                                                                   : page);
  }();
  return *ahead;
}

timespec Moved(const timespec& time, int64_t by) {
  const int64_t all = time.tv_sec * kSecond + time.tv_nsec + by;
  return {all / kSecond, all % kSecond};
}

// As the kernel has it, without the functions below.
timespec TrueTime(clockid_t clock) {
  static const auto real = reinterpret_cast<decltype(&clock_gettime)>(
      dlsym(RTLD_NEXT, "clock_gettime"));
  timespec time = {};
  real(clock, &time);
  return time;
}

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const bool of_day = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
  *time = Moved(TrueTime(clock), of_day ? Ahead() : 0);
  return 0;
}

extern "C" int gettimeofday(timeval* time, void* /*zone*/) noexcept {
  const timespec now = Moved(TrueTime(CLOCK_REALTIME), Ahead());
  *time = {now.tv_sec, now.tv_nsec / 1000};
  return 0;
}

extern "C" time_t time(time_t* time) noexcept {
  const time_t now = Moved(TrueTime(CLOCK_REALTIME), Ahead()).tv_sec;
  if (time != nullptr) *time = now;
  return now;
}

extern "C" long syscall(long number, ...) noexcept {
  using Call = long(long, long, long, long, long, long, long);
  // No static with a guard: a thread that waits for a guard calls this.
  static constinit std::atomic<Call*> known = nullptr;
  Call* real = known;
  if (real == nullptr) {
    known = real = reinterpret_cast<Call*>(dlsym(RTLD_NEXT, "syscall"));
  }
  va_list list;
  va_start(list, number);
  long words[6];
  for (long& word : words) word = va_arg(list, long);
  va_end(list);
  const auto call = [&] {
    return real(number, words[0], words[1], words[2], words[3], words[4],
                words[5]);
  };
  if (number != SYS_futex || words[3] == 0 ||
      (words[1] & FUTEX_CMD_MASK) != FUTEX_WAIT_BITSET ||
      (words[1] & FUTEX_CLOCK_REALTIME) == 0) {
    return call();
  }
  const timespec end = *reinterpret_cast<const timespec*>(words[3]);
  for (;;) {
    const timespec now = TrueTime(CLOCK_REALTIME);
    const timespec shown = Moved(now, Ahead());
    const int64_t left =
        (end.tv_sec - shown.tv_sec) * kSecond + end.tv_nsec - shown.tv_nsec;
    const timespec slice = Moved(now, std::clamp(left, int64_t{0}, kSlice));
    words[3] = reinterpret_cast<long>(&slice);
    const long result = call();
    if (result == 0 || errno != ETIMEDOUT || left <= 0) return result;
  }
}
