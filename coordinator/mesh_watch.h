// MeshWatch tells those who watch the mesh what it is and what changes in it.
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
#include "coordinator/job_store.h"
#include "paceline/v1/control.pb.h"

namespace paceline {

// A watcher may have so many messages that it has not read.  One that has more
// is dropped: the next one does not make sense without those before.
constexpr size_t kMostUnread = 8;

// One message to all watchers, made once however many they are.  Thread-safe.
class PublishedUpdate {
 public:
  explicit PublishedUpdate(v1::MeshUpdate message)
      : message_(std::move(message)) {}

  const v1::MeshUpdate& message() const { return message_; }
  // On one line.  The first caller makes it.
  const std::string& Json() const;

 private:
  const v1::MeshUpdate message_;
  mutable absl::once_flag once_;
  mutable std::string json_;
};
// Shared: all watchers read the same one, each in its own time.
using SharedUpdate = std::shared_ptr<const PublishedUpdate>;

// Called on the coordinator's loop: quick.
class MeshWatcher {
 public:
  virtual ~MeshWatcher() = default;
  // False: it has left, or has read too little; it is told no more.
  virtual bool Take(const SharedUpdate& update) = 0;
  // Nothing more comes.
  virtual void End(const absl::Status& why) = 0;
};

// Makes messages of what the brain holds: at least one a second while anybody
// watches, and ten where something happens.  Lives on the coordinator's loop.
class MeshWatch {
 public:
  // The first message that it gets is whole.  Shared with its own transport,
  // which may go first.
  void Add(std::shared_ptr<MeshWatcher> watcher);
  // Everybody's, and that of those to come.
  void End(const absl::Status& why);

  // These are stored, or need not be.
  void OnActions(const Actions& actions);
  // To be called often.
  void Publish(const Brain& brain, JobStore& store, Moment moment);

 private:
  // The bytes that went to a worker, and how fast lately.
  struct Traffic {
    int64_t bytes = 0;
    Instant since;
    double bytes_per_second = 0;
  };
  struct KnownJob {
    // Moves what is fresh, or some of it, to the curve and to the message.
    void TakeFresh(v1::Job& change);
    // The steps after `step` are run again.
    void GoBackTo(int64_t step);

    v1::Job view;                       // without curve
    std::string bytes;                  // of view
    std::vector<v1::StepRecord> curve;  // some of all steps that were told
    std::vector<v1::StepRecord> fresh;  // since the last message
    int64_t most_fresh = 1;             // that a message may have
    bool has_curve = false;             // that of the store is in these
    std::map<std::pair<int64_t, int64_t>, Traffic> traffic;  // by from and to
  };

  void RefreshWorkers(const Brain& brain, Moment moment,
                      v1::MeshUpdate& changes);
  void RefreshJobs(const Brain& brain, JobStore& store, Moment moment,
                   v1::MeshUpdate& changes);
  void AddLinks(const Brain& brain, KnownJob& known, Moment moment,
                v1::Job& view);
  // Reads that of one job at a time: many steps take long.
  void ReadCurve(JobStore& store);
  v1::MeshUpdate Whole(const Brain& brain, Moment moment) const;

  std::vector<std::shared_ptr<MeshWatcher>> joining_;
  std::vector<std::shared_ptr<MeshWatcher>> watchers_;
  absl::Status end_;  // not OK: nobody is to watch any more
  // As in the newest message; empty while nobody watches.
  std::map<int64_t, std::pair<v1::Worker, std::string>> workers_;
  std::map<JobId, KnownJob> jobs_;
  std::set<JobId> changed_;          // since then
  std::deque<v1::JobEvent> events_;  // the newest
  size_t fresh_events_ = 0;          // of these, since then
  bool has_events_ = false;          // those of the store are in events_
  bool news_ = false;                // something should be seen at once
  Instant published_;
};

}  // namespace paceline
