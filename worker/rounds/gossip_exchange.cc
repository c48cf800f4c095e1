#include "worker/rounds/gossip_exchange.h"

#include <string>
#include <utility>

#include "core/base/errors.h"

namespace paceline {
namespace {

// A partner may have parameters here for the step in which it meets this
// member, and for the next step if it is ahead.
constexpr StoreLimits kStoreLimits{.steps = 2, .variants = 1};

}  // namespace

GossipExchange::GossipExchange(RoundExchangeOptions options, const Clock& clock,
                               RoundObserver& observer)
    : DriverExchange(options, RoundShape(options.values, 1, Codec::kRaw),
                     kStoreLimits, clock, observer) {}

GossipExchange::~GossipExchange() { Stop(); }

absl::Status GossipExchange::Start(RoundTransport& transport) {
  transport_ = &transport;
  StartThread(
      [this] { return std::make_unique<GossipDriver>(options_, parts()); });
  return absl::OkStatus();
}

void GossipExchange::Stop(absl::Status why) {
  Cancel(std::move(why));
  EndThread();
  JoinThread();
}

void GossipExchange::Meet(OwnParameters own) {
  turns_.OnPart(own.step);
  Post([own = std::move(own)](GossipDriver& driver) {
    driver.OnParameters(own);
  });
}

// --- The transport's threads ------------------------------------------------

absl::Status GossipExchange::CheckPayload(const MemberId& from,
                                          const PayloadKey& key,
                                          size_t bytes) const {
  if (key.kind == PayloadKey::Kind::kResult) {
    return InvalidArgument("worker ", from.worker.value,
                           " sends the result of step ", key.step,
                           ": members of this job gossip and agree on none");
  }
  if (key.step < 0 || key.shard != 0) {
    return InvalidArgument(
        "worker ", from.worker.value, " sends bytes of step ", key.step,
        ", shard ", key.shard, ": parameters are shard 0 of a step that is");
  }
  const size_t expected = options_.values * sizeof(float);
  if (bytes == expected && bytes > 0) return absl::OkStatus();
  return InvalidArgument(
      "worker ", from.worker.value, " sends ", bytes,
      " bytes of parameters for step ", key.step, ", where ", expected,
      " belong: it computes another model, or in another dtype");
}

absl::StatusOr<std::shared_ptr<RoundPayload>> GossipExchange::OnPayload(
    const MemberId& from, const PayloadKey& key, size_t bytes) {
  if (absl::Status bad = CheckPayload(from, key, bytes); !bad.ok()) {
    PostOfPeer([from, why = std::string(bad.message())](GossipDriver& driver) {
      driver.OnRefusedBytes(from, why);
    });
    return bad;
  }
  if (key.step < turns_.state().next) return nullptr;
  return store_.Incoming(from, key);
}

}  // namespace paceline
