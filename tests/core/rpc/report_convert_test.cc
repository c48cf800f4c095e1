#include "core/rpc/convert/report_convert.h"

#include <limits>
#include <string>
#include <utility>

#include "core/rpc/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/rpc/filler.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

v1::Heartbeat BeatOf(v1::RunState::Phase phase) {
  v1::Heartbeat heartbeat;
  heartbeat.mutable_run()->set_job(1);
  heartbeat.mutable_run()->set_phase(phase);
  return heartbeat;
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

// Went on to the store, which refused the batch with it for good.
TEST(CheckHeartbeat, TakesNumbersThatCannotBeAsNotKnown) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double wrong : {std::numeric_limits<double>::quiet_NaN(),
                             kInfinity, -kInfinity, -1.0}) {
    v1::Heartbeat heartbeat = BeatOf(v1::RunState::PHASE_RUNNING);
    v1::RunState& run = *heartbeat.mutable_run();
    v1::StageTime& time = *run.add_stage_times();
    time.set_seconds(wrong);
    time.set_micro_batches(3);
    time.mutable_versions()->set_staleness(-1);
    run.set_step_seconds(wrong);
    run.set_timed_steps(-1);
    run.set_update_bytes(-1);
    run.mutable_seconds()->set_wall(wrong);
    run.mutable_flow()->set_compute(wrong);
    run.mutable_flow()->set_samples(-1);
    run.mutable_flow()->set_loss(wrong);

    const absl::Status checked = CheckHeartbeat(heartbeat);

    ASSERT_TRUE(checked.ok()) << checked;
    EXPECT_EQ(run.stage_times(0).seconds(), 0);
    EXPECT_EQ(run.stage_times(0).micro_batches(), 3);
    EXPECT_EQ(run.stage_times(0).versions().staleness(), 0);
    EXPECT_EQ(run.step_seconds(), 0);
    EXPECT_EQ(run.timed_steps(), 0);
    EXPECT_EQ(run.update_bytes(), 0);
    EXPECT_EQ(run.seconds().wall(), 0);
    EXPECT_EQ(run.flow().compute(), 0);
    EXPECT_EQ(run.flow().samples(), 0);
    EXPECT_FALSE(run.flow().loss() == 0) << "a model may have such a loss";
  }
}

// No number of a hostile worker gets in below 0: it is refused, or not known.
TEST(CheckHeartbeat, LetsNoNumberOfARunBeNegative) {
  const auto& fields = *v1::RunState::descriptor();
  const auto& values = *v1::RunState::default_instance().GetReflection();
  for (int i = 0; i < fields.field_count(); ++i) {
    const auto& field = *fields.field(i);
    if (field.cpp_type() != field.CPPTYPE_INT64) continue;
    v1::Heartbeat heartbeat = BeatOf(v1::RunState::PHASE_RUNNING);
    values.SetInt64(heartbeat.mutable_run(), &field, -1);

    const absl::Status checked = CheckHeartbeat(heartbeat);

    EXPECT_TRUE(absl::IsInvalidArgument(checked) ||
                values.GetInt64(heartbeat.run(), &field) == 0)
        << field.name();
  }
}

// The coordinator could not read such a heartbeat, and the worker sent it again
// for ever.
TEST(SetError, TakesAMessageOfAnyBytesAndAnyLength) {
  v1::RunState run;
  run.set_phase(v1::RunState::PHASE_FAILED);
  SetError(absl::NotFoundError("no file /data/caf\xE9.png"), run);
  v1::RunState read;
  ASSERT_TRUE(read.ParseFromString(run.SerializeAsString()));
  EXPECT_EQ(ErrorOf(read), absl::NotFoundError("no file /data/caf\\xe9.png"));

  SetError(absl::NotFoundError(std::string(20 << 20, '\xE9')), run);
  ASSERT_TRUE(read.ParseFromString(run.SerializeAsString()));
  EXPECT_LE(read.error_message().size(), size_t{16} << 10);
}

TEST(ErrorOf, AFailureWithoutAReasonSaysSo) {
  const v1::Heartbeat failed = BeatOf(v1::RunState::PHASE_FAILED);

  EXPECT_EQ(ErrorOf(failed.run()), absl::InternalError("no reason was given"));
}

