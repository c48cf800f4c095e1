// Says what a job's `aggregation` and `faults` mean, and what is wrong there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/job/spec/job_spec.h"
#include "core/model/description.h"
#include "core/round/rules/rule.h"

namespace paceline {

// True for a data-parallel job whose members average parameters in pairs.
inline bool IsGossip(const JobSpec& spec) {
  return spec.aggregation.mode == "gossip";
}

// True for a data-parallel job whose members agree in rounds.
inline bool HasRounds(const JobSpec& spec) {
  return IsDataParallel(spec) && !IsGossip(spec);
}

// Results of the last steps that a member keeps beside the one it holds, for
// those who lack them; each is as large as the gradient.
inline constexpr int kKeptResults = 2;

// The rule of a job, with what other parts of it decide: zeno's gamma 0 is the
// learning rate.
RuleSpec RuleOf(const JobSpec& spec);

// Into how many parts at most a round cuts the gradient, each of which another
// server adds up, where a group begins with `members` (at least 1).
// aggregation.shards; where that is 0, as many as members, at most 64 and no
// more than there are blocks (kRuleBlock) to share; EstimateGroup() of
// core/simulate chooses among these.  Whole-vector rules and the modes central
// and gossip keep one.
int32_t ShardsOf(const JobSpec& spec, const ModelDescription& model,
                 int64_t members);

// All that is wrong with `spec.aggregation` and with what else the spec says
// beside it.  model: null where it could not be described.
void CheckAggregation(const JobSpec& spec, const ModelDescription* model,
                      SpecProblems& problems);

// All that is wrong with `spec.faults`.  Workers are known where
// aggregation.workers names them.
//   model  as without the faults; null: not known
void CheckFaults(const JobSpec& spec, const ModelDescription* model,
                 SpecProblems& problems);

// For who knows the workers that are there (the coordinator at submit): those
// that the spec names and that are none of them.  A worker that is not there
// yet may still come as a member, but nobody means a fault for nobody.
std::vector<SpecProblem> CheckFaultWorkers(
    const JobSpec& spec, const std::vector<std::string>& attached);

// For who knows how many members there would be now (the coordinator at
// submit): whether the rule can make anything of so many parts.
// Errors: InvalidArgument  its k leaves no part of these; all rounds would be
//         void; more shards than members
absl::Status CheckMembersOfRule(const JobSpec& spec, int64_t members);

// Returns notes for whoever submits a data-parallel job of so many members:
// assumptions of its rule that do not hold, with all members and with as few
// parts as a round may close with, and the numbers.  members: at least 1.
std::vector<std::string> AggregationNotes(const JobSpec& spec, int64_t members);

}  // namespace paceline
