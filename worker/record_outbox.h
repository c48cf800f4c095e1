// Records on their way to the coordinator: kept until acknowledged.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

namespace paceline {

// Numbers its records from 0 on.  Bounded: above `capacity` the oldest goes,
// and is counted.  Thread-compatible.
template <typename Record>
class RecordOutbox {
 public:
  explicit RecordOutbox(size_t capacity) : capacity_(capacity) {}

  void Add(Record record) {
    records_.push_back(std::move(record));
    if (records_.size() <= capacity_) return;
    records_.pop_front();
    ++first_;
    ++dropped_;
  }

  // Whether there is a record that was not taken since the last Rewind().
  bool has_new() const { return std::max(next_, first_) < end(); }

  // The oldest of these, which exists.
  const Record& TakeNew() {
    next_ = std::max(next_, first_) + 1;
    return records_[next_ - 1 - first_];
  }

  // All records below it were taken: the mark to acknowledge these with.
  int64_t taken() const { return next_; }

  // A new stream: everything not acknowledged counts as new again.
  void Rewind() { next_ = first_; }

  // All records below `mark` are durable.
  void Acknowledge(int64_t mark) {
    while (first_ < mark && !records_.empty()) {
      records_.pop_front();
      ++first_;
    }
  }

  // Forgets all; numbers go on, so that an old acknowledgement is harmless.
  void Clear() {
    first_ = end();
    records_.clear();
  }

  int64_t dropped() const { return dropped_; }

 private:
  int64_t end() const { return first_ + static_cast<int64_t>(records_.size()); }

  const size_t capacity_;
  std::deque<Record> records_;
  int64_t first_ = 0;  // number of records_.front()
  int64_t next_ = 0;   // first one not yet taken
  int64_t dropped_ = 0;
};

}  // namespace paceline