TEST(CheckHeartbeat, RefusesWhatDoesNotExist) {
  const auto refused = [](auto change) {
    v1::Heartbeat heartbeat = BeatOf(v1::RunState::PHASE_RUNNING);
    change(*heartbeat.mutable_run());
    return CheckHeartbeat(heartbeat).code();
  };
  const auto kBad = absl::StatusCode::kInvalidArgument;

  EXPECT_EQ(refused([](auto&) {}), absl::StatusCode::kOk);
  using Spoil = void (*)(v1::RunState&);
  for (const Spoil spoil : std::initializer_list<Spoil>{
           [](auto& p) { p.clear_phase(); },
           [](auto& p) { p.set_phase(v1::RunState::Phase(9)); },
           [](auto& p) { p.set_job(0); }, [](auto& p) { p.set_step(-1); },
           [](auto& p) { p.set_attempt(std::numeric_limits<int64_t>::max()); },
           [](auto& p) { p.set_steps(-1); }, [](auto& p) { p.set_samples(-1); },
           [](auto& p) { p.set_error_code(17); }}) {
    EXPECT_EQ(refused(spoil), kBad);
  }
}

// The coordinator counts on from attempts, and keeps an entry for each piece.
TEST(CheckHeartbeat, RefusesPiecesBeyondAllMeasure) {
  const auto refused = [](int64_t attempt, int layers) {
    v1::Heartbeat heartbeat;
    v1::PiecesHeld::OfJob& job = *heartbeat.mutable_pieces()->add_jobs();
    job.set_job(1);
    v1::PiecesHeld::HeldCut& cut = *job.add_cuts();
    cut.mutable_cut()->set_attempt(attempt);
    cut.add_layers()->set_last(layers);
    return CheckHeartbeat(heartbeat).code();
  };
  const auto kBad = absl::StatusCode::kInvalidArgument;

  EXPECT_EQ(refused(1, 1000), absl::StatusCode::kOk);
  EXPECT_EQ(refused(std::numeric_limits<int64_t>::max(), 1000), kBad);
  EXPECT_EQ(refused(1, std::numeric_limits<int>::max()), kBad);
}

// Whoever reads a trace takes the numbers of each instruction.
TEST(CheckHeartbeat, LeavesOutATraceThatIsNotWhole) {
  v1::Heartbeat heartbeat = BeatOf(v1::RunState::PHASE_RUNNING);
  v1::BatchTrace& trace =
      *heartbeat.mutable_run()->add_stage_times()->mutable_trace();
  trace.set_ops("F");
  trace.add_begin_us(1);
  trace.add_us(1);

  ASSERT_TRUE(CheckHeartbeat(heartbeat).ok());

  EXPECT_FALSE(heartbeat.run().stage_times(0).has_trace());
}

