// Every simulated world stands on this: one thread, one clock, chance from a
// seed, and processes that die, come back, and stand still.  The kernel does
// not know what the processes are for.
//
//   After, AfterOn -> EventQueue -> RunUntil -> Happen --> the task runs
//                         ^                       |
//                         |                       |--> its process is gone:
//                       Thaw                      |    the task is lost
//                         |                       |
//                         +--- deferred tasks <---+--> its process is frozen
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/random.h"
#include "tests/core/world/coverage.h"
#include "tests/core/world/event_queue.h"

namespace paceline::world {

// A process, or a thread of one.  A world's own processes derive from it. Tasks
// of a process that is gone never run; tasks of one that is frozen run when it
// goes on, in their order.  It lives as long as the kernel runs tasks.  Only a
// kernel changes it.  Thread-compatible.
class Process {
 public:
  // Does not live yet.
  //   host  of a thread: its process; the thread is gone, and stands still,
  //         when that one is; outlives it
  explicit Process(Process* host = nullptr) : host_(host) {}
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  bool alive() const { return alive_; }
  bool frozen() const { return frozen_; }
  // Does what it is told, as far as others can see.
  bool responds() const { return alive_ && !frozen_; }
  uint64_t incarnation() const { return incarnation_; }
  int64_t frozen_since_us() const { return frozen_since_us_; }

 private:
  friend class Kernel;

  Process* host_;
  bool alive_ = false;
  bool frozen_ = false;
  uint64_t incarnation_ = 0;
  int64_t frozen_since_us_ = 0;
  int64_t thaws_at_us_ = 0;
  std::vector<std::unique_ptr<Task>> deferred_;
};

// The text of a part of a violation or of a trace.  A type that is no text and
// no number has an overload in its own namespace.
template <typename Part>
const Part& Word(const Part& part) {
  return part;
}

template <typename... Parts>
std::string TextOf(const Parts&... parts) {
  return absl::StrCat(Word(parts)...);
}

// A world derives from it.  Thread-compatible.
class Kernel {
 public:
  //   trace     to stdout
  //   coverage  may be null; what happens does not depend on it
  Kernel(uint64_t seed, bool trace, Coverage* coverage)
      : random_(seed), trace_(trace), coverage_(coverage) {}
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  virtual ~Kernel() = default;

  // --- Time ---
  Instant Now() const { return {absl::Microseconds(now_us_)}; }
  int64_t now_us() const { return now_us_; }
  int64_t events() const { return events_; }

  // Calls run() once, that much later.
  template <typename Run>
  void After(int64_t delay_us, Run run) {
    queue_.Push(now_us_ + delay_us, MakeTask(nullptr, std::move(run)));
  }
  // The same as a task of `process`: not if that is gone by then, or has come
  // back as another one; later if it is frozen then.
  template <typename Run>
  void AfterOn(Process& process, int64_t delay_us, Run run) {
    queue_.Push(now_us_ + delay_us, MakeTask(&process, std::move(run)));
  }
  // Calls run() now, or when `process` goes on, or, where it is gone, never.
  template <typename Run>
  void On(Process& process, Run run) {
    Happen(MakeTask(&process, std::move(run)));
  }

  // Runs tasks until is_over(), which is asked before each, or until an
  // invariant is broken.  A world always has a task: something in it ticks.
  template <typename IsOver>
  void RunUntil(const IsOver& is_over) {
    while (violation_.empty() && !is_over()) {
      ++events_;
      Happen(queue_.Pop(now_us_));
    }
  }

  // --- Chance: the same on every machine ---
  SplitMix64& random() { return random_; }
  int64_t Below(int64_t bound) {
    return static_cast<int64_t>(random_.Below(static_cast<uint64_t>(bound)));
  }
  int64_t Between(int64_t low, int64_t high) {  // both may come up
    return low + Below(high - low + 1);
  }
  bool OneIn(int64_t n) { return Below(n) == 0; }
  bool Chance(double p) { return p > 0 && random_.Unit() < p; }
  template <typename Container>
  auto& Pick(Container& from) {  // not of an empty one
    return from[random_.Below(from.size())];
  }

