// Structs become messages and come back.  border_test.cc has what is refused.
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/rpc/convert/mirror.h"
#include "core/rpc/convert/report_convert.h"
#include "core/rpc/status.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "gtest/gtest.h"
#include "tests/core/rpc/filler.h"

namespace paceline {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

v1::RunOrder FilledOrder() {
  auto order = Filled<v1::RunOrder>();
  for (int i = 0; i < order.stages_size(); ++i) {
    order.mutable_stages(i)->set_stage(i);
  }
  // Its processes come by id, and members are among them.
  v1::GroupOrder& group = *order.mutable_group();
  for (int i = 0; i < group.members_size(); ++i) {
    *group.mutable_workers(i)->mutable_member() = group.members(i).member();
  }
  *group.mutable_leveller() = group.members(0).member();
  return order;
}

TEST(Convert, KeepsEveryFieldThatTheProtoKnows) {
  EXPECT_EQ(LostOnTheWay(Filled<v1::JobSpec>()), "");
  const auto verdict = Filled<v1::StepVerdict>();
  EXPECT_EQ(Difference(verdict, ToProto(Taken<StepVerdict>(verdict))), "");
  auto report = Filled<v1::StepReport>();  // its fence is the call's
  report.clear_job();
  report.clear_attempt();
  report.clear_plan_version();
  EXPECT_EQ(LostOnTheWay(report), "");
  EXPECT_EQ(LostOnTheWay(Filled<v1::MemberState>()), "");
  EXPECT_EQ(LostOnTheWay(FilledOrder()), "");

  auto standing = Filled<v1::StandingOrder>();
  const auto keep = KeepFromProto(standing);
  ASSERT_TRUE(keep.ok()) << keep.status();
  v1::StandingOrder back;
  Write(keep->number, *back.mutable_number());
  for (const auto& [job, rule] : keep->keep) {
    v1::KeepOrder& each = *back.add_keep();
    Write(rule, each);
    each.set_job(job.value);
    for (const FollowOrder& follow : keep->follow) {
      if (follow.job == job) Write(follow, *each.add_follow());
    }
    Write(keep->finish.at(job), *each.mutable_finish());
  }
  *back.mutable_run() = standing.run();
  *back.mutable_measure() = standing.measure();
  back.set_renew(true);
  back.set_settle(standing.settle());
  back.set_released(true);
  *back.mutable_revoked() = standing.revoked();
  EXPECT_EQ(Difference(standing, back), "");
}

// Fields that are not set, by their path: ToProto promises that there is none.
std::string Unset(const Message& message, const std::string& path = "") {
  const auto* descriptor = message.GetDescriptor();
  const Reflection* reflection = message.GetReflection();
  std::string unset;
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    const std::string name = absl::StrCat(path, field->name());
    if (field->is_repeated() || !field->has_presence()) continue;
    if (!reflection->HasField(message, field)) {
      absl::StrAppend(&unset, name, " ");
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      unset += Unset(reflection->GetMessage(message, field), name + ".");
    }
  }
  return unset;
}

TEST(ConvertJobSpec, SetsEveryFieldEvenWhenItIsTheDefault) {
  EXPECT_EQ(Unset(ToProto(JobSpec())), "");
}

TEST(ConvertStepReport, MayHoldInfinityAndNanWhenItSaysSo) {
  const StepReport report = {.squared_norms = {INFINITY, NAN}, .finite = false};

  const absl::StatusOr<StepReport> back = FromProto(ToProto(report));

  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(std::isnan(back->squared_norms[1]));
  EXPECT_FALSE(back->finite);
}

// Zero means that nothing is broken.
TEST(ConvertMemberReport, NeverRoundsABrokenLinkToAWorkingOne) {
  MemberReport report;
  report.peers.push_back(
      {{WorkerId{1}, {5}}, absl::Microseconds(3), false, absl::ZeroDuration()});

  const v1::MemberState proto = ToProto(report);

  EXPECT_EQ(proto.peers(0).broken_ms(), 1);
  EXPECT_EQ(proto.peers(0).owing_ms(), 0);
}

TEST(CheckHeartbeat, LeavesWhatIsRightAsItIs) {
  auto heartbeat = Filled<v1::Heartbeat>();
  heartbeat.mutable_run()->set_error_code(14);
  for (v1::RoundRecord& round : *heartbeat.mutable_rounds()) {
    for (auto& skip : *round.mutable_skipped()) skip.set_reason("late");
    round.set_cosine(1);
  }
  for (v1::StageTime& time : *heartbeat.mutable_run()->mutable_stage_times()) {
    time.mutable_trace()->set_ops("FB");
  }
  const v1::Heartbeat before = heartbeat;

  const absl::Status checked = CheckHeartbeat(heartbeat);

  ASSERT_TRUE(checked.ok()) << checked;
  EXPECT_EQ(Difference(before, heartbeat), "");
}

