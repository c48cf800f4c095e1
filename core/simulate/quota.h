// A CPU that a quota stops: so many seconds in each period, and then nothing
// until the next one, as Linux's CFS bandwidth control does it.
#pragma once

namespace paceline {

// What is used comes one after the other, each piece from when it asks or from
// the end of the one before.  Thread-compatible.
class Quota {
 public:
  // No quota.
  Quota() = default;
  // share: CPU seconds a second, in (0, 1].  period_seconds > 0.
  // phase_seconds: when a period begins.
  Quota(double share, double period_seconds, double phase_seconds)
      : budget_(share * period_seconds),
        period_(period_seconds),
        phase_(phase_seconds) {}

  bool limits() const { return period_ > 0; }

  // Takes `seconds` of CPU, asked for now; when they are used up.  Calls must
  // not go back in time.
  double Take(double now, double seconds);

  // When `seconds` would be used up that go before everything taken and not
  // yet used.  Changes nothing.
  double Peek(double now, double seconds) const;

  // Nothing that was taken is used beyond now.
  void Forget(double now) {
    if (now < end_) end_ = now;
  }

 private:
  // Of the present period, at `at`.
  double UsedAt(double at) const;
  double PeriodBegin(double at) const;
  double Walk(double from, double used, double seconds) const;

  double budget_ = 0;  // a period
  double period_ = 0;  // 0: no quota
  double phase_ = 0;

  // The present stretch without a pause, and what its first period had used
  // before.
  double base_ = 0;
  double base_used_ = 0;
  double end_ = 0;
};

}  // namespace paceline
