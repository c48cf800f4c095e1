// The tasks of a simulated world, by time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace paceline::world {

class Process;

// Runs once, at its time.  A task of a process runs only as long as that
// process lives, and waits while it is frozen (kernel.h).
class Task {
 public:
  virtual ~Task() = default;
  virtual void Run() = 0;

  Process* owner = nullptr;  // null: the world itself
  uint64_t incarnation = 0;  // of the owner, when the task was made
};

// Gives out the earliest task first, and of equal times the one that was pushed
// first, so that a schedule depends on its seed alone.  A night has billions of
// tasks, so the heap moves plain values.  Owns the tasks in it.
// Thread-compatible.
class EventQueue {
 public:
  EventQueue() = default;
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;
  ~EventQueue() {
    for (const Entry& entry : heap_) delete entry.task;
  }

  // O(log n).
  void Push(int64_t at_us, std::unique_ptr<Task> task) {
    heap_.push_back({at_us, numbers_++, task.release()});
    std::push_heap(heap_.begin(), heap_.end(), Later);
  }

  // The queue is not empty.  O(log n).
  std::unique_ptr<Task> Pop(int64_t& at_us) {
    std::pop_heap(heap_.begin(), heap_.end(), Later);
    const Entry entry = heap_.back();
    heap_.pop_back();
    at_us = entry.at_us;
    return std::unique_ptr<Task>(entry.task);
  }

 private:
  struct Entry {
    int64_t at_us;
    uint64_t number;
    Task* task;  // owned
  };
  static bool Later(const Entry& a, const Entry& b) {
    return a.at_us != b.at_us ? a.at_us > b.at_us : a.number > b.number;
  }

  std::vector<Entry> heap_;
  uint64_t numbers_ = 0;
};

}  // namespace paceline::world
