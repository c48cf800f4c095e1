#include "coordinator/store/sqlite_store.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coordinator/store/drift_tables.h"
#include "coordinator/store/flow_table.h"
#include "coordinator/store/group_tables.h"
#include "coordinator/store/measurement_tables.h"
#include "coordinator/store/schema.h"
#include "core/base/status_macros.h"

namespace paceline {

absl::StatusOr<std::unique_ptr<SqliteStore>> SqliteStore::Open(
    const std::string& path, SpecCodec codec) {
  PACELINE_ASSIGN_OR_RETURN(std::unique_ptr<Database> database,
                            Database::Open(path));
  PACELINE_RETURN_IF_ERROR(
      database->Execute("PRAGMA journal_mode=WAL; PRAGMA foreign_keys=OFF;"
                        "PRAGMA busy_timeout=2000;"));
  PACELINE_RETURN_IF_ERROR(Migrate(*database, Migrations()));
  Query check(*database, "PRAGMA quick_check(1)");
  const bool answered = check.Next();
  PACELINE_RETURN_IF_ERROR(check.status());
  if (!answered || check.Text(0) != "ok") {
    return absl::DataLossError(absl::StrCat(
        "data base ", path, " is damaged: ", answered ? check.Text(0) : "",
        "; move the file away to start without what it knew"));
  }
  return std::unique_ptr<SqliteStore>(
      new SqliteStore(std::move(database), std::move(codec)));
}

// --- writing ----------------------------------------------------------------

absl::Status SqliteStore::Commit(const StoreBatch& batch) {
  PACELINE_RETURN_IF_ERROR(database_->Execute(
      absl::StrCat("PRAGMA synchronous=", batch.durable ? "FULL" : "NORMAL")));
  PACELINE_RETURN_IF_ERROR(database_->Execute("BEGIN IMMEDIATE"));
  absl::Status written = Write(batch);
  if (written.ok()) written = database_->Execute("COMMIT");
  if (!written.ok()) {
    // Some errors have rolled back already; then this says so, harmlessly.
    database_->Execute("ROLLBACK").IgnoreError();
  }
  return written;
}

absl::Status SqliteStore::Write(const StoreBatch& batch) {
  for (const auto& [id, worker] : batch.workers) {
    PACELINE_RETURN_IF_ERROR(PutWorker(id, worker));
  }
  for (const auto& [id, job] : batch.jobs) {
    PACELINE_RETURN_IF_ERROR(PutJob(job));
  }
  PACELINE_RETURN_IF_ERROR(PutGroups(*database_, batch));
  for (const WorkerId id : batch.forgotten) {
    for (const char* sql : {"DELETE FROM workers WHERE id=?",
                            "DELETE FROM drained WHERE worker=?"}) {
      PACELINE_RETURN_IF_ERROR(Query(*database_, sql).Bind(id.value).Run());
    }
  }
  for (const JobId id : batch.restarted) {
    for (const char* sql : {"DELETE FROM steps WHERE job=?",
                            "DELETE FROM evaluations WHERE job=?"}) {
      PACELINE_RETURN_IF_ERROR(Query(*database_, sql).Bind(id.value).Run());
    }
  }
  for (const auto& [id, records] : batch.records) {
    PACELINE_RETURN_IF_ERROR(AddRecords(id, records));
  }
  for (const JobId id : batch.deleted) {
    PACELINE_RETURN_IF_ERROR(Delete(id));
  }
  return PutMeasurements(*database_, batch.measurements);
}

absl::Status SqliteStore::PutWorker(WorkerId id, const Registration& worker) {
  return Query(*database_,
               "INSERT OR REPLACE INTO workers (id, name, machine_id, "
               "incarnation, address, http_address, pid, cpu_capability, "
               "cpu_model, architecture, memory_bytes, cores, version) "
               "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)")
      .Bind(id.value)
      .Bind(worker.name)
      .Bind(worker.machine_id)
      .Bind(static_cast<int64_t>(worker.incarnation.value))
      .Bind(worker.address)
      .Bind(worker.http_address)
      .Bind(worker.pid)
      .Bind(worker.cpu_capability)
      .Bind(worker.cpu_model)
      .Bind(worker.architecture)
      .Bind(worker.memory_bytes)
      .Bind(int64_t{worker.cores})
      .Bind(worker.version)
      .Run();
}

absl::Status SqliteStore::PutJob(const JobRecord& job) {
  PACELINE_RETURN_IF_ERROR(
      Query(*database_,
            "INSERT OR REPLACE INTO jobs (id, request_id, spec, state, why, "
            "step, steps, evaluated_step, attempt, plan_version, threads, "
            "cpu_capability, weights_path, weights_sha256, submitted_unix_ms, "
            "started_unix_ms, ended_unix_ms, recorded_step, skipped_steps, "
            "skipping_since, step_seconds, timed_steps) "
            "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)")
          .Bind(job.id.value)
          .Bind(job.request_id)
          .BindBlob(codec_.encode(job.spec))
          .Bind(static_cast<int64_t>(job.state))
          .Bind(job.why)
          .Bind(job.step)
          .Bind(job.steps)
          .Bind(job.evaluated_step)
          .Bind(job.attempt)
          .Bind(job.plan_version)
          .Bind(int64_t{job.threads})
          .Bind(job.cpu_capability)
          .Bind(job.weights_path)
          .Bind(job.weights_sha256)
          .Bind(job.submitted_unix_ms)
          .Bind(job.started_unix_ms)
          .Bind(job.ended_unix_ms)
          .Bind(job.recorded_step)
          .Bind(job.skipped_steps)
          .Bind(job.skipping_since)
          .BindOr(job.step_seconds, 0)
          .Bind(job.timed_steps)
          .Run());
  PACELINE_RETURN_IF_ERROR(PutDrift(*database_, job));
  PACELINE_RETURN_IF_ERROR(
      Query(*database_,
            "UPDATE meta SET value=max(value,?) WHERE key='next_job'")
          .Bind(job.id.value + 1)
          .Run());
  PACELINE_RETURN_IF_ERROR(PutPlan(job));
  PACELINE_RETURN_IF_ERROR(
      Query(*database_, "DELETE FROM job_workers WHERE job=?")
          .Bind(job.id.value)
          .Run());
  for (const JobWorker& worker : job.workers) {
    PACELINE_RETURN_IF_ERROR(PutJobWorker(job.id, worker));
  }
  return PutFlows(*database_, job);
}

absl::Status SqliteStore::PutPlan(const JobRecord& job) {
  for (size_t i = 0; i < job.stages.size(); ++i) {
    const StageOfPlan& stage = job.stages[i];
    PACELINE_RETURN_IF_ERROR(
        Query(*database_,
              "INSERT OR REPLACE INTO plans (job, plan_version, stage, "
              "first_layer, last_layer, worker, share) VALUES (?,?,?,?,?,?,?)")
            .Bind(job.id.value)
            .Bind(job.plan_version)
            .Bind(static_cast<int64_t>(i))
            .Bind(int64_t{stage.layers.first})
            .Bind(int64_t{stage.layers.last})
            .Bind(stage.worker.value)
            .Bind(stage.share)
            .Run());
  }
  return absl::OkStatus();
}

absl::Status SqliteStore::PutJobWorker(JobId job, const JobWorker& worker) {
  const TimeSplit& seconds = worker.seconds;
  return Query(*database_,
               "INSERT INTO job_workers (job, worker, name, phase, forward, "
               "backward, send, receive_wait, aggregate, optimizer, snapshot, "
               "data, orders, unexplained, wall, peak_memory, "
               "predicted_memory, let_go) "
               "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)")
      .Bind(job.value)
      .Bind(worker.id.value)
      .Bind(worker.name)
      .Bind(static_cast<int64_t>(worker.phase))
      .Bind(seconds.forward)
      .Bind(seconds.backward)
      .Bind(seconds.send)
      .Bind(seconds.receive_wait)
      .Bind(seconds.aggregate)
      .Bind(seconds.optimizer)
      .Bind(seconds.snapshot)
      .Bind(seconds.data)
      .Bind(seconds.orders)
      .Bind(seconds.unexplained)
      .Bind(seconds.wall)
      .Bind(worker.peak_memory_bytes)
      .Bind(worker.predicted_memory_bytes)
      .Bind(int64_t{worker.let_go})
      .Run();
}

absl::Status SqliteStore::AddRecords(JobId job,
                                     const StoreBatch::Records& records) {
  for (const StepRecord& step : records.steps) {
    PACELINE_RETURN_IF_ERROR(
        Query(*database_,
              "INSERT OR REPLACE INTO steps (job, step, loss, samples, "
              "learning_rate, gradient_norm, skipped, unix_ms) "
              "VALUES (?,?,?,?,?,?,?,?)")
            .Bind(job.value)
            .Bind(step.step)
            .Bind(step.loss)
            .Bind(step.samples)
            .Bind(step.learning_rate)
            .Bind(step.gradient_norm)
            .Bind(int64_t{step.skipped})
            .Bind(step.unix_ms)
            .Run());
  }
  for (const EvaluationRecord& evaluation : records.evaluations) {
    PACELINE_RETURN_IF_ERROR(
        Query(*database_,
              "INSERT OR REPLACE INTO evaluations (job, step, loss, accuracy, "
              "samples) VALUES (?,?,?,?,?)")
            .Bind(job.value)
            .Bind(evaluation.step)
            .Bind(evaluation.loss)
            .Bind(evaluation.accuracy)
            .Bind(evaluation.samples)
            .Run());
  }
  for (const EventRecord& event : records.events) {
    PACELINE_RETURN_IF_ERROR(
        Query(*database_,
              "INSERT INTO events (job, unix_ms, kind, text) VALUES (?,?,?,?)")
            .Bind(job.value)
            .Bind(event.unix_ms)
            .Bind(event.kind)
            .Bind(event.text)
            .Run());
  }
  return records.logs.empty() ? absl::OkStatus() : AddLogs(job, records.logs);
}

absl::Status SqliteStore::AddLogs(JobId job,
                                  const std::vector<LogRecord>& logs) {
  for (const LogRecord& line : logs) {
    PACELINE_RETURN_IF_ERROR(
        Query(*database_,
              "INSERT INTO logs (job, unix_ms, level, source, text, "
              "incarnation, origin) VALUES (?,?,?,?,?,?,?) "
              "ON CONFLICT DO NOTHING")
            .Bind(job.value)
            .Bind(line.unix_ms)
            .Bind(line.level)
            .Bind(line.source)
            .Bind(line.text)
            .Bind(static_cast<int64_t>(line.incarnation.value))
            .Bind(line.origin_sequence)
            .Run());
  }
  return Query(*database_,
               "DELETE FROM logs WHERE job=?1 AND sequence<=(SELECT sequence "
               "FROM logs WHERE job=?1 ORDER BY sequence DESC LIMIT 1 "
               "OFFSET ?2)")
      .Bind(job.value)
      .Bind(kLogLinesKept)
      .Run();
}

absl::Status SqliteStore::Delete(JobId job) {
  for (const char* sql :
       {"DELETE FROM jobs WHERE id=?", "DELETE FROM plans WHERE job=?",
        "DELETE FROM job_workers WHERE job=?", "DELETE FROM steps WHERE job=?",
        "DELETE FROM evaluations WHERE job=?", "DELETE FROM events WHERE job=?",
        "DELETE FROM logs WHERE job=?", "DELETE FROM stage_times WHERE job=?",
        "DELETE FROM flow_times WHERE job=?", "DELETE FROM views WHERE job=?",
        "DELETE FROM view_members WHERE job=?",
        "DELETE FROM view_excluded WHERE job=?"}) {
    PACELINE_RETURN_IF_ERROR(Query(*database_, sql).Bind(job.value).Run());
  }
  return absl::OkStatus();
}

// --- loading at start -------------------------------------------------------

absl::StatusOr<StoredState> SqliteStore::Load() {
  StoredState state;
  PACELINE_RETURN_IF_ERROR(LoadWorkers(state));
  PACELINE_RETURN_IF_ERROR(LoadJobs(state));
  PACELINE_RETURN_IF_ERROR(LoadGroups(*database_, state));
  PACELINE_RETURN_IF_ERROR(LoadMeasurements(*database_, state.measurements));
  PACELINE_ASSIGN_OR_RETURN(
      state.next_job.value,
      database_->QueryInteger("SELECT value FROM meta WHERE key='next_job'"));
  return state;
}

absl::Status SqliteStore::LoadWorkers(StoredState& state) {
  Query query(*database_,
              "SELECT id, name, machine_id, incarnation, address, "
              "http_address, pid, cpu_capability, cpu_model, architecture, "
              "memory_bytes, cores, version FROM workers");
  while (query.Next()) {
    Registration& worker = state.workers[WorkerId{query.Integer(0)}];
    worker.name = query.Text(1);
    worker.machine_id = query.Text(2);
    worker.incarnation.value = static_cast<uint64_t>(query.Integer(3));
    worker.address = query.Text(4);
    worker.http_address = query.Text(5);
    worker.pid = query.Integer(6);
    worker.cpu_capability = query.Text(7);
    worker.cpu_model = query.Text(8);
    worker.architecture = query.Text(9);
    worker.memory_bytes = query.Integer(10);
    worker.cores = static_cast<int32_t>(query.Integer(11));
    worker.version = query.Text(12);
  }
  return query.status();
}

absl::Status SqliteStore::LoadJobs(StoredState& state) {
  Query query(*database_,
              "SELECT id, request_id, spec, state, why, step, steps, "
              "evaluated_step, attempt, plan_version, threads, "
              "cpu_capability, weights_path, weights_sha256, "
              "submitted_unix_ms, started_unix_ms, ended_unix_ms, "
              "recorded_step, skipped_steps, skipping_since, step_seconds, "
              "timed_steps FROM jobs");
  while (query.Next()) {
    JobRecord job;
    job.id = JobId{query.Integer(0)};
    job.request_id = query.Text(1);
    absl::StatusOr<JobSpec> spec = codec_.decode(query.Text(2));
    const int64_t number = query.Integer(3);
    if (!spec.ok() || number < 1 || number >= kJobStates) {
      return absl::DataLossError(
          absl::StrCat("job ", job.id.value, " in the store is damaged: ",
                       spec.ok() ? absl::StrCat("state ", number)
                                 : std::string(spec.status().message())));
    }
    job.spec = *std::move(spec);
    job.state = static_cast<JobState>(number);
    job.why = query.Text(4);
    job.step = query.Integer(5);
    job.steps = query.Integer(6);
    job.evaluated_step = query.Integer(7);
    job.attempt = query.Integer(8);
    job.plan_version = query.Integer(9);
    job.threads = static_cast<int32_t>(query.Integer(10));
    job.cpu_capability = query.Text(11);
    job.weights_path = query.Text(12);
    job.weights_sha256 = query.Text(13);
    job.submitted_unix_ms = query.Integer(14);
    job.started_unix_ms = query.Integer(15);
    job.ended_unix_ms = query.Integer(16);
    job.recorded_step = query.Integer(17);
    job.skipped_steps = query.Integer(18);
    job.skipping_since = query.Integer(19);
    job.step_seconds = query.Real(20);
    job.timed_steps = query.Integer(21);
    PACELINE_RETURN_IF_ERROR(LoadPlan(job));
    PACELINE_RETURN_IF_ERROR(LoadJobWorkers(job));
    PACELINE_RETURN_IF_ERROR(LoadDrift(*database_, job));
    PACELINE_RETURN_IF_ERROR(LoadFlows(*database_, job));
    state.jobs[job.id] = std::move(job);
  }
  return query.status();
}

absl::Status SqliteStore::LoadPlan(JobRecord& job) {
  Query query(
      *database_,
      "SELECT first_layer, last_layer, worker, share FROM plans WHERE job=? "
      "AND plan_version=? ORDER BY stage");
  query.Bind(job.id.value).Bind(job.plan_version);
  while (query.Next()) {
    job.stages.push_back({{static_cast<int>(query.Integer(0)),
                           static_cast<int>(query.Integer(1))},
                          WorkerId{query.Integer(2)},
                          query.Real(3)});
  }
  return query.status();
}

absl::Status SqliteStore::LoadJobWorkers(JobRecord& job) {
  Query query(*database_,
              "SELECT worker, name, phase, forward, backward, send, "
              "receive_wait, aggregate, optimizer, snapshot, data, orders, "
              "unexplained, wall, peak_memory, predicted_memory, let_go "
              "FROM job_workers WHERE job=? ORDER BY worker");
  query.Bind(job.id.value);
  while (query.Next()) {
    JobWorker worker;
    worker.id = WorkerId{query.Integer(0)};
    worker.name = query.Text(1);
    const int64_t phase = query.Integer(2);
    if (phase < 0 || phase >= kRunPhases) {
      return absl::DataLossError(absl::StrCat(
          "job ", job.id.value, " in the store is damaged: phase ", phase));
    }
    worker.phase = static_cast<RunPhase>(phase);
    TimeSplit& seconds = worker.seconds;
    int column = 3;
    for (double* part :
         {&seconds.forward, &seconds.backward, &seconds.send,
          &seconds.receive_wait, &seconds.aggregate, &seconds.optimizer,
          &seconds.snapshot, &seconds.data, &seconds.orders,
          &seconds.unexplained, &seconds.wall}) {
      *part = query.Real(column++);
    }
    worker.peak_memory_bytes = query.Integer(column++);
    worker.predicted_memory_bytes = query.Integer(column++);
    worker.let_go = query.Integer(column++) != 0;
    job.workers.push_back(std::move(worker));
  }
  return query.status();
}

// --- reading records --------------------------------------------------------

absl::StatusOr<std::vector<StepRecord>> SqliteStore::Curve(JobId job,
                                                           int64_t after_step,
                                                           int64_t points) {
  Query count(*database_, "SELECT count(*) FROM steps WHERE job=? AND step>?");
  count.Bind(job.value).Bind(after_step);
  count.Next();
  PACELINE_RETURN_IF_ERROR(count.status());
  const std::vector<int64_t> wanted = EvenlyTaken(count.Integer(0), points);

  Query query(*database_,
              "SELECT step, loss, samples, learning_rate, gradient_norm, "
              "skipped, unix_ms FROM steps WHERE job=? AND step>? "
              "ORDER BY step");
  query.Bind(job.value).Bind(after_step);
  std::vector<StepRecord> curve;
  int64_t position = 0;
  while (curve.size() < wanted.size() && query.Next()) {
    if (position++ != wanted[curve.size()]) continue;
    curve.push_back({query.Integer(0), query.Real(1), query.Integer(2),
                     query.Real(3), query.Real(4), query.Integer(5) != 0,
                     query.Integer(6)});
  }
  PACELINE_RETURN_IF_ERROR(query.status());
  return curve;
}

absl::StatusOr<std::vector<EvaluationRecord>> SqliteStore::Evaluations(
    JobId job, int64_t newest) {
  Query query(*database_,
              "SELECT step, loss, accuracy, samples FROM evaluations "
              "WHERE job=? ORDER BY step DESC LIMIT ?");
  query.Bind(job.value).Bind(newest);
  std::vector<EvaluationRecord> evaluations;
  while (query.Next()) {
    evaluations.push_back(
        {query.Integer(0), query.Real(1), query.Real(2), query.Integer(3)});
  }
  PACELINE_RETURN_IF_ERROR(query.status());
  std::reverse(evaluations.begin(), evaluations.end());
  return evaluations;
}

absl::StatusOr<std::vector<EventRecord>> SqliteStore::Events(JobId job,
                                                             int64_t after,
                                                             int64_t limit) {
  Query query(*database_,
              "SELECT sequence, unix_ms, kind, text FROM events WHERE job=? "
              "AND sequence>? ORDER BY sequence LIMIT ?");
  query.Bind(job.value).Bind(after).Bind(limit);
  std::vector<EventRecord> events;
  while (query.Next()) {
    events.push_back(
        {query.Integer(0), query.Integer(1), query.Text(2), query.Text(3)});
  }
  PACELINE_RETURN_IF_ERROR(query.status());
  return events;
}

absl::StatusOr<std::vector<LogRecord>> SqliteStore::Logs(JobId job,
                                                         int64_t after,
                                                         int64_t limit) {
  Query query(*database_,
              "SELECT sequence, unix_ms, level, source, text FROM logs "
              "WHERE job=? AND sequence>? ORDER BY sequence LIMIT ?");
  query.Bind(job.value).Bind(after).Bind(limit);
  std::vector<LogRecord> logs;
  while (query.Next()) {
    logs.push_back({query.Integer(0), query.Integer(1), query.Text(2),
                    query.Text(3), query.Text(4)});
  }
  PACELINE_RETURN_IF_ERROR(query.status());
  return logs;
}

}  // namespace paceline
