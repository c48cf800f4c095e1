// Changes of a job in tests, written as a job file has them.
#pragma once

#include <string>
#include <type_traits>
#include <variant>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/errors.h"
#include "core/job/job_check.h"
#include "core/job/job_keys.h"

namespace paceline {

template <typename Value>
void ReadValue(const std::string& text, Value& value) {
  bool read = true;
  if constexpr (std::is_same_v<Value, std::string>) {
    value = text;
  } else if constexpr (std::is_same_v<Value, bool>) {
    read = absl::SimpleAtob(text, &value);
  } else if constexpr (std::is_same_v<Value, double>) {
    read = absl::SimpleAtod(text, &value);
  } else if constexpr (std::is_integral_v<Value>) {
    read = absl::SimpleAtoi(text, &value);
  } else {
    value.clear();
    if (text.empty()) return;
    for (const auto part : absl::StrSplit(text, ',')) {
      ReadValue(std::string(part), value.emplace_back());
    }
  }
  PACELINE_CHECK(read, text);
}

// changes: "model.name=vit; data.shape=1,28,28; faults[1].kind=nan".  A fault
// that is not there yet is added, of worker w1.
inline void ChangeJob(JobSpec& spec, const std::string& changes) {
  for (const absl::string_view change :
       absl::StrSplit(changes, "; ", absl::SkipEmpty())) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(change, absl::MaxSplits('=', 1));
    std::string key = parts.first;
    size_t fault = 0;
    if (key.starts_with("faults[")) {
      fault = static_cast<size_t>(key[7] - '0');
      key = absl::StrCat("faults", key.substr(9));
      while (spec.faults.size() <= fault) {
        spec.faults.push_back({.worker = "w1", .kind = "nan"});
      }
    }
    PACELINE_CHECK(FindJobKey(key) != nullptr, key);
    std::visit([&](auto* value) { ReadValue(parts.second, *value); },
               FindJobKey(key)->at(spec, fault));
  }
}

// A change that makes a good job bad.
struct BadJob {
  std::string changes;
  std::string why;        // part of what is then said
  std::string path = "";  // of what; empty: the last key that is changed

  std::string Path() const {
    if (!path.empty()) return path;
    const size_t last = changes.rfind("; ");
    const size_t from = last == std::string::npos ? 0 : last + 2;
    return changes.substr(from, changes.find('=', from) - from);
  }
};

// Tells what is wrong with `spec` at `path`; "nothing" when nothing is.
inline std::string WhyAt(const JobSpec& spec, const std::string& path) {
  for (const SpecProblem& problem : CheckJobSpec(spec)) {
    if (problem.path == path) return problem.why;
  }
  return "nothing";
}

}  // namespace paceline
