#include "worker/control/metrics.h"

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

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

struct Family {
  const char* name;
  const char* help;
  std::vector<std::string> labels = {};
};

const Family kGauges[] = {
    {kBuildInfo, "Always 1; the label says which program.", {"version"}},
    {kAttached, "1 while the control stream is up, else 0."},
    {kRunning, "1 while a run is going on, else 0."},
    {kCertificate, "Unix time until which this worker's certificate is valid."},
    {kCodecError,
     "What pipeline.codec changed in the last frame looked at: the norm of the "
     "difference over that of the tensor; 0 with fp32."},
    {kPieces, "States of layers that are kept here for the next attempt."},
    {kPieceBytes, "Bytes of these."}};

// Gauges of the present run end with it.
const Family kRunGauges[] = {
    {kRunTime,
     "Seconds of the compute thread in the present run, by what they went "
     "into.",
     {"part"}},
    {kRunWall, "Seconds since the present run began."},
    {kPeakMemory, "Bytes of tensors in the present run, the most at a time."},
    {kPredictedMemory, "What the planner predicts for that."},
    {kStaleness,
     "Updates between the weights at which a gradient was computed and those "
     "it was applied to; mean of the present run.",
     {"stage"}},
    {kVersions, "Versions of the weights, the most at a time.", {"stage"}},
    {kVersionBytes, "Bytes of these versions.", {"stage"}},
    {kUpdatesSkipped,
     "Updates of the present run skipped for NaN or infinity.",
     {"stage"}},
    {kFlowTime,
     "Seconds of the compute thread while micro-batches pass in the present "
     "run: computing, or what it waited for.",
     {"part"}},
    {kLatency,
     "From the first stage's taking a micro-batch in to its result, where the "
     "last stage of an inference job is; to the end of its backward, where the "
     "first stage of a training job is.",
     {"percentile"}}};

// Gauges of a round group end with it.
const Family kGroupGauges[] = {
    {kRoundContributors, "Members whose parts are in the last result."},
    {kRoundServing,
     "1 while this worker serves the open round or a shard of it, else 0."},
    {kRoundCosine,
     "Mean cosine between the parts of the last round that this member served, "
     "where the job asks for it: 1 where members agree."},
    {kRoundDeadline,
     "How long the last round that this member served waited for parts after "
     "the first one, at most."}};

const Family kCounters[] = {
    {kInstructions, "Schedule instructions that the compute thread finished."},
    {kSteps, "Optimizer steps done, skipped ones too."},
    {kStepsSkipped, "Steps that the gate skipped on all stages."},
    {kSamples, "Training samples done."},
    {kFrames, "Frames sent to and received from others.", {"direction"}},
    {kFrameBytes, "Payload bytes of these frames.", {"direction"}},
    {kFramesDropped, "Frames that were received and not used.", {"reason"}},
    {kReconnects, "Data streams opened again after a break."},
    {kPiecesRefused,
     "States of other workers' layers that there was no memory for."},
    {kRounds, "Rounds of aggregation that ended.", {"outcome"}},
    {kRoundSkipped,
     "Parts that are not in a result which this worker committed.",
     {"reason"}},
    {kRoundTakeovers,
     "Rounds committed here whose first server was lost on the way."},
    {kRoundMismatches, "Rounds stopped here because members' states differed."},
    {kRoundRefused,
     "Refused by this worker: results with other bytes than their hash, "
     "messages that cannot be.",
     {"what"}},
    {kRoundFrames,
     "Messages of rounds, and chunks of their payloads.",
     {"direction"}},
    {kRoundBytes, "Payload bytes of rounds.", {"direction"}},
    {kRoundDropped,
     "Frames of rounds that were received and not used.",
     {"reason"}},
    {kRoundReconnects, "Streams of rounds opened again after a break."}};

}  // namespace

