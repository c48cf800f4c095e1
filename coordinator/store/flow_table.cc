#include "coordinator/store/flow_table.h"

#include "core/base/status_macros.h"

namespace paceline {

absl::Status PutFlows(Database& database, const JobRecord& job) {
  for (const JobWorker& worker : job.workers) {
    if (!worker.flow.has_value()) continue;
    const FlowTimes& flow = *worker.flow;
    PACELINE_RETURN_IF_ERROR(
        Query(database,
              "INSERT OR REPLACE INTO flow_times (job, worker, micro_batches, "
              "samples, first_unix_us, last_unix_us, compute, compute_cpu, "
              "other_cpu, starved, in_flight, blocked, data, latency_p50, "
              "latency_p99, latency_max, fill, update_time, seconds, labels, "
              "correct, loss) "
              "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)")
            .Bind(job.id.value)
            .Bind(worker.id.value)
            .Bind(flow.micro_batches)
            .Bind(flow.samples)
            .Bind(flow.first_unix_us)
            .Bind(flow.last_unix_us)
            .Bind(flow.compute)
            .Bind(flow.compute_cpu)
            .Bind(flow.other_cpu)
            .Bind(flow.starved)
            .Bind(flow.in_flight)
            .Bind(flow.blocked)
            .Bind(flow.data)
            .Bind(flow.latency_p50)
            .Bind(flow.latency_p99)
            .Bind(flow.latency_max)
            .Bind(flow.fill)
            .Bind(flow.update)
            .Bind(flow.seconds)
            .Bind(flow.labels)
            .Bind(flow.correct)
            .Bind(flow.loss)
            .Run());
  }
  return absl::OkStatus();
}

absl::Status LoadFlows(Database& database, JobRecord& job) {
  Query query(
      database,
      "SELECT worker, micro_batches, samples, first_unix_us, "
      "last_unix_us, compute, compute_cpu, other_cpu, starved, "
      "in_flight, blocked, data, latency_p50, latency_p99, latency_max, "
      "fill, update_time, seconds, labels, correct, loss FROM flow_times WHERE "
      "job=?");
  query.Bind(job.id.value);
  while (query.Next()) {
    for (JobWorker& worker : job.workers) {
      if (worker.id.value != query.Integer(0)) continue;
      worker.flow = {.micro_batches = query.Integer(1),
                     .samples = query.Integer(2),
                     .first_unix_us = query.Integer(3),
                     .last_unix_us = query.Integer(4),
                     .compute = query.Real(5),
                     .compute_cpu = query.Real(6),
                     .other_cpu = query.Real(7),
                     .starved = query.Real(8),
                     .in_flight = query.Real(9),
                     .blocked = query.Real(10),
                     .data = query.Real(11),
                     .latency_p50 = query.Real(12),
                     .latency_p99 = query.Real(13),
                     .latency_max = query.Real(14),
                     .fill = query.Real(15),
                     .update = query.Real(16),
                     .seconds = query.Real(17),
                     .labels = query.Integer(18),
                     .correct = query.Integer(19),
                     .loss = query.Real(20)};
    }
  }
  return query.status();
}

}  // namespace paceline