// The coordinator goes through them for each running job, or keeps them.
TEST(CheckHeartbeat, RefusesMoreOfAnythingThanAWorkerHas) {
  const auto checked = [](int count, auto add) {
    v1::Heartbeat heartbeat = BeatOf(v1::RunState::PHASE_RUNNING);
    for (int i = 0; i < count; ++i) add(heartbeat);
    return CheckHeartbeat(heartbeat).code();
  };
  using Add = void (*)(v1::Heartbeat&);
  const std::pair<int, Add> kAll[] = {
      {64, [](auto& beat) { beat.add_repaired_jobs(1); }},
      {4096, [](auto& beat) { beat.mutable_run()->add_stage_times(); }},
      {4096, [](auto& beat) { beat.mutable_run()->add_sent(); }},
      {4096, [](auto& beat) { beat.mutable_run()->add_predicted(); }},
      {100'000, [](auto& beat) { beat.mutable_pieces()->add_jobs(); }},
      {50'000,
       [](auto& beat) { beat.mutable_pieces()->add_jobs()->add_cuts(); }}};
  for (const auto& [most, add] : kAll) {
    EXPECT_EQ(checked(most, add), absl::StatusCode::kOk) << most;
    EXPECT_EQ(checked(most + 1, add), absl::StatusCode::kInvalidArgument)
        << most;
  }
}

TEST(CheckHeartbeat, RefusesStepsAndSamplesThatCannotBe) {
  v1::Heartbeat heartbeat;
  v1::StepRecord& step = *heartbeat.add_steps();
  EXPECT_THAT(std::string(CheckHeartbeat(heartbeat).message()),
              HasSubstr("record of step 0"));
  step.set_step(1);
  step.set_samples(-4);
  EXPECT_THAT(std::string(CheckHeartbeat(heartbeat).message()),
              HasSubstr("-4 samples"));
  step.set_samples(4);
  step.set_loss_samples(-1);
  EXPECT_THAT(std::string(CheckHeartbeat(heartbeat).message()),
              HasSubstr("-1 of them"));
  heartbeat.clear_steps();
  heartbeat.add_evaluations()->set_step(-1);
  EXPECT_TRUE(absl::IsInvalidArgument(CheckHeartbeat(heartbeat)));
}

TEST(CheckHeartbeat, RefusesARoundThatNoMemberWouldTellOf) {
  v1::Heartbeat heartbeat;
  heartbeat.add_rounds()->set_step(-1);

  EXPECT_TRUE(absl::IsInvalidArgument(CheckHeartbeat(heartbeat)));
}

TEST(CheckHeartbeat, MakesALineOfABoundedLengthOfEachLog) {
  v1::Heartbeat heartbeat;
  heartbeat.add_logs()->set_text("a\nb\x1b[31m" + std::string(9000, 'x'));

  ASSERT_TRUE(CheckHeartbeat(heartbeat).ok());

  EXPECT_EQ(heartbeat.logs(0).text().substr(0, 8), "a b [31m");
  EXPECT_EQ(heartbeat.logs(0).text().size(), 8192u);
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

TEST(ConvertKeep, KeepsEveryFieldThatTheProtoKnows) {
  auto proto = Filled<v1::StandingOrder>();
  proto.clear_run();
  proto.clear_measure();
  proto.clear_renew();
  proto.clear_settle();
  proto.clear_released();
  proto.clear_revoked();

  const auto order = KeepFromProto(proto);

  ASSERT_TRUE(order.ok()) << order.status();
  v1::StandingOrder back;
  AddKeep(*order, back);
  EXPECT_EQ(Difference(proto, back), "");
}

TEST(ConvertKeep, RefusesNumbersThatCannotBe) {
  v1::StandingOrder proto;
  v1::KeepOrder& keep = *proto.add_keep();
  keep.set_job(1);
  EXPECT_TRUE(KeepFromProto(proto).ok());
  keep.mutable_floor()->set_step(-1);
  EXPECT_THAT(KeepFromProto(proto).status().ToString(),
              HasSubstr("a cut at step -1"));
  keep.clear_floor();
  keep.add_attempts()->set_attempt(2);
  keep.add_attempts()->set_attempt(2);
  EXPECT_THAT(KeepFromProto(proto).status().ToString(),
              HasSubstr("attempt 2 of job 1 stands behind attempt 2"));
}

TEST(CheckHeartbeat, RefusesPiecesThatCannotBe) {
  const auto error = [](int first, int last, int64_t step) {
    v1::Heartbeat heartbeat;
    v1::PiecesHeld::HeldCut& cut =
        *heartbeat.mutable_pieces()->add_jobs()->add_cuts();
    cut.mutable_cut()->set_step(step);
    v1::LayerRange& layers = *cut.add_layers();
    layers.set_first(first);
    layers.set_last(last);
    return CheckHeartbeat(heartbeat).ToString();
  };

  EXPECT_EQ(error(0, 1, 0), "OK");
  EXPECT_THAT(error(2, 2, 0), HasSubstr("layers [2, 2)"));
  EXPECT_THAT(error(-1, 2, 0), HasSubstr("layers [-1, 2)"));
  EXPECT_THAT(error(0, 1, -5), HasSubstr("a cut at step -5"));
}

TEST(ConvertRunOrder, RefusesStagesOutOfTheirOrder) {
  v1::RunOrder proto;
  proto.add_stages()->set_stage(1);

  EXPECT_EQ(FromProto(proto).status().message(),
            "order: stage 1 stands where stage 0 comes next");
}

TEST(CheckHeartbeat, RefusesUnreadableSamplesThatCannotBe) {
  using Spoil = void (*)(v1::UnreadableSamples&);
  for (const Spoil spoil : std::initializer_list<Spoil>{
           [](auto& said) { said.add_numbers(60); },
           [](auto& said) { said.add_numbers(7); },
           [](auto& said) { said.set_numbers(0, -1); },
           [](auto& said) { said.set_of(-1); },
           [](auto& said) {
             said.set_of(1 << 20);
             while (said.numbers_size() < 4098) {
               said.add_numbers(said.numbers_size() + 10);
             }
           }}) {
    v1::Heartbeat heartbeat = BeatOf(v1::RunState::PHASE_RUNNING);
    v1::UnreadableSamples& said =
        *heartbeat.mutable_run()->mutable_unreadable()->mutable_test();
    said.set_of(60);
    said.add_numbers(7);
    ASSERT_TRUE(CheckHeartbeat(heartbeat).ok());

    spoil(said);

    EXPECT_TRUE(absl::IsInvalidArgument(CheckHeartbeat(heartbeat)))
        << said.ShortDebugString().substr(0, 100);
  }
}

}  // namespace
}  // namespace paceline
