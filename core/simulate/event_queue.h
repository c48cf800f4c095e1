// What happens next: a heap of events by time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace paceline {

// Events of one time come out in the order in which they went in, so that the
// same run gives the same result everywhere.  Thread-compatible.
//
// Event: a small value.
template <typename Event>
class EventQueue {
 public:
  bool empty() const { return heap_.empty(); }
  double next_seconds() const { return heap_.front().at_seconds; }

  void Push(double at_seconds, Event event) {
    heap_.push_back({at_seconds, pushed_++, event});
    std::push_heap(heap_.begin(), heap_.end(), &IsLater);
  }

  // The queue is not empty.
  Event Pop() {
    std::pop_heap(heap_.begin(), heap_.end(), &IsLater);
    const Event event = heap_.back().event;
    heap_.pop_back();
    return event;
  }

  // Drops all events but those that `keep` is true for.
  template <typename Keep>
  void Retain(Keep keep) {
    std::erase_if(heap_, [&](const Entry& e) { return !keep(e.event); });
    std::make_heap(heap_.begin(), heap_.end(), &IsLater);
  }

 private:
  struct Entry {
    double at_seconds;
    uint64_t order;
    Event event;
  };

  static bool IsLater(const Entry& a, const Entry& b) {
    return a.at_seconds != b.at_seconds ? a.at_seconds > b.at_seconds
                                        : a.order > b.order;
  }

  std::vector<Entry> heap_;
  uint64_t pushed_ = 0;
};

}  // namespace paceline
