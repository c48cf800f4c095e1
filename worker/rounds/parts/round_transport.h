// The members of a round group reach one another through a RoundTransport: over
// gRPC (worker/transport), or inside a process (tests).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "core/base/ids.h"
#include "core/cluster/run_order.h"
#include "core/round/message.h"
#include "core/transfer/frame.h"
#include "worker/rounds/parts/round_payload.h"

namespace paceline {

// Takes incoming bytes and messages.  Called on the transport's threads, for
// one peer one call after the other; must be quick.
class RoundSink {
 public:
  virtual ~RoundSink() = default;

  // Bytes of `from` are about to come: returns the memory for them.  The same
  // payload again (after a broken connection) gets the same memory, and its
  // chunks that are ready are not written again.  Null: they are dropped.  The
  // transport asks again with the next bytes; if the sink wants them then, they
  // come again with the next message that they belong to.
  // Errors: InvalidArgument  a size that this run does not have, or a kind that
  //         `from` may not send; ends the stream
  virtual absl::StatusOr<std::shared_ptr<RoundPayload>> OnPayload(
      const MemberId& from, const PayloadKey& key, size_t bytes) = 0;

  // A message, and the bytes that belong to it, whole and intact: null where it
  // has none, or where OnPayload() dropped them.
  virtual void OnMessage(RoundMessage message,
                         std::shared_ptr<RoundPayload> payload) = 0;

  // The stream to a peer broke, or works (again).  refused: no process listens
  // at its address, or one of another incarnation.
  virtual void OnLink(const MemberId& peer, bool up, bool refused) = 0;
};

// Thread-safe.  Each run (one fence) has one.
class RoundTransport {
 public:
  virtual ~RoundTransport() = default;

  // Sets the peers that messages may go to and come from; self may be among
  // them.  A removed peer loses its stream and the messages that wait for it.
  virtual void SetPeers(const std::vector<GroupWorker>& peers) = 0;

  // Begins to send bytes as they get ready; the message that they belong to
  // comes later, by Send().  Once a connection.  Ignored if `to` is no peer.
  virtual void SendAhead(const MemberId& to, const PayloadKey& key,
                         std::shared_ptr<RoundPayload> payload) = 0;

  // Queues and returns at once.  `payload` (null: none) is complete; its bytes
  // arrive before the message does, and travel once a connection however often
  // they are sent.  Messages without bytes overtake those with some.  May get
  // lost when the connection breaks.
  virtual void Send(const MemberId& to, RoundMessage message,
                    const PayloadKey& key,
                    std::shared_ptr<RoundPayload> payload) = 0;

  // Payloads of steps before `step` are of no use any more.
  virtual void Forget(int64_t step) = 0;

  // Bytes of payload sent, by peer, including removed ones.
  virtual std::map<WorkerId, int64_t> SentBytes() const { return {}; }

  // Ends all streams; calls no sink after it has returned.
  virtual void Close() = 0;
};

}  // namespace paceline
