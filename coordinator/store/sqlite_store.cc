#include "coordinator/store/sqlite_store.h"

#include <algorithm>
#include <limits>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "coordinator/jobs/list_page.h"
#include "core/base/errors.h"
#include "core/rpc/convert/mirror.h"
#include "core/rpc/convert/report_convert.h"

namespace paceline {
namespace {

// PRAGMA user_version.  Versions 1 to 12 date from before the first release and
// had a column for every field.
constexpr int64_t kSchemaVersion = 13;

constexpr char kSchema[] = R"sql(
BEGIN IMMEDIATE;
CREATE TABLE jobs (id INTEGER PRIMARY KEY, job BLOB NOT NULL);
CREATE TABLE records (
  job INTEGER NOT NULL, kind INTEGER NOT NULL, step INTEGER NOT NULL,
  record BLOB NOT NULL, PRIMARY KEY (job, kind, step)
) WITHOUT ROWID;
CREATE TABLE events (
  sequence INTEGER PRIMARY KEY AUTOINCREMENT, job INTEGER NOT NULL,
  event BLOB NOT NULL
);
CREATE INDEX events_by_job ON events (job, sequence);
CREATE TABLE logs (
  sequence INTEGER PRIMARY KEY AUTOINCREMENT, job INTEGER NOT NULL,
  incarnation INTEGER NOT NULL, origin INTEGER NOT NULL, line BLOB NOT NULL
);
CREATE INDEX logs_by_job ON logs (job, sequence);
CREATE UNIQUE INDEX logs_once ON logs (job, incarnation, origin)
  WHERE origin > 0;
CREATE TABLE kv (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
INSERT INTO kv VALUES ('next_job', 1), ('term', 0);
PRAGMA user_version=13;
COMMIT;
)sql";

// Added to version 13's tables.  A program that knows only those leaves this
// one alone; a trigger marks the jobs that it writes as unknown.
constexpr char kJobIndex[] = R"sql(
BEGIN IMMEDIATE;
CREATE TABLE job_index (
  id INTEGER PRIMARY KEY, ended INTEGER NOT NULL, state INTEGER NOT NULL,
  request TEXT NOT NULL, thinned INTEGER NOT NULL
);
CREATE INDEX job_index_by_end ON job_index (ended);
CREATE INDEX job_index_to_thin ON job_index (id) WHERE thinned=0 AND ended>0;
CREATE INDEX job_index_by_request ON job_index (request) WHERE request<>'';
CREATE TRIGGER job_is_put AFTER INSERT ON jobs BEGIN
  INSERT OR REPLACE INTO job_index VALUES (new.id, 0, 0, '', 0);
END;
CREATE TRIGGER job_is_deleted AFTER DELETE ON jobs BEGIN
  UPDATE job_index SET ended=-1, request='' WHERE id=old.id;
END;
INSERT INTO job_index SELECT id, 0, 0, '', 0 FROM jobs;
COMMIT;
)sql";

// The write-ahead log is cut to 16 MiB after a large transaction.
constexpr char kSettings[] =
    "PRAGMA journal_mode=WAL; PRAGMA journal_size_limit=16777216";

// The most ended jobs that one transaction thins.
constexpr int kJobsATime = 64;

constexpr int64_t kAnyBytes = std::numeric_limits<int64_t>::max();

// The kinds of rows in `records`.
constexpr int64_t kStep = 1;
constexpr int64_t kEvaluation = 2;

absl::Status Damaged(absl::string_view what, absl::string_view why) {
  return DataLoss(what, " in the store is damaged: ", why, kMoveAway);
}

template <typename Message>
absl::StatusOr<Message> Parse(const std::string& bytes,
                              absl::string_view what) {
  Message message;
  if (message.ParseFromString(bytes)) return message;
  return Damaged(what, absl::StrCat("it is no ", message.GetTypeName()));
}

// The messages in rows of (number, bytes), up to one answer's size; sets the
// number in each.
template <typename Message>
absl::StatusOr<std::vector<Message>> ReadAll(
    Query& query, absl::string_view what, int64_t most_bytes = kAnswerBytes) {
  std::vector<Message> messages;
  int64_t bytes = 0;
  while (bytes < most_bytes && query.Next()) {
    const std::string row = query.Text(1);
    bytes += static_cast<int64_t>(row.size());
    PACELINE_ASSIGN_OR_RETURN(messages.emplace_back(),
                              Parse<Message>(row, what));
    if constexpr (requires { messages.back().set_sequence(0); }) {
      messages.back().set_sequence(query.Integer(0));
    }
  }
  PACELINE_RETURN_IF_ERROR(query.status());
  return messages;
}

// Changes nothing.  Errors: those of SqliteStore::Open()
absl::Status CheckFile(Database& database, const std::string& path,
                       int64_t version) {
  if (version < 0) {
    return DataLoss("data base ", path, " is damaged: its schema is ", version,
                    ", and no paceline-coordinator writes less than 0",
                    kMoveAway);
  }
  if (version > kSchemaVersion) {
    return InvalidArgument(
        "the state was written by a newer paceline-coordinator (schema ",
        version, ", this one knows ", kSchemaVersion,
        "): update this one, or give it another --state");
  }
  if (version > 0 && version < kSchemaVersion) {
    return InvalidArgument(
        "the state was written by an older paceline-coordinator (schema ",
        version, ", this one needs ", kSchemaVersion,
        "): give it another --state");
  }
  PACELINE_ASSIGN_OR_RETURN(
      const int64_t tables,
      database.QueryInteger("SELECT count(*) FROM sqlite_master"));
  if (version == 0 && tables > 0) {
    return DataLoss("data base ", path, " is none of paceline-coordinator's",
                    kMoveAway);
  }
  return absl::OkStatus();
}

v1::StoredGroup ToStored(const KeptView& kept) {
  v1::StoredGroup group;
  group.set_attempt(kept.attempt);
  *group.mutable_view() = ToProto(kept.view);
  for (const auto& [worker, incarnation] : kept.excluded) {
    *group.add_excluded() = ToProto(MemberId{worker, incarnation});
  }
  for (const auto& [worker, incarnation] : kept.distrusted) {
    *group.add_distrusted() = ToProto(MemberId{worker, incarnation});
  }
  group.set_faults_are_spent(kept.faults_are_spent);
  return group;
}

// FromProto() of core/rpc, beside those below.
using paceline::FromProto;

absl::StatusOr<KeptView> FromProto(const v1::StoredGroup& group) {
  KeptView kept;
  kept.attempt = group.attempt();
  PACELINE_ASSIGN_OR_RETURN(kept.view, ViewFromProto(group.view()));
  for (const v1::GroupMember& member : group.excluded()) {
    PACELINE_ASSIGN_OR_RETURN(const MemberId id, FromProto(member));
    kept.excluded[id.worker] = id.incarnation;
  }
  for (const v1::GroupMember& member : group.distrusted()) {
    PACELINE_ASSIGN_OR_RETURN(const MemberId id, FromProto(member));
    kept.distrusted[id.worker] = id.incarnation;
  }
  kept.faults_are_spent = group.faults_are_spent();
  return kept;
}

absl::StatusOr<JobRecord> FromProto(const v1::Job& job) {
  return FromStored(job);
}

// Reads a row that holds a Message.
template <typename Message>
auto ParseInto(const std::string& bytes, absl::string_view what)
    -> decltype(FromProto(Message())) {
  PACELINE_ASSIGN_OR_RETURN(const Message message, Parse<Message>(bytes, what));
  auto value = FromProto(message);
  if (!value.ok()) return Damaged(what, value.status().message());
  return value;
}

// The jobs in rows of (id, job), up to `bytes` in all.
absl::StatusOr<std::vector<JobRecord>> ReadJobs(Query& query, int64_t bytes) {
  std::vector<JobRecord> jobs;
  while (bytes > 0 && query.Next()) {
    const std::string row = query.Text(1);
    bytes -= static_cast<int64_t>(row.size());
    PACELINE_ASSIGN_OR_RETURN(
        jobs.emplace_back(),
        ParseInto<v1::Job>(row, absl::StrCat("job ", query.Integer(0))));
  }
  PACELINE_RETURN_IF_ERROR(query.status());
  return jobs;
}

// Workers' names have no '/'; the model, which may, comes last.
std::string IdOf(const ProfileKey& key) {
  return absl::StrCat(key.device, "/", key.dtype, "/", key.threads, "/",
                      key.micro_batch, "/", key.model);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SqliteStore>> SqliteStore::Open(
    const std::string& path) {
  PACELINE_ASSIGN_OR_RETURN(std::unique_ptr<Database> database,
                            Database::Open(path));
  PACELINE_RETURN_IF_ERROR(database->Execute("PRAGMA busy_timeout=2000"));
  PACELINE_ASSIGN_OR_RETURN(const int64_t version,
                            database->QueryInteger("PRAGMA user_version"));
  PACELINE_RETURN_IF_ERROR(CheckFile(*database, path, version));
  PACELINE_RETURN_IF_ERROR(database->Execute(kSettings));
  if (version == 0) PACELINE_RETURN_IF_ERROR(database->Execute(kSchema));
  PACELINE_ASSIGN_OR_RETURN(
      const int64_t indexed,
      database->QueryInteger(
          "SELECT count(*) FROM sqlite_master WHERE name='job_index'"));
  if (indexed == 0) PACELINE_RETURN_IF_ERROR(database->Execute(kJobIndex));
  return std::unique_ptr<SqliteStore>(new SqliteStore(std::move(database)));
}

// --- writing ----------------------------------------------------------------

absl::Status SqliteStore::Commit(const StoreBatch& batch) {
  PACELINE_RETURN_IF_ERROR(database_->Execute(
      absl::StrCat("PRAGMA synchronous=", batch.durable ? "FULL" : "NORMAL")));
  return Transact([&] { return Write(batch); });
}

absl::Status SqliteStore::Transact(absl::FunctionRef<absl::Status()> write) {
  PACELINE_RETURN_IF_ERROR(database_->Execute("BEGIN IMMEDIATE"));
  absl::Status written = write();
  if (written.ok()) written = database_->Execute("COMMIT");
  if (!written.ok()) {
    // After some errors SQLite has rolled back already; this then fails
    // harmlessly.
    database_->Execute("ROLLBACK").IgnoreError();
  }
  return written;
}

absl::Status SqliteStore::Write(const StoreBatch& batch) {
  for (const auto& [id, job] : batch.jobs) {
    PACELINE_RETURN_IF_ERROR(
        Run("INSERT OR REPLACE INTO jobs VALUES (?,?)", id, ToStored(job)));
    PACELINE_RETURN_IF_ERROR(IndexJob(job.job));
    PACELINE_RETURN_IF_ERROR(RaiseNumber("next_job", id.value + 1));
  }
  PACELINE_RETURN_IF_ERROR(WriteValues(batch));
  for (const auto& [id, step] : batch.restarted) {
    // The evaluation before the first step is repeated too.
    PACELINE_RETURN_IF_ERROR(Run("DELETE FROM records WHERE job=? AND step>?",
                                 id, step == 0 ? -1 : step));
    thinning_.erase(id);
  }
  for (const auto& [id, records] : batch.records) {
    PACELINE_RETURN_IF_ERROR(AddRecords(id, records));
  }
  for (const auto& [id, job] : batch.jobs) {
    if (!HasEnded(job.state())) continue;
    PACELINE_RETURN_IF_ERROR(DropValue("group", id.value));
  }
  for (const JobId id : batch.deleted) {
    PACELINE_RETURN_IF_ERROR(Delete(id));
  }
  return absl::OkStatus();
}

absl::Status SqliteStore::WriteValues(const StoreBatch& batch) {
  for (const auto& [id, worker] : batch.workers) {
    PACELINE_RETURN_IF_ERROR(PutValue("worker", id.value, worker));
  }
  for (const auto& [id, drained] : batch.drained) {
    PACELINE_RETURN_IF_ERROR(drained ? PutValue("drained", id.value, Blob{""})
                                     : DropValue("drained", id.value));
  }
  for (const WorkerId id : batch.forgotten) {
    PACELINE_RETURN_IF_ERROR(DropValue("worker", id.value));
    PACELINE_RETURN_IF_ERROR(DropValue("drained", id.value));
  }
  if (batch.term.has_value()) {
    PACELINE_RETURN_IF_ERROR(RaiseNumber("term", *batch.term));
  }
  for (const auto& [id, view] : batch.views) {
    PACELINE_RETURN_IF_ERROR(PutValue("group", id.value, ToStored(view)));
  }
  for (const auto& [id, token] : batch.tokens) {
    PACELINE_RETURN_IF_ERROR(token.has_value() ? PutValue("token", id, *token)
                                               : DropValue("token", id));
  }
  for (const auto& [holder, unix_ms] : batch.revoked) {
    PACELINE_RETURN_IF_ERROR(
        PutValue("revoked", holder, Blob{absl::StrCat(unix_ms)}));
  }
  for (const auto& [name, key] : batch.keys) {
    PACELINE_RETURN_IF_ERROR(key.empty() ? DropValue("key", name)
                                         : PutValue("key", name, Blob{key}));
  }
  for (const auto& [key, profile] : batch.measurements.profiles) {
    PACELINE_RETURN_IF_ERROR(PutValue("profile", IdOf(key), ToProto(profile)));
  }
  for (const auto& [ends, link] : batch.measurements.links) {
    PACELINE_RETURN_IF_ERROR(
        PutValue("link", absl::StrCat(link.from, "/", link.to), ToProto(link)));
  }
  return absl::OkStatus();
}

absl::Status SqliteStore::AddRecords(JobId job,
                                     const StoreBatch::Records& records) {
  const auto put = [&](int64_t kind, const auto& record) {
    return Run("INSERT OR REPLACE INTO records VALUES (?,?,?,?)", job, kind,
               record.step(), record);
  };
  if (!records.steps.empty()) {
    Thinning& curve = thinning_[job];
    curve.due = true;
    for (const v1::StepRecord& step : records.steps) {
      // Another member's part of a step that thinning has removed.
      const bool left_out = step.step() < curve.next &&
                            (step.step() - curve.first) % curve.stride != 0;
      if (!left_out) PACELINE_RETURN_IF_ERROR(put(kStep, step));
    }
  }
  for (const v1::EvaluationRecord& evaluation : records.evaluations) {
    PACELINE_RETURN_IF_ERROR(put(kEvaluation, evaluation));
  }
  for (const v1::JobEvent& event : records.events) {
    PACELINE_RETURN_IF_ERROR(
        Run("INSERT INTO events (job, event) VALUES (?,?)", job, event));
  }
  if (!records.events.empty()) {
    PACELINE_RETURN_IF_ERROR(KeepNewest("events", job, kEventsKept));
  }
  return records.logs.empty() ? absl::OkStatus() : AddLogs(job, records.logs);
}

absl::Status SqliteStore::AddLogs(
    JobId job, const std::vector<std::pair<Incarnation, v1::LogLine>>& logs) {
  for (const auto& [process, line] : logs) {
    PACELINE_RETURN_IF_ERROR(
        Run("INSERT INTO logs (job, incarnation, origin, line) "
            "VALUES (?,?,?,?) ON CONFLICT DO NOTHING",
            job, process, line.sequence(), line));
  }
  return KeepNewest("logs", job, kLogLinesKept);
}

absl::Status SqliteStore::KeepNewest(const std::string& table, JobId job,
                                     int64_t rows) {
  const std::string sql = absl::StrCat(
      "DELETE FROM ", table, " WHERE job=?1 AND sequence<=(SELECT sequence ",
      "FROM ", table,
      " WHERE job=?1 ORDER BY sequence DESC LIMIT 1 OFFSET ?2)");
  return Run(sql.c_str(), job, rows);
}

// Upkeep() deletes the remaining rows.
absl::Status SqliteStore::Delete(JobId job) {
  PACELINE_RETURN_IF_ERROR(Run("DELETE FROM jobs WHERE id=?", job));
  PACELINE_RETURN_IF_ERROR(DropValue("group", job.value));
  int64_t rows = kRowsATime;
  return DropRecords(job, rows);
}

absl::Status SqliteStore::IndexJob(const v1::Job& job) {
  const bool ended = HasEnded(job.state());
  return Run("INSERT OR REPLACE INTO job_index VALUES (?,?,?,?,0)", job.id(),
             ended ? std::max<int64_t>(1, job.ended_unix_ms()) : 0, job.state(),
             job.request_id());
}

// --- upkeep -----------------------------------------------------------------

absl::Status SqliteStore::Upkeep() {
  const absl::Status kept = Transact([this]() -> absl::Status {
    int64_t rows = kRowsATime;
    PACELINE_ASSIGN_OR_RETURN(
        const int64_t deleted,
        First("SELECT id FROM job_index WHERE ended=-1 LIMIT 1"));
    if (deleted > 0) PACELINE_RETURN_IF_ERROR(DropRecords({deleted}, rows));
    for (auto& [job, curve] : thinning_) {
      if (curve.due) PACELINE_RETURN_IF_ERROR(ThinCurve(job, curve, rows));
    }
    for (int i = 0; i < kJobsATime && rows > 0; ++i) {
      // The index on `ended` would walk past all thinned jobs.
      PACELINE_ASSIGN_OR_RETURN(
          const int64_t ended,
          First("SELECT id FROM job_index INDEXED BY job_index_to_thin "
                "WHERE thinned=0 AND ended>0 LIMIT 1"));
      if (ended == 0) break;
      Thinning& curve = thinning_[{ended}];
      PACELINE_RETURN_IF_ERROR(ThinCurve({ended}, curve, rows));
      if (curve.due) break;
      thinning_.erase({ended});
      PACELINE_RETURN_IF_ERROR(
          Run("UPDATE job_index SET thinned=1 WHERE id=?", ended));
    }
    return absl::OkStatus();
  });
  for (auto& [job, curve] : thinning_) {
    if (!kept.ok()) curve = {};
  }
  return kept;
}

absl::StatusOr<int64_t> SqliteStore::First(const char* sql) {
  Query query(*database_, sql);
  const bool found = query.Next();
  PACELINE_RETURN_IF_ERROR(query.status());
  return found ? query.Integer(0) : 0;
}

absl::Status SqliteStore::DropRecords(JobId job, int64_t& rows) {
  thinning_.erase(job);
  for (const char* sql :
       {"DELETE FROM records WHERE job=?1 AND (kind, step) IN "
        "(SELECT kind, step FROM records WHERE job=?1 LIMIT ?2)",
        "DELETE FROM events WHERE sequence IN "
        "(SELECT sequence FROM events WHERE job=?1 LIMIT ?2)",
        "DELETE FROM logs WHERE sequence IN "
        "(SELECT sequence FROM logs WHERE job=?1 LIMIT ?2)"}) {
    PACELINE_RETURN_IF_ERROR(Run(sql, job, rows));
    rows -= database_->changes();
  }
  if (rows == 0) return absl::OkStatus();
  return Run("DELETE FROM job_index WHERE id=?", job);
}

absl::StatusOr<std::pair<int64_t, int64_t>> SqliteStore::EndsOf(JobId job) {
  Query ends(*database_,
             "SELECT (SELECT min(step) FROM records WHERE job=?1 AND kind=?2), "
             "(SELECT max(step) FROM records WHERE job=?1 AND kind=?2)",
             job, kStep);
  ends.Next();
  PACELINE_RETURN_IF_ERROR(ends.status());
  return std::pair(ends.Integer(0), ends.Integer(1));
}

// A wider stride begins again with the first record; a curve that has become
// shorter keeps its stride.
absl::Status SqliteStore::ThinCurve(JobId job, Thinning& curve, int64_t& rows) {
  if (rows == 0) return absl::OkStatus();
  PACELINE_ASSIGN_OR_RETURN(const auto ends, EndsOf(job));
  const int64_t stride = CurveStride(ends.first, ends.second);
  if (stride > curve.stride) curve = {ends.first, stride, ends.first};
  curve.due = false;
  if (curve.stride == 1) return absl::OkStatus();
  Query chunk(*database_,
              "SELECT count(*), max(step) FROM (SELECT step FROM records "
              "WHERE job=? AND kind=? AND step>=? AND step<=? ORDER BY step "
              "LIMIT ?)",
              job, kStep, curve.next, ends.second - kWholeSteps, rows);
  chunk.Next();
  PACELINE_RETURN_IF_ERROR(chunk.status());
  const int64_t count = chunk.Integer(0);
  if (count == 0) return absl::OkStatus();
  curve.due = count == rows;
  rows -= count;
  const int64_t first = std::exchange(curve.next, chunk.Integer(1) + 1);
  return Run(
      "DELETE FROM records WHERE job=? AND kind=? AND step>=? AND step<? AND "
      "(step-?)%?<>0",
      job, kStep, first, curve.next, curve.first, curve.stride);
}

// --- loading at start -------------------------------------------------------

absl::StatusOr<StoredState> SqliteStore::Load() {
  PACELINE_RETURN_IF_ERROR(IndexUnknownJobs());
  StoredState state;
  Query counts(*database_,
               "SELECT state, count(*) FROM job_index WHERE ended>0 GROUP BY "
               "state");
  while (counts.Next()) {
    state.ended[static_cast<v1::JobState>(counts.Integer(0))] =
        counts.Integer(1);
  }
  PACELINE_RETURN_IF_ERROR(counts.status());
  PACELINE_ASSIGN_OR_RETURN(std::vector<JobRecord> jobs,
                            LastEnded(kEndedInMemory));
  for (const JobRecord& job : jobs) --state.ended[job.state()];
  Query open(*database_,
             "SELECT id, job FROM jobs WHERE id IN (SELECT id FROM job_index "
             "WHERE ended=0)");
  PACELINE_ASSIGN_OR_RETURN(std::vector<JobRecord> others,
                            ReadJobs(open, kAnyBytes));
  jobs.insert(jobs.end(), others.begin(), others.end());
  for (JobRecord& job : jobs) state.jobs[job.id()] = std::move(job);
  PACELINE_RETURN_IF_ERROR(LoadValues(state));
  PACELINE_ASSIGN_OR_RETURN(
      state.next_job.value,
      database_->QueryInteger("SELECT value FROM kv WHERE key='next_job'"));
  PACELINE_ASSIGN_OR_RETURN(
      state.term,
      database_->QueryInteger("SELECT value FROM kv WHERE key='term'"));
  return state;
}

absl::Status SqliteStore::IndexUnknownJobs() {
  std::vector<v1::Job> jobs;  // as the index needs them
  Query query(*database_,
              "SELECT id, job FROM jobs WHERE id IN (SELECT id FROM job_index "
              "WHERE ended=0 AND state=0)");
  while (query.Next()) {
    const int64_t id = query.Integer(0);
    PACELINE_ASSIGN_OR_RETURN(
        const v1::Job job,
        Parse<v1::Job>(query.Text(1), absl::StrCat("job ", id)));
    v1::Job& known = jobs.emplace_back();
    known.set_id(id);
    known.set_state(job.state());
    known.set_ended_unix_ms(job.ended_unix_ms());
    known.set_request_id(job.request_id());
  }
  PACELINE_RETURN_IF_ERROR(query.status());
  if (jobs.empty()) return absl::OkStatus();
  return Transact([&]() -> absl::Status {
    for (const v1::Job& job : jobs) {
      PACELINE_RETURN_IF_ERROR(IndexJob(job));
      if (!HasEnded(job.state())) continue;
      PACELINE_RETURN_IF_ERROR(DropValue("group", job.id()));
    }
    return absl::OkStatus();
  });
}

absl::Status SqliteStore::LoadValues(StoredState& state) {
  Query query(*database_, "SELECT key, value FROM kv WHERE key GLOB '*/*'");
  while (query.Next()) {
    const std::string key = query.Text(0);
    const std::string value = query.Text(1);
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(key, absl::MaxSplits('/', 1));
    int64_t number = 0;
    const bool numbered = absl::SimpleAtoi(parts.second, &number);
    if (parts.first == "worker" && numbered) {
      PACELINE_ASSIGN_OR_RETURN(state.workers[WorkerId{number}],
                                Parse<v1::Registration>(value, key));
    } else if (parts.first == "drained" && numbered) {
      state.drained.insert(WorkerId{number});
    } else if (parts.first == "group" && numbered) {
      PACELINE_ASSIGN_OR_RETURN(state.views[JobId{number}],
                                ParseInto<v1::StoredGroup>(value, key));
    } else if (parts.first == "token") {
      PACELINE_ASSIGN_OR_RETURN(state.tokens[parts.second],
                                Parse<v1::JoinToken>(value, key));
    } else if (parts.first == "revoked" && absl::SimpleAtoi(value, &number)) {
      state.revoked[parts.second] = number;
    } else if (parts.first == "key") {
      state.keys[parts.second] = value;
    } else if (parts.first == "profile") {
      PACELINE_ASSIGN_OR_RETURN(const auto profile,
                                ParseInto<v1::DeviceProfile>(value, key));
      state.measurements.Put(profile);
    } else if (parts.first == "link") {
      PACELINE_ASSIGN_OR_RETURN(const auto link,
                                ParseInto<v1::LinkMeasurement>(value, key));
      state.measurements.Put(link);
    } else {
      return Damaged(key, "no paceline-coordinator writes such a key");
    }
  }
  return query.status();
}

// --- reading records --------------------------------------------------------

std::vector<int64_t> EvenlyTaken(int64_t count, int64_t points) {
  const int64_t taken = std::max<int64_t>(0, std::min(count, points));
  std::vector<int64_t> positions(taken);
  // Counts from the end, so that the newest record is always taken.
  for (int64_t i = 0; i < taken; ++i) {
    positions[taken - 1 - i] =
        count - 1 -
        static_cast<int64_t>(static_cast<__int128>(i) * count / taken);
  }
  return positions;
}

absl::StatusOr<std::vector<JobRecord>> SqliteStore::JobsBelow(JobId below,
                                                              int64_t limit,
                                                              int64_t bytes) {
  Query query(*database_,
              "SELECT id, job FROM jobs WHERE id<? ORDER BY id DESC LIMIT ?",
              below, limit);
  return ReadJobs(query, bytes);
}

absl::StatusOr<std::vector<JobRecord>> SqliteStore::LastEnded(int64_t limit) {
  Query query(*database_,
              "SELECT jobs.id, job FROM job_index JOIN jobs USING (id) "
              "WHERE ended>0 ORDER BY ended DESC, id DESC LIMIT ?",
              limit);
  return ReadJobs(query, kAnyBytes);
}

absl::StatusOr<JobId> SqliteStore::FindRequest(const std::string& request_id) {
  Query query(*database_,
              "SELECT id FROM job_index WHERE request=? AND request<>''",
              request_id);
  const bool found = query.Next();
  PACELINE_RETURN_IF_ERROR(query.status());
  return found ? JobId{query.Integer(0)} : JobId();
}

absl::StatusOr<StoredCurve> SqliteStore::Curve(JobId job, int64_t after_step,
                                               int64_t points) {
  PACELINE_ASSIGN_OR_RETURN(const auto ends, EndsOf(job));
  StoredCurve curve;
  curve.stride = CurveStride(ends.first, ends.second);
  if (points <= 0) return curve;  // to SQLite, a negative limit is no limit
  // Reads up to `limit` records of `sql`, with steps in (first, last].
  const auto read = [&](const char* sql, int64_t first, int64_t last,
                        int64_t limit) -> absl::Status {
    Query query(*database_, sql, job, kStep, first, last, limit);
    while (query.Next()) {
      PACELINE_ASSIGN_OR_RETURN(
          curve.points.emplace_back(),
          Parse<v1::StepRecord>(query.Text(0), "a record of a step"));
    }
    return query.status();
  };
  PACELINE_RETURN_IF_ERROR(
      read("SELECT record FROM records WHERE job=? AND kind=? AND step>? AND "
           "step<=? ORDER BY step LIMIT ?",
           after_step, ends.second, points + 1));
  if (std::ssize(curve.points) <= points) return curve;
  curve.points.clear();
  const int64_t before = std::max(after_step, ends.first - 1);
  int64_t taken = before;
  for (const int64_t place : EvenlyTaken(ends.second - before, points)) {
    const int64_t step = before + 1 + place;
    PACELINE_RETURN_IF_ERROR(
        read("SELECT record FROM records WHERE job=? AND kind=? AND step>? AND "
             "step<=? ORDER BY step DESC LIMIT ?",
             taken, step, 1));
    taken = step;
  }
  return curve;
}

absl::StatusOr<std::vector<v1::EvaluationRecord>> SqliteStore::Evaluations(
    JobId job, int64_t newest) {
  Query query(*database_,
              "SELECT step, record FROM records WHERE job=? AND kind=? "
              "ORDER BY step DESC LIMIT ?",
              job, kEvaluation, newest);
  auto evaluations = ReadAll<v1::EvaluationRecord>(query, "an evaluation");
  if (evaluations.ok()) absl::c_reverse(*evaluations);
  return evaluations;
}

absl::StatusOr<StoredRows> SqliteStore::RowsAfter(JobId job, int64_t after_step,
                                                  int64_t limit) {
  int64_t last = kAnyBytes;  // step
  const auto read = [&](int64_t kind, auto& rows) -> absl::Status {
    Query query(*database_,
                "SELECT step, record FROM records WHERE job=? AND kind=? AND "
                "step>? ORDER BY step LIMIT ?",
                job, kind, after_step > 0 ? after_step : -1, limit);
    using Row = typename std::decay_t<decltype(rows)>::value_type;
    PACELINE_ASSIGN_OR_RETURN(rows, ReadAll<Row>(query, "a record", kAnyBytes));
    if (std::ssize(rows) == limit) last = std::min(last, rows.back().step());
    return absl::OkStatus();
  };
  StoredRows rows;
  PACELINE_RETURN_IF_ERROR(read(kStep, rows.steps));
  PACELINE_RETURN_IF_ERROR(read(kEvaluation, rows.evaluations));
  const auto is_later = [&](const auto& row) { return row.step() > last; };
  std::erase_if(rows.steps, is_later);
  std::erase_if(rows.evaluations, is_later);
  return rows;
}

absl::StatusOr<std::vector<v1::JobEvent>> SqliteStore::Events(JobId job,
                                                              int64_t after,
                                                              int64_t limit) {
  Query query(*database_,
              "SELECT sequence, event FROM events WHERE job=? AND sequence>? "
              "ORDER BY sequence LIMIT ?",
              job, after, limit);
  return ReadAll<v1::JobEvent>(query, "an event");
}

absl::StatusOr<std::vector<v1::JobEvent>> SqliteStore::NewestEvents(
    int64_t limit) {
  Query query(*database_,
              "SELECT sequence, event FROM events WHERE job NOT IN "
              "(SELECT id FROM job_index WHERE ended=-1) ORDER BY sequence "
              "DESC LIMIT ?",
              limit);
  auto events = ReadAll<v1::JobEvent>(query, "an event");
  if (events.ok()) absl::c_reverse(*events);
  return events;
}

absl::StatusOr<std::vector<v1::LogLine>> SqliteStore::Logs(JobId job,
                                                           int64_t after,
                                                           int64_t limit) {
  Query query(*database_,
              "SELECT sequence, line FROM logs WHERE job=? AND sequence>? "
              "ORDER BY sequence LIMIT ?",
              job, after, limit);
  return ReadAll<v1::LogLine>(query, "a log line");
}

}  // namespace paceline
