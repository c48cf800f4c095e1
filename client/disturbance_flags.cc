#include "client/disturbance_flags.h"

#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/text.h"
#include "core/base/status_macros.h"

namespace paceline {
namespace {

constexpr char kSlowForm[] =
    "DEVICE@TIME=FACTOR[:DURATION] in seconds, as d1@10=2:30";
constexpr char kFailForm[] = "DEVICE@TIME[:BACK] in seconds, as d1@10:5";

// One flag's text and what it should look like.
struct Flag {
  absl::string_view name;
  const std::string& text;
  absl::string_view form;

  absl::Status Wrong(absl::string_view why) const {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " '", Printable(text), "': ", why, "; need ", form));
  }
};

absl::StatusOr<double> Seconds(const Flag& flag, absl::string_view what,
                               absl::string_view text) {
  double seconds = 0;
  if (absl::SimpleAtod(text, &seconds) && std::isfinite(seconds) &&
      seconds >= 0) {
    return seconds;
  }
  return flag.Wrong(absl::StrCat("the ", what, " '", Printable(text),
                                 "' is no number of at least 0"));
}

absl::StatusOr<int> FindDevice(const Flag& flag, absl::string_view word,
                               const PlanProblem& problem) {
  for (size_t d = 0; d < problem.devices.size(); ++d) {
    if (problem.devices[d].name == word) return static_cast<int>(d);
  }
  int device = -1;
  const auto devices = static_cast<int>(problem.devices.size());
  if (absl::SimpleAtoi(word, &device) && device >= 0 && device < devices) {
    return device;
  }
  return flag.Wrong(absl::StrCat(
      "there is no device '", Printable(word), "', there are ", devices, ", ",
      Printable(problem.devices.front().name), " (0) to ",
      Printable(problem.devices.back().name), " (", devices - 1, ")"));
}

// The text up to `mark`, and what follows; false without it.  `last`: a name
// may hold marks, so the last one counts.
bool Cut(absl::string_view* rest, char mark, bool last,
         absl::string_view* before) {
  const size_t at = last ? rest->rfind(mark) : rest->find(mark);
  if (at == absl::string_view::npos) return false;
  *before = rest->substr(0, at);
  *rest = rest->substr(at + 1);
  return true;
}

}  // namespace

absl::StatusOr<SimulatedSlowDown> ParseSlowDown(const std::string& text,
                                                const PlanProblem& problem) {
  const Flag flag = {"--slow", text, kSlowForm};
  absl::string_view rest = text;
  absl::string_view device, at, factor;
  if (!Cut(&rest, '@', true, &device)) return flag.Wrong("there is no '@'");
  if (!Cut(&rest, '=', false, &at)) return flag.Wrong("there is no '='");
  SimulatedSlowDown slow;
  const bool ends = Cut(&rest, ':', false, &factor);
  if (!ends) factor = rest;
  PACELINE_ASSIGN_OR_RETURN(slow.device, FindDevice(flag, device, problem));
  PACELINE_ASSIGN_OR_RETURN(slow.at_seconds, Seconds(flag, "time", at));
  PACELINE_ASSIGN_OR_RETURN(slow.factor, Seconds(flag, "factor", factor));
  if (slow.factor < 1) {
    return flag.Wrong(absl::StrCat("a factor of ", slow.factor,
                                   " would be faster, 2 is half as fast"));
  }
  if (ends) {
    PACELINE_ASSIGN_OR_RETURN(slow.for_seconds,
                              Seconds(flag, "duration", rest));
  }
  return slow;
}

absl::StatusOr<SimulatedFailure> ParseFailure(const std::string& text,
                                              const PlanProblem& problem) {
  const Flag flag = {"--fail", text, kFailForm};
  absl::string_view rest = text;
  absl::string_view device, at;
  if (!Cut(&rest, '@', true, &device)) return flag.Wrong("there is no '@'");
  SimulatedFailure failure;
  const bool recovers = Cut(&rest, ':', false, &at);
  if (!recovers) at = rest;
  PACELINE_ASSIGN_OR_RETURN(failure.device, FindDevice(flag, device, problem));
  PACELINE_ASSIGN_OR_RETURN(failure.at_seconds, Seconds(flag, "time", at));
  if (recovers) {
    PACELINE_ASSIGN_OR_RETURN(failure.recover_after_seconds,
                              Seconds(flag, "time until it is back", rest));
  }
  return failure;
}

}  // namespace paceline
