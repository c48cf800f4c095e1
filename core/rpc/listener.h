// Listener accepts the connections of a gRPC server, and bounds what strangers
// make it hold.  gRPC 1.51 bounds neither its connections nor a message that
// never ends, and accepts nothing any more after one "too many open files".
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/os/thread.h"

namespace paceline {

// A connection is a stranger's until OnKnown().  Its bytes count until
// OnMessage().  Beyond a bound the connection with the most such bytes is
// closed, or the one that has said nothing for the longest time.  All strangers
// of the process count together.  Thread-safe.
class Listener {
 public:
  static constexpr int kMostConnections = 512;
  // The largest request, its frames and its encryption.
  static constexpr int64_t kMostBytesOfOne = 6 << 20;
  // In frames of a byte they take gRPC up to four times as much memory.
  static constexpr int64_t kMostBytesOfAll = 8 << 20;
  // How long a message may take, and one that is as small as a few pings.
  static constexpr absl::Duration kLongestMessage = absl::Minutes(1);
  static constexpr absl::Duration kLongestSmallMessage = absl::Seconds(10);
  static constexpr int64_t kSmallBytes = 1 << 20;
  // Calls that have not ended, each of which takes gRPC 12 to 16 KiB: so many
  // of a connection, and so many more of all connections together.
  static constexpr size_t kMostCalls = 4;
  static constexpr size_t kMostCallsBeyond = 256;

  // sockets   listen already, and defer to accept (TCP_DEFER_ACCEPT): whoever
  //           says nothing is the kernel's, which gives it to nobody before
  //           some seconds are over; this owns them
  // first     the byte that a client of ours says first; who says another one
  //           is closed at once, before it costs anything
  // accepted  owns the new connection; called on the thread "accept"
  Listener(std::vector<int> sockets, char first,
           std::function<void(int fd)> accepted);
  // Connections that were accepted stay.
  ~Listener();

  // For handlers of calls, with grpc::ServerContext::peer(): a whole message of
  // that peer and that size is here; and: it is a member of this mesh or of a
  // run, whose connection has no bounds from now on.  O(strangers).
  static void OnMessage(const std::string& peer, int64_t bytes);
  static void OnKnown(const std::string& peer);

  // A call of a stranger, from when its handler has it until it is dropped.
  // Thread-compatible.
  class Call {
   public:
    explicit Call(const void* connection) : connection_(connection) {}
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    // Its answer of so many bytes is to leave from now on.
    void OnAnswer(int64_t bytes);

   private:
    const void* const connection_;
    Instant due_ = kNever;
  };

  // For whoever lets calls in: a call of a stranger begins; and, if it was let
  // in: its handler has it, for which gRPC waits until the message of a unary
  // call is whole.  A stranger's connection is closed when it gets no call
  // there, when a call takes too long to get there, or when an answer takes as
  // long to leave as its message might have taken to come.
  //   connection  names one while it is open
  // OnCall() returns null where the call did not begin as a stranger's.
  // Errors: ResourceExhausted  too many have not ended
  static absl::Status OnBegun(const void* connection);
  static std::unique_ptr<Call> OnCall(const void* connection,
                                      const std::string& peer);

 private:
  static constexpr Instant kNever = {absl::InfiniteDuration()};

  void Loop();

  // Constant after construction.
  const std::vector<int> sockets_;
  const char first_;
  const std::function<void(int fd)> accepted_;

  std::atomic<bool> stopping_ = false;
  Thread thread_;
};

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
