#include "client/patience.h"

#include "absl/strings/str_cat.h"

namespace paceline {

Patience::Verdict Patience::OnError(const absl::Status& error, Instant now) {
  if (error.code() != absl::StatusCode::kUnavailable) return {};
  if (!since_.has_value()) {
    since_ = now;
    return {.retry = true,
            .say = absl::StrCat("the coordinator does not answer; trying again "
                                "for ",
                                absl::FormatDuration(kPatience), " (",
                                error.message(), ")")};
  }
  return {.retry = now - *since_ < kPatience, .say = ""};
}

std::string Patience::OnAnswer() {
  if (!since_.has_value()) return "";
  since_.reset();
  return "the coordinator answers again";
}

}  // namespace paceline
