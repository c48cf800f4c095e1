#include "worker/gossip_desk.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace paceline {

GossipDesk::GossipDesk(RoundDeskOptions options, const Clock& clock,
                       RoundObserver& observer)
    : options_(std::move(options)),
      clock_(clock),
      observer_(observer),
      // Its own parameters, its partner's, and those of the next step's.
      pool_(3 * options_.values * sizeof(float)),
      store_(pool_),
      turns_(options_.total_steps),
      loop_(clock, observer) {}

GossipDesk::~GossipDesk() { Stop(); }

absl::Status GossipDesk::Start(RoundTransport& transport) {
  transport_ = &transport;
  loop_.Start([this] {
    return std::make_unique<GossipDriver>(
        options_,
        GossipDriverParts{*transport_, store_, turns_, observer_, clock_});
  });
  return absl::OkStatus();
}

void GossipDesk::Cancel(absl::Status why) { turns_.End(std::move(why)); }

void GossipDesk::Stop(absl::Status why) {
  Cancel(std::move(why));
  loop_.End();
  loop_.Join();
}

void GossipDesk::OnGroup(const GroupOrder& group) {
  loop_.Post([group](GossipDriver& driver) { driver.OnGroup(group); });
}

// --- Compute thread ---------------------------------------------------------

std::shared_ptr<RoundPayload> GossipDesk::MakeBlock() {
  return pool_.Make(options_.values * sizeof(float));
}

void GossipDesk::Meet(OwnParameters own) {
  turns_.OnPart(own.step);
  loop_.Post([own = std::move(own)](GossipDriver& driver) {
    driver.OnParameters(own);
  });
}

void GossipDesk::SendState(int64_t next, uint64_t state_hash,
                           std::shared_ptr<RoundPayload> state) {
  loop_.Post(
      [next, state_hash, state = std::move(state)](GossipDriver& driver) {
        driver.OnStateCopied(next, state_hash, state);
      });
}

// --- The transport's threads ------------------------------------------------

absl::Status GossipDesk::CheckPayload(const MemberId& from,
                                      const PayloadKey& key,
                                      size_t bytes) const {
  const bool state = key.kind == PayloadKey::Kind::kState;
  if (key.kind == PayloadKey::Kind::kResult) {
    return absl::InvalidArgumentError(absl::StrCat(
        "worker ", from.worker.value, " sends the result of step ", key.step,
        ": members of this job gossip and agree on none"));
  }
  if (key.step < 0 || key.shard != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "worker ", from.worker.value, " sends bytes of step ", key.step,
        ", shard ", key.shard, ": parameters are shard 0 of a step that is"));
  }
  const size_t expected =
      state ? options_.state_bytes : options_.values * sizeof(float);
  if (bytes == expected && bytes > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "worker ", from.worker.value, " sends ", bytes, " bytes of ",
      state ? "state" : "parameters", " for step ", key.step, ", where ",
      expected, " belong: it computes another model, or in another dtype"));
}

absl::StatusOr<std::shared_ptr<RoundPayload>> GossipDesk::OnPayload(
    const MemberId& from, const PayloadKey& key, size_t bytes) {
  if (absl::Status bad = CheckPayload(from, key, bytes); !bad.ok()) {
    loop_.PostOfPeer(
        [from, why = std::string(bad.message())](GossipDriver& driver) {
          driver.OnRefusedBytes(from, why);
        });
    return bad;
  }
  const RoundTurns::State known = turns_.state();
  const bool of_use = key.kind == PayloadKey::Kind::kState
                          ? !known.has_state
                          : key.step >= known.next;
  if (!of_use) return nullptr;
  return store_.Incoming(from, key, bytes);
}

void GossipDesk::OnMessage(RoundMessage message,
                           std::shared_ptr<RoundPayload> payload) {
  loop_.PostOfPeer([message = std::move(message),
                    payload = std::move(payload)](GossipDriver& driver) {
    driver.OnMessage(message, payload);
  });
}

void GossipDesk::OnLink(const MemberId& peer, bool up, bool refused) {
  loop_.Post([=](GossipDriver& driver) { driver.OnLink(peer, up, refused); });
}

}  // namespace paceline
