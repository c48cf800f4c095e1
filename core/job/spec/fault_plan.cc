#include "core/job/spec/fault_plan.h"

#include <algorithm>

namespace paceline {

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

}  // namespace paceline
