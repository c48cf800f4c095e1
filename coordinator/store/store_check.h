// StoreCheck looks through the coordinator's data base for damage.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "coordinator/store/sqlite.h"
#include "core/base/thread.h"

namespace paceline {

// Thread-compatible.  SQLite's quick_check reads the whole file, which may be
// large: a thread of its own, "check", does it when nothing else wants its
// core.
class StoreCheck {
 public:
  // Opens `path` once more.  on_damage: called on that thread, at most once,
  // with DataLoss, which says what is damaged.
  StoreCheck(const std::string& path,
             std::function<void(const absl::Status&)> on_damage);
  // Ends a check that is under way.
  ~StoreCheck();
  StoreCheck(const StoreCheck&) = delete;
  StoreCheck& operator=(const StoreCheck&) = delete;

 private:
  void Run(const std::string& path);

  const std::function<void(const absl::Status&)> on_damage_;
  const std::unique_ptr<Database> database_;  // null: it cannot be opened
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> done_ = false;
  Thread thread_;
};

}  // namespace paceline
