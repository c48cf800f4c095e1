#include "core/rpc/report_convert.h"

#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

#include "core/cluster/flow_fields.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/rpc/filler.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

// What comes back of a message whose every field is set; FromProto may fail.
template <typename Proto>
std::string LostOnTheWay(const Proto& proto) {
  const auto there = FromProto(proto);
  if constexpr (requires { there.status(); }) {
    if (!there.ok()) return there.status().ToString();
    return Difference(proto, ToProto(*there));
  } else {
    return Difference(proto, ToProto(there));
  }
}

template <typename Proto>
Proto Filled() {
  Proto proto;
  Filler().Fill(proto);
  return proto;
}

TEST(ConvertReports, KeepEveryFieldThatTheProtoKnows) {
  EXPECT_EQ(LostOnTheWay(Filled<v1::TimeSplit>()), "");
  EXPECT_EQ(LostOnTheWay(Filled<v1::StepRecord>()), "");
  EXPECT_EQ(LostOnTheWay(Filled<v1::EvaluationRecord>()), "");
  EXPECT_EQ(LostOnTheWay(Filled<v1::LogLine>()), "");
  EXPECT_EQ(LostOnTheWay(Filled<v1::StagePlacement>()), "");
}

TEST(ConvertRunReport, KeepsEveryFieldThatTheProtoKnows) {
  auto proto = Filled<v1::RunState>();
  proto.set_error_code(14);
  for (v1::StageTime& time : *proto.mutable_stage_times()) {
    time.mutable_versions()->set_stage(time.stage());  // the same stage
  }

  EXPECT_EQ(LostOnTheWay(proto), "");
}

// Went on to the store, which refused the batch with it for good.
TEST(ConvertRunReport, TakesTimesThatCannotBeAsNotKnown) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double wrong : {std::numeric_limits<double>::quiet_NaN(),
                             kInfinity, -kInfinity, -1.0}) {
    v1::RunState proto;
    proto.set_job(1);
    proto.set_phase(v1::RunState::PHASE_RUNNING);
    v1::StageTime& time = *proto.add_stage_times();
    time.set_seconds(wrong);
    time.set_micro_batches(3);
    proto.set_step_seconds(wrong);
    proto.set_timed_steps(-1);
    proto.mutable_seconds()->set_wall(wrong);
    FlowTimes flow;
    ForEachFlowField(flow, [wrong](absl::string_view, auto& value) {
      value = std::is_same_v<decltype(value), double&> ? wrong : -1;
    });
    *proto.mutable_flow() = ToProto(flow);

    const absl::StatusOr<RunReport> report = FromProto(proto);

    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->stage_times[0].seconds, 0);
    EXPECT_EQ(report->stage_times[0].micro_batches, 3);
    EXPECT_EQ(report->step_seconds, 0);
    EXPECT_EQ(report->timed_steps, 0);
    EXPECT_EQ(report->seconds.wall, 0);
    ASSERT_TRUE(report->flow.has_value());
    ForEachFlowField(*report->flow,
                     [](absl::string_view name, const auto& value) {
                       if (name == "loss") return;
                       EXPECT_EQ(value, 0) << name;
                     });
  }
}

TEST(ConvertRunReport, KeepsALossThatIsNoNumber) {
  v1::FlowTimes proto;
  proto.set_loss(std::numeric_limits<double>::quiet_NaN());

  EXPECT_TRUE(std::isnan(FromProto(proto).loss));
}

// What the coordinator reads of it; it could not read the heartbeat, and the
// worker sent it again for ever.
TEST(ConvertRunReport, CarriesAnErrorOfAnyBytesAndAnyLength) {
  RunReport report;
  report.fence.job = JobId{1};
  report.phase = RunPhase::kFailed;
  report.error = absl::NotFoundError("no file /data/caf\xE9.png");
  v1::RunState proto;
  ASSERT_TRUE(proto.ParseFromString(ToProto(report).SerializeAsString()));
  EXPECT_EQ(FromProto(proto)->error.message(), "no file /data/caf\\xe9.png");

  report.error = absl::NotFoundError(std::string(20 << 20, '\xE9'));
  ASSERT_TRUE(proto.ParseFromString(ToProto(report).SerializeAsString()));
  EXPECT_LE(proto.error_message().size(), size_t{16} << 10);
}

