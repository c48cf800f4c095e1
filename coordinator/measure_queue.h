// MeasureQueue decides which worker measures what, and when.
//
// Assumes: a worker measures one thing at a time and nothing while it has a
// job; two links that share no worker do not disturb each other.  What a
// person asked for comes before what the mesh does by itself (the links of a
// worker that has just joined), keeps its worker from jobs until it is done,
// and fails aloud; the mesh's own waits, gives way and is dropped in silence.
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
#include "core/cluster/measure_order.h"
#include "paceline/v1/control.pb.h"

namespace paceline {

// A worker as the queue sees it.
struct MeasureWorker {
  std::string name;
  std::string address;
  bool live = false;    // attached, no doubt about it
  bool busy = false;    // has a job
  bool paused = false;  // which pauses
};

// In a larger mesh, a new process measures its links to those that came last:
// all links of a thousand workers would be half a million.
inline constexpr size_t kMostLinks = 32;

struct MeasurePolicy {
  absl::Duration link_limit = absl::Seconds(60);
  absl::Duration layers_limit = absl::Minutes(30);
  // Somebody's own code is loaded and executed once, and may never return.
  absl::Duration script_limit = absl::Minutes(5);
  absl::Duration files_limit = absl::Seconds(10);
  // Only the client that asked about a script wants the answer.  A measurement
  // is kept for all, even if no client waits.
  absl::Duration unasked_limit = absl::Seconds(30);
  // How long something waits for a worker that is gone: it may be executing
  // itself anew.
  absl::Duration return_period = absl::Seconds(20);
  // Processes that end while they measure: one executes itself anew for another
  // CPU capability, a second may be somebody's doing, a third is the
  // measurement's: it takes all memory, or the script crashes.
  int most_ended_processes = 2;
};

// Thread-compatible; lives on the coordinator's loop.  Pure.
class MeasureQueue {
 public:
  explicit MeasureQueue(const MeasurePolicy& policy = {}) : policy_(policy) {}

  // A new process of this name: its links are measured anew, up to kMostLinks
  // of them, each from both ends.  `others`: the live workers, those that came
  // last at the end.
  void OnArrival(const std::string& name,
                 const std::vector<std::string>& others);

  // Has one try again whether it can dial the other.
  void Redial(const std::string& from, const std::string& to);

  // workers: at least one.  The id for View().
  int64_t Request(const JobSpec& spec, const std::string& cpu_capability,
                  const std::vector<std::string>& workers, bool links);

  // Has these workers look for request.files().  The id for View().
  int64_t RequestFiles(const v1::StartProfileRequest& request,
                       const std::vector<std::string>& workers);

  // The answer to the order that `worker` has; any other is ignored.  What of
  // it is to be kept: nothing unless it was the first answer, and no error but
  // that of a link that could not be dialled; of links the one that was asked
  // for, whatever else it names.
  std::optional<v1::Measurement> OnMeasurement(const std::string& worker,
                                               v1::Measurement measurement);

  // Hands out, takes back, and gives up.  workers: all that are known.
  void Assign(const std::vector<MeasureWorker>& workers, Instant now);

  std::optional<MeasureOrder> OrderOf(const std::string& worker) const;
  // Whether `worker` takes part in what a person asked for, and all others that
  // do are there.
  bool Holds(const std::string& worker) const;

  // Errors: NotFound; InvalidArgument  no such page
  absl::StatusOr<v1::GetProfileResponse> View(
      int64_t request, Instant now, const std::string& page_token = "");

 private:
  struct Task {
    int64_t request = 0;  // 0: the mesh's own
    MeasureOrder order;   // link's address is filled in when it begins
    std::string worker;
    std::string peer;  // empty: layers
    bool running = false;
    std::optional<Instant> since;       // running since
    std::optional<Instant> gone_since;  // a worker of it is not there since
    std::optional<Instant> asked_for;   // last, by View()
    int ended_processes = 0;            // of its workers, while it ran
    std::string waits_for;
  };

  // The links of one process that the mesh measures by itself.
  struct OwnLinks {
    std::vector<std::string> peers;  // that wait
    std::optional<Task> running;
    int64_t last = 0;  // order
  };

  static bool IsScript(const Task& task);
  // With an outcome that may be asked for.
  int64_t NewRequest();
  Task NewTask(int64_t request, const std::string& worker);
  Task NewLink(int64_t request, const std::string& from, const std::string& to);
  // The task whose order `worker` has; null: none.
  const Task* RunningOn(const std::string& worker) const;
  void Remove(const Task& task);
  // Why the task must end; OK while it may go on.
  absl::Status Judge(Task& task,
                     const std::map<std::string, MeasureWorker>& workers,
                     Instant now) const;
  void End(const Task& task, const absl::Status& error);
  // Begins what the mesh measures by itself.
  void BeginOwn(absl::FunctionRef<bool(const std::string& worker)> is_free,
                absl::FunctionRef<void(Task& task)> begin);
  static std::string TextOf(const Task& task);
  static void KeepAsked(const Task& task, v1::Measurement& measurement);

  const MeasurePolicy policy_;
  int64_t next_id_ = 1;
  std::deque<Task> tasks_;  // that people asked for, in the order they came
  std::map<std::string, OwnLinks> own_;  // by worker
  // Requests whose outcome may still be asked for; the oldest go.
  std::map<int64_t, v1::GetProfileResponse> requests_;
};

}  // namespace paceline
