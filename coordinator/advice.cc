#include "coordinator/advice.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/model/job_keys.h"
#include "core/schedule/traits.h"

namespace paceline {
namespace {

constexpr char kSubmit[] = "paceline job submit FILE";

}  // namespace

std::string SubmitAgain() {
  return absl::StrCat("submit it again with: ", kSubmit);
}

std::string AdviceAfter(const absl::Status& error, const JobSpec& spec) {
  // The message of a full disk says already what to do.
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
    return {record.job.skipped_steps(), record.job.step(), false};
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
  std::vector<std::string> parts;
  for (const v1::JobWorker& worker : record.job.workers()) {
    const int64_t samples = worker.run().unreadable_samples();
    if (samples == 0) continue;
    parts.push_back(absl::StrCat(
        worker.name(), " could not read ", samples,
        samples == 1 ? " sample, which was" : " samples, which were",
        " left out"));
  }
  return absl::StrJoin(parts, "; ");
}

bool MostlySkipped(const JobRecord& record) {
  const Skips skips = SkipsOf(record);
  return 2 * skips.skipped > skips.of;
}

std::string WhyMostlySkipped(const JobRecord& record) {
  const Skips skips = SkipsOf(record);
  const bool all = skips.skipped == skips.of;
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
  return absl::StrCat(all ? "nothing was learnt, and the weights are what they "
                            "were at the beginning: "
                          : "more was skipped than learnt, and the weights are "
                            "not worth keeping: ",
                      reason);
}

std::string AdviceAfterSkips(const JobSpec& spec) {
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

}  // namespace paceline
