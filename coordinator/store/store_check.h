// StoreCheck checks the coordinator's data base for damage.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "coordinator/store/sqlite.h"
#include "core/os/thread.h"

namespace paceline {

// Thread-compatible.  SQLite's quick_check reads the whole file, which may be
// large: a low-priority thread, "check", runs it.
class StoreCheck {
 public:
  // Opens `path` once more.  on_damage: called on that thread, at most once,
  // with DataLoss, which names the damage, or with the error of the check.
  StoreCheck(const std::string& path,
             std::function<void(const absl::Status&)> on_damage);
  // Ends a running check.
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
