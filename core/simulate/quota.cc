#include "core/simulate/quota.h"

#include <algorithm>
#include <cmath>

namespace paceline {
namespace {

// Two times that rounding alone keeps apart.
constexpr double kRelativeSlack = 1e-9;

}  // namespace

double Quota::PeriodBegin(double at) const {
  const double periods = (at - phase_) / period_;
  return phase_ + period_ * std::floor(periods + kRelativeSlack);
}

double Quota::UsedAt(double at) const {
  const double begin = PeriodBegin(at);
  if (at >= end_) {
    if (PeriodBegin(end_) < begin) return 0;
    at = end_;
  }
  // Busy all the time since base_, or since the period began.
  if (PeriodBegin(base_) < begin) return std::min(at - begin, budget_);
  return std::min(base_used_ + std::max(0.0, at - base_), budget_);
}

double Quota::Walk(double from, double used, double seconds) const {
  const double period_end = PeriodBegin(from) + period_;
  const double now = std::min(budget_ - used, period_end - from);
  if (seconds <= now) return from + seconds;
  const double later = seconds - now;
  const double whole =
      std::max(0.0, std::ceil(later / budget_ - kRelativeSlack) - 1);
  return period_end + whole * period_ + (later - whole * budget_);
}

double Quota::Take(double now, double seconds) {
  if (!limits()) {
    end_ = std::max(now, end_) + seconds;
    return end_;
  }
  if (now >= end_) {
    base_used_ = UsedAt(now);
    base_ = now;
    end_ = now;
  }
  end_ = Walk(end_, UsedAt(end_), seconds);
  return end_;
}

double Quota::Peek(double now, double seconds) const {
  return limits() ? Walk(now, UsedAt(now), seconds) : now + seconds;
}

}  // namespace paceline