  // --- Processes ---
  // It lives from now on, with nothing to do yet.
  //   incarnation  other than any that it had
  void Start(Process& process, uint64_t incarnation);
  // Its tasks are lost, also those that wait for it to go on.
  void End(Process& process);
  // It stands still until Thaw(), or for that long; the last call counts.
  void Freeze(Process& process);
  void FreezeFor(Process& process, int64_t duration_us);
  // It goes on, with the tasks that waited.  Does nothing if it is not frozen.
  void Thaw(Process& process);
  // Called when a process has gone on, after that long.
  virtual void OnThawed(Process& /*process*/, int64_t /*stood_us*/) {}

  // --- Faults, and the calm after them, in which all must end well ---
  void AllowFaults(int64_t count) { faults_left_ = count; }
  bool MayFault() const { return !calm_ && faults_left_ > 0; }
  void CountFault() { --faults_left_, ++faults_; }  // that had an effect
  int64_t faults() const { return faults_; }
  void BeginCalm() { calm_ = true, calm_since_us_ = now_us_; }
  bool calm() const { return calm_; }
  // So far; 0 before the calm.
  int64_t calm_us() const { return calm_ ? now_us_ - calm_since_us_ : 0; }

  // --- What is seen ---
  // parts: as Word() takes them; no text is made where nobody reads it.
  template <typename... Parts>
  void Trace(const Parts&... parts) const {
    if (trace_) Print(TextOf(parts...));
  }
  // An invariant is broken; the first one counts.
  template <typename... Parts>
  void Fail(const Parts&... parts) {
    if (violation_.empty()) SetViolation(TextOf(parts...));
  }
  const std::string& violation() const { return violation_; }
  template <typename Table, typename Row, typename Column>
  void Hit(Table table, Row row, Column column) {
    if (coverage_ != nullptr) coverage_->Hit(table, row, column);
  }

 private:
  template <typename Callable>
  struct TaskOf final : Task {
    explicit TaskOf(Callable c) : call(std::move(c)) {}
    void Run() override { call(); }

    Callable call;
  };

  template <typename Callable>
  static std::unique_ptr<Task> MakeTask(Process* owner, Callable call) {
    auto task = std::make_unique<TaskOf<Callable>>(std::move(call));
    task->owner = owner;
    task->incarnation = owner != nullptr ? owner->incarnation() : 0;
    return task;
  }
  void Happen(std::unique_ptr<Task> task);
  void Print(const std::string& text) const;
  void SetViolation(const std::string& what);

  EventQueue queue_;
  int64_t now_us_ = 0;
  int64_t events_ = 0;
  SplitMix64 random_;
  int64_t faults_left_ = 0;
  int64_t faults_ = 0;
  bool calm_ = false;
  int64_t calm_since_us_ = 0;
  const bool trace_;
  Coverage* const coverage_;
  std::string violation_;
};

// The store of a coordinator, as far as its process suffers from it: writes
// that take long, and writes that fail.  The world itself keeps the data.
// Thread-compatible.
struct Store {
  // Draws how long a write takes that begins now.
  int64_t WriteTime(Kernel& kernel) const {
    return kernel.now_us() < slow_until_us ? kernel.Between(20'000, slowest_us)
                                           : kernel.Between(100, fair_us);
  }
  // Whether a write fails now.
  bool fails(const Kernel& kernel) const {
    return kernel.now_us() < fails_until_us;
  }
  void Heal() { slow_until_us = fails_until_us = 0; }

  int64_t fair_us = 0;  // a write takes at most
  int64_t slowest_us = 0;
  int64_t slow_until_us = 0;
  int64_t fails_until_us = 0;
};

}  // namespace paceline::world