WorkerMetrics::WorkerMetrics(MetricsRegistry& registry,
                             const std::string& version)
    : registry_(registry) {
  for (const absl::Span<const Family> gauges :
       {absl::MakeConstSpan(kGauges), absl::MakeConstSpan(kRunGauges),
        absl::MakeConstSpan(kGroupGauges)}) {
    for (const Family& each : gauges) {
      registry_.DeclareGauge(each.name, each.help, each.labels);
    }
  }
  for (const Family& each : kCounters) {
    registry_.DeclareCounter(each.name, each.help, each.labels);
  }
  registry_.DeclareHistogram(
      kRoundSeconds,
      "Seconds of a round, from the first part that this worker saw to the "
      "end.",
      {kRoundBounds.begin(), kRoundBounds.end()});
  Set(kBuildInfo, 1, {version});
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
    for (const Family& each : kGroupGauges) registry_.RemoveSeries(each.name);
    return;
  }
  Set(kRoundContributors, rounds.last_contributors);
  Set(kRoundServing, rounds.serves);
  Set(kRoundDeadline, rounds.deadline_seconds);
  if (rounds.cosine.has_value()) Set(kRoundCosine, *rounds.cosine);
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
  Set(kCodecError, frames.codec_error);
  raise(kRoundFrames, kRoundBytes, kRoundDropped, kRoundReconnects, rounds);
}

void WorkerMetrics::UpdateRun(const WorkerReading& reading) {
  const v1::RunState& run = reading.run;
  for (const v1::StageTime& time : run.stage_times()) {
    const v1::StageVersions& versions = time.versions();
    if (versions.updates() == 0) continue;
    const LabelValues stage = {absl::StrCat(versions.stage())};
    Set(kStaleness,
        static_cast<double>(versions.staleness()) /
            static_cast<double>(versions.updates()),
        stage);
    Set(kVersions, versions.versions(), stage);
    Set(kVersionBytes, versions.version_bytes(), stage);
    Set(kUpdatesSkipped, versions.skipped_updates(), stage);
  }
  if (run.has_flow()) UpdateFlow(run.flow());
  Set(kPeakMemory, run.peak_memory_bytes());
  if (reading.predicted_memory_bytes > 0) {
    Set(kPredictedMemory, reading.predicted_memory_bytes);
  }
  const v1::TimeSplit& time = reading.time;
  for (int i = 0; i < time.GetDescriptor()->field_count(); ++i) {
    const auto& part = *time.GetDescriptor()->field(i);
    if (part.name() == "wall") continue;
    Set(kRunTime, time.GetReflection()->GetDouble(time, &part), {part.name()});
  }
  Set(kRunWall, time.wall());
}

void WorkerMetrics::UpdateFlow(const v1::FlowTimes& flow) {
  const std::pair<const char*, double> parts[] = {
      {"compute", flow.compute()},     {"starved", flow.starved()},
      {"in_flight", flow.in_flight()}, {"blocked", flow.blocked()},
      {"data", flow.data()},           {"fill", flow.fill()},
      {"update", flow.update()}};
  for (const auto& [part, seconds] : parts) Set(kFlowTime, seconds, {part});
  if (flow.latency_max() <= 0) return;
  Set(kLatency, flow.latency_p50(), {"50"});
  Set(kLatency, flow.latency_p99(), {"99"});
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

void WorkerMetrics::Update(const WorkerReading& reading) {
  Set(kAttached, reading.attached);
  Set(kRunning, reading.running);
  if (reading.certificate_expiry > absl::InfinitePast()) {
    Set(kCertificate,
        absl::ToDoubleSeconds(reading.certificate_expiry - absl::UnixEpoch()));
  }
  Raise(kInstructions, {}, reading.instructions);
  Raise(kSteps, {}, reading.steps);
  Raise(kStepsSkipped, {}, reading.steps_skipped);
  Raise(kSamples, {}, reading.samples);
  UpdateFrames(reading.frames, reading.round_frames);
  UpdateRounds(reading.rounds);
  Set(kPieces, reading.pieces.pieces);
  Set(kPieceBytes, reading.pieces.bytes);
  Raise(kPiecesRefused, {}, reading.pieces.refused);
  if (reading.running) return UpdateRun(reading);
  for (const Family& each : kRunGauges) registry_.RemoveSeries(each.name);
}

}  // namespace paceline
