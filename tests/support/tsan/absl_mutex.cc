// Tells ThreadSanitizer what absl's locks order.
//
// Debian's libabsl is not built with ThreadSanitizer: its locks are atomics
// that the sanitizer never sees, so that everything they protect would be
// reported as a race.  The functions here take the place of the library's
// (the linker binds calls to the program first, also those that come from
// libgrpc), annotate, and call the library's.
//
// Only in programs built with PACELINE_SANITIZE=thread.  Left out:
// Notification::HasBeenNotified, which is inline and has nothing to replace.
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <cstdio>
#include <cstdlib>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"

namespace {

constexpr unsigned kWrite = 0;
constexpr unsigned kRead = __tsan_mutex_read_lock;

void* Next(const char* symbol) {
  void* found = dlsym(RTLD_NEXT, symbol);
  if (found == nullptr) {
    std::fprintf(stderr, "absl_mutex.cc: no %s in libabsl\n", symbol);
    std::abort();
  }
  return found;
}

// Functions of the library call each other, and so come back here: only the
// outermost call of a thread is annotated.
thread_local int depth = 0;

class Outermost {
 public:
  Outermost() : is_(depth++ == 0) {}
  ~Outermost() { --depth; }
  explicit operator bool() const { return is_; }

 private:
  const bool is_;
};

// While one of these lives the sanitizer looks away: the library's own code,
// and the conditions that it evaluates, run under the lock that it is changing.
class Locking {
 public:
  Locking(void* mutex, unsigned flags) : mutex_(mutex), flags_(flags) {
    if (outermost_) __tsan_mutex_pre_lock(mutex_, flags_);
  }
  ~Locking() {
    if (outermost_) __tsan_mutex_post_lock(mutex_, flags_, 0);
  }
  void Failed() { flags_ |= __tsan_mutex_try_lock_failed; }

 private:
  Outermost outermost_;
  void* mutex_;
  unsigned flags_;
};

class Unlocking {
 public:
  Unlocking(void* mutex, unsigned flags) : mutex_(mutex), flags_(flags) {
    if (outermost_) __tsan_mutex_pre_unlock(mutex_, flags_);
  }
  ~Unlocking() {
    if (outermost_) __tsan_mutex_post_unlock(mutex_, flags_);
  }

 private:
  Outermost outermost_;
  void* mutex_;
  unsigned flags_;
};

// Gives the lock up and takes it again, as every wait does.
class Waiting {
 public:
  explicit Waiting(void* mutex) : mutex_(mutex) {
    if (!outermost_) return;
    __tsan_mutex_pre_unlock(mutex_, kWrite);
    __tsan_mutex_post_unlock(mutex_, kWrite);
    __tsan_mutex_pre_lock(mutex_, kWrite);
  }
  ~Waiting() {
    if (outermost_) __tsan_mutex_post_lock(mutex_, kWrite, 0);
  }

 private:
  Outermost outermost_;
  void* mutex_;
};

}  // namespace

// Calls the library's function of this name; `mangled` is what follows the
// namespace in its symbol.
#define PACELINE_NEXT(prefix, mangled, Result, ...)                   \
  static const auto next = reinterpret_cast<Result (*)(__VA_ARGS__)>( \
      Next("_ZN" prefix "4absl7debian3" mangled))

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  PACELINE_NEXT("", "5Mutex4LockEv", void, Mutex*);
  Locking locking(this, kWrite);
  next(this);
}

void Mutex::Unlock() {
  PACELINE_NEXT("", "5Mutex6UnlockEv", void, Mutex*);
  Unlocking unlocking(this, kWrite);
  next(this);
}

bool Mutex::TryLock() {
  PACELINE_NEXT("", "5Mutex7TryLockEv", bool, Mutex*);
  Locking locking(this, kWrite | __tsan_mutex_try_lock);
  const bool taken = next(this);
  if (!taken) locking.Failed();
  return taken;
}

void Mutex::ReaderLock() {
  PACELINE_NEXT("", "5Mutex10ReaderLockEv", void, Mutex*);
  Locking locking(this, kRead);
  next(this);
}

