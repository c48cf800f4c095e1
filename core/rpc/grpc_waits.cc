#include "core/rpc/grpc_waits.h"

#include <dlfcn.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/base/clock.h"
#include "core/os/thread.h"
#include "grpc/support/sync.h"
#include "grpc/support/time.h"

namespace paceline {
namespace {

// The end of a wait that has none of its own.
struct Alarm {
  Instant due;
  const std::function<void()>& ring;
  bool rang = false;
};

// Thread-safe; lives as long as the process.
class Alarms {
 public:
  // Calls `wait`, which only `ring` ends, until `longest` has passed.  Returns
  // whether it has.  `ring` takes no lock that the caller holds.
  bool Await(absl::Duration longest, const std::function<void()>& ring,
             const std::function<void()>& wait) {
    Alarm alarm{SteadyNow() + longest, ring};
    {
      SteadyLock lock(&mutex_);
      alarms_.push_back(&alarm);
    }
    wait();
    SteadyLock lock(&mutex_);
    std::erase(alarms_, &alarm);
    return alarm.rang;
  }

 private:
  // It rings again: the first time the other thread may have been on its way
  // into its wait.
  static constexpr absl::Duration kAgain = absl::Milliseconds(5);

  Instant Due() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    Instant due{absl::InfiniteDuration()};
    for (const Alarm* alarm : alarms_) due = std::min(due, alarm->due);
    return due;
  }

  void Loop() {
    SteadyLock lock(&mutex_);
    for (;;) {
      const Instant due = Due();
      const auto is_earlier = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return Due() < due;
      };
      mutex_.AwaitFor(absl::Condition(&is_earlier), due - SteadyNow());
      const Instant now = SteadyNow();
      for (Alarm* alarm : alarms_) {
        if (alarm->due > now) continue;
        alarm->rang = true;
        alarm->due = now + kAgain;
        alarm->ring();
      }
    }
  }

  SteadyMutex mutex_;
  std::vector<Alarm*> alarms_ ABSL_GUARDED_BY(mutex_);
  Thread thread_{"grpc-alarms", [this] { Loop(); }};
};

Alarms& TheAlarms() {
  static auto& alarms = *new Alarms;
  return alarms;
}

}  // namespace
}  // namespace paceline

// Instead of gRPC's, for the whole program and the libraries that it loads.
extern "C" int gpr_cv_wait(gpr_cv* cv, gpr_mu* mu, gpr_timespec deadline) {
  static const auto next =
      reinterpret_cast<decltype(&gpr_cv_wait)>(dlsym(RTLD_NEXT, "gpr_cv_wait"));
  const gpr_timespec forever = gpr_inf_future(GPR_CLOCK_REALTIME);
  const gpr_timespec left = gpr_convert_clock_type(deadline, GPR_TIMESPAN);
  if (gpr_time_cmp(left, gpr_inf_future(GPR_TIMESPAN)) == 0) {
    return next(cv, mu, forever);
  }
  if (gpr_time_cmp(left, gpr_time_0(GPR_TIMESPAN)) <= 0) {
    return next(cv, mu, gpr_time_0(GPR_CLOCK_REALTIME));
  }
  const bool late = paceline::TheAlarms().Await(
      absl::Seconds(left.tv_sec) + absl::Nanoseconds(left.tv_nsec),
      [cv] { gpr_cv_broadcast(cv); }, [&] { next(cv, mu, forever); });
  return late ? 1 : 0;
}

// Later ones wait on the monotonic clock here, and ThreadSanitizer's programs
// have one (tests/support/tsan).
#if ABSL_LTS_RELEASE_VERSION < 20230802 && !defined(__SANITIZE_THREAD__)
namespace absl {
ABSL_NAMESPACE_BEGIN

// Instead of Abseil's, which gRPC calls as well.
bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  return paceline::TheAlarms().Await(
      timeout, [this] { SignalAll(); }, [this, mutex] { Wait(mutex); });
}

ABSL_NAMESPACE_END
}  // namespace absl
#endif

namespace paceline {

bool GrpcWaitsSteadily() {
  // A library finds this address under that name when it is loaded.
  return dlsym(RTLD_DEFAULT, "gpr_cv_wait") ==
         reinterpret_cast<void*>(&gpr_cv_wait);
}

}  // namespace paceline
