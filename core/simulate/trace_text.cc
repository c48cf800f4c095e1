#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/text.h"
#include "core/simulate/simulation.h"

namespace paceline {
namespace {

constexpr int kComputeThread = 0;
constexpr int kFramesThread = 1;
constexpr int kFirstLinkThread = 2;

// Viewers keep whole nanoseconds, and want slices of a track to lie beside each
// other: what is rounded are ends, not durations.
int64_t Nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

std::string Micros(int64_t nanoseconds) {
  return absl::StrFormat("%d.%03d", nanoseconds / 1000, nanoseconds % 1000);
}

std::string NameOf(const TraceSlice& slice) {
  if (slice.what == "STEP") return "STEP";
  absl::string_view verb;
  if (slice.track == TraceTrack::kFrames) {
    verb = slice.receives ? "receive " : "send ";
  }
  return absl::StrCat(verb, slice.what, " ", slice.micro_batch);
}

// Appends lines, a JSON object each.  Thread-compatible.
class Writer {
 public:
  Writer(const PlanProblem& problem, const SimulationTrace& trace)
      : problem_(problem), trace_(trace) {}

  std::string Write() && {
    NumberLinks();
    WriteNames();
    WriteEvents();
    absl::StrAppend(&text_, "\n],\"displayTimeUnit\":\"ms\"}\n");
    return std::move(text_);
  }

 private:
  using Link = std::pair<int, int>;  // from, to

  void NumberLinks() {
    for (const TraceSlice& slice : trace_.slices) {
      used_[slice.device] = true;
      if (slice.peer >= 0) links_[{slice.device, slice.peer}] = 0;
    }
    for (const MemorySample& sample : trace_.memory) {
      used_[sample.device] = true;
    }
    int next = kFirstLinkThread;
    int device = -1;
    for (auto& [link, thread] : links_) {
      if (link.first != device) next = kFirstLinkThread;
      device = link.first;
      thread = next++;
    }
  }

  std::string NameOfDevice(int device) const {
    const std::string& name = problem_.devices[device].name;
    return name.empty() ? absl::StrCat("device ", device) : name;
  }

  void Line(const std::string& line) {
    absl::StrAppend(&text_, text_.empty() ? "{\"traceEvents\":[\n" : ",\n",
                    line);
  }

  void WriteThreadName(int device, int thread, const std::string& name) {
    Line(absl::StrCat("{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":", device,
                      ",\"tid\":", thread,
                      ",\"args\":{\"name\":", JsonQuoted(name), "}}"));
  }

  void WriteNames() {
    for (const auto& [device, used] : used_) {
      Line(absl::StrCat(
          "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":", device,
          ",\"args\":{\"name\":", JsonQuoted(NameOfDevice(device)), "}}"));
      Line(absl::StrCat("{\"name\":\"process_sort_index\",\"ph\":\"M\",",
                        "\"pid\":", device,
                        ",\"args\":{\"sort_index\":", device, "}}"));
      WriteThreadName(device, kComputeThread, "compute");
      WriteThreadName(device, kFramesThread, "frames (CPU)");
    }
    for (const auto& [link, thread] : links_) {
      WriteThreadName(link.first, thread,
                      absl::StrCat("to ", NameOfDevice(link.second)));
    }
    if (text_.empty()) text_ = "{\"traceEvents\":[";
  }

  int ThreadOf(const TraceSlice& slice) const {
    if (slice.track == TraceTrack::kCompute) return kComputeThread;
    if (slice.track == TraceTrack::kFrames) return kFramesThread;
    return links_.at({slice.device, slice.peer});
  }

  void WriteSlice(const TraceSlice& slice) {
    const int64_t begin = Nanoseconds(slice.begin_seconds);
    const int64_t end = Nanoseconds(slice.begin_seconds + slice.seconds);
    Line(absl::StrCat(
        "{\"name\":\"", NameOf(slice), "\",\"ph\":\"X\",\"pid\":", slice.device,
        ",\"tid\":", ThreadOf(slice), ",\"ts\":", Micros(begin),
        ",\"dur\":", Micros(end - begin), ",\"args\":{\"stage\":", slice.stage,
        ",\"step\":", slice.step, "}}"));
  }

  void WriteSample(const MemorySample& sample) {
    Line(absl::StrCat(
        "{\"name\":\"memory\",\"ph\":\"C\",\"pid\":", sample.device,
        ",\"ts\":", Micros(Nanoseconds(sample.at_seconds)),
        ",\"args\":{\"bytes\":", absl::StrFormat("%.0f", sample.bytes), "}}"));
  }

  // Both kinds by time; of one time in the order of the trace.
  void WriteEvents() {
    std::vector<std::pair<double, size_t>> order;
    for (const TraceSlice& slice : trace_.slices) {
      order.emplace_back(slice.begin_seconds, order.size());
    }
    for (const MemorySample& sample : trace_.memory) {
      order.emplace_back(sample.at_seconds, order.size());
    }
    std::ranges::sort(order);
    const size_t slices = trace_.slices.size();
    for (const auto& [at, index] : order) {
      if (index < slices) {
        WriteSlice(trace_.slices[index]);
      } else {
        WriteSample(trace_.memory[index - slices]);
      }
    }
  }

  const PlanProblem& problem_;
  const SimulationTrace& trace_;
  std::map<int, bool> used_;   // devices
  std::map<Link, int> links_;  // their threads
  std::string text_;
};

}  // namespace

std::string TraceText(const PlanProblem& problem,
                      const SimulationTrace& trace) {
  return Writer(problem, trace).Write();
}

}  // namespace paceline