void Mutex::ReaderUnlock() {
  PACELINE_NEXT("", "5Mutex12ReaderUnlockEv", void, Mutex*);
  Unlocking unlocking(this, kRead);
  next(this);
}

bool Mutex::ReaderTryLock() {
  PACELINE_NEXT("", "5Mutex13ReaderTryLockEv", bool, Mutex*);
  Locking locking(this, kRead | __tsan_mutex_try_lock);
  const bool taken = next(this);
  if (!taken) locking.Failed();
  return taken;
}

void Mutex::LockWhen(const Condition& condition) {
  PACELINE_NEXT("", "5Mutex8LockWhenERKNS0_9ConditionE", void, Mutex*,
                const Condition&);
  Locking locking(this, kWrite);
  next(this, condition);
}

bool Mutex::LockWhenWithTimeout(const Condition& condition, Duration timeout) {
  PACELINE_NEXT("",
                "5Mutex19LockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE",
                bool, Mutex*, const Condition&, Duration);
  Locking locking(this, kWrite);
  return next(this, condition, timeout);
}

bool Mutex::LockWhenWithDeadline(const Condition& condition, Time deadline) {
  PACELINE_NEXT("", "5Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE",
                bool, Mutex*, const Condition&, Time);
  Locking locking(this, kWrite);
  return next(this, condition, deadline);
}

void Mutex::Await(const Condition& condition) {
  PACELINE_NEXT("", "5Mutex5AwaitERKNS0_9ConditionE", void, Mutex*,
                const Condition&);
  Waiting waiting(this);
  next(this, condition);
}

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  PACELINE_NEXT("", "5Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE",
                bool, Mutex*, const Condition&, Duration);
  Waiting waiting(this);
  return next(this, condition, timeout);
}

bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  PACELINE_NEXT("", "5Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE",
                bool, Mutex*, const Condition&, Time);
  Waiting waiting(this);
  return next(this, condition, deadline);
}

void CondVar::Wait(Mutex* mutex) {
  PACELINE_NEXT("", "7CondVar4WaitEPNS0_5MutexE", void, CondVar*, Mutex*);
  Waiting waiting(mutex);
  next(this, mutex);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  PACELINE_NEXT("", "7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE",
                bool, CondVar*, Mutex*, Duration);
  Waiting waiting(mutex);
  return next(this, mutex, timeout);
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  PACELINE_NEXT("", "7CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE", bool,
                CondVar*, Mutex*, Time);
  Waiting waiting(mutex);
  return next(this, mutex, deadline);
}

void Notification::Notify() {
  PACELINE_NEXT("", "12Notification6NotifyEv", void, Notification*);
  __tsan_release(this);
  next(this);
}

void Notification::WaitForNotification() const {
  PACELINE_NEXT("K", "12Notification19WaitForNotificationEv", void,
                const Notification*);
  next(this);
  __tsan_acquire(const_cast<Notification*>(this));
}

bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  PACELINE_NEXT("K",
                "12Notification30WaitForNotificationWithTimeoutENS0_8DurationE",
                bool, const Notification*, Duration);
  const bool notified = next(this, timeout);
  if (notified) __tsan_acquire(const_cast<Notification*>(this));
  return notified;
}

bool Notification::WaitForNotificationWithDeadline(Time deadline) const {
  PACELINE_NEXT("K",
                "12Notification31WaitForNotificationWithDeadlineENS0_4TimeE",
                bool, const Notification*, Time);
  const bool notified = next(this, deadline);
  if (notified) __tsan_acquire(const_cast<Notification*>(this));
  return notified;
}

bool BlockingCounter::DecrementCount() {
  PACELINE_NEXT("", "15BlockingCounter14DecrementCountEv", bool,
                BlockingCounter*);
  __tsan_release(this);
  return next(this);
}

void BlockingCounter::Wait() {
  PACELINE_NEXT("", "15BlockingCounter4WaitEv", void, BlockingCounter*);
  next(this);
  __tsan_acquire(this);
}

ABSL_NAMESPACE_END
}  // namespace absl
