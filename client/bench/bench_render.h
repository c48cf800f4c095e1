// Rows of a bench as a table and as a document.
#pragma once

#include <string>
#include <vector>

#include "client/bench/bench_commands.h"
#include "client/document.h"

namespace paceline {

std::string RenderBench(const std::vector<BenchRow>& rows);

// `model, micro_batch, micro_batches, rows[] {stages, policy, schedule,
// workers, plan, seconds, throughput, speedup, bound, drift,
// latency_p50_seconds, latency_p99_seconds, losses {fill, imbalance, transfer,
// slowdown, unexplained}}`.
Document BenchDocument(const BenchOptions& options,
                       const std::vector<BenchRow>& rows);

}  // namespace paceline
