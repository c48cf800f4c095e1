#include "tests/core/world/kernel.h"

#include "absl/strings/str_format.h"

namespace paceline::world {

void Kernel::Happen(std::unique_ptr<Task> task) {
  Process* const owner = task->owner;
  if (owner != nullptr && owner->incarnation_ != task->incarnation) return;
  for (Process* each = owner; each != nullptr; each = each->host_) {
    if (!each->alive_) return;
    if (each->frozen_) return each->deferred_.push_back(std::move(task));
  }
  task->Run();
}

void Kernel::Start(Process& process, uint64_t incarnation) {
  process.incarnation_ = incarnation;
  process.alive_ = true;
  process.frozen_ = false;
  process.deferred_.clear();
}

void Kernel::End(Process& process) {
  process.alive_ = process.frozen_ = false;
  process.deferred_.clear();
}

void Kernel::Freeze(Process& process) {
  process.frozen_ = true;
  process.frozen_since_us_ = now_us_;
  process.thaws_at_us_ = 0;
}

void Kernel::FreezeFor(Process& process, int64_t duration_us) {
  Freeze(process);
  process.thaws_at_us_ = now_us_ + duration_us;
  After(duration_us, [this, &process, incarnation = process.incarnation_] {
    const bool is_due =
        process.incarnation_ == incarnation && process.thaws_at_us_ == now_us_;
    if (is_due) Thaw(process);
  });
}

void Kernel::Thaw(Process& process) {
  if (!process.frozen_) return;
  process.frozen_ = false;
  std::vector<std::unique_ptr<Task>> deferred = std::move(process.deferred_);
  process.deferred_.clear();
  for (std::unique_ptr<Task>& task : deferred) {
    queue_.Push(now_us_, std::move(task));
  }
  OnThawed(process, now_us_ - process.frozen_since_us_);
}

void Kernel::Print(const std::string& text) const {
  absl::PrintF("%10.3f ms  %s\n", static_cast<double>(now_us_) / 1e3, text);
}

void Kernel::SetViolation(const std::string& what) {
  violation_ = absl::StrFormat("at %.1f ms: %s",
                               static_cast<double>(now_us_) / 1e3, what);
}

}  // namespace paceline::world
