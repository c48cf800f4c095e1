#include "worker/control/metrics.h"

#include "absl/strings/str_cat.h"

namespace paceline {
namespace {

constexpr char kBuildInfo[] = "paceline_worker_build_info";
constexpr char kAttached[] = "paceline_worker_attached";
constexpr char kRunning[] = "paceline_worker_running";
constexpr char kCertificate[] =
    "paceline_worker_certificate_expiry_timestamp_seconds";
constexpr char kInstructions[] = "paceline_worker_instructions_total";
constexpr char kSteps[] = "paceline_worker_steps_total";
constexpr char kStepsSkipped[] = "paceline_worker_steps_skipped_total";
constexpr char kSamples[] = "paceline_worker_samples_total";
constexpr char kFrames[] = "paceline_worker_frames_total";
constexpr char kFrameBytes[] = "paceline_worker_frame_bytes_total";
constexpr char kFramesDropped[] = "paceline_worker_frames_dropped_total";
constexpr char kReconnects[] = "paceline_worker_stream_reconnects_total";
constexpr char kCodecError[] = "paceline_worker_codec_error_ratio";
constexpr char kRunTime[] = "paceline_worker_run_time_seconds";
constexpr char kRunWall[] = "paceline_worker_run_wall_seconds";
constexpr char kPeakMemory[] = "paceline_worker_peak_memory_bytes";
constexpr char kPredictedMemory[] = "paceline_worker_predicted_memory_bytes";
// States of layers that are kept, of this worker's stages and of others'.
constexpr char kPieces[] = "paceline_worker_pieces";
constexpr char kPieceBytes[] = "paceline_worker_piece_bytes";
constexpr char kPiecesRefused[] = "paceline_worker_pieces_refused_total";
// Metrics of stages without a flush (pipeline.schedule pipedream).
constexpr char kStaleness[] = "paceline_worker_gradient_staleness_updates";
constexpr char kVersions[] = "paceline_worker_weight_versions";
constexpr char kVersionBytes[] = "paceline_worker_weight_versions_bytes";
constexpr char kUpdatesSkipped[] = "paceline_worker_updates_skipped";
constexpr char kFlowTime[] = "paceline_worker_flow_time_seconds";
// Where a micro-batch's way ends (v1::FlowTimes).
constexpr char kLatency[] = "paceline_worker_micro_batch_latency_seconds";

// Metrics of round groups.
constexpr char kRounds[] = "paceline_worker_rounds_total";
constexpr char kRoundSeconds[] = "paceline_worker_round_seconds";
constexpr char kRoundContributors[] = "paceline_worker_round_contributors";
constexpr char kRoundSkipped[] = "paceline_worker_round_parts_skipped_total";
constexpr char kRoundServing[] = "paceline_worker_round_serving";
constexpr char kRoundTakeovers[] = "paceline_worker_round_takeovers_total";
constexpr char kRoundMismatches[] =
    "paceline_worker_round_state_mismatches_total";
constexpr char kRoundRefused[] = "paceline_worker_round_refused_total";
constexpr char kRoundDeadline[] = "paceline_worker_round_deadline_seconds";
constexpr char kRoundCosine[] = "paceline_worker_round_part_cosine";
constexpr char kRoundFrames[] = "paceline_worker_round_frames_total";
constexpr char kRoundBytes[] = "paceline_worker_round_bytes_total";
constexpr char kRoundDropped[] = "paceline_worker_round_frames_dropped_total";
constexpr char kRoundReconnects[] = "paceline_worker_round_reconnects_total";

void DeclareRounds(MetricsRegistry& registry) {
  registry.DeclareCounter(kRounds, "Rounds of aggregation that ended.",
                          {"outcome"});
  registry.DeclareHistogram(
      kRoundSeconds,
      "Seconds of a round, from the first part that this worker saw to the "
      "end.",
      {kRoundBounds.begin(), kRoundBounds.end()});
  registry.DeclareGauge(kRoundContributors,
                        "Members whose parts are in the last result.");
  registry.DeclareCounter(
      kRoundSkipped,
      "Parts that are not in a result which this worker committed.",
      {"reason"});
  registry.DeclareGauge(
      kRoundServing,
      "1 while this worker serves the open round or a shard of it, else 0.");
  registry.DeclareCounter(
      kRoundTakeovers,
      "Rounds committed here whose first server was lost on the way.");
  registry.DeclareCounter(
      kRoundMismatches,
      "Rounds stopped here because members' states differed.");
  registry.DeclareCounter(
      kRoundRefused,
      "Refused by this worker: results with other bytes than their hash, "
      "messages that cannot be.",
      {"what"});
  registry.DeclareGauge(kRoundCosine,
                        "Mean cosine between the parts of the last round that "
                        "this member served, "
                        "where the job asks for it: 1 where members agree.");
  registry.DeclareGauge(
      kRoundDeadline,
      "How long the last round that this member served waited for parts after "
      "the first one, at most.");
  registry.DeclareCounter(kRoundFrames,
                          "Messages of rounds, and chunks of their payloads.",
                          {"direction"});
  registry.DeclareCounter(kRoundBytes, "Payload bytes of rounds.",
                          {"direction"});
  registry.DeclareCounter(kRoundDropped,
                          "Frames of rounds that were received and not used.",
                          {"reason"});
  registry.DeclareCounter(kRoundReconnects,
                          "Streams of rounds opened again after a break.");
}

}  // namespace

WorkerMetrics::WorkerMetrics(MetricsRegistry& registry,
                             const std::string& version)
    : registry_(registry) {
  registry_.DeclareGauge(kBuildInfo, "Always 1; the label says which program.",
                         {"version"});
  registry_.DeclareGauge(kAttached,
                         "1 while the control stream is up, else 0.");
  registry_.DeclareGauge(kRunning, "1 while a run is going on, else 0.");
  registry_.DeclareGauge(
      kCertificate,
      "Unix time until which this worker's certificate is valid.");
  registry_.DeclareCounter(
      kInstructions, "Schedule instructions that the compute thread finished.");
  registry_.DeclareCounter(kSteps, "Optimizer steps done, skipped ones too.");
  registry_.DeclareCounter(kStepsSkipped,
                           "Steps that the gate skipped on all stages.");
  registry_.DeclareCounter(kSamples, "Training samples done.");
  registry_.DeclareCounter(kFrames, "Frames sent to and received from others.",
                           {"direction"});
  registry_.DeclareCounter(kFrameBytes, "Payload bytes of these frames.",
                           {"direction"});
  registry_.DeclareCounter(
      kFramesDropped, "Frames that were received and not used.", {"reason"});
  registry_.DeclareCounter(kReconnects,
                           "Data streams opened again after a break.");
  registry_.DeclareGauge(
      kCodecError,
      "What pipeline.codec changed in the last frame looked at: the norm of "
      "the difference over that of the tensor; 0 with fp32.");
  registry_.DeclareGauge(
      kRunTime,
      "Seconds of the compute thread in the present run, by what they went "
      "into.",
      {"part"});
  registry_.DeclareGauge(kRunWall, "Seconds since the present run began.");
  registry_.DeclareGauge(
      kPeakMemory, "Bytes of tensors in the present run, the most at a time.");
  registry_.DeclareGauge(kPredictedMemory,
                         "What the planner predicts for that.");
  registry_.DeclareGauge(
      kStaleness,
      "Updates between the weights at which a gradient was computed and those "
      "it was applied to; mean of the present run.",
      {"stage"});
  registry_.DeclareGauge(
      kVersions, "Versions of the weights, the most at a time.", {"stage"});
  registry_.DeclareGauge(kVersionBytes, "Bytes of these versions.", {"stage"});
  registry_.DeclareGauge(
      kUpdatesSkipped,
      "Updates of the present run skipped for NaN or infinity.", {"stage"});
  registry_.DeclareGauge(
      kFlowTime,
      "Seconds of the compute thread while micro-batches pass in the present "
      "run: computing, or what it waited for.",
      {"part"});
  registry_.DeclareGauge(
      kLatency,
      "From the first stage's taking a micro-batch in to its result, where the "
      "last stage of an inference job is; to the end of its backward, where "
      "the first stage of a training job is.",
      {"percentile"});
  registry_.DeclareGauge(
      kPieces, "States of layers that are kept here for the next attempt.");
  registry_.DeclareGauge(kPieceBytes, "Bytes of these.");
  registry_.DeclareCounter(
      kPiecesRefused,
      "States of other workers' layers that there was no memory for.");
  DeclareRounds(registry_);
  registry_.GetGauge(kBuildInfo, {version}).Set(1);
}

void WorkerMetrics::AddDurations(const RoundStats& rounds) {
  std::vector<double> more;
  for (size_t i = 0; i < rounds.durations.size(); ++i) {
    more.push_back(
        static_cast<double>(rounds.durations[i] - rounds_.durations[i]));
  }
  registry_.GetHistogram(kRoundSeconds)
      .ObserveMany(more, rounds.seconds - rounds_.seconds);
  rounds_ = rounds;
}

void WorkerMetrics::UpdateRounds(const RoundReading& reading) {
  const RoundStats& rounds = reading.stats;
  Raise(kRounds, {"committed"}, rounds.committed);
  Raise(kRounds, {"void"}, rounds.void_rounds);
  AddDurations(rounds);
  for (int reason = 0; reason < kSkipReasons; ++reason) {
    Raise(kRoundSkipped, {SkipReasonName(static_cast<SkipReason>(reason))},
          rounds.skipped[reason]);
  }
  Raise(kRoundTakeovers, {}, rounds.takeovers);
  Raise(kRoundMismatches, {}, rounds.mismatches);
  Raise(kRoundRefused, {"result"}, rounds.refused_results);
  Raise(kRoundRefused, {"message"}, rounds.refused_messages);
  if (!reading.in_group) {
    for (const char* const name :
         {kRoundContributors, kRoundServing, kRoundDeadline, kRoundCosine}) {
      registry_.RemoveSeries(name);
    }
    return;
  }
  registry_.GetGauge(kRoundContributors).Set(rounds.last_contributors);
  registry_.GetGauge(kRoundServing).Set(rounds.serves);
  registry_.GetGauge(kRoundDeadline).Set(rounds.deadline_seconds);
  if (rounds.cosine.has_value()) {
    registry_.GetGauge(kRoundCosine).Set(*rounds.cosine);
  }
}

void WorkerMetrics::UpdateFrames(const PlaneStats& frames,
                                 const PlaneStats& rounds) {
  const auto raise = [this](const char* name, const char* bytes,
                            const char* dropped, const char* reconnects,
                            const PlaneStats& stats) {
    Raise(name, {"sent"}, stats.frames_sent);
    Raise(name, {"received"}, stats.frames_received);
    Raise(bytes, {"sent"}, stats.bytes_sent);
    Raise(bytes, {"received"}, stats.bytes_received);
    Raise(dropped, {"old"}, stats.frames_dropped_old);
    Raise(dropped, {"duplicate"}, stats.frames_dropped_duplicate);
    Raise(dropped, {"refused"}, stats.frames_refused);
    Raise(dropped, {"checksum"}, stats.checksum_errors);
    Raise(reconnects, {}, stats.reconnects);
  };
  raise(kFrames, kFrameBytes, kFramesDropped, kReconnects, frames);
  registry_.GetGauge(kCodecError).Set(frames.codec_error);
  raise(kRoundFrames, kRoundBytes, kRoundDropped, kRoundReconnects, rounds);
}

void WorkerMetrics::UpdateFlow(const v1::FlowTimes& flow) {
  const std::pair<const char*, double> parts[] = {
      {"compute", flow.compute()},     {"starved", flow.starved()},
      {"in_flight", flow.in_flight()}, {"blocked", flow.blocked()},
      {"data", flow.data()},           {"fill", flow.fill()},
      {"update", flow.update()}};
  for (const auto& [part, seconds] : parts) {
    registry_.GetGauge(kFlowTime, {part}).Set(seconds);
  }
  if (flow.latency_max() <= 0) return;
  registry_.GetGauge(kLatency, {"50"}).Set(flow.latency_p50());
  registry_.GetGauge(kLatency, {"99"}).Set(flow.latency_p99());
}

void WorkerMetrics::Raise(const std::string& name, const LabelValues& labels,
                          int64_t total) {
  int64_t& last = totals_[{name, labels}];
  // Asked for even when nothing was added, so that the series exists from the
  // beginning and rates are right.
  const Counter counter = registry_.GetCounter(name, labels);
  if (total > last) counter.Add(static_cast<double>(total - last));
  last = total;
}

void WorkerMetrics::UpdateVersions(const v1::StageVersions& versions) {
  const LabelValues stage = {absl::StrCat(versions.stage())};
  registry_.GetGauge(kStaleness, stage)
      .Set(static_cast<double>(versions.staleness()) /
           static_cast<double>(versions.updates()));
  registry_.GetGauge(kVersions, stage).Set(versions.versions());
  registry_.GetGauge(kVersionBytes, stage)
      .Set(static_cast<double>(versions.version_bytes()));
  registry_.GetGauge(kUpdatesSkipped, stage)
      .Set(static_cast<double>(versions.skipped_updates()));
}

void WorkerMetrics::Update(const WorkerReading& reading) {
  registry_.GetGauge(kAttached).Set(reading.attached);
  registry_.GetGauge(kRunning).Set(reading.running);
  if (reading.certificate_expiry > absl::InfinitePast()) {
    registry_.GetGauge(kCertificate)
        .Set(absl::ToDoubleSeconds(reading.certificate_expiry -
                                   absl::UnixEpoch()));
  }
  Raise(kInstructions, {}, reading.instructions);
  Raise(kSteps, {}, reading.steps);
  Raise(kStepsSkipped, {}, reading.steps_skipped);
  Raise(kSamples, {}, reading.samples);
  UpdateFrames(reading.frames, reading.round_frames);
  UpdateRounds(reading.rounds);
  registry_.GetGauge(kPieces).Set(static_cast<double>(reading.pieces));
  registry_.GetGauge(kPieceBytes).Set(static_cast<double>(reading.piece_bytes));
  Raise(kPiecesRefused, {}, reading.pieces_refused);
  if (!reading.running) {
    registry_.RemoveSeries(kRunTime);
    registry_.RemoveSeries(kRunWall);
    registry_.RemoveSeries(kPeakMemory);
    registry_.RemoveSeries(kPredictedMemory);
    for (const char* const name : {kStaleness, kVersions, kVersionBytes,
                                   kUpdatesSkipped, kFlowTime, kLatency}) {
      registry_.RemoveSeries(name);
    }
    return;
  }
  for (const v1::StageTime& time : reading.run.stage_times()) {
    if (time.versions().updates() > 0) UpdateVersions(time.versions());
  }
  if (reading.run.has_flow()) UpdateFlow(reading.run.flow());
  registry_.GetGauge(kPeakMemory)
      .Set(static_cast<double>(reading.run.peak_memory_bytes()));
  if (reading.predicted_memory_bytes > 0) {
    registry_.GetGauge(kPredictedMemory)
        .Set(static_cast<double>(reading.predicted_memory_bytes));
  }
  for (int part = 0; part < kTimeParts; ++part) {
    registry_
        .GetGauge(kRunTime,
                  {std::string(TimePartName(static_cast<TimePart>(part)))})
        .Set(absl::ToDoubleSeconds(reading.time.parts[part]));
  }
  registry_.GetGauge(kRunTime, {"unexplained"})
      .Set(absl::ToDoubleSeconds(reading.time.unexplained()));
  registry_.GetGauge(kRunWall).Set(absl::ToDoubleSeconds(reading.time.wall));
}

}  // namespace paceline