TEST(ConvertLogLine, OfAnyBytesCanBeRead) {
  LogRecord line;
  line.text = "skipped caf\xE9.png";
  v1::LogLine proto;

  ASSERT_TRUE(proto.ParseFromString(ToProto(line).SerializeAsString()));

  EXPECT_EQ(proto.text(), "skipped caf\\xe9.png");
}

TEST(ConvertRunReport, OfAFailureWithoutAReasonSaysSo) {
  v1::RunState proto;
  proto.set_job(1);
  proto.set_phase(v1::RunState::PHASE_FAILED);

  const absl::StatusOr<RunReport> report = FromProto(proto);

  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->error, absl::InternalError("no reason was given"));
}

TEST(ConvertRunReport, RefusesWhatDoesNotExist) {
  const auto refused = [](auto change) {
    v1::RunState proto;
    proto.set_job(1);
    proto.set_phase(v1::RunState::PHASE_RUNNING);
    change(proto);
    return FromProto(proto).status().code();
  };
  const auto kBad = absl::StatusCode::kInvalidArgument;

  EXPECT_EQ(refused([](auto&) {}), absl::StatusCode::kOk);
  EXPECT_EQ(refused([](auto& p) { p.clear_phase(); }), kBad);
  EXPECT_EQ(refused([](auto& p) { p.set_phase(v1::RunState::Phase(9)); }),
            kBad);
  EXPECT_EQ(refused([](auto& p) { p.set_job(0); }), kBad);
  EXPECT_EQ(refused([](auto& p) { p.set_step(-1); }), kBad);
  EXPECT_EQ(refused([](auto& p) { p.set_steps(-1); }), kBad);
  EXPECT_EQ(refused([](auto& p) { p.set_samples(-1); }), kBad);
  EXPECT_EQ(refused([](auto& p) { p.set_error_code(17); }), kBad);
  EXPECT_EQ(refused([](auto& p) { p.set_peak_memory_bytes(-1); }), kBad);
}

TEST(ConvertRecords, RefuseStepsAndSamplesThatCannotBe) {
  v1::StepRecord step;
  EXPECT_THAT(std::string(FromProto(step).status().message()),
              HasSubstr("record of step 0"));
  step.set_step(1);
  step.set_samples(-4);
  EXPECT_THAT(std::string(FromProto(step).status().message()),
              HasSubstr("-4 samples"));
  v1::EvaluationRecord evaluation;
  evaluation.set_step(-1);
  EXPECT_EQ(FromProto(evaluation).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ConvertLogLine, BecomesOneLineOfABoundedLength) {
  v1::LogLine proto;
  proto.set_text("a\nb\x1b[31m" + std::string(9000, 'x'));

  const LogRecord line = FromProto(proto);

  EXPECT_EQ(line.text.substr(0, 8), "a b [31m");
  EXPECT_EQ(line.text.size(), 8192u);
}

TEST(ConvertRunOrder, KeepsEveryFieldThatTheProtoKnows) {
  auto proto = Filled<v1::RunOrder>();
  for (int i = 0; i < proto.stages_size(); ++i) {
    proto.mutable_stages(i)->set_stage(i);
  }
  proto.clear_group();  // group_convert_test.cc
  ASSERT_EQ(proto.stages_size(), 2);

  EXPECT_EQ(LostOnTheWay(proto), "");
}

TEST(ConvertRunOrder, RefusesStagesOutOfTheirOrder) {
  v1::RunOrder proto;
  proto.add_stages()->set_stage(1);

  EXPECT_EQ(FromProto(proto).status().message(),
            "order: stage 1 stands where stage 0 comes next");
}

}  // namespace
}  // namespace paceline
