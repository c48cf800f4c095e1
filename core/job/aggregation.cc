#include "core/job/aggregation.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/errors.h"
#include "core/base/tensor.h"
#include "core/base/text.h"
#include "core/job/job_keys.h"
#include "core/model/description.h"
#include "core/round/rules/rule.h"
#include "core/round/rules/rule_blocks.h"
#include "core/schedule/schedule.h"

namespace paceline {
namespace {

// How every one of `members` gets a micro-batch.
std::string MoreMicroBatches(const TrainSpec& train, int64_t members) {
  if (train.batch < members) {
    return absl::StrCat("raise train.batch to at least ", members);
  }
  return absl::StrCat("lower it to at most ", train.batch / members,
                      ", or raise train.batch");
}

// Members that gossip average parameters in pairs: there are no rounds that a
// rule, a server or a least number of parts could belong to.
void CheckGossip(const AggregationSpec& a, SpecProblems& problems) {
  const struct {
    const char* path;
    bool given;
    std::string is;
    const char* why;
  } refused[] = {
      {"aggregation.rule", a.rule != AggregationSpec().rule,
       absl::CHexEscape(a.rule),
       "averages two members' parameters at a time and has nobody to judge "
       "them: leave rule out, or use mode rolling"},
      {"aggregation.k", a.k > 0, absl::StrCat(a.k),
       "withstands no liars: leave k out, or use mode rolling with a rule that "
       "does"},
      {"aggregation.shards", a.shards > 1, absl::StrCat(a.shards),
       "has no servers that could share the work: leave shards out, or use "
       "mode rolling"},
      {"aggregation.min_parts", a.min_parts > 1, absl::StrCat(a.min_parts),
       "has no rounds that could be void, and goes on with whoever is there: "
       "leave min_parts out, or use mode rolling"},
      {"aggregation.codec", a.codec != "fp32", absl::CHexEscape(a.codec),
       "sends parameters, which would be rounded again in every step: leave "
       "codec out"},
      {"aggregation.conflict", a.conflict, "true",
       "exchanges parameters, not gradients: leave conflict out, or use mode "
       "rolling"}};
  for (const auto& [path, given, is, why] : refused) {
    if (given) problems.Add(path, "is ", is, ", but mode gossip ", why);
  }
}

// A learning rate that is no number is named where it stands.
RuleSpec RuleToJudge(const JobSpec& spec) {
  RuleSpec rule = RuleOf(spec);
  if (!std::isfinite(rule.gamma) || rule.gamma <= 0) rule.gamma = 1;
  return rule;
}

// False where the rule cannot be judged with a number of members.
bool CheckRuleKeys(const JobSpec& spec, SpecProblems& problems) {
  const AggregationSpec& a = spec.aggregation;
  bool good = true;
  for (const char* key :
       {"aggregation.rule", "aggregation.k", "aggregation.selected",
        "aggregation.alpha", "aggregation.gamma", "aggregation.rho",
        "aggregation.trusted", "aggregation.shards"}) {
    good &= IsInRange(key, spec);
  }
  if (!good) return false;
  if (const absl::Status status = CheckRuleNumbers(RuleToJudge(spec));
      !status.ok()) {
    problems.Add("aggregation.rule", std::string(status.message()));
    return false;
  }
  if (TraitsOf(a.rule).reads_whole_parts && a.shards > 1) {
    problems.Add("aggregation.shards", "is ", a.shards, ", but rule ", a.rule,
                 " judges whole parts: set shards to 1, or use ",
                 ShardableRules());
    return false;
  }
  return true;
}

void CheckNames(const AggregationSpec& aggregation, SpecProblems& problems) {
  const std::vector<std::string>& workers = aggregation.workers;
  const std::set<std::string> names(workers.begin(), workers.end());
  if (names.contains("")) {
    problems.Add("aggregation.workers", "holds an empty name");
  }
  if (names.size() < workers.size()) {
    problems.Add("aggregation.workers",
                 "names a worker twice: each is one member");
  }
  if (std::ssize(workers) > kMostMembers) {
    problems.Add("aggregation.workers", "names ", workers.size(),
                 " workers; at most ", kMostMembers, " are allowed");
  }
  if (!workers.empty() && aggregation.members != 0 &&
      aggregation.members != std::ssize(workers)) {
    problems.Add("aggregation.members", "is ", aggregation.members,
                 ", but aggregation.workers names ", workers.size(),
                 "; leave it out");
  }
}

void CheckShares(const AggregationSpec& aggregation, SpecProblems& problems) {
  const std::vector<double>& shares = aggregation.shares;
  if (shares.empty()) return;
  if (aggregation.workers.empty()) {
    problems.Add("aggregation.shares",
                 "says how the workers of aggregation.workers share a batch, "
                 "and so needs these");
    return;
  }
  problems.Shares("aggregation.shares", shares, aggregation.workers.size());
}

// Checks what the number of members decides.
//   rule  whether the rule may be judged
// Says that a member would serve two shards at once; empty: none would.
std::string ShardsBeyond(const AggregationSpec& a, int64_t members) {
  if (a.shards <= members) return "";
  return absl::StrCat("is ", a.shards, ", but there are ",
                      Counted(members, "member"),
                      ", and each serves one shard at a time: lower "
                      "it to at most ",
                      members, ", or leave it out");
}

void CheckMemberCount(const JobSpec& spec, bool rule, SpecProblems& problems) {
  const AggregationSpec& a = spec.aggregation;
  const bool parts = IsInRange("aggregation.min_parts", spec);
  const int64_t micro_batches = MicroBatchesOfAStep(spec.train);
  const int64_t members = KnownMembers(a);
  if (parts && members > 0 && a.min_parts > members) {
    problems.Add("aggregation.min_parts", "is ", a.min_parts,
                 ", but there are ", Counted(members, "member"),
                 ": no round could ever close; lower it to at most ", members);
  }
  if (members > 0) {
    problems.AddUnlessEmpty("aggregation.shards", ShardsBeyond(a, members));
  }
  const int64_t least = std::max<int64_t>(members, a.min_parts);
  if (micro_batches > 0 && least > micro_batches) {
    problems.Add("train.micro_batch", "cuts a batch in ",
                 Counted(micro_batches, "micro-batch"), " for ",
                 Counted(least, "member"), ", so that some have none; ",
                 MoreMicroBatches(spec.train, least));
  }
  if (!rule || members < 1) return;
  const auto judged = CheckRule(RuleToJudge(spec), members);
  if (!judged.ok()) {
    problems.Add("aggregation.k", std::string(judged.status().message()));
  }
}

// A group's members hold one stage, the whole model.
void CheckPipelineOfMembers(const PipelineSpec& pipeline,
                            SpecProblems& problems) {
  const char* const why =
      "every member of a data-parallel job holds the whole model; leave it out";
  if (pipeline.stages > 1) {
    problems.Add("pipeline.stages", "is ", pipeline.stages, ", but ", why);
  }
  if (!pipeline.cuts.empty()) problems.Add("pipeline.cuts", why);
  if (!pipeline.workers.empty()) {
    problems.Add("pipeline.workers",
                 "places stages; name the members in aggregation.workers");
  }
  if (!pipeline.replicas.empty()) problems.Add("pipeline.replicas", why);
  if (ScheduleTraitsOf(pipeline.schedule).asynchronous) {
    problems.Add("pipeline.schedule",
                 "is pipedream, which updates without waiting for a round; "
                 "leave it out");
  }
}

// Running statistics travel behind the gradient (core/optim/optimizer.h): a
// rule that judges whole parts would judge by them, gossip has no sums, and a
// script moves its own in its forward.
void CheckBuffers(const JobSpec& spec, const ModelDescription& model,
                  SpecProblems& problems) {
  if (!HasBuffers(model)) return;
  const AggregationSpec& a = spec.aggregation;
  const RuleTraits* const rule = FindRule(a.rule);
  const bool script = spec.model.name == kScriptModel;
  if (script || IsGossip(spec)) {
    problems.Add("aggregation.mode", "is ", a.mode,
                 ", but members would not agree on the running statistics or "
                 "other buffers of ",
                 model.name,
                 script ? ", which the script moves itself; " : "; ", "use ",
                 script ? "" : "mode rolling, or ",
                 "a pipeline (aggregation.mode none)");
  } else if (rule != nullptr && rule->reads_whole_parts) {
    problems.Add("aggregation.rule", "is ", a.rule,
                 ", which would judge members by the statistics of ",
                 model.name, "'s batch normalisation; use ", ShardableRules());
  }
}

std::string FaultPath(size_t index) {
  return absl::StrCat("faults[", index, "]");
}

// model: null: not known
void CheckSkip(const JobSpec& spec, size_t index, const ModelDescription* model,
               SpecProblems& problems) {
  const std::string path = FaultPath(index) + ".block";
  const FaultSpec& fault = spec.faults[index];
  if (fault.block < 0) {
    problems.Add(path,
                 "is missing, or below 0: skip-stage names the block "
                 "that is left out, and the first one is 0");
  } else if (model != nullptr) {
    problems.AddUnlessEmpty(path, WhyNotSkipped(*model, fault.block));
  }
}

void CheckFault(const JobSpec& spec, size_t index, SpecProblems& problems) {
  const FaultSpec& fault = spec.faults[index];
  const std::vector<std::string>& workers = spec.aggregation.workers;
  const std::string at = FaultPath(index);
  const std::string path = at + ".worker";
  if (fault.worker.empty()) {
    problems.Add(path, "is missing: a fault names the worker that has it");
  } else if (!workers.empty() &&
             std::ranges::find(workers, fault.worker) == workers.end()) {
    problems.OneOf(path.c_str(), "worker", fault.worker, workers);
  }
  if (fault.phase != "computing" && fault.kind != "kill") {
    problems.Add(at + ".phase", "is for kind kill, not for ", fault.kind,
                 ": leave it out");
  }
}

// Returns what a person should know about a rule with so many parts.
std::vector<std::string> NotesOfRule(const RuleSpec& rule, int64_t parts) {
  const auto judged = CheckRule(rule, parts);
  if (!judged.ok()) {
    return {absl::StrCat(judged.status().message(), "; such rounds are void")};
  }
  return *judged;
}

bool Computes(const RuleSpec& rule, int64_t parts) {
  return CheckRule(rule, parts).ok();
}

bool Withstands(const RuleSpec& rule, int64_t parts) {
  const auto judged = CheckRule(rule, parts);
  return judged.ok() && judged->empty();
}

// The least number of parts from `first` to `last` that are enough; 0: none is.
int64_t LeastParts(const RuleSpec& rule, int64_t first, int64_t last,
                   bool (*enough)(const RuleSpec&, int64_t)) {
  for (int64_t parts = first; parts <= last; ++parts) {
    if (enough(rule, parts)) return parts;
  }
  return 0;
}

}  // namespace

RuleSpec RuleOf(const JobSpec& spec) {
  const AggregationSpec& a = spec.aggregation;
  return {.name = a.rule,
          .k = a.k,
          .selected = a.selected,
          .alpha = a.alpha,
          .gamma = a.gamma > 0 ? a.gamma : spec.train.learning_rate.base,
          .rho = a.rho};
}

int32_t ShardsOf(const JobSpec& spec, const ModelDescription& model,
                 int64_t members) {
  const AggregationSpec& a = spec.aggregation;
  if (a.shards > 0) return a.shards;
  if (a.mode != "rolling" || TraitsOf(a.rule).reads_whole_parts) return 1;
  constexpr auto kBlock = static_cast<int64_t>(kRuleBlock);
  const int64_t most = std::clamp<int64_t>(members, 1, kMostShards);
  int64_t elements = 0;
  for (const Layer& layer : model.layers) {
    for (const Parameter& parameter : layer.parameters) {
      if (parameter.trainable) elements += NumElements(parameter.shape);
      if (elements >= most * kBlock) return static_cast<int32_t>(most);
    }
  }
  return static_cast<int32_t>(
      std::clamp<int64_t>((elements + kBlock - 1) / kBlock, 1, most));
}

void CheckAggregation(const JobSpec& spec, const ModelDescription* model,
                      SpecProblems& problems) {
  const AggregationSpec& a = spec.aggregation;
  if (IsGossip(spec)) CheckGossip(a, problems);
  const bool rule = CheckRuleKeys(spec, problems);
  CheckNames(a, problems);
  CheckShares(a, problems);
  if (!IsDataParallel(spec)) return;
  CheckMemberCount(spec, rule, problems);
  if (spec.data.distribution != "iid" && !a.shares.empty()) {
    problems.Add("aggregation.shares",
                 "says that members take different parts of a batch, and with "
                 "data.distribution ",
                 spec.data.distribution,
                 " all take equal ones: leave one of them out");
  }
  if (spec.kind == kInferKind) {
    problems.Add("aggregation.mode",
                 "is for training: a job of kind infer has no gradients to "
                 "agree on; leave it out");
  }
  CheckPipelineOfMembers(spec.pipeline, problems);
  if (model != nullptr) CheckBuffers(spec, *model, problems);
}

void CheckFaults(const JobSpec& spec, const ModelDescription* model,
                 SpecProblems& problems) {
  const std::vector<FaultSpec>& faults = spec.faults;
  if (!IsDataParallel(spec) &&
      std::ranges::any_of(faults, [](const FaultSpec& fault) {
        return fault.kind != kSkipStage;
      })) {
    problems.Add(
        "faults",
        "of other kinds than skip-stage are for data-parallel jobs, whose "
        "other "
        "members go on: set aggregation.mode to rolling, central or gossip, or "
        "leave faults out");
  }
  for (size_t i = 0; i < spec.faults.size(); ++i) {
    if (faults[i].kind == kSkipStage) {
      CheckSkip(spec, i, model, problems);
      continue;
    }
    CheckFault(spec, i, problems);
    if (!IsGossip(spec) || spec.faults[i].phase == "computing") continue;
    problems.Add(
        FaultPath(i) + ".phase", "is ", absl::CHexEscape(spec.faults[i].phase),
        ", a phase of a server, but mode gossip has none: leave phase out");
  }
}

std::vector<SpecProblem> CheckFaultWorkers(
    const JobSpec& spec, const std::vector<std::string>& attached) {
  SpecProblems problems;
  for (size_t i = 0; i < spec.faults.size(); ++i) {
    const std::string& worker = spec.faults[i].worker;
    if (spec.faults[i].kind == kSkipStage) continue;
    if (std::ranges::find(attached, worker) != attached.end()) {
      continue;
    }
    const std::string why =
        attached.empty()
            ? "none is attached"
            : absl::StrCat("none of that name is attached now",
                           MeantText(worker, attached),
                           "; there are: ", absl::StrJoin(attached, ", "));
    problems.Add(FaultPath(i) + ".worker",
                 attached.empty() ? "there is no worker '" : "unknown worker '",
                 absl::CHexEscape(worker), "': ", why);
  }
  return problems.Take();
}

absl::Status CheckMembersOfRule(const JobSpec& spec, int64_t members) {
  if (!IsDataParallel(spec)) return absl::OkStatus();
  if (const std::string beyond = ShardsBeyond(spec.aggregation, members);
      !beyond.empty()) {
    return InvalidArgument("aggregation.shards: ", beyond);
  }
  const RuleSpec rule = RuleToJudge(spec);
  const absl::Status judged = CheckRule(rule, members).status();
  if (judged.ok()) return judged;
  const int64_t needed = LeastParts(rule, members, kMostMembers, Computes);
  return InvalidArgument(
      "aggregation.k: ", judged.message(),
      needed == 0
          ? ""
          : absl::StrCat("; or set aggregation.min_parts to at least ", needed,
                         ", so that the job waits for as many workers"));
}

std::vector<std::string> AggregationNotes(const JobSpec& spec,
                                          int64_t members) {
  const AggregationSpec& a = spec.aggregation;
  const RuleSpec rule = RuleOf(spec);
  std::vector<std::string> notes = NotesOfRule(rule, members);
  if (a.min_parts < members) {
    // Where all members are too few, waiting for more of them helps only a rule
    // that could not compute at all.
    int64_t needed = 0;
    if (notes.empty()) {
      needed = LeastParts(rule, a.min_parts + 1, members, Withstands);
    } else if (!Computes(rule, a.min_parts)) {
      needed = LeastParts(rule, a.min_parts + 1, members, Computes);
    }
    for (const std::string& note : NotesOfRule(rule, a.min_parts)) {
      notes.push_back(absl::StrCat(
          "a round may close with min_parts=", a.min_parts, " of ",
          Counted(members, "part"), ": ", note,
          needed == 0
              ? ""
              : absl::StrCat("; set aggregation.min_parts to at least ", needed,
                             " to have it wait for as many parts")));
    }
  }
  const int64_t micro_batches = MicroBatchesOfAStep(spec.train);
  if (members > micro_batches) {
    notes.push_back(absl::StrCat("train.micro_batch cuts a batch in ",
                                 Counted(micro_batches, "micro-batch"), " for ",
                                 Counted(members, "member"),
                                 ", so that some have none; ",
                                 MoreMicroBatches(spec.train, members)));
  }
  return notes;
}

}  // namespace paceline
