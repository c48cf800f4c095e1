#include "core/rpc/convert/report_convert.h"

#include <cmath>
#include <string>
#include <tuple>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/data/data_sets.h"
#include "core/job/job_model.h"
#include "core/rpc/convert/job_convert.h"
#include "core/rpc/convert/mirror.h"
#include "core/rpc/status.h"
#include "google/protobuf/message.h"

namespace paceline {

// --- round groups -----------------------------------------------------------

namespace {

// Far beyond what one stage is replicated; who says more is none of ours.
constexpr int kMostProcesses = 4096;
constexpr size_t kMaxReasonBytes = 32;

absl::Status CheckReason(const std::string& reason) {
  const bool is_word = !reason.empty() && reason.size() <= kMaxReasonBytes &&
                       absl::c_all_of(reason, [](unsigned char c) {
                         return absl::ascii_islower(c) || c == '-';
                       });
  if (is_word) return absl::OkStatus();
  return InvalidArgument("round record: a reason of ", reason.size(),
                         " bytes, need a word in lower case of at most ",
                         kMaxReasonBytes);
}

absl::Status CheckGroup(const GroupOrder& group) {
  PACELINE_RETURN_IF_ERROR(CheckView(group.view));
  for (size_t i = 0; i + 1 < group.workers.size(); ++i) {
    if (group.workers[i].id < group.workers[i + 1].id) continue;
    return InvalidArgument(
        "group: worker ", group.workers[i + 1].id.worker.value,
        " stands after worker ", group.workers[i].id.worker.value,
        ": they come by id, each process once");
  }
  for (const ViewMember& member : group.view.members) {
    const bool is_there = absl::c_any_of(
        group.workers,
        [&member](const GroupWorker& each) { return each.id == member.id; });
    if (is_there) continue;
    return InvalidArgument("group: worker ", member.id.worker.value,
                           " is in view ", ViewText(group.view.id),
                           " and has no address");
  }
  return absl::OkStatus();
}

// Checks the members and workers, as far as the message alone shows.
absl::Status CheckMembers(const v1::GroupOrder& proto) {
  PACELINE_RETURN_IF_ERROR(
      CheckSize("group: members", proto.members_size(), kMostProcesses));
  PACELINE_RETURN_IF_ERROR(
      CheckSize("group: workers", proto.workers_size(), kMostProcesses));
  PACELINE_RETURN_IF_ERROR(CheckNumbers(proto));
  for (const v1::ViewMember& member : proto.members()) {
    if (member.share() > 0) continue;
    return InvalidArgument("view: worker ", member.member().worker_id(),
                           " has a share of ", member.share(),
                           ": need one above 0");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<View> ViewFromProto(const v1::GroupOrder& proto) {
  PACELINE_RETURN_IF_ERROR(CheckMembers(proto));
  View view = Taken<View>(proto);
  // A group whose last member is gone has no leveller.
  if (!view.members.empty()) PACELINE_RETURN_IF_ERROR(CheckView(view));
  return view;
}

absl::StatusOr<GroupOrder> FromProto(const v1::GroupOrder& proto) {
  PACELINE_RETURN_IF_ERROR(CheckMembers(proto));
  GroupOrder group = Taken<GroupOrder>(proto);
  PACELINE_RETURN_IF_ERROR(CheckGroup(group));
  return group;
}

v1::MemberState ToProto(const MemberReport& report) {
  v1::MemberState proto = Given<v1::MemberState>(report);
  if (report.mismatch.empty()) return proto;
  proto.mutable_mismatch()->set_step(report.mismatch_step);
  for (const auto& [member, hash] : report.mismatch) {
    v1::HashMismatch::Entry& entry = *proto.mutable_mismatch()->add_entries();
    *entry.mutable_member() = ToProto(member);
    entry.set_state_hash(hash);
  }
  return proto;
}

absl::StatusOr<MemberReport> FromProto(const v1::MemberState& proto) {
  PACELINE_RETURN_IF_ERROR(
      CheckSize("member: peers", proto.peers_size(), kMostProcesses));
  PACELINE_RETURN_IF_ERROR(CheckSize("member: hashes that differ",
                                     proto.mismatch().entries_size(),
                                     kMostProcesses));
  PACELINE_RETURN_IF_ERROR(CheckNumbers(proto));
  auto report = Taken<MemberReport>(proto);
  report.mismatch_step = proto.mismatch().step();
  for (const v1::HashMismatch::Entry& entry : proto.mismatch().entries()) {
    PACELINE_ASSIGN_OR_RETURN(const MemberId member, FromProto(entry.member()));
    if (report.mismatch.emplace(member, entry.state_hash()).second) continue;
    return InvalidArgument("member: worker ", member.worker.value,
                           " has two hashes in one mismatch");
  }
  return report;
}

absl::Status CheckRoundRecord(const v1::RoundRecord& record) {
  PACELINE_RETURN_IF_ERROR(CheckSize("round record: skipped",
                                     record.skipped_size(), kMostProcesses));
  PACELINE_RETURN_IF_ERROR(CheckNumbers(record, /*except=*/"cosine"));
  if (!(std::abs(record.cosine()) <= 1)) {
    return InvalidArgument("round record: a cosine of ", record.cosine());
  }
  for (const v1::RoundRecord::Skip& skip : record.skipped()) {
    PACELINE_RETURN_IF_ERROR(CheckReason(skip.reason()));
  }
  return absl::OkStatus();
}

// --- measurements -----------------------------------------------------------

namespace {

// Bounds the names of layers, operations and processors, which are for people
// and come out of files.
constexpr size_t kMaxNameBytes = 1024;

absl::Status CheckDevice(const v1::DeviceProfile& proto) {
  if (proto.layers().empty() || proto.layers_size() > kMaxProfiledLayers) {
    return InvalidArgument("measurement: a profile of ", proto.layers_size(),
                           " layers, need 1 to ", kMaxProfiledLayers);
  }
  PACELINE_RETURN_IF_ERROR(CheckNumbers(proto));
  if (proto.cpu_share() == 0 || proto.micro_batch() < 1 ||
      proto.threads() < 1) {
    return InvalidArgument("measurement: cpu_share ", proto.cpu_share(),
                           ", micro_batch ", proto.micro_batch(), ", threads ",
                           proto.threads(), ", all must be above 0");
  }
  return absl::OkStatus();
}

}  // namespace

v1::DeviceProfile ToProto(const DeviceProfile& profile) {
  auto proto = Given<v1::DeviceProfile>(profile);
  proto.set_cpu_model(ToUtf8(profile.cpu_model, kMaxNameBytes));
  for (v1::LayerMeasurement& layer : *proto.mutable_layers()) {
    layer.set_name(ToUtf8(layer.name(), kMaxNameBytes));
    layer.set_kind(ToUtf8(layer.kind(), kMaxNameBytes));
  }
  return proto;
}

absl::StatusOr<DeviceProfile> FromProto(const v1::DeviceProfile& proto) {
  PACELINE_RETURN_IF_ERROR(CheckDevice(proto));
  return Taken<DeviceProfile>(proto);
}

absl::StatusOr<LinkMeasurement> FromProto(const v1::LinkMeasurement& proto) {
  PACELINE_RETURN_IF_ERROR(CheckNumbers(proto));
  if (proto.bytes_per_second() == 0 || proto.from() == proto.to()) {
    return InvalidArgument("measurement: a link from ", proto.from(), " to ",
                           proto.to(), " of 0 bytes/s, or to itself");
  }
  auto link = Taken<LinkMeasurement>(proto);
  link.error = ToUtf8(link.error, kMaxStatusMessageBytes);
  return link;
}

absl::Status CheckMeasureOrder(const v1::MeasureOrder& order) {
  if (order.what_case() != v1::MeasureOrder::WHAT_NOT_SET) {
    return absl::OkStatus();
  }
  return InvalidArgument(
      "an order to measure that names neither layers nor a link nor files");
}

absl::Status CheckMeasurement(const v1::Measurement& measurement) {
  constexpr int32_t kLastCode =
      static_cast<int32_t>(absl::StatusCode::kUnauthenticated);
  if (measurement.error_code() < 0 || measurement.error_code() > kLastCode) {
    return InvalidArgument("measurement ", measurement.id(), ": no such code ",
                           measurement.error_code());
  }
  for (const auto& [what, size, most] :
       {std::tuple(": links", measurement.links_size(), kMaxMeasuredLinks),
        std::tuple(": files", measurement.missing_size(), kMaxFilesLookedFor),
        std::tuple(": notes", measurement.notes_size(), kMaxNotes)}) {
    PACELINE_RETURN_IF_ERROR(CheckSize(
        absl::StrCat("measurement ", measurement.id(), what), size, most));
  }
  if (measurement.has_profile()) {
    PACELINE_RETURN_IF_ERROR(FromProto(measurement.profile()).status());
  }
  for (const v1::LinkMeasurement& link : measurement.links()) {
    PACELINE_RETURN_IF_ERROR(FromProto(link).status());
  }
  return absl::OkStatus();
}

absl::Status ErrorOf(const v1::Measurement& measurement) {
  return absl::Status(
      static_cast<absl::StatusCode>(measurement.error_code()),
      ToUtf8(measurement.error_message(), kMaxStatusMessageBytes));
}

// --- heartbeats -------------------------------------------------------------

namespace {

// Times and counts are for people: one that cannot be, which no worker of ours
// sends, is taken as 0, "not known".  To refuse it would end the worker's
// stream, and to keep it would bring the store numbers that it cannot.
double Usable(double seconds) {
  return std::isfinite(seconds) && seconds >= 0 ? seconds : 0;
}

int64_t Usable(int64_t count) {
  return count >= 0 && count <= kMaxCount ? count : 0;
}

// Clears each number of `message` that cannot be, but for the one called
// `except`.
void CleanNumbers(google::protobuf::Message& message,
                  absl::string_view except) {
  using Field = google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& values = *message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const Field& field = *message.GetDescriptor()->field(i);
    if (field.name() == except) continue;
    if (field.cpp_type() == Field::CPPTYPE_DOUBLE) {
      const double value = values.GetDouble(message, &field);
      values.SetDouble(&message, &field, Usable(value));
    } else if (field.cpp_type() == Field::CPPTYPE_INT64) {
      const int64_t value = values.GetInt64(message, &field);
      values.SetInt64(&message, &field, Usable(value));
    }
  }
}

// At most kMaxLogTextBytes of `text` on one line: what is no UTF-8 could not be
// sent on.
std::string OneLine(const std::string& text) {
  std::string line = ToUtf8(text, kMaxLogTextBytes);
  for (char& c : line) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) c = ' ';
  }
  return line;
}

// The coordinator counts on from the attempts that workers tell of.
constexpr int64_t kMostAttempts = int64_t{1} << 50;
// Far more stages, neighbours or marks than a worker has.
constexpr int kMostOfAKind = 4096;
// Instructions of a traced batch.
constexpr int kMostTraced = 256;
// Each running job looks for itself among them.
constexpr int kMostRepaired = 64;

// Whether each instruction has all its numbers.
bool IsWhole(const v1::BatchTrace& trace) {
  const int ops = static_cast<int>(trace.ops().size());
  return ops <= kMostTraced && trace.micro_batches_size() == ops &&
         trace.begin_us_size() == ops && trace.us_size() == ops;
}

absl::Status CheckUnreadable(const v1::UnreadableSamples& said) {
  bool good = said.of() >= 0 && said.numbers_size() <= kMostUnreadable + 1;
  int64_t last = -1;
  for (const int32_t number : said.numbers()) {
    good = good && number > last && number < said.of();
    last = number;
  }
  if (good) return absl::OkStatus();
  return InvalidArgument("run state: ", said.numbers_size(),
                         " unreadable samples of ", said.of(),
                         ", need at most ", kMostUnreadable + 1,
                         " numbers of the split, ascending");
}

absl::Status CheckRun(const v1::RunState& run) {
  PACELINE_RETURN_IF_ERROR(CheckSize("run state: stage times",
                                     run.stage_times_size(), kMostOfAKind));
  PACELINE_RETURN_IF_ERROR(
      CheckSize("run state: sent", run.sent_size(), kMostOfAKind));
  PACELINE_RETURN_IF_ERROR(
      CheckSize("run state: predicted", run.predicted_size(), kMostOfAKind));
  PACELINE_RETURN_IF_ERROR(CheckUnreadable(run.unreadable().train()));
  PACELINE_RETURN_IF_ERROR(CheckUnreadable(run.unreadable().test()));
  if (run.phase() == v1::RunState::PHASE_UNSPECIFIED ||
      !v1::RunState::Phase_IsValid(run.phase())) {
    return InvalidArgument("run state: phase ", static_cast<int>(run.phase()),
                           " does not exist, need 1 to ",
                           static_cast<int>(v1::RunState::Phase_MAX));
  }
  if (run.job() < 1 || run.attempt() < 0 || run.attempt() > kMostAttempts ||
      run.step() < 0 || run.steps() < 0 || run.samples() < 0 ||
      run.total_samples() < 0 || run.names().files() < 0 ||
      run.names().class_names() < 0 || run.error_code() < 0 ||
      run.error_code() > 16) {
    return InvalidArgument(
        "run state: job, attempt, step, steps, samples, total_samples, names "
        "or error_code is out of range: ",
        run.job(), ", ", run.attempt(), ", ", run.step(), ", ", run.steps(),
        ", ", run.samples(), ", ", run.total_samples(), ", ",
        run.names().ShortDebugString(), ", ", run.error_code());
  }
  return absl::OkStatus();
}

absl::Status CheckRecords(const v1::Heartbeat& heartbeat) {
  for (const v1::StepRecord& step : heartbeat.steps()) {
    if (step.step() >= 1 && step.samples() >= 0 && step.loss_samples() >= 0) {
      continue;
    }
    return InvalidArgument(
        "record of step ", step.step(), " with ", step.samples(), " samples, ",
        step.loss_samples(),
        " of them in its loss: need a step of at least 1 and samples of at "
        "least 0");
  }
  for (const v1::EvaluationRecord& evaluation : heartbeat.evaluations()) {
    if (evaluation.step() >= 0 && evaluation.samples() >= 0) continue;
    return InvalidArgument("evaluation after step ", evaluation.step(),
                           " with ", evaluation.samples(),
                           " samples: need neither below 0");
  }
  return absl::OkStatus();
}

void CleanRun(v1::RunState& run) {
  CleanNotes(*run.mutable_notes());
  std::string& classes = *run.mutable_names()->mutable_classes();
  if (classes.size() > kMaxClassesBytes) classes.clear();
  if (run.has_seconds()) {
    CleanNumbers(*run.mutable_seconds(), "unexplained");
    // The unexplained rest may be a little below none.
    if (!std::isfinite(run.seconds().unexplained())) {
      run.mutable_seconds()->clear_unexplained();
    }
  }
  for (v1::StageTime& time : *run.mutable_stage_times()) {
    CleanNumbers(time, "");
    if (time.has_versions()) CleanNumbers(*time.mutable_versions(), "");
    if (!IsWhole(time.trace())) time.clear_trace();
  }
  // A model may well have a loss that is no number.
  if (run.has_flow()) CleanNumbers(*run.mutable_flow(), "loss");
  for (v1::PredictedMark& mark : *run.mutable_predicted()) {
    CleanNumbers(mark, "loss");
  }
  CleanNumbers(run, "");
}

absl::Status CheckCut(const v1::Cut& proto) {
  if (proto.attempt() < 0 || proto.attempt() > kMostAttempts ||
      proto.step() < 0) {
    return InvalidArgument(
        "a cut at step ", proto.step(), " of attempt ", proto.attempt(),
        ", need steps of at least 0 and attempts of 0 to ", kMostAttempts);
  }
  return absl::OkStatus();
}

absl::Status CheckLayers(const v1::LayerRange& proto) {
  if (proto.first() < 0 || proto.last() <= proto.first()) {
    return InvalidArgument("pieces of layers [", proto.first(), ", ",
                           proto.last(), ")");
  }
  return absl::OkStatus();
}

// Keeps a peer from having the coordinator count for ever.  Jobs and cuts count
// too.
constexpr int64_t kMostPieces = 100'000;

absl::Status CheckPieces(const v1::PiecesHeld& held) {
  PACELINE_RETURN_IF_ERROR(CheckCount("pieces: refused", held.refused()));
  int64_t pieces = 0;
  for (const v1::PiecesHeld::OfJob& job : held.jobs()) {
    PACELINE_RETURN_IF_ERROR(CheckCount("pieces: job", job.job()));
    pieces += 1 + job.cuts_size();
    PACELINE_RETURN_IF_ERROR(CheckSize("pieces", pieces, kMostPieces));
    PACELINE_RETURN_IF_ERROR(CheckCut(job.floor()));
    for (const v1::PiecesHeld::HeldCut& cut : job.cuts()) {
      PACELINE_RETURN_IF_ERROR(CheckCut(cut.cut()));
      for (const v1::LayerRange& layers : cut.layers()) {
        PACELINE_RETURN_IF_ERROR(CheckLayers(layers));
        pieces += layers.last() - layers.first();
        PACELINE_RETURN_IF_ERROR(CheckSize("pieces", pieces, kMostPieces));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

void CleanNotes(google::protobuf::RepeatedPtrField<std::string>& notes) {
  if (notes.size() > kMaxNotes) {
    notes.DeleteSubrange(kMaxNotes, notes.size() - kMaxNotes);
  }
  for (std::string& note : notes) note = ToUtf8(note, kMaxNoteBytes);
}

absl::Status CheckHeartbeat(v1::Heartbeat& heartbeat) {
  PACELINE_RETURN_IF_ERROR(CheckSize(
      "repaired jobs", heartbeat.repaired_jobs_size(), kMostRepaired));
  if (heartbeat.has_run()) {
    PACELINE_RETURN_IF_ERROR(CheckRun(heartbeat.run()));
    CleanRun(*heartbeat.mutable_run());
  }
  PACELINE_RETURN_IF_ERROR(CheckPieces(heartbeat.pieces()));
  PACELINE_RETURN_IF_ERROR(CheckRecords(heartbeat));
  for (const v1::RoundRecord& round : heartbeat.rounds()) {
    PACELINE_RETURN_IF_ERROR(CheckRoundRecord(round));
  }
  for (v1::LogLine& line : *heartbeat.mutable_logs()) {
    line.set_level(OneLine(line.level()));
    line.set_source(OneLine(line.source()));
    line.set_text(OneLine(line.text()));
  }
  return absl::OkStatus();
}

absl::Status ErrorOf(const v1::RunState& run) {
  if (run.phase() != v1::RunState::PHASE_FAILED) return absl::OkStatus();
  const auto code = static_cast<absl::StatusCode>(run.error_code());
  return absl::Status(
      code == absl::StatusCode::kOk ? absl::StatusCode::kInternal : code,
      run.error_message().empty() ? "no reason was given"
                                  : OneLine(run.error_message()));
}

absl::StatusOr<KeepOrder> KeepFromProto(const v1::StandingOrder& proto) {
  KeepOrder order;
  Read(proto.number(), order.number);
  for (const v1::KeepOrder& keep : proto.keep()) {
    PACELINE_RETURN_IF_ERROR(CheckNumbers(keep));
    const JobId job{keep.job()};
    KeepRule& rule = order.keep[job];
    Read(keep, rule);
    int64_t newest = 0;
    for (const AttemptRow& row : rule.rows) {
      if (row.attempt <= newest) {
        return InvalidArgument("order: attempt ", row.attempt, " of job ",
                               job.value, " stands behind attempt ", newest);
      }
      newest = row.attempt;
    }
    for (const v1::FollowOrder& follow : keep.follow()) {
      PACELINE_RETURN_IF_ERROR(CheckLayers(follow.layers()));
      FollowOrder& into = order.follow.emplace_back();
      Read(follow, into);
      into.job = job;
      into.attempt = newest;
    }
    if (keep.has_finish()) Read(keep.finish(), order.finish[job]);
  }
  return order;
}

absl::StatusOr<RunOrder> FromProto(const v1::RunOrder& proto) {
  PACELINE_RETURN_IF_ERROR(CheckNumbers(proto, /*except=*/"spec"));
  for (const v1::PieceSource& source : proto.sources()) {
    PACELINE_RETURN_IF_ERROR(CheckLayers(source.layers()));
  }
  int next = 0;
  for (const v1::StagePlacement& stage : proto.stages()) {
    if (stage.stage() != next && (next == 0 || stage.stage() != next - 1)) {
      return InvalidArgument("order: stage ", stage.stage(),
                             " stands where stage ", next, " comes next");
    }
    next = stage.stage() + 1;
  }
  if (proto.has_group()) {
    PACELINE_RETURN_IF_ERROR(FromProto(proto.group()).status());
  }
  return Taken<RunOrder>(proto);
}

absl::StatusOr<PieceWish> FromProto(const v1::PieceRequest& proto,
                                    Incarnation self) {
  // As many as a model's description may have.
  constexpr int kMostLayers = 4096;
  if (proto.to() != self.value || proto.to() == 0) {
    return Aborted("pieces are asked of process ", proto.to(),
                   ", but another one runs here");
  }
  PieceWish wish;
  wish.job = JobId{proto.job()};
  wish.cut = {proto.attempt(), proto.step()};
  wish.follows = proto.follow();
  wish.offset = wish.follows ? 0 : proto.offset();
  if (proto.job() < 1 || proto.attempt() < 0 || proto.step() < 0 ||
      wish.offset < 0 || !(proto.has_step() || wish.follows)) {
    return InvalidArgument(
        "pieces of job ", proto.job(), ", attempt ", proto.attempt(), ", ",
        proto.has_step() ? absl::StrCat("step ", proto.step())
                         : "neither step nor new",
        ": a job from 1 and no negative numbers are needed");
  }
  int next = 0;
  for (const v1::LayerRange& range : proto.layers()) {
    if (range.first() < next || range.last() <= range.first() ||
        range.last() > kMostLayers) {
      return InvalidArgument(
          "pieces of layers [", range.first(), ", ", range.last(),
          ") are asked for, need some between ", next, " and ", kMostLayers);
    }
    next = range.last();
    wish.layers.push_back(Taken<LayerRange>(range));
  }
  if (wish.layers.empty()) {
    return InvalidArgument("pieces of no layers are asked for");
  }
  return wish;
}

}  // namespace paceline
