// `paceline model ...`: what core/model knows; asks no coordinator.
#pragma once

#include "client/console.h"
#include "client/exit_code.h"
#include "core/model/job_spec.h"

namespace paceline {

ExitCode ListModelsCommand(Console& console);

// Whether `model list` shows it.
bool IsModel(const std::string& word);

// Layers, shapes and sizes of spec.model for spec.data's samples.  A model
// that there is not is NotFound, with what was probably meant.
ExitCode InspectModelCommand(Console& console, const JobSpec& spec);

}  // namespace paceline
