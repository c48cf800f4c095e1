#include "coordinator/store/schema.h"

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace paceline {
namespace {

// Workers, jobs, plans, and the records of jobs.
constexpr char kVersion1[] = R"sql(
CREATE TABLE meta (
  key TEXT PRIMARY KEY, value INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO meta VALUES ('next_job', 1);
CREATE TABLE workers (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, machine_id TEXT NOT NULL,
  incarnation INTEGER NOT NULL, address TEXT NOT NULL,
  http_address TEXT NOT NULL, pid INTEGER NOT NULL,
  cpu_capability TEXT NOT NULL, cpu_model TEXT NOT NULL,
  architecture TEXT NOT NULL, memory_bytes INTEGER NOT NULL,
  cores INTEGER NOT NULL, version TEXT NOT NULL
);
CREATE TABLE jobs (
  id INTEGER PRIMARY KEY, request_id TEXT NOT NULL, spec BLOB NOT NULL,
  state INTEGER NOT NULL, why TEXT NOT NULL, step INTEGER NOT NULL,
  steps INTEGER NOT NULL, evaluated_step INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  plan_version INTEGER NOT NULL, threads INTEGER NOT NULL,
  cpu_capability TEXT NOT NULL, weights_path TEXT NOT NULL,
  weights_sha256 TEXT NOT NULL, submitted_unix_ms INTEGER NOT NULL,
  started_unix_ms INTEGER NOT NULL, ended_unix_ms INTEGER NOT NULL
);
CREATE TABLE plans (
  job INTEGER NOT NULL, plan_version INTEGER NOT NULL, stage INTEGER NOT NULL,
  first_layer INTEGER NOT NULL, last_layer INTEGER NOT NULL,
  worker INTEGER NOT NULL,
  PRIMARY KEY (job, plan_version, stage)
) WITHOUT ROWID;
CREATE TABLE job_workers (
  job INTEGER NOT NULL, worker INTEGER NOT NULL, name TEXT NOT NULL,
  phase INTEGER NOT NULL, forward REAL, backward REAL, send REAL,
  receive_wait REAL, aggregate REAL, optimizer REAL, snapshot REAL, data REAL,
  orders REAL, unexplained REAL, wall REAL,
  PRIMARY KEY (job, worker)
) WITHOUT ROWID;
CREATE TABLE steps (
  job INTEGER NOT NULL, step INTEGER NOT NULL, loss REAL,
  samples INTEGER NOT NULL, learning_rate REAL, gradient_norm REAL,
  skipped INTEGER NOT NULL, unix_ms INTEGER NOT NULL,
  PRIMARY KEY (job, step)
) WITHOUT ROWID;
CREATE TABLE evaluations (
  job INTEGER NOT NULL, step INTEGER NOT NULL, loss REAL, accuracy REAL,
  samples INTEGER NOT NULL,
  PRIMARY KEY (job, step)
) WITHOUT ROWID;
CREATE TABLE events (
  sequence INTEGER PRIMARY KEY AUTOINCREMENT, job INTEGER NOT NULL,
  unix_ms INTEGER NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL
);
CREATE INDEX events_by_job ON events (job, sequence);
CREATE TABLE logs (
  sequence INTEGER PRIMARY KEY AUTOINCREMENT, job INTEGER NOT NULL,
  unix_ms INTEGER NOT NULL, level TEXT NOT NULL, source TEXT NOT NULL,
  text TEXT NOT NULL
);
CREATE INDEX logs_by_job ON logs (job, sequence);
)sql";

// Skipped steps are counted, and a log line that is sent again is known by its
// process and its number there (0: of a worker that does not number them).
constexpr char kVersion2[] = R"sql(
ALTER TABLE jobs ADD COLUMN recorded_step INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN skipped_steps INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN skipping_since INTEGER NOT NULL DEFAULT 0;
UPDATE jobs SET
  recorded_step =
    (SELECT coalesce(max(step), 0) FROM steps WHERE job = jobs.id),
  skipped_steps =
    (SELECT count(*) FROM steps WHERE job = jobs.id AND skipped <> 0);
ALTER TABLE logs ADD COLUMN incarnation INTEGER NOT NULL DEFAULT 0;
ALTER TABLE logs ADD COLUMN origin INTEGER NOT NULL DEFAULT 0;
CREATE UNIQUE INDEX logs_once ON logs (incarnation, origin) WHERE origin > 0;
)sql";

// What was measured: a model's layers on a worker, that worker itself, links.
constexpr char kVersion3[] = R"sql(
CREATE TABLE layer_profiles (
  model TEXT NOT NULL, micro_batch INTEGER NOT NULL, dtype TEXT NOT NULL,
  threads INTEGER NOT NULL, device TEXT NOT NULL, layer INTEGER NOT NULL,
  name TEXT NOT NULL, kind TEXT NOT NULL,
  forward REAL NOT NULL, forward_spread REAL NOT NULL,
  forward_cpu REAL NOT NULL, backward REAL NOT NULL,
  backward_spread REAL NOT NULL, backward_cpu REAL NOT NULL,
  update_seconds REAL NOT NULL, flops REAL NOT NULL,
  output_bytes INTEGER NOT NULL, parameter_bytes INTEGER NOT NULL,
  kept_bytes INTEGER NOT NULL,
  PRIMARY KEY (model, micro_batch, dtype, threads, device, layer)
) WITHOUT ROWID;
CREATE TABLE device_profiles (
  model TEXT NOT NULL, micro_batch INTEGER NOT NULL, dtype TEXT NOT NULL,
  threads INTEGER NOT NULL, device TEXT NOT NULL,
  cpu_capability TEXT NOT NULL, cpu_model TEXT NOT NULL,
  runs INTEGER NOT NULL, frame_seconds REAL NOT NULL,
  frame_seconds_per_byte REAL NOT NULL, gate_seconds REAL NOT NULL,
  cpu_share REAL NOT NULL, quota_period_seconds REAL NOT NULL,
  unix_ms INTEGER NOT NULL,
  PRIMARY KEY (model, micro_batch, dtype, threads, device)
) WITHOUT ROWID;
CREATE TABLE links (
  from_device TEXT NOT NULL, to_device TEXT NOT NULL,
  bytes_per_second REAL NOT NULL, latency_seconds REAL NOT NULL,
  unix_ms INTEGER NOT NULL,
  PRIMARY KEY (from_device, to_device)
) WITHOUT ROWID;
ALTER TABLE jobs ADD COLUMN predicted_step REAL;
ALTER TABLE jobs ADD COLUMN predicted_rate REAL;
ALTER TABLE jobs ADD COLUMN predicted_bubble REAL;
ALTER TABLE jobs ADD COLUMN prediction_source TEXT;
ALTER TABLE jobs ADD COLUMN prediction_measured INTEGER;
ALTER TABLE jobs ADD COLUMN step_seconds REAL NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN timed_steps INTEGER NOT NULL DEFAULT 0;
CREATE TABLE stage_times (
  job INTEGER NOT NULL, stage INTEGER NOT NULL, predicted REAL,
  seconds REAL NOT NULL, micro_batches INTEGER NOT NULL,
  PRIMARY KEY (job, stage)
) WITHOUT ROWID;
)sql";