// No number of a hostile worker gets in below 0: it is refused, or not known.
TEST(CheckHeartbeat, LetsNoNumberOfARunBeNegative) {
  const auto& fields = *v1::RunState::descriptor();
  const auto& values = *v1::RunState::default_instance().GetReflection();
  for (int i = 0; i < fields.field_count(); ++i) {
    const auto& field = *fields.field(i);
    if (field.cpp_type() != field.CPPTYPE_INT64) continue;
    v1::Heartbeat heartbeat;
    heartbeat.mutable_run()->set_job(1);
    heartbeat.mutable_run()->set_phase(v1::RunState::PHASE_RUNNING);
    values.SetInt64(heartbeat.mutable_run(), &field, -1);

    const absl::Status checked = CheckHeartbeat(heartbeat);

    EXPECT_TRUE(absl::IsInvalidArgument(checked) ||
                values.GetInt64(heartbeat.run(), &field) == 0)
        << field.name();
  }
}

TEST(CheckHeartbeat, RefusesMoreUnreadableSamplesThanEndAJob) {
  v1::Heartbeat heartbeat;
  heartbeat.mutable_run()->set_job(1);
  heartbeat.mutable_run()->set_phase(v1::RunState::PHASE_RUNNING);
  v1::UnreadableSamples& said =
      *heartbeat.mutable_run()->mutable_unreadable()->mutable_test();
  said.set_of(1 << 20);
  while (said.numbers_size() < 4097) said.add_numbers(said.numbers_size());
  EXPECT_TRUE(CheckHeartbeat(heartbeat).ok());

  said.add_numbers(said.numbers_size());

  EXPECT_TRUE(absl::IsInvalidArgument(CheckHeartbeat(heartbeat)));
}

TEST(CheckHeartbeat, MakesALineOfABoundedLengthOfEachLog) {
  v1::Heartbeat heartbeat;
  heartbeat.add_logs()->set_text(std::string(9000, 'x'));

  ASSERT_TRUE(CheckHeartbeat(heartbeat).ok());

  EXPECT_EQ(heartbeat.logs(0).text().size(), 8192u);
}

// As the other end gets it.
template <typename Message>
Message Sent(const Message& message) {
  Message got;
  EXPECT_TRUE(got.ParseFromString(message.SerializeAsString()));
  return got;
}

// The coordinator could not read such a heartbeat, and the worker sent it again
// for ever.
TEST(SetError, TakesAMessageOfAnyBytesAndAnyLength) {
  const auto check = [](auto message) {
    SetError(absl::NotFoundError("no file caf\xE9.pt"), message);
    EXPECT_EQ(ErrorOf(Sent(message)),
              absl::NotFoundError("no file caf\\xe9.pt"));
    SetError(absl::NotFoundError(std::string(20 << 20, '\xE9')), message);
    EXPECT_LE(Sent(message).error_message().size(), size_t{16} << 10);
    message.set_error_message(std::string(20 << 20, 'x'));
    EXPECT_LE(ErrorOf(message).message().size(), size_t{16} << 10);
  };
  v1::RunState run;
  run.set_phase(v1::RunState::PHASE_FAILED);

  check(v1::Measurement());
  check(run);

  EXPECT_EQ(ErrorOf(run), absl::InternalError("no reason was given"));
}

TEST(ConvertMeasurement, CarriesNamesOfAnyBytes) {
  DeviceProfile profile;
  profile.key.micro_batch = 1;
  profile.cpu_model = "CPU\xAE";
  profile.layers.emplace_back().name = "conv\xFF";
  ScriptModel script;
  script.layers.emplace_back().name = "\xC0";
  script.layers[0].parameters.emplace_back().name = "\xC1";
  v1::Measurement measurement;
  *measurement.mutable_profile() = ToProto(profile);
  *measurement.mutable_script() = ToProto(script);

  const v1::Measurement got = Sent(measurement);

  EXPECT_TRUE(CheckMeasurement(got).ok());
  EXPECT_EQ(got.profile().cpu_model(), "CPU\\xae");
  EXPECT_EQ(got.profile().layers(0).name(), "conv\\xff");
  EXPECT_EQ(got.script().layers(0).name(), "\\xc0");
  EXPECT_EQ(got.script().layers(0).parameters(0).name(), "\\xc1");
}

}  // namespace
}  // namespace paceline
