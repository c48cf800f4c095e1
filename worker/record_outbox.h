// Records on their way to the coordinator: kept until acknowledged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

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

  // Records not taken since the last Rewind(), oldest first.
  std::vector<Record> TakeNew() {
    next_ = next_ < first_ ? first_ : next_;
    std::vector<Record> fresh(records_.begin() + (next_ - first_),
                              records_.end());
    next_ = end();
    return fresh;
  }

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

  int64_t end() const { return first_ + static_cast<int64_t>(records_.size()); }
  int64_t dropped() const { return dropped_; }

 private:
  const size_t capacity_;
  std::deque<Record> records_;
  int64_t first_ = 0;  // number of records_.front()
  int64_t next_ = 0;   // first one not yet taken
  int64_t dropped_ = 0;
};

}  // namespace paceline
