// Experiments with the TorchScript files that tests/data/script/make.py wrote.
#pragma once

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/data/data_sets.h"
#include "gtest/gtest.h"
#include "tests/torch/in_process_pipeline.h"
#include "worker/torch/engine.h"

namespace paceline {

inline std::string ScriptPath(const std::string& name) {
  return absl::StrCat(PACELINE_SOURCE_DIR, "/tests/data/script/", name);
}

inline void Look(Experiment& experiment) {
  auto script = ReadScript(experiment.job);
  EXPECT_TRUE(script.ok()) << script.status();
  if (script.ok()) experiment.job.model.script = *std::move(script);
}

// Described as a worker would.
inline Experiment ScriptExperiment(const std::string& name) {
  SetComputeThreads(1);
  Experiment experiment = SmallExperiment(kScriptModel);
  experiment.set.shape = {2, 4, 4};
  experiment.set.classes = 3;
  experiment.job.model = DefaultModel(kScriptModel);
  experiment.job.model.file = ScriptPath(name);
  experiment.job.data.shape = experiment.set.shape;
  experiment.job.data.classes = experiment.set.classes;
  Look(experiment);
  return experiment;
}

// Texts of 8 tokens below 24, of which each says what follows it.
inline Experiment ScriptOfTokens(const std::string& name) {
  SetComputeThreads(1);
  Experiment experiment = SmallExperiment("gpt");
  experiment.job.model = DefaultModel(kScriptModel);
  experiment.job.model.file = ScriptPath(name);
  experiment.job.data = DefaultDataSpec("synthetic-tokens");
  experiment.job.data.block = static_cast<int32_t>(experiment.set.shape[0]);
  experiment.job.data.classes = experiment.set.classes;
  Look(experiment);
  return experiment;
}

// The model is of the catalog, or a script.
inline Experiment ExperimentOf(const std::string& model) {
  return model == kScriptModel ? ScriptExperiment("scripted.pt")
                               : RichExperiment(model);
}

}  // namespace paceline
