#include "client/commands/command.h"

#include "absl/strings/str_cat.h"
#include "client/render/text.h"

namespace paceline {

ExitCode ReportError(Console& console, const absl::Status& status) {
  const absl::string_view message = status.message().empty()
                                        ? absl::string_view("unknown error")
                                        : status.message();
  console.Note(absl::StrCat("paceline: ", ShortenWords(message)));
  return ExitCodeFor(status);
}

ExitCode ExitCodeFor(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kNotFound:
      return kExitNotFound;
    case absl::StatusCode::kUnavailable:
      return kExitUnreachable;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return kExitNotPermitted;
    case absl::StatusCode::kDeadlineExceeded:
      return kExitTimedOut;
    case absl::StatusCode::kCancelled:
      return kExitInterrupted;
    default:
      return kExitFailed;
  }
}

ExitCode SubmitExitCodeFor(const absl::Status& status) {
  if (status.code() == absl::StatusCode::kResourceExhausted ||
      status.code() == absl::StatusCode::kFailedPrecondition) {
    return kExitUnplaceable;
  }
  return ExitCodeFor(status);
}

ExitCode ExitCodeFor(JobState state) {
  switch (state) {
    case JobState::kFailed:
      return kExitFailed;
    case JobState::kStopped:
      return kExitStopped;
    default:
      return kExitOk;
  }
}

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
