#include "core/cluster/membership.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/cluster/registration.h"
#include "gtest/gtest.h"
#include "tests/support/golden.h"
#include "tests/support/script.h"

namespace paceline {
namespace {

Instant AtMs(int64_t ms) { return {absl::Milliseconds(ms)}; }

v1::Registration Of(const std::string& name, uint64_t incarnation,
                    const std::string& machine = "m1") {
  v1::Registration registration;
  registration.set_name(name);
  registration.set_machine_id(machine);
  registration.set_incarnation(incarnation);
  registration.set_address("10.0.0.1:7401");
  registration.set_cpu_capability("avx2");
  return registration;
}

// workers NAME...: the first is worker 1 on stream 1, and so on
// at MS: what follows happens then
// attach NAME INCARNATION STREAM [MACHINE [ADDRESS]]
// restore ID NAME INCARNATION
// hear, break, stopping, restarting STREAM
// still MS: the coordinator did nothing until now
// links ID [OTHER WHY]: all that are broken
// tick, look
class MembershipScript : public Script {
 protected:
  bool Do(const std::string& verb) override {
    if (verb == "at") {
      now_ = AtMs(Number(1));
    } else if (verb == "workers") {
      for (size_t i = 1; Has(i); ++i) {
        Attach(Of(Word(i), i), StreamId{static_cast<int64_t>(i)});
      }
    } else if (verb == "attach") {
      v1::Registration one = Of(Word(1), Number(2), Has(4) ? Word(4) : "m1");
      if (Has(5)) one.set_address(Word(5));
      Attach(one, StreamId{Number(3)});
    } else if (verb == "restore") {
      members_.Restore(WorkerId{Number(1)}, Of(Word(2), Number(3)));
    } else if (verb == "still") {
      members_.OnStandstill(absl::Milliseconds(Number(1)), now_);
    } else if (verb == "links") {
      std::map<WorkerId, std::string> broken;
      if (Has(2)) broken[WorkerId{Number(2)}] = Rest(3);
      SayAll(members_.OnLinks(WorkerId{Number(1)}, broken, now_));
    } else if (verb == "tick") {
      SayAll(members_.OnTick(now_));
    } else {
      return DoStream(verb, StreamId{Number(1)});
    }
    return true;
  }
  void Look() override {
    for (const auto& [id, member] : members_.members()) {
      Say(absl::StrCat(member.registration.name(), " ", id.value, " ",
                       MemberStateName(member.state), " on stream ",
                       member.stream.value, member.seen ? "" : ", not seen",
                       member.why.empty() ? "" : ": ", member.why));
    }
  }

 private:
  bool DoStream(const std::string& verb, StreamId stream) {
    if (verb == "hear") {
      if (members_.OnHeard(stream, now_) == nullptr) Say("  nobody's stream");
    } else if (verb == "break") {
      SayChange(members_.OnStreamBroken(stream, now_));
    } else if (verb == "stopping") {
      SayChange(members_.OnStopping(stream, now_));
    } else if (verb == "restarting") {
      members_.OnRestarting(stream);
    } else {
      return false;
    }
    return true;
  }
  void Attach(const v1::Registration& registration, StreamId stream) {
    const auto verdict = members_.OnAttach(registration, stream, now_);
    if (!verdict.ok()) return SayOf(verdict.status());
    if (verdict->arrival == Arrival::kNew) return;
    Say(absl::StrCat(
        "  worker ", verdict->id.value,
        verdict->arrival == Arrival::kRestarted ? " restarted" : " is back",
        ", instead of stream ", verdict->replaced.value));
  }
  void SayChange(const std::optional<MembershipChange>& change) {
    if (change.has_value()) SayAll({*change});
  }
  void SayAll(const std::vector<MembershipChange>& changes) {
    for (const MembershipChange& change : changes) {
      Say(absl::StrCat("  ", now_.since_start / absl::Milliseconds(1), ": ",
                       members_.Find(change.id)->registration.name(), " is ",
                       MemberStateName(change.state)));
    }
  }

  Instant now_;
  Membership members_{MembershipPolicy{}, AtMs(0)};
};

TEST(Membership, Changes) {
  ExpectAnswers("core/membership", [](const std::string& script) {
    return MembershipScript().Play(script);
  });
}

// A worker with a long --data-dir was refused, though its list is for people
// only.
TEST(CheckRegistration, TakesAListOfWhateverFoldersThereAre) {
  std::vector<std::string> folders(150, "/" + std::string(300, 'a'));
  folders[0] = "/srv/a\nb\xff";
  v1::Registration registration = Of("a", 1);

  SetDataDirs(folders, registration);

  EXPECT_TRUE(CheckRegistration(registration).ok())
      << CheckRegistration(registration);
  EXPECT_EQ(registration.data_dirs_size(), 100);
  EXPECT_EQ(registration.data_dirs(0), "/srv/a?b\\xff");
}

TEST(Registration, RanksCapabilitiesAndKnowsWhatAPrecisionGains) {
  int rank = 0;
  for (const char* each : {"default", "avx2", "avx512", "avx512_bf16"}) {
    EXPECT_EQ(CapabilityRank(each), rank++);
  }
  EXPECT_EQ(CapabilityRank("avx"), -1);
  EXPECT_EQ(HighestUseful("fp32"), "avx512");
  EXPECT_EQ(HighestUseful("bf16"), "avx512_bf16");
}

}  // namespace
}  // namespace paceline
