// How long a command that watches a job puts up with a coordinator that does
// not answer.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "core/base/clock.h"

namespace paceline {

// A coordinator that restarts is back within seconds; longer is a person's
// business.
constexpr absl::Duration kPatience = absl::Seconds(30);

// Thread-compatible.
class Patience {
 public:
  struct Verdict {
    bool retry = false;
    std::string say;  // for people, said once; may be empty
  };

  // Only Unavailable is worth another try, and only until kPatience after the
  // first of an unbroken row of errors.
  Verdict OnError(const absl::Status& error, Instant now);

  // What to say about an answer: nothing, or that it is the first again.
  std::string OnAnswer();

 private:
  std::optional<Instant> since_;
};

}  // namespace paceline
