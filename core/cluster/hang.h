// Which member of a round group hangs: it answers, but its compute thread does
// nothing.  The progress watchdog of DESIGN 4.
//
// As long as nobody goes on, all may wait for one another, and who has waited
// as long as all needs time to hear that it is over; but who is at work waits
// for nobody.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/cluster/run_report.h"
#include "core/round/view.h"

namespace paceline {

// What is known of a member's compute thread.
struct MemberWork {
  RunPhase phase = RunPhase::kNone;
  int64_t next = 0;        // steps applied
  int64_t turn = 0;        // it is at work on; 0: it waits
  Instant heard;           // last
  Instant progress_since;  // it has finished no instruction since then
  // Since when the group is known to go on while it makes no progress; nothing:
  // it does not.
  std::optional<Instant> left_behind;
};

struct Hang {
  MemberId member;
  absl::Duration idle;  // as far as it has been heard
};

// The first by id; nothing: nobody does.  One at a time: the others may have
// waited for it.
//
// work:  of the members of `view`; who is missing, or prepares still, is not
//        judged, nor a joiner before its step
// bound  on one instruction
std::optional<Hang> DecideHang(const View& view,
                               const std::map<MemberId, MemberWork>& work,
                               absl::Duration bound);

}  // namespace paceline
