// A member of a round group reports itself and the others.  The message
// (v1::MemberState) can name a process that cannot be, or a process twice;
// these types cannot, and core/rpc/convert/report_convert.h refuses such a
// message.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "core/base/ids.h"
#include "core/round/view.h"

namespace paceline {

// A member of a round group finds another one in this state.
struct PeerReport {
  MemberId peer;
  // The stream to it is, since so long; zero: it is not.
  absl::Duration broken = absl::ZeroDuration();
  bool refused = false;  // nobody listens there any more, or another process
  // Owes an answer, since so long; zero: no.
  absl::Duration owing = absl::ZeroDuration();
  // Something is to come from it, however long that may take: owed where the
  // link is broken, whichever end sees that.
  bool awaited = false;

  friend bool operator==(const PeerReport&, const PeerReport&) = default;
};

struct MemberReport {
  ViewId view;       // adopted
  int64_t next = 0;  // steps applied
  bool has_taken_part = false;
  // A listener has the group's state, or all but a few steps of it.
  bool level = false;
  int64_t state_step = 0;   // of state_hash
  uint64_t state_hash = 0;  // parameters, optimizer, buffers; 0: not known
  std::vector<PeerReport> peers;
  // Which of its turns the compute thread is at, from 1 on; 0: at none, it
  // waits for the others or hands the weights over.
  int64_t turn = 0;
  // Its thread "rounds" has handled nothing for so long; nothing: not known.
  std::optional<absl::Duration> idle = std::nullopt;
  absl::Duration slowest = absl::ZeroDuration();  // of its last 64 answers
  // Found by a server: states differ after mismatch_step; empty: none do.
  int64_t mismatch_step = 0;
  std::map<MemberId, uint64_t> mismatch;
};

}  // namespace paceline
