// Plans as documents and as text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/document.h"
#include "client/planning/plan_question.h"
#include "core/plan/policy.h"

namespace paceline {

// What one policy answered, and how long it took.
struct PolicyRun {
  std::string policy;
  std::optional<PlanAnswer> answer;
  absl::Status refused;  // why there is no answer
  double planning_seconds = 0;
};

// The keys of `plan`, as client/README.md lists them.
Document ToDocument(const PlanQuestion& question, const PolicyRun& run);
// The same for each policy, with `refused`.
Document::List ToDocuments(const PlanQuestion& question,
                           const std::vector<PolicyRun>& runs);

std::string RenderPlan(const PlanQuestion& question, const PolicyRun& run);
// One line a policy.
std::string RenderComparison(const PlanQuestion& question,
                             const std::vector<PolicyRun>& runs);

// "3.2 %"; "-" where the bound says nothing.
std::string GapText(double gap);

}  // namespace paceline