// What a byte over a link costs the CPUs at its ends.
constexpr char kVersion4[] = R"sql(
ALTER TABLE links ADD COLUMN send_cpu_seconds_per_byte REAL NOT NULL DEFAULT 0;
ALTER TABLE links
  ADD COLUMN receive_cpu_seconds_per_byte REAL NOT NULL DEFAULT 0;
)sql";

// What stages without a flush do.
constexpr char kVersion5[] = R"sql(
ALTER TABLE stage_times ADD COLUMN updates INTEGER NOT NULL DEFAULT 0;
ALTER TABLE stage_times ADD COLUMN skipped_updates INTEGER NOT NULL DEFAULT 0;
ALTER TABLE stage_times ADD COLUMN staleness INTEGER NOT NULL DEFAULT 0;
ALTER TABLE stage_times ADD COLUMN versions INTEGER NOT NULL DEFAULT 0;
ALTER TABLE stage_times ADD COLUMN version_bytes INTEGER NOT NULL DEFAULT 0;
)sql";

// How micro-batches pass through workers.
constexpr char kVersion6[] = R"sql(
CREATE TABLE flow_times (
  job INTEGER NOT NULL, worker INTEGER NOT NULL,
  micro_batches INTEGER NOT NULL, samples INTEGER NOT NULL,
  first_unix_us INTEGER NOT NULL, last_unix_us INTEGER NOT NULL,
  compute REAL NOT NULL, compute_cpu REAL NOT NULL, other_cpu REAL NOT NULL,
  starved REAL NOT NULL, in_flight REAL NOT NULL, blocked REAL NOT NULL,
  data REAL NOT NULL, latency_p50 REAL NOT NULL, latency_p99 REAL NOT NULL,
  latency_max REAL NOT NULL, fill REAL NOT NULL, update_time REAL NOT NULL,
  seconds REAL NOT NULL,
  PRIMARY KEY (job, worker)
) WITHOUT ROWID;
)sql";

