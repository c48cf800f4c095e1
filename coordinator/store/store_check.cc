#include "coordinator/store/store_check.h"

#include <sys/resource.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "sqlite3.h"

namespace paceline {

StoreCheck::StoreCheck(const std::string& path,
                       std::function<void(const absl::Status&)> on_damage)
    : on_damage_(std::move(on_damage)),
      database_(Database::Open(path).value_or(nullptr)),
      thread_("check", [this, path] {
        if (database_ != nullptr) Run(path);
        done_ = true;
      }) {}

// Repeats the interrupt: it has no effect on a statement that has not begun.
StoreCheck::~StoreCheck() {
  stopping_ = true;
  while (!done_) {
    if (database_ != nullptr) sqlite3_interrupt(database_->handle());
    absl::SleepFor(absl::Milliseconds(1));
  }
}

void StoreCheck::Run(const std::string& path) {
  setpriority(PRIO_PROCESS, 0, 19);  // of this thread
  Query check(*database_, "PRAGMA quick_check(1)");
  const bool answered = check.Next();
  if (stopping_ || (answered && check.Text(0) == "ok")) return;
  if (answered) {
    on_damage_(absl::DataLossError(
        absl::StrCat("data base ", path, " is damaged: ", check.Text(0),
                     "; move the file away to start without what it knew")));
  } else if (absl::IsDataLoss(check.status())) {
    on_damage_(check.status());
  }
}

}  // namespace paceline
