// Bounds the streams that are open at a time.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace paceline {

// Limits the streams of peers that have not said yet who they are, and of those
// that a server has much to send to.  Each of them can make a server hold a
// message that never ends.  The server tells a peer that starts many streams at
// once to slow down, and the peer comes again.
// Thread-safe.
class StreamLimit {
 public:
  static constexpr int kMostOfAHost = 64;
  static constexpr int kMostInAll = 128;

  enum class Of { kHost, kConnection };

  explicit StreamLimit(int most_of_one = kMostOfAHost,
                       int most_in_all = kMostInAll, Of of = Of::kHost)
      : most_of_one_(most_of_one), most_in_all_(most_in_all), of_(of) {}

  // One stream's, until it is dropped.  The limit outlives it.
  class Place {
   public:
    Place(StreamLimit& limit, std::string holder)
        : limit_(limit), holder_(std::move(holder)) {}
    ~Place() { limit_.Leave(holder_); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

   private:
    StreamLimit& limit_;
    const std::string holder_;
  };

  // peer: as grpc::ServerContext::peer() calls it.
  // Errors: ResourceExhausted  too many are open, of its host or connection, or
  //                            in all
  absl::StatusOr<std::unique_ptr<Place>> Enter(const std::string& peer);
  // Errors: ResourceExhausted  too many are open in all
  absl::Status CheckRoom();

 private:
  void Leave(const std::string& holder);

  const int most_of_one_;
  const int most_in_all_;
  const Of of_;

  absl::Mutex mutex_;
  std::map<std::string, int> of_one_ ABSL_GUARDED_BY(mutex_);
  int in_all_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace paceline
