// MeasureQueue decides which worker measures what, and when.
//
// Assumes: a worker measures one thing at a time and nothing while it has a
// job; two links that share no worker do not disturb each other.  A person's
// measurement goes before the mesh's own (the links of a worker that has just
// joined), keeps jobs off its worker until it is done, and reports its failure.
// The mesh's own measurement waits, gives way to jobs and is dropped silently.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/job/spec/job_spec.h"
#include "paceline/v1/control.pb.h"

namespace paceline {

// A worker as the queue sees it.
struct MeasureWorker {
  std::string name;
  std::string address;
  bool live = false;    // attached and not suspect
  bool busy = false;    // has a job
  bool paused = false;  // its job is paused
};

// In a larger mesh, a new process measures only its links to the workers that
// came last: a thousand workers have half a million links.
inline constexpr size_t kMostLinks = 32;

// Thread-compatible; lives on the coordinator's loop.  Pure.
class MeasureQueue {
 public:
  // A new process of this name has attached: queues its links, up to
  // kMostLinks, each from both ends.  `others`: the live workers, the newest at
  // the end.
  void OnArrival(const std::string& name,
                 const std::vector<std::string>& others);

  // Has `from` try again to dial `to`.
  void Redial(const std::string& from, const std::string& to);

  // workers: at least one.  Returns the id for View().
  int64_t Request(const JobSpec& spec, const std::string& cpu_capability,
                  const std::vector<std::string>& workers, bool links);

  // Has these workers look for request.files().  Returns the id for View().
  int64_t RequestFiles(const v1::StartProfileRequest& request,
                       const std::vector<std::string>& workers);

  // Takes the answer to the worker's present order; ignores any other.  Returns
  // the part to store: nothing for a repeated answer or an error, except for a
  // link that could not be dialled; of links only the one that was asked for.
  std::optional<v1::Measurement> OnMeasurement(const std::string& worker,
                                               v1::Measurement measurement);

  // Starts, takes back and fails measurements.  workers: all known ones.
  void Assign(const std::vector<MeasureWorker>& workers, Instant now);

  std::optional<v1::MeasureOrder> OrderOf(const std::string& worker) const;
  // Whether `worker` takes part in a person's measurement that runs, with all
  // its workers attached.
  bool Holds(const std::string& worker) const;

  // Errors: NotFound; InvalidArgument  no such page
  absl::StatusOr<v1::GetProfileResponse> View(
      int64_t request, Instant now, const std::string& page_token = "");

 private:
  struct Task {
    int64_t request = 0;          // 0: the mesh's own
    v1::MeasureOrder order;       // link's address is filled in when it begins
    std::optional<JobSpec> spec;  // of `order.layers`
    std::string worker;
    std::string peer;  // empty: layers
    bool running = false;
    std::optional<Instant> since;       // running since
    std::optional<Instant> gone_since;  // one of its workers is gone since
    std::optional<Instant> asked_for;   // last time, by View()
    int ended_processes = 0;            // of its workers, while it ran
    std::string waits_for;
  };

  // One process's links that the mesh measures on its own.
  struct OwnLinks {
    std::vector<std::string> peers;  // not measured yet
    std::optional<Task> running;
    int64_t last = 0;  // last order's id
  };

  static bool IsScript(const Task& task);
  // Makes a request whose outcome View() can return.
  int64_t NewRequest();
  Task NewTask(int64_t request, const std::string& worker);
  Task NewLink(int64_t request, const std::string& from, const std::string& to);
  // The task whose order `worker` has; null: none.
  const Task* RunningOn(const std::string& worker) const;
  void Remove(const Task& task);
  // Why the task must end; OK while it may go on.
  static absl::Status Judge(Task& task,
                            const std::map<std::string, MeasureWorker>& workers,
                            Instant now);
  void End(const Task& task, const absl::Status& error);
  // Starts the mesh's own measurements.
  void BeginOwn(absl::FunctionRef<bool(const std::string& worker)> is_free,
                absl::FunctionRef<void(Task& task)> begin);
  static std::string TextOf(const Task& task);
  static void KeepAsked(const Task& task, v1::Measurement& measurement);

  int64_t next_id_ = 1;
  std::deque<Task> tasks_;               // people's, oldest first
  std::map<std::string, OwnLinks> own_;  // by worker
  // Outcomes for View(), by request; the oldest are dropped.
  std::map<int64_t, v1::GetProfileResponse> requests_;
};

}  // namespace paceline
