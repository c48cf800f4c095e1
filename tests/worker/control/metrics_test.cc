// Tests what /metrics shows of a worker's readings.
#include "worker/control/metrics.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

RoundStats SomeRounds() {
  RoundStats rounds;
  rounds.committed = 7;
  rounds.void_rounds = 2;
  rounds.skipped[static_cast<size_t>(SkipReason::kLost)] = 3;
  rounds.skipped[static_cast<size_t>(SkipReason::kNotFinite)] = 1;
  rounds.refused_results = 4;
  rounds.mismatches = 1;
  rounds.takeovers = 2;
  rounds.durations[3] = 8;   // at most 0.01 s
  rounds.durations[13] = 1;  // above all bounds
  rounds.seconds = 61;
  rounds.last_contributors = 5;
  rounds.serves = true;
  rounds.deadline_seconds = 0.25;
  return rounds;
}

void ExpectLines(const std::string& text,
                 const std::vector<const char*>& lines) {
  for (const char* line : lines) EXPECT_THAT(text, HasSubstr(line));
}

class WorkerMetricsTest : public ::testing::Test {
 protected:
  std::string Read(const RoundStats& rounds, bool in_group = true) {
    WorkerReading reading;
    reading.running = in_group;
    reading.rounds = {in_group, rounds};
    reading.round_frames = {.frames_sent = 10,
                            .bytes_sent = 1000,
                            .frames_received = 20,
                            .bytes_received = 2000,
                            .frames_dropped_old = 1,
                            .frames_dropped_duplicate = 2,
                            .frames_refused = 3,
                            .checksum_errors = 4,
                            .reconnects = 5};
    metrics_.Update(reading);
    return registry_.Text();
  }

  MetricsRegistry registry_;
  WorkerMetrics metrics_{registry_, "1.2.3"};
};

TEST_F(WorkerMetricsTest, ShowWhatBecameOfRounds) {
  const std::string text = Read(SomeRounds());

  ExpectLines(text, {
                        "rounds_total{outcome=\"committed\"} 7\n",
                        "rounds_total{outcome=\"void\"} 2\n",
                        "round_seconds_bucket{le=\"0.005\"} 0\n",
                        "round_seconds_bucket{le=\"0.01\"} 8\n",
                        "round_seconds_bucket{le=\"30\"} 8\n",
                        "round_seconds_bucket{le=\"+Inf\"} 9\n",
                        "round_seconds_sum 61\n",
                        "round_contributors 5\n",
                        "round_parts_skipped_total{reason=\"lost\"} 3\n",
                        "round_parts_skipped_total{reason=\"not-finite\"} 1\n",
                        "round_parts_skipped_total{reason=\"late\"} 0\n",
                        "round_parts_skipped_total{reason=\"hash\"} 0\n",
                        "round_serving 1\n",
                        "round_takeovers_total 2\n",
                        "round_state_mismatches_total 1\n",
                        "round_refused_total{what=\"result\"} 4\n",
                        "round_deadline_seconds 0.25\n",
                    });
}

TEST_F(WorkerMetricsTest, ShowWhatTravelledForRounds) {
  const std::string text = Read({}, /*in_group=*/false);

  ExpectLines(text, {
                        "round_frames_total{direction=\"sent\"} 10\n",
                        "round_frames_total{direction=\"received\"} 20\n",
                        "round_bytes_total{direction=\"sent\"} 1000\n",
                        "round_bytes_total{direction=\"received\"} 2000\n",
                        "round_frames_dropped_total{reason=\"old\"} 1\n",
                        "round_frames_dropped_total{reason=\"duplicate\"} 2\n",
                        "round_frames_dropped_total{reason=\"refused\"} 3\n",
                        "round_frames_dropped_total{reason=\"checksum\"} 4\n",
                        "round_reconnects_total 5\n",
                    });
}

TEST_F(WorkerMetricsTest, CountTheSameReadingOnce) {
  Read(SomeRounds());

  const std::string text = Read(SomeRounds());

  EXPECT_THAT(text, AllOf(HasSubstr("rounds_total{outcome=\"committed\"} 7\n"),
                          HasSubstr("round_seconds_count 9\n"),
                          HasSubstr("round_seconds_sum 61\n")));
}

