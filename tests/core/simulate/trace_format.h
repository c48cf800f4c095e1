// Checks what a trace viewer may rely on: the documented JSON form of trace
// events
// ("Trace Event Format", Google, sections "JSON Object Format" and "Event
// Descriptions"), as far as our traces use it, and strictly.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace paceline {

// Finds what is wrong with a trace; nothing where it opens as it is meant.
class TraceFormat {
 public:
  static std::vector<std::string> ProblemsOf(const std::string& text) {
    TraceFormat format;
    format.Check(nlohmann::json::parse(text, nullptr, false));
    return std::move(format.problems_);
  }

 private:
  using json = nlohmann::json;
  using Thread = std::pair<int64_t, int64_t>;

  struct Slice {
    int64_t begin = 0;  // ns: what a viewer keeps of microseconds
    int64_t end = 0;
    std::string where;
  };

  void Check(const json& trace) {
    if (trace.is_discarded()) return Wrong("trace", "is no JSON");
    if (!trace.is_object() || !trace.contains("traceEvents") ||
        !trace["traceEvents"].is_array()) {
      return Wrong("trace", "has no list traceEvents");
    }
    if (trace.contains("displayTimeUnit") && trace["displayTimeUnit"] != "ms" &&
        trace["displayTimeUnit"] != "ns") {
      Wrong("displayTimeUnit", "is neither ms nor ns");
    }
    int index = 0;
    for (const json& event : trace["traceEvents"]) {
      CheckEvent(absl::StrCat("event ", index++), event);
    }
    for (const auto& [thread, slices] : slices_) CheckNesting(thread, slices);
    for (const Thread& thread : with_slices_) {
      if (threads_.count(thread) == 0) {
        Wrong(NameOf(thread), "has slices and no thread_name");
      }
    }
    for (const int64_t process : with_events_) {
      if (processes_.count(process) == 0) {
        Wrong(absl::StrCat("process ", process), "has no process_name");
      }
    }
  }

  void CheckEvent(const std::string& where, const json& event) {
    if (!event.is_object()) return Wrong(where, "is no object");
    if (!IsText(event, "name")) Wrong(where, "has no name");
    if (!IsWhole(event, "pid")) return Wrong(where, "has no whole pid");
    if (!IsText(event, "ph")) return Wrong(where, "has no ph");
    const std::string phase = event["ph"];
    if (phase == "M") return CheckName(where, event);
    with_events_.insert(event["pid"].get<int64_t>());
    if (!IsTime(event, "ts")) return Wrong(where, "has no ts from 0 on");
    const int64_t begin = Nanoseconds(event["ts"]);
    if (begin < last_begin_) Wrong(where, "begins before the one before it");
    last_begin_ = begin;
    if (phase == "C") return CheckCounter(where, event);
    if (phase != "X") return Wrong(where, absl::StrCat("has ph ", phase));
    if (!IsWhole(event, "tid")) return Wrong(where, "has no whole tid");
    if (!IsTime(event, "dur")) return Wrong(where, "has no dur from 0 on");
    const Thread thread = {event["pid"], event["tid"]};
    with_slices_.insert(thread);
    slices_[thread].push_back(
        {begin, begin + Nanoseconds(event["dur"]), where});
  }

  void CheckName(const std::string& where, const json& event) {
    const json args = event.value("args", json());
    const std::string what = event.value("name", "");
    if (what == "process_sort_index") {
      if (!IsWhole(args, "sort_index")) Wrong(where, "has no sort_index");
      return;
    }
    if (what != "process_name" && what != "thread_name") {
      return Wrong(where, absl::StrCat("is metadata of no kind: ", what));
    }
    if (!IsText(args, "name")) return Wrong(where, "names nothing");
    const int64_t process = event["pid"];
    if (what == "process_name") {
      if (!processes_.insert(process).second) Wrong(where, "names it again");
      return;
    }
    if (!IsWhole(event, "tid")) return Wrong(where, "has no whole tid");
    if (!threads_.insert({process, event["tid"]}).second) {
      Wrong(where, "names it again");
    }
  }

  void CheckCounter(const std::string& where, const json& event) {
    const json args = event.value("args", json());
    if (!args.is_object() || args.empty()) Wrong(where, "counts nothing");
    for (const auto& [key, value] : args.items()) {
      if (!value.is_number() || !std::isfinite(value.get<double>())) {
        Wrong(where, absl::StrCat("counts ", key, " by no number"));
      }
    }
  }

  // Each slice of a thread lies inside another one or beside it.
  void CheckNesting(const Thread& thread, const std::vector<Slice>& slices) {
    std::vector<Slice> open;
    for (const Slice& slice : slices) {
      while (!open.empty() && open.back().end <= slice.begin) open.pop_back();
      if (!open.empty() && slice.end > open.back().end) {
        Wrong(slice.where,
              absl::StrCat("of ", NameOf(thread), " begins in ",
                           open.back().where, " and ends after it"));
      }
      open.push_back(slice);
    }
  }

  static std::string NameOf(const Thread& thread) {
    return absl::StrCat("thread ", thread.first, ".", thread.second);
  }
  static bool IsText(const json& event, const char* key) {
    return event.is_object() && event.contains(key) && event[key].is_string() &&
           !event[key].get<std::string>().empty();
  }
  static bool IsWhole(const json& event, const char* key) {
    return event.is_object() && event.contains(key) &&
           event[key].is_number_integer();
  }
  static bool IsTime(const json& event, const char* key) {
    return event.contains(key) && event[key].is_number() &&
           std::isfinite(event[key].get<double>()) && event[key] >= 0;
  }
  static int64_t Nanoseconds(const json& microseconds) {
    return std::llround(microseconds.get<double>() * 1e3);
  }

  void Wrong(const std::string& where, const std::string& what) {
    problems_.push_back(absl::StrCat(where, " ", what));
  }

  std::vector<std::string> problems_;
  std::set<int64_t> processes_;
  std::set<Thread> threads_;
  std::set<int64_t> with_events_;
  std::set<Thread> with_slices_;
  std::map<Thread, std::vector<Slice>> slices_;
  int64_t last_begin_ = 0;
};

}  // namespace paceline
