// A measure takes a number from the document of a job.  Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/values/document.h"
#include "paceline/v1/control.pb.h"

namespace paceline {

// How several numbers become one, where a path goes through a list.
enum class Fold { kSum, kMost, kMean, kLast, kTail };

// kText: not a number, "13-2-1".
enum class Unit { kNumber, kShare, kSeconds, kBytes, kText };

struct Measure {
  std::string name;
  Fold fold = Fold::kSum;
  Unit unit = Unit::kNumber;
  // Keys with dots between, "workers.seconds.wall"; their values are added.
  std::vector<std::string> paths = {};
  bool more_is_better = false;
  std::string per = {};  // the path of what the value is a share of; or empty
};

// The document of `job show`, and in it the `seconds` that the job ran.
Document JobDocument(const v1::Job& job);

// A short name ("accuracy", "memory"), a part of the workers' time ("forward"),
// or the path of a number in a JobDocument().  "max ", "mean " or "last "
// before a path says what becomes of lists; without one their numbers are
// added. Errors: InvalidArgument  neither; names what is like it
absl::StatusOr<Measure> FindMeasure(const std::string& name);

// The same for the document of a plan, client/commands/job/study.cc:
// "speed_up".
absl::StatusOr<Measure> FindPlanMeasure(const std::string& name);

// Nothing where the document has no such number; infinity for a NaN.
std::optional<double> ValueIn(const Document& job, const Measure& measure);

std::string ValueText(double value, Unit unit);

struct ValueSpread {
  double median = 0;
  double least = 0;
  double most = 0;
  int count = 0;
};
// values: at least one.
ValueSpread SpreadOf(const std::vector<double>& values);

// "7.2 ms", or with several "7.2 ms (7.1..7.5)".
std::string SpreadText(const ValueSpread& spread, Unit unit);

}  // namespace paceline
