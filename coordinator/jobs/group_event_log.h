// GroupEventLog turns the round records of a job's members into events for
// people, and adds up the members' partial evaluations.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "core/base/ids.h"
#include "paceline/v1/coordinator.pb.h"
#include "paceline/v1/types.pb.h"

namespace paceline {

// Thread-compatible; lives on the coordinator's loop.  Pure.
class GroupEventLog {
 public:
  struct Event {
    std::string kind;  // takeover, void, skipped
    std::string text;
  };
  using Names = std::function<std::string(WorkerId)>;

  // The event for `record`.  Nothing where all went well, where the same event
  // was told before, and after kMostAlike events that differ only in the step
  // or kMostOfAKind of a kind; those are only counted.  Parts that the rule
  // leaves out are only counted, too.
  std::optional<Event> OnRecord(const v1::RoundRecord& record,
                                const Names& names);

  // "rounds: 3 void, 2 servers replaced, parts skipped: 4 late, 1 lost,
  // outvoted: w4 60, w1 2"; empty where nothing happened.
  std::string Summary() const;

  // Takes a member's evaluation over its own samples.  Returns the sum of all
  // parts of that step so far; a repeated part changes nothing.  Nothing for a
  // step so old that its other parts are forgotten.
  std::optional<v1::EvaluationRecord> OnEvaluation(
      WorkerId member, const v1::EvaluationRecord& part);
  // The members whose parts of `step` have come.
  std::set<WorkerId> EvaluatedBy(int64_t step) const;
  // Ignores evaluations up to `step`: an earlier coordinator stored them, whole
  // or not.  -1: a new attempt begins, and all are expected.
  void ForgetEvaluations(int64_t step);

 private:
  using Told = std::tuple<int64_t, std::string, std::string>;

  bool IsNew(const Told& told);
  void CountOutvoted(const v1::RoundRecord& record, const Names& names);
  // alike: the text without the step.
  std::optional<Event> Count(const std::string& kind, const std::string& alike,
                             std::string text);

  std::map<std::string, int64_t> told_;      // events, by kind
  std::map<std::string, int64_t> alike_;     // of them, by `alike`
  std::map<std::string, int64_t> skipped_;   // parts, by reason
  std::map<std::string, int64_t> outvoted_;  // parts, by member
  int64_t voids_ = 0;
  int64_t takeovers_ = 0;
  // (step, kind, text) of the newest events: a record comes again after a lost
  // acknowledgement, and from several members.
  std::set<Told> seen_;
  std::map<int64_t, std::map<WorkerId, v1::EvaluationRecord>>
      parts_;  // by step
  int64_t forgotten_ = -1;
};

}  // namespace paceline