// Bytes of tensors on a worker, the most at a time: as reported, as planned.
constexpr char kVersion7[] = R"sql(
ALTER TABLE job_workers ADD COLUMN peak_memory INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job_workers ADD COLUMN predicted_memory INTEGER NOT NULL DEFAULT 0;
)sql";

// Replicas, which share a stage; what inference's last stages counted.  Both
// `stage` of plans and of stage_times are places in the plan's list, where a
// replica has one of its own.
constexpr char kVersion8[] = R"sql(
ALTER TABLE plans ADD COLUMN share REAL NOT NULL DEFAULT 1;
ALTER TABLE flow_times ADD COLUMN labels INTEGER NOT NULL DEFAULT 0;
ALTER TABLE flow_times ADD COLUMN correct INTEGER NOT NULL DEFAULT 0;
ALTER TABLE flow_times ADD COLUMN loss REAL NOT NULL DEFAULT 0;
)sql";

// Views of round groups, the newest of a job; workers that get nothing new.
constexpr char kVersion9[] = R"sql(
INSERT INTO meta VALUES ('term', 0);
CREATE TABLE drained (worker INTEGER PRIMARY KEY);
CREATE TABLE views (
  job INTEGER PRIMARY KEY, attempt INTEGER NOT NULL, term INTEGER NOT NULL,
  counter INTEGER NOT NULL, leveller INTEGER NOT NULL,
  leveller_incarnation INTEGER NOT NULL
);
CREATE TABLE view_members (
  job INTEGER NOT NULL, worker INTEGER NOT NULL, incarnation INTEGER NOT NULL,
  from_step INTEGER NOT NULL, share REAL NOT NULL,
  PRIMARY KEY (job, worker)
) WITHOUT ROWID;
)sql";

// Processes that were taken out of a round group; whether a job's faults have
// done what they were to do.
constexpr char kVersion10[] = R"sql(
ALTER TABLE views ADD COLUMN faults_are_spent INTEGER NOT NULL DEFAULT 0;
CREATE TABLE view_excluded (
  job INTEGER NOT NULL, worker INTEGER NOT NULL, incarnation INTEGER NOT NULL,
  PRIMARY KEY (job, worker)
) WITHOUT ROWID;
)sql";

// What a stage's layers were measured to take by themselves.
constexpr char kVersion11[] = R"sql(
ALTER TABLE stage_times ADD COLUMN layer_seconds REAL;
)sql";

// Workers that a job has had and that may be another's.
constexpr char kVersion12[] = R"sql(
ALTER TABLE job_workers ADD COLUMN let_go INTEGER NOT NULL DEFAULT 0;
)sql";

}  // namespace

const std::vector<std::string>& Migrations() {
  static const auto* const migrations = new std::vector<std::string>{
      kVersion1, kVersion2, kVersion3, kVersion4,  kVersion5,  kVersion6,
      kVersion7, kVersion8, kVersion9, kVersion10, kVersion11, kVersion12};
  return *migrations;
}

absl::Status Migrate(Database& database,
                     const std::vector<std::string>& migrations) {
  PACELINE_ASSIGN_OR_RETURN(const int64_t found,
                            database.QueryInteger("PRAGMA user_version"));
  if (found < 0) {
    return absl::DataLossError(absl::StrCat(
        "the data base of the state is damaged: its schema is ", found,
        ", and no paceline-coordinator writes less than 0; move the file away "
        "to start without what it knew"));
  }
  const int64_t newest = std::ssize(migrations);
  if (found > newest) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the state was written by a newer paceline-coordinator (schema ", found,
        ", this one knows ", newest,
        "): update this one, or give it another --state"));
  }
  for (int64_t version = found; version < newest; ++version) {
    const absl::Status migrated = database.Execute(
        absl::StrCat("BEGIN IMMEDIATE;", migrations[version],
                     "PRAGMA user_version=", version + 1, ";COMMIT;"));
    if (!migrated.ok()) {
      database.Execute("ROLLBACK").IgnoreError();
      return migrated;
    }
  }
  return absl::OkStatus();
}

}  // namespace paceline
