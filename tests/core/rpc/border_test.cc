// This end of a call refuses messages that cannot be.
#include <string>
#include <utility>

#include "absl/strings/str_split.h"
#include "core/cluster/registration.h"
#include "core/rpc/convert/job_convert.h"
#include "core/rpc/convert/report_convert.h"
#include "core/rpc/convert/round_convert.h"
#include "gtest/gtest.h"
#include "tests/core/rpc/filler.h"
#include "tests/support/golden.h"
#include "tests/support/text_proto.h"

namespace paceline {
namespace {

constexpr char kBeat[] = "run { job: 1 phase: PHASE_RUNNING names {} }";

constexpr char kWorker[] = R"(name: "pi-2.local_x" machine_id: "m1"
  incarnation: 1 address: "10.0.0.1:7401" cpu_capability: "avx2")";
// Two members; a third process listens.
constexpr char kGroup[] = R"(
  view { term: 2 counter: 7 }
  members { member { worker_id: 1 incarnation: 10 } from_step: 1 share: 0.5 }
  members { member { worker_id: 2 incarnation: 20 } from_step: 2 share: 1 }
  leveller { worker_id: 2 incarnation: 20 }
  workers { member { worker_id: 1 incarnation: 10 } name: "w1" address: "h:1" }
  workers { member { worker_id: 2 incarnation: 20 } name: "w2" address: "h:2" }
  workers { member { worker_id: 3 incarnation: 30 } name: "w3" address: "h:3" }
  uploader { worker_id: 1 incarnation: 10 } lease_ms: 1500)";
constexpr char kMember[] = R"(
  view { term: 2 counter: 7 } next: 5
  mismatch { step: 4 entries { member { worker_id: 1 incarnation: 10 } } })";
constexpr char kRound[] = R"(step: 5 skipped { reason: "late" } cosine: -0.5)";
constexpr char kReport[] =
    "step: 7 stage: 2 squared_norms: [0.1, 0, 1e76] finite: true samples: 60";
constexpr char kShard[] = R"(
  contributors { member { worker_id: 1 incarnation: 9 } samples: 32 }
  contributors { member { worker_id: 7 incarnation: 9 } }
  arrivals_us: [0, 1234] divisor: 32)";

// Tells what `check` says to `base` with the changes, and what it makes of it.
template <typename Proto, typename Check>
std::string Judge(const std::string& base, const std::string& changes,
                  const Check& check) {
  auto message = Parse<Proto>(base);
  ChangeMessage(changes, message);
  const Proto before = message;
  const absl::Status status = check(message);
  return status.ok() ? "OK\n" + Difference(before, message) : status.ToString();
}

template <typename Proto>
std::string Read(const std::string& base, const std::string& changes) {
  return Judge<Proto>(base, changes, [](const Proto& proto) {
    return FromProto(proto).status();
  });
}

std::string ReadRound(const std::string& base, const std::string& changes) {
  return Judge<v1::RoundMessage>(base, changes, [](const auto& proto) {
    return FromProto(proto, 3, {WorkerId{5}, {9}}).status();
  });
}

// A question is the name of a message that is right, and what is changed in it.
std::string AnswerTo(const std::string& question) {
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(question, absl::MaxSplits(absl::ByAnyChar(" \n"), 1));
  const auto& [name, changes] = parts;
  const std::string shard = absl::StrCat("{ step: 1 result {", kShard, "} }");
  const std::string result =
      absl::StrCat("{ step: 41 shards {", kShard, "} shards { shard: 1 ",
                   "is_void: true } }");
  if (name == "Heartbeat") {
    return Judge<v1::Heartbeat>(
        kBeat, changes, [](auto& beat) { return CheckHeartbeat(beat); });
  }
  if (name == "Registration") {
    return Judge<v1::Registration>(kWorker, changes, CheckRegistration);
  }
  if (name == "Measurement") {
    return Judge<v1::Measurement>(
        "", changes, [](auto& answer) { return CheckMeasurement(answer); });
  }
  if (name == "MeasureOrder") {
    return Judge<v1::MeasureOrder>(
        "", changes, [](auto& order) { return CheckMeasureOrder(order); });
  }
  if (name == "RoundRecord") {
    return Judge<v1::RoundRecord>(
        kRound, changes, [](auto& round) { return CheckRoundRecord(round); });
  }
  if (name == "Keep") {
    return Judge<v1::StandingOrder>(
        "", changes, [](auto& order) { return KeepFromProto(order).status(); });
  }
  if (name == "GroupOrder") return Read<v1::GroupOrder>(kGroup, changes);
  if (name == "MemberState") return Read<v1::MemberState>(kMember, changes);
  if (name == "RunOrder") return Read<v1::RunOrder>("", changes);
  if (name == "StepReport") return Read<v1::StepReport>(kReport, changes);
  if (name == "RoundMessage") return ReadRound("", changes);
  if (name == "Spread") return ReadRound("spread " + shard, changes);
  if (name == "Committed") return ReadRound("committed " + result, changes);
  if (name == "Level") return ReadRound("level " + result, changes);
  if (name == "Answer") return ReadRound("answer { next: 1 }", changes);
  EXPECT_EQ(name, "JobSpec");
  const auto spec = Parse<v1::JobSpec>(changes);
  return "differs from a job with defaults in\n" +
         Difference(ToProto(JobSpec()), ToProto(FromProto(spec)));
}

TEST(Border, RefusesOrMendsWhatCannotBe) {
  ExpectAnswers("core/border", AnswerTo);
}

}  // namespace
}  // namespace paceline
