// FlowTimes as a table: for who brings all of it somewhere else.
#pragma once

#include "core/cluster/run_report.h"

namespace paceline {

// Calls `use(name, field)` with each field of a FlowTimes, an int64_t or a
// double, in the order of the struct; names are those of the struct.
template <typename Flow, typename Use>
void ForEachFlowField(Flow& flow, Use&& use) {
  // Whoever adds a field to the struct adds it here.
  static_assert(sizeof(FlowTimes) == 20 * sizeof(double));
  use("micro_batches", flow.micro_batches);
  use("samples", flow.samples);
  use("first_unix_us", flow.first_unix_us);
  use("last_unix_us", flow.last_unix_us);
  use("compute", flow.compute);
  use("compute_cpu", flow.compute_cpu);
  use("other_cpu", flow.other_cpu);
  use("starved", flow.starved);
  use("in_flight", flow.in_flight);
  use("blocked", flow.blocked);
  use("data", flow.data);
  use("latency_p50", flow.latency_p50);
  use("latency_p99", flow.latency_p99);
  use("latency_max", flow.latency_max);
  use("fill", flow.fill);
  use("update", flow.update);
  use("seconds", flow.seconds);
  use("labels", flow.labels);
  use("correct", flow.correct);
  use("loss", flow.loss);
}

}  // namespace paceline
