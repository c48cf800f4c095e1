#include "coordinator/jobs/advice.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/data/data_sets.h"
#include "core/job/job_keys.h"
#include "core/optim/step_gate.h"
#include "core/schedule/schedule.h"

namespace paceline {
namespace {

constexpr char kSubmit[] = "paceline job submit FILE";

}  // namespace

std::string SubmitAgain() {
  return absl::StrCat("submit it again with: ", kSubmit);
}

std::string AdviceAfter(const absl::Status& error, const JobSpec& spec) {
  // The message of a full disk already names the action.
  if (absl::StrContains(error.message(), "make room")) {
    return absl::StrCat("do that first, then: ", kSubmit);
  }
  switch (error.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
      return SubmitAgain();
    case absl::StatusCode::kResourceExhausted:
      return absl::StrCat(
          "the same job would run out of it too: take ",
          RemediesFor(spec, {"a smaller train.micro_batch",
                             "a smaller infer.micro_batch",
                             "more pipeline.stages", "more aggregation.shards",
                             "train.activation_checkpointing stage"}),
          ", or give the worker more, and only then: ", kSubmit);
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
      return "that looks like a fault of Paceline's own, and the same job "
             "would "
             "meet it again: please report it with what 'paceline job logs' "
             "says";
    default:
      return absl::StrCat(
          "the same job would fail the same way: put that right first, then: ",
          kSubmit);
  }
}

std::string AdviceAfterSaving(const absl::Status& error, const JobSpec& spec) {
  if ((!absl::IsResourceExhausted(error) && !absl::IsInternal(error)) ||
      absl::StrContains(error.message(), "make room")) {
    return AdviceAfter(error, spec);
  }
  return absl::StrCat(
      "make room or put that right on the coordinator's machine first, then: ",
      kSubmit);
}

Skips SkipsOf(const JobRecord& record) {
  if (!ScheduleTraitsOf(record.spec.pipeline.schedule).asynchronous) {
    return {record.job.skipped_steps(),
            record.job.step() - record.job.resumed().step(), false};
  }
  Skips worst{0, 0, true};
  for (const v1::StageTime& stage : record.job.stage_times()) {
    if (stage.versions().skipped_updates() <= worst.skipped) continue;
    worst.skipped = stage.versions().skipped_updates();
    worst.of = stage.versions().updates();
  }
  return worst;
}

std::string SkippedText(const JobRecord& record) {
  const Skips skips = SkipsOf(record);
  if (skips.skipped == 0) return "";
  return absl::StrCat(skips.skipped, " of ", skips.of,
                      skips.updates   ? " updates of a stage were"
                      : skips.of == 1 ? " step was"
                                      : " steps were",
                      " skipped");
}

std::string UnreadableText(const JobRecord& record) {
  const v1::Unreadable& unreadable = record.job.unreadable();
  const int samples =
      unreadable.train().numbers_size() + unreadable.test().numbers_size();
  if (samples == 0) return "";
  return absl::StrCat(
      "workers could not read ", samples,
      samples == 1 ? " sample, which was" : " samples, which were",
      " left out");
}

std::string WhyUnreadable(const JobRecord& record) {
  const v1::Unreadable& unreadable = record.job.unreadable();
  for (const bool trains : {true, false}) {
    const auto& split = trains ? unreadable.train() : unreadable.test();
    const int64_t most = MostUnreadable(split.of());
    if (split.numbers_size() <= most) continue;
    return absl::StrCat("at least ", split.numbers_size(), " of ", split.of(),
                        trains ? " training" : " test",
                        " samples cannot be read, and a job may do without ",
                        most, " of them: 'paceline job logs ",
                        record.id().value, "' names them");
  }
  return "";
}

bool MostlySkipped(const JobRecord& record) {
  const Skips skips = SkipsOf(record);
  return 2 * skips.skipped > skips.of;
}

std::string WhyMostlySkipped(const JobRecord& record) {
  const Skips skips = SkipsOf(record);
  const bool all = skips.skipped >= skips.of;
  std::string reason;
  if (!IsDataParallel(record.spec)) {
    reason = all ? "no gradient was finite (NaN or infinity)"
                 : "most gradients were not finite (NaN or infinity)";
  } else {
    reason = absl::StrCat(
        all ? "no round had" : "most rounds did not have",
        " enough parts that could be used, or what the rule made of them was "
        "not finite (NaN or infinity); 'paceline job events' says whose parts "
        "were left out");
  }
  const int64_t in_row = LongestSkipRun(record.job);
  return absl::StrCat(all ? "nothing was learnt, and the weights are what they "
                            "were at the beginning: "
                      : in_row >= kMostSkippedInRow
                          ? absl::StrCat("the training has diverged: ", in_row,
                                         " steps in a row were skipped: ")
                          : "more was skipped than learnt, and the weights are "
                            "not worth keeping: ",
                      reason);
}

std::string AdviceAfterSkips(const JobSpec& spec) {
  if (IsInference(spec)) return AdviceAfter(DataLoss(""), spec);
  std::string advice = "the same job would fail the same way: ";
  if (IsDataParallel(spec)) {
    absl::StrAppend(&advice,
                    spec.faults.empty() ? "" : "leave its `faults` out, or ",
                    "take another aggregation.rule or a smaller min_parts, ");
  }
  absl::StrAppend(&advice, "lower train.learning_rate.base");
  if (spec.train.clip_norm == 0 &&
      !ScheduleTraitsOf(spec.pipeline.schedule).asynchronous) {
    absl::StrAppend(&advice, ", set train.clip_norm=1");
  }
  if (spec.precision != "fp32") {
    absl::StrAppend(&advice, ", take precision=fp32");
  }
  if (spec.pipeline.codec != "fp32" && !IsDataParallel(spec)) {
    absl::StrAppend(&advice, ", take pipeline.codec=fp32");
  }
  return absl::StrCat(advice, ", then: ", kSubmit);
}

std::string ResumeHint(const JobRecord& record) {
  int64_t sound = record.job.resumed().step();
  for (const v1::Checkpoint& each : record.job.checkpoints()) {
    const int64_t step = each.cut().step();
    if (!IsBroken(record.job, step)) sound = std::max(sound, step);
  }
  if (sound == 0) return "";
  return absl::StrCat("; or, to go on from step ", sound,
                      ": paceline job resume ", record.id().value);
}

std::string AdviceAfterSkips(const JobRecord& record) {
  const std::string hint = ResumeHint(record);
  return absl::StrCat(
      AdviceAfterSkips(record.spec), hint,
      hint.empty() ? "" : " --set train.learning_rate.base=RATE");
}

namespace {

int64_t NotFinite(const JobRecord& record) {
  return record.job.predicted().not_finite() -
         record.job.unreadable().test().numbers_size();
}

}  // namespace

std::string NotFiniteText(const JobRecord& record) {
  const int64_t broken = NotFinite(record);
  if (broken <= 0) return "";
  return absl::StrCat(broken, " of ", record.job.total_samples(),
                      " predictions are not finite (NaN or infinity)");
}

std::string WhyNotFinite(const JobRecord& record) {
  if (2 * NotFinite(record) > record.job.total_samples()) {
    return absl::StrCat(NotFiniteText(record),
                        ": the weights are broken, or those of another model");
  }
  if (record.job.broken_step() == 0 ||
      record.job.broken_step() < record.job.steps()) {
    return "";
  }
  return absl::StrCat("the training has diverged: after the last step, ",
                      record.job.broken_step(),
                      ", the loss over the test set is not finite");
}

}  // namespace paceline
