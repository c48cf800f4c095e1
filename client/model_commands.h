// `paceline model ...`: what core/model knows; asks no coordinator.
#pragma once

#include "client/console.h"
#include "client/exit_code.h"
#include "core/model/job_spec.h"

namespace paceline {

ExitCode ListModelsCommand(Console& console);

// Layers, shapes and sizes of spec.model for spec.data's samples.
ExitCode InspectModelCommand(Console& console, const JobSpec& spec);

}  // namespace paceline
