// RoundQueue holds what is to be sent to one member of a round group, and
// decides what goes next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/rounds/round_payload.h"
#include "worker/rounds/round_transport.h"

namespace paceline {

// Messages without bytes go first, in their order; then messages whose bytes
// have all gone out; then chunks that are ready, payloads taking turns.  What a
// connection has taken is as good as received until the connection breaks.
// Thread-compatible.
class RoundQueue {
 public:
  // Either a message (with the key of its bytes, if it has some) or a chunk.
  struct Item {
    std::string message;
    std::optional<PayloadKey> key;
    std::shared_ptr<RoundPayload> payload;  // of `key`
    int chunk = -1;                         // the first; -1: a message
    int chunks = 0;                         // in a row
  };

  // Of a payload that is to be subscribed to: each chunk that gets ready is
  // told to OnReady() with this number.  0: it is here already.
  using Ticket = uint64_t;

  // Another payload under the same key takes the place of the one before, which
  // `payload` is afterwards: let go of it without a lock.
  Ticket AddPayload(const PayloadKey& key,
                    std::shared_ptr<RoundPayload>* payload);
  void OnReady(const PayloadKey& key, Ticket ticket, int chunk);

  // A message whose very bytes wait already is not kept twice: whoever waits
  // for an answer repeats itself.  Above kMostMessages the oldest is dropped.
  void AddMessage(std::string message);
  // To go out once the bytes of `key` have; never, where these are not here.
  void AddMessage(std::string message, const PayloadKey& key);

  // most_chunks: so many in a row may be next.
  std::optional<Item> TakeNext(int most_chunks = 1);

  // The connection broke: bytes whose message is still to come go out again.
  // Those whose message was taken wait for it to be sent again.
  void OnBroken();

  // Drops the parts and results of steps before `step`, and copies of the state
  // that have gone out.  Let go of them without a lock.
  std::vector<std::shared_ptr<RoundPayload>> Forget(int64_t step);

  // Drops copies of the state that are older than that of `key`, sent or not:
  // who asks for a newer one needs none of them.
  std::vector<std::shared_ptr<RoundPayload>> DropOlderStates(
      const PayloadKey& key);

  static constexpr size_t kMostMessages = 256;

 private:
  struct Sending {
    std::shared_ptr<RoundPayload> payload;
    Ticket ticket = 0;
    std::vector<int> ready;            // in the order in which they got ready
    size_t taken = 0;                  // of ready
    std::deque<std::string> messages;  // behind the bytes
    bool wanted = true;                // or its message has been taken

    bool sent() const {
      return taken == static_cast<size_t>(payload->chunks());
    }
  };

  static void Add(std::deque<std::string>* messages, std::string message);

  std::deque<std::string> messages_;
  std::map<PayloadKey, Sending> payloads_;
  PayloadKey last_;  // whose chunk was taken last
  Ticket next_ticket_ = 1;
};

}  // namespace paceline