TEST_F(WorkerMetricsTest, CountTheLastRoundsOfARunThatIsOver) {
  Read(SomeRounds());
  RoundStats over = SomeRounds();
  RoundStats last;
  last.committed = 1;
  last.durations[0] = 1;
  last.seconds = 0.5;
  over.AddCounts(last);

  const std::string text = Read(over, /*in_group=*/false);

  EXPECT_THAT(text, AllOf(HasSubstr("rounds_total{outcome=\"committed\"} 8\n"),
                          HasSubstr("round_seconds_count 10\n"),
                          HasSubstr("round_seconds_sum 61.5\n"),
                          HasSubstr("round_state_mismatches_total 1\n")));
}

TEST_F(WorkerMetricsTest, SayNothingOfThePresentWhereThereIsNoGroup) {
  Read(SomeRounds());

  const std::string text = Read(SomeRounds(), /*in_group=*/false);

  EXPECT_THAT(text, AllOf(Not(HasSubstr("round_serving 1")),
                          Not(HasSubstr("round_deadline_seconds 0")),
                          Not(HasSubstr("round_contributors 5")),
                          HasSubstr("rounds_total{outcome=\"committed\"} 7")));
}

// A stage that stashes, a stage that does not, and where the time went.
WorkerReading OfPipeDream() {
  WorkerReading reading;
  reading.running = true;
  v1::StageVersions& versions =
      *reading.run.add_stage_times()->mutable_versions();
  versions.set_stage(1);
  versions.set_updates(8);
  versions.set_skipped_updates(1);
  versions.set_staleness(12);
  versions.set_versions(3);
  versions.set_version_bytes(4096);
  reading.run.add_stage_times()->set_stage(2);
  v1::FlowTimes& flow = *reading.run.mutable_flow();
  flow.set_compute(4);
  flow.set_starved(1);
  flow.set_blocked(0.5);
  flow.set_latency_p50(0.25);
  flow.set_latency_p99(0.75);
  flow.set_latency_max(1);
  flow.set_fill(2);
  flow.set_update(0.125);
  return reading;
}

TEST_F(WorkerMetricsTest, ShowHowStaleAStageIsAndWhatItKeeps) {
  metrics_.Update(OfPipeDream());

  const std::string text = registry_.Text();
  ExpectLines(text, {
                        "gradient_staleness_updates{stage=\"1\"} 1.5\n",
                        "weight_versions{stage=\"1\"} 3\n",
                        "weight_versions_bytes{stage=\"1\"} 4096\n",
                        "updates_skipped{stage=\"1\"} 1\n",
                    });
  EXPECT_THAT(text, Not(HasSubstr("{stage=\"2\"}"))) << "it has no versions";
}

TEST_F(WorkerMetricsTest, ShowAMicroBatchsLatencyAndWhereTimeWent) {
  metrics_.Update(OfPipeDream());

  const std::string text = registry_.Text();
  ExpectLines(text, {
                        "micro_batch_latency_seconds{percentile=\"50\"} 0.25\n",
                        "micro_batch_latency_seconds{percentile=\"99\"} 0.75\n",
                        "flow_time_seconds{part=\"compute\"} 4\n",
                        "flow_time_seconds{part=\"starved\"} 1\n",
                        "flow_time_seconds{part=\"blocked\"} 0.5\n",
                        "flow_time_seconds{part=\"fill\"} 2\n",
                        "flow_time_seconds{part=\"update\"} 0.125\n",
                    });
}

TEST_F(WorkerMetricsTest, SayHowLongTheCertificateIsValidWhereThereIsOne) {
  WorkerReading reading;
  metrics_.Update(reading);
  EXPECT_THAT(registry_.Text(),
              Not(HasSubstr("certificate_expiry_timestamp_seconds ")));
  reading.certificate_expiry = absl::FromUnixSeconds(1000);

  metrics_.Update(reading);

  EXPECT_THAT(registry_.Text(),
              HasSubstr("certificate_expiry_timestamp_seconds 1000\n"));
}

TEST_F(WorkerMetricsTest, KeepNothingOfARunThatHasEnded) {
  metrics_.Update(OfPipeDream());

  metrics_.Update(WorkerReading());

  const std::string text = registry_.Text();
  for (const char* const name :
       {"staleness_updates{", "weight_versions{", "weight_versions_bytes{",
        "updates_skipped{", "flow_time_seconds{", "latency_seconds{"}) {
    EXPECT_THAT(text, Not(HasSubstr(name)));
  }
}

}  // namespace
}  // namespace paceline
