#include "core/model/fault_plan.h"

#include <algorithm>
#include <initializer_list>

#include "absl/strings/str_cat.h"

namespace paceline {
namespace {

bool IsOneOf(const std::string& kind,
             std::initializer_list<absl::string_view> kinds) {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

}  // namespace

FaultPlan::FaultPlan(const std::vector<FaultSpec>& specs,
                     absl::string_view worker, bool began_with_the_job) {
  for (const FaultSpec& fault : specs) {
    if (fault.worker != worker) continue;
    if (fault.kind == "kill" && !began_with_the_job) continue;
    faults_.push_back(fault);
  }
}

StepFaults FaultPlan::At(int64_t step) const {
  StepFaults now;
  for (const FaultSpec& fault : faults_) {
    if (step < fault.step ||
        (fault.steps > 0 && step - fault.step >= fault.steps)) {
      continue;
    }
    if (fault.kind == "kill" && fault.phase == "computing") now.kill = true;
    if (fault.kind == "hang") now.hang += absl::Seconds(fault.seconds);
    if (fault.kind == "delay") now.delay += absl::Seconds(fault.seconds);
    if (fault.kind == "label-flip") now.label_flip = true;
    if (fault.kind == "sign-flip") now.sign_flip = fault.scale;
    if (fault.kind == "gaussian") now.gaussian = fault.scale;
    if (fault.kind == "nan") now.nan = true;
    if (fault.kind == "bit-flip") now.bit_flip = true;
    if (fault.kind == "duplicate") now.duplicate = true;
  }
  return now;
}

bool FaultPlan::KillsServer(int64_t step, absl::string_view phase) const {
  return std::any_of(faults_.begin(), faults_.end(),
                     [step, phase](const FaultSpec& fault) {
                       return fault.kind == "kill" && fault.phase == phase &&
                              step >= fault.step;
                     });
}

std::vector<std::string> FaultNotes(const JobSpec& spec) {
  const FaultSpec untouched;
  std::vector<std::string> notes;
  for (size_t i = 0; i < spec.faults.size(); ++i) {
    const FaultSpec& fault = spec.faults[i];
    const auto note = [&](absl::string_view key, const std::string& why) {
      notes.push_back(
          absl::StrCat("faults[", i, "].", key, " changes nothing: ", why));
    };
    if (spec.train.steps > 0 && fault.step >= spec.train.steps) {
      note("step",
           absl::StrCat("step ", fault.step, " never comes, the last of ",
                        spec.train.steps, " is ", spec.train.steps - 1));
    }
    if (fault.steps != untouched.steps && fault.kind == "kill") {
      note("steps", "a worker is killed once");
    }
    if (fault.seconds != untouched.seconds &&
        !IsOneOf(fault.kind, {"hang", "delay"})) {
      note("seconds",
           absl::StrCat("it is for hang and delay, not for ", fault.kind));
    }
    if (fault.scale != untouched.scale &&
        !IsOneOf(fault.kind, {"sign-flip", "gaussian"})) {
      note("scale", absl::StrCat("it is for sign-flip and gaussian, not for ",
                                 fault.kind));
    }
  }
  return notes;
}

}  // namespace paceline
