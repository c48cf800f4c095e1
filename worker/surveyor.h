// Carries out an order to measure.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/clock.h"
#include "core/cluster/measure_order.h"
#include "worker/cancel_token.h"
#include "worker/prober.h"
#include "worker/run_factory.h"

namespace paceline {

struct SurveyorParts {
  std::string name;  // this worker's
  std::string cpu_capability;
  std::string cpu_model;
  int64_t memory_bytes = 0;  // 0: not known
  Prober* prober = nullptr;  // null: nothing can be measured
  RunFactory& factory;
  const Clock& clock;
};

// Blocks until everything is measured or `cancel` says otherwise.  On the
// compute thread; never fails but in Measurement::error.
Measurement CarryOut(const MeasureOrder& order, const SurveyorParts& parts,
                     const CancelToken& cancel);

}  // namespace paceline
