// The events of a simulated world, by time; made to be fast, since a
// night has billions of events.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "core/round/round_member.h"

namespace paceline::round_world {

enum class What : uint8_t {
  kMessage,
  kTick,
  kHeartbeat,
  kComputed,
  kAggregated,
  kViewArrives,
  kViewStored,
  kFault,
  kCoordinatorBack,
  kLease,
  kBreak,  // the coordinator sees a broken stream
};

struct Event {
  int64_t at_us = 0;
  int64_t attempt = 0;
  int64_t step = 0;     // kComputed; kViewStored: the coordinator's term
  uint32_t number = 0;  // order of equal times
  uint32_t slot = 0;    // of what it carries, in a Pool
  int16_t process = -1;
  What what = What::kTick;
};

// The earliest first.
class EventQueue {
 public:
  void Push(Event event) {
    event.number = numbers_++;
    heap_.push_back(event);
    std::push_heap(heap_.begin(), heap_.end(), Later);
  }
  Event Pop() {
    std::pop_heap(heap_.begin(), heap_.end(), Later);
    const Event event = heap_.back();
    heap_.pop_back();
    return event;
  }
  bool empty() const { return heap_.empty(); }

 private:
  static bool Later(const Event& a, const Event& b) {
    return a.at_us != b.at_us ? a.at_us > b.at_us : a.number > b.number;
  }

  std::vector<Event> heap_;
  uint32_t numbers_ = 0;
};

// Memory that is used again.  What is inside stays where it is.
template <typename T>
class Pool {
 public:
  uint32_t Put(T value) {
    if (free_.empty()) {
      items_.push_back(std::move(value));
      return static_cast<uint32_t>(items_.size() - 1);
    }
    const uint32_t slot = free_.back();
    free_.pop_back();
    items_[slot] = std::move(value);
    return slot;
  }
  T& at(uint32_t slot) { return items_[slot]; }
  void Free(uint32_t slot) { free_.push_back(slot); }

 private:
  std::deque<T> items_;
  std::vector<uint32_t> free_;
};

// A message on its way, with what stands for the bytes beside it.
struct Parcel {
  RoundMessage message;
  uint64_t payload = 0;  // a part's bytes; a copy's state without its fault
  uint64_t taint = 0;    // a copy's
};

}  // namespace paceline::round_world
