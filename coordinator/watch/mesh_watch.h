// MeshWatch sends watchers the state of the mesh and its changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/call_once.h"
#include "absl/status/status.h"
#include "coordinator/brain.h"
#include "coordinator/jobs/job_store.h"
#include "paceline/v1/control.pb.h"

namespace paceline {

// A watcher with more unread messages than this is dropped: a message makes no
// sense without those before it.
constexpr size_t kMostUnread = 8;

// One message to all watchers, made once.  Thread-safe.
class PublishedUpdate {
 public:
  explicit PublishedUpdate(v1::MeshUpdate message)
      : message_(std::move(message)) {}

  const v1::MeshUpdate& message() const { return message_; }
  // The message on one line.  The first caller makes it.
  const std::string& Json() const;

 private:
  const v1::MeshUpdate message_;
  mutable absl::once_flag once_;
  mutable std::string json_;
};
// Shared by all watchers, which read it at their own pace.
using SharedUpdate = std::shared_ptr<const PublishedUpdate>;

// Called on the coordinator's loop; does not block.
class MeshWatcher {
 public:
  virtual ~MeshWatcher() = default;
  // False: the watcher has left or reads too slowly; it gets no more.
  virtual bool Take(const SharedUpdate& update) = 0;
  // Nothing more comes.
  virtual void End(const absl::Status& why) = 0;
};

// Makes messages from the brain's state while there are watchers: one a second,
// and about ten a second while something happens.  Lives on the coordinator's
// loop.
class MeshWatch {
 public:
  // The watcher's first message is whole.  It is shared with its transport,
  // which may drop it first.
  void Add(std::shared_ptr<MeshWatcher> watcher) {
    if (!end_.ok()) return watcher->End(end_);
    joining_.push_back(std::move(watcher));
  }
  // Ends all present and later watchers.
  void End(const absl::Status& why);

  // Called once the writes of `actions` are stored.
  void OnActions(const Actions& actions);
  // Called often.
  void Publish(const Brain& brain, JobStore& store, Moment moment);

 private:
  // The bytes sent to a worker, and the recent rate.
  struct Traffic {
    int64_t bytes = 0;
    Instant since;
    double bytes_per_second = 0;
  };
  struct KnownJob {
    // Moves the fresh points, thinned, to the curve and to the message.
    void TakeFresh(v1::Job& change);
    // The steps after `step` are run again.
    void GoBackTo(int64_t step);

    v1::Job view;                       // without curve
    std::string bytes;                  // of view
    std::vector<v1::StepRecord> curve;  // some of all steps sent
    std::vector<v1::StepRecord> fresh;  // since the last message
    int64_t most_fresh = 1;             // at most in a message
    bool has_curve = false;             // the stored one is in these
    std::map<std::pair<int64_t, int64_t>, Traffic> traffic;  // by from and to
  };

  void RefreshWorkers(const Brain& brain, Moment moment,
                      v1::MeshUpdate& changes);
  void RefreshJobs(const Brain& brain, JobStore& store, Moment moment,
                   v1::MeshUpdate& changes);
  void AddLinks(const Brain& brain, KnownJob& known, Moment moment,
                v1::Job& view);
  // Reads one job's stored curve a call, since many steps take long.
  void ReadCurve(JobStore& store);
  v1::MeshUpdate Whole(const Brain& brain, Moment moment) const;

  std::vector<std::shared_ptr<MeshWatcher>> joining_;
  std::vector<std::shared_ptr<MeshWatcher>> watchers_;
  absl::Status end_;  // not OK: no watcher is accepted
  // As in the newest message; empty without watchers.
  std::map<int64_t, std::pair<v1::Worker, std::string>> workers_;
  std::map<JobId, KnownJob> jobs_;
  std::set<JobId> changed_;          // since the newest message
  std::deque<v1::JobEvent> events_;  // the newest ones
  size_t fresh_events_ = 0;          // of these, not sent yet
  bool has_events_ = false;          // events_ has the stored ones
  bool news_ = false;                // the next message is due soon
  Instant published_;
};

}  // namespace paceline
