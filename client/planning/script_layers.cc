#include "client/planning/script_layers.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/text.h"
#include "core/base/status_macros.h"
#include "core/model/description.h"

namespace paceline {
namespace {

constexpr absl::Duration kPollPeriod = absl::Milliseconds(100);

}  // namespace

absl::Status FillInScript(Console& console, Pauser& pauser, const Clock& clock,
                          std::optional<absl::Duration> timeout,
                          MeasureClient& measure, JobSpec* spec) {
  if (!NeedsWorker(spec->model)) return absl::OkStatus();
  PACELINE_ASSIGN_OR_RETURN(
      const ProfileStarted started,
      measure.StartProfile({*spec, /*workers=*/{}, /*links=*/false}));
  const Instant begin = clock.Now();
  std::string said;
  for (;;) {
    PACELINE_ASSIGN_OR_RETURN(ProfileProgress progress,
                              measure.GetProfile(started.id));
    if (progress.script.has_value()) {
      spec->model.script = *std::move(progress.script);
      return absl::OkStatus();
    }
    if (progress.waiting.empty()) {
      return absl::InvalidArgumentError(Printable(
          absl::StrCat("model.file: ", absl::StrJoin(progress.failed, "; "))));
    }
    const std::string say =
        Printable(absl::StrCat("looking into ", spec->model.file, ": ",
                               absl::StrJoin(progress.waiting, "; ")));
    if (say != said) console.Note(said = say);
    if (timeout.has_value() && clock.Now() - begin >= *timeout) {
      return absl::DeadlineExceededError(
          absl::StrCat("gave up after ", absl::FormatDuration(*timeout),
                       " (--timeout), ", say, "; nothing was submitted"));
    }
    if (pauser.Sleep(kPollPeriod)) {
      return absl::CancelledError("interrupted; nothing was submitted");
    }
  }
}

}  // namespace paceline
