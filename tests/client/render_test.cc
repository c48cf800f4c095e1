#include "client/render.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/fakes.h"

namespace paceline {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> Keys(const json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

TEST(JobDocument, HasTheDocumentedKeys) {
  const json job = json::parse(ToDocument(SucceededJob(), true).ToJson());

  EXPECT_EQ(job["id"], 7);
  EXPECT_EQ(job["state"], "succeeded");
  EXPECT_EQ(job["step"], 20);
  EXPECT_EQ(job["steps"], 20);
  EXPECT_EQ(job["loss"][1], json({{"step", 10}, {"value", 1.25}}));
  EXPECT_EQ(job["test_accuracy"], 0.90125);
  EXPECT_EQ(job["evaluations"].size(), 2u);
  EXPECT_EQ(job["weights_sha256"], "00ff");
  EXPECT_EQ(job["weights_path"], "/state/jobs/7/weights.safetensors");
  EXPECT_EQ(job["threads"], 1);
  EXPECT_EQ(job["cpu_capability"], "avx2");
  EXPECT_EQ(job["samples_per_second"], 640.0);
  const json& worker = job["workers"][0];
  EXPECT_EQ(worker["id"], 1);
  EXPECT_EQ(worker["name"], "w1");
  EXPECT_EQ(worker["stages"], json({0, 1}));
  EXPECT_EQ(
      Keys(worker["seconds"]),
      (std::vector<std::string>{"aggregate", "backward", "data", "forward",
                                "optimizer", "orders", "receive_wait", "send",
                                "snapshot", "unexplained", "wall"}));
  EXPECT_EQ(worker["seconds"]["unexplained"], 0.25);
}

TEST(JobDocument, ALossThatIsNotFiniteIsNullAndASkippedStepSaysSo) {
  JobView job = SucceededJob();
  job.curve = {{1, NAN, true}, {2, 0.5, false}};

  const json loss = json::parse(ToDocument(job, true).ToJson())["loss"];

  EXPECT_EQ(loss, json::parse(R"([
    {"step": 1, "value": null, "skipped": true}, {"step": 2, "value": 0.5}])"));
}

TEST(JobDocument, CountsSkippedStepsAndTheTableOnlySaysSoWhenThereAre) {
  JobView job = SucceededJob();
  EXPECT_EQ(json::parse(ToDocument(job, true).ToJson())["skipped_steps"], 0);
  EXPECT_THAT(RenderJob(job, {}), Not(HasSubstr("skipped")));

  job.skipped_steps = 3;

  EXPECT_EQ(json::parse(ToDocument(job, true).ToJson())["skipped_steps"], 3);
  EXPECT_THAT(RenderJob(job, {}), HasSubstr("skipped steps:   3\n"));
}

TEST(JobDocument, WhatIsNotThereYetIsNull) {
  JobView queued;
  queued.id = 1;
  queued.state = JobState::kQueued;

  const json job = json::parse(ToDocument(queued, true).ToJson());

  EXPECT_EQ(job["state"], "queued");
  EXPECT_EQ(job["loss"], json::array());
  for (const char* key : {"test_accuracy", "weights_sha256", "weights_path",
                          "started_unix_ms", "phase"}) {
    ASSERT_TRUE(job.contains(key)) << key;
    EXPECT_TRUE(job[key].is_null()) << key;
  }
}

TEST(JobDocument, HasPredictedBesideMeasured) {
  JobView job = SucceededJob();
  job.estimate = EstimateView{.step_seconds = 0.5,
                              .samples_per_second = 128,
                              .bubble_share = 0.25,
                              .stage_seconds = {0.01, 0.02},
                              .source = "measured",
                              .measured = true};
  job.drift = {{0, 0.01, 0.012, 5, 0.008}, {1, 0.02, 0, 6}};
  job.step_seconds = 0.6;

  const json document = json::parse(ToDocument(job, true).ToJson());

  EXPECT_EQ(document["estimate"]["step_seconds"], 0.5);
  EXPECT_EQ(document["predicted_step_seconds"], 0.5);
  EXPECT_EQ(document["measured_step_seconds"], 0.6);
  EXPECT_EQ(document["drift"][0], json({{"stage", 0},
                                        {"worker_id", 5},
                                        {"predicted_seconds", 0.01},
                                        {"measured_seconds", 0.012},
                                        {"layer_seconds", 0.008}}));
  EXPECT_TRUE(document["drift"][1]["layer_seconds"].is_null());
  EXPECT_TRUE(document["drift"][1]["measured_seconds"].is_null());
}

TEST(JobDocument, WithoutAPredictionItIsNull) {
  const json document = json::parse(ToDocument(SucceededJob(), true).ToJson());

  EXPECT_TRUE(document["estimate"].is_null());
  EXPECT_TRUE(document["predicted_step_seconds"].is_null());
  EXPECT_TRUE(document["measured_step_seconds"].is_null());
  EXPECT_EQ(document["drift"], json::array());
}

TEST(JobTable, ShowsPredictedBesideMeasuredAndTheirRatio) {
  JobView job = SucceededJob();
  job.estimate = EstimateView{.step_seconds = 0.5,
                              .samples_per_second = 128,
                              .bubble_share = 0,
                              .stage_seconds = {},
                              .source = "layer times measured on w1",
                              .measured = true};
  job.drift = {{0, 0.01, 0.012, 5, 0.008}, {1, 0.02, 0, 6}};
  job.step_seconds = 0.6;

  const std::string text = RenderJob(job, {});

  EXPECT_THAT(text, HasSubstr("stage 0, a micro-batch        10.000       "
                              "12.000   1.20\n"));
  EXPECT_THAT(text, HasSubstr("20.000            -      -\n"));
  EXPECT_THAT(text, HasSubstr("500.000      600.000   1.20\n"));
  EXPECT_THAT(text, HasSubstr("predicted from: layer times measured on w1"));
}

// Issue 22, defect 27: only the documents of -o json had them.
TEST(JobTable, HasTheLayersThatEachWorkerHolds) {
  JobView job = SucceededJob();
  JobWorkerView worker;
  worker.name = "w9";
  worker.stages = {{.stage = 0, .first_layer = 0, .last_layer = 4},
                   {.stage = 2, .first_layer = 7, .last_layer = 8}};
  job.workers = {worker};

  const std::string text = RenderJob(job, {});

  EXPECT_THAT(text, HasSubstr("LAYERS"));
  EXPECT_THAT(text, HasSubstr("0-3,7-7"));
}

TEST(JobDocument, CountsTheStagesThatWereChosen) {
  JobView job = SucceededJob();
  job.spec.pipeline.stages = 0;

  EXPECT_EQ(json::parse(ToDocument(job, true).ToJson())["stages"], 2);
  job.workers.clear();
  EXPECT_EQ(json::parse(ToDocument(job, true).ToJson())["stages"], 0);
  EXPECT_THAT(RenderJob(job, {}), HasSubstr("stages not chosen yet, 1f1b"));
}

TEST(WorkerDocument, HasTheDocumentedKeys) {
  WorkerView view;
  view.id = 2;
  view.name = "w2";
  view.pid = 4711;
  view.state = "busy";
  view.address = "127.0.0.1:40001";
  view.job = 3;
  view.stages = {1};

  const json worker = json::parse(ToDocument(view).ToJson());

  EXPECT_EQ(worker["id"], 2);
  EXPECT_EQ(worker["name"], "w2");
  EXPECT_EQ(worker["pid"], 4711);
  EXPECT_EQ(worker["state"], "busy");
  EXPECT_EQ(worker["address"], "127.0.0.1:40001");
  EXPECT_EQ(worker["job"], 3);
  EXPECT_EQ(worker["stages"], json({1}));
}

TEST(JobTable, ShowsFactsCurveAccuracyAndSplit) {
  JobView job = SucceededJob();
  job.submitted_unix_ms = 0;

  EXPECT_EQ(RenderJob(job, {.columns = 10, .rows = 2}),
            "job:             7\n"
            "name:            first\n"
            "kind:            train\n"
            "state:           succeeded\n"
            "model:           lenet\n"
            "data:            synthetic\n"
            "pipeline:        2 stages, 1f1b\n"
            "step:            20/20\n"
            "samples/s:       640\n"
            "threads:         1\n"
            "cpu capability:  avx2\n"
            "took:            1 min 5 s\n"
            "test accuracy:   0.9012\n"
            "weights:         /state/jobs/7/weights.safetensors\n"
            "sha256:          00ff\n"
            "\n"
            "loss\n"
            "       2.5 |####\n"
            "       0.5 |##########\n"
            "            step 1  20\n"
            "\n"
            "STEP  TEST LOSS  ACCURACY  SAMPLES\n"
            "  10     0.7500    0.8125     1000\n"
            "  20     0.3750    0.9012     1000\n"
            "\n"
            "WORKER  STAGES  LAYERS   WALL S  FWD %  BWD %  SEND %  WAIT %  "
            "GATE %  OPT %  SAVE %  DATA %  ORDERS %  OTHER %\n"
            "w1      0,1     0-3,4-7    10.0   20.0   40.0     0.0     0.0     "
            "0.0    0.0     0.0     0.0       0.0      2.5\n");
}

// They read as training jobs: schedule 1f1b, and an accuracy after step 0.
TEST(JobTable, OfInferenceTellsOfMicroBatchesAndOfNoSchedule) {
  JobView job = SucceededJob();
  job.spec.kind = kInferKind;
  job.step = 24;
  job.steps = 25;
  job.evaluations = {{.step = 0, .loss = 0.5, .accuracy = 0.75, .samples = 8}};

  const std::string text = RenderJob(job, {});

  EXPECT_THAT(text, HasSubstr("kind:            infer\n"));
  EXPECT_THAT(text, HasSubstr("pipeline:        2 stages, forward only\n"));
  EXPECT_THAT(text, HasSubstr("micro-batches:   24/25\n"));
  EXPECT_THAT(text, Not(HasSubstr("STEP")));
  EXPECT_THAT(text, HasSubstr("0.5000    0.7500        8\n"));
  EXPECT_TRUE(
      json::parse(ToDocument(job, true).ToJson())["schedule"].is_null());
  EXPECT_THAT(RenderJobs({job}), HasSubstr("24/25 micro-batches"));
  EXPECT_THAT(RenderJobs({SucceededJob()}), HasSubstr("20/20 steps"));
}

TEST(JobTable, CannotBeBrokenByWhatAWorkerSays) {
  JobView job = SucceededJob();
  job.why = "evil\n\x1b[2Jname: x";

  const std::string text = RenderJob(job, {});

  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, HasSubstr("why:             evil ?[2Jname: x\n"));
}

TEST(Outcome, IsMadeForGrep) {
  EXPECT_EQ(RenderOutcome(SucceededJob()),
            "job 7: succeeded after 1 min 5 s\n"
            "test accuracy: 0.9012\n"
            "weights: /state/jobs/7/weights.safetensors\n"
            "sha256: 00ff\n");
}

TEST(Outcome, SaysHowManyStepsOfASuccessWereSkipped) {
  JobView job = SucceededJob();
  job.why = "2 of 20 steps were skipped";

  EXPECT_THAT(RenderOutcome(job),
              HasSubstr("succeeded after 1 min 5 s: 2 of 20 steps were "
                        "skipped\n"));
  EXPECT_THAT(RenderJob(job, {}),
              HasSubstr("why:             2 of 20 steps were skipped\n"));
}

TEST(Plot, RisesAndFallsWithTheLoss) {
  const std::vector<LossPoint> curve = {{1, 1}, {2, 2}, {3, 3}, {4, 4}};

  EXPECT_EQ(PlotLoss(curve, {.columns = 4, .rows = 2, .unicode = true}),
            "         4 |  ▃█\n"
            "         1 |▁▆██\n"
            "            step 1 4\n");
}

TEST(Plot, LeavesOutWhatIsNotFinite) {
  const std::vector<LossPoint> curve = {
      {1, 1}, {2, NAN}, {3, INFINITY}, {4, 2}};

  const std::string plot = PlotLoss(curve, {.columns = 4, .rows = 2});

  EXPECT_THAT(plot, HasSubstr("         2 |   #\n"));
}

TEST(Plot, SaysWhenNoLossIsFinite) {
  EXPECT_EQ(PlotLoss({{1, NAN}, {2, INFINITY}}, {}), "no finite loss\n");
  EXPECT_EQ(PlotLoss({{1, NAN}}, {}), "no finite loss\n");
  JobView job = SucceededJob();
  job.curve = {{1, NAN, true}, {2, NAN, true}};

  EXPECT_THAT(RenderJob(job, {}), HasSubstr("\nloss\nno finite loss\n"));
}

TEST(Plot, NeedsTwoPoints) {
  EXPECT_EQ(PlotLoss({}, {}), "");
  EXPECT_EQ(PlotLoss({{1, 1}}, {}), "");
  EXPECT_NE(PlotLoss({{1, 1}, {2, 1}}, {}), "");
}

TEST(Plot, SurvivesStepsInAnyOrder) {
  EXPECT_EQ(PlotLoss({{9, 1}, {1, 2}}, {}), "");
  EXPECT_NE(PlotLoss({{1, 1}, {99, 5}, {10, 2}}, {}), "");
}

TEST(JobTable, ShowsStalenessAndVersionsOfStagesWithoutAFlush) {
  JobView job = SucceededJob();
  job.versions = {{0, 100, 1, 2.5, 3, 3 << 20}, {1, 100, 0, 0, 1, 1 << 10}};

  EXPECT_THAT(RenderJob(job, {}),
              HasSubstr("STAGE  UPDATES  SKIPPED  STALENESS  VERSIONS"));
  const json document = json::parse(ToDocument(job, true).ToJson());
  EXPECT_EQ(document["versions"][0], json({{"stage", 0},
                                           {"updates", 100},
                                           {"skipped_updates", 1},
                                           {"staleness", 2.5},
                                           {"versions", 3},
                                           {"version_bytes", 3 << 20}}));
  job.versions.clear();
  EXPECT_THAT(RenderJob(job, {}), Not(HasSubstr("STALENESS")));
}

TEST(JobTable, ShowsThePeakOfMemoryBesideThePlanners) {
  JobView job = SucceededJob();
  EXPECT_THAT(RenderJob(job, {}), Not(HasSubstr("MEMORY OF")));
  job.workers[0].predicted_memory_bytes = 2 << 20;
  job.workers[0].peak_memory_bytes = 3 << 20;
  job.workers.push_back(job.workers[0]);
  job.workers[1].name = "w2";
  job.workers[1].peak_memory_bytes = 0;

  EXPECT_THAT(RenderJob(job, {}),
              HasSubstr("MEMORY OF  PREDICTED      PEAK  RATIO\n"
                        "w1          2.00 MiB  3.00 MiB   1.50\n"
                        "w2          2.00 MiB         -      -\n"));
  const json document = json::parse(ToDocument(job, true).ToJson());
  EXPECT_EQ(document["workers"][0]["peak_memory_bytes"], 3 << 20);
  EXPECT_EQ(document["workers"][0]["predicted_memory_bytes"], 2 << 20);
  EXPECT_TRUE(document["workers"][1]["peak_memory_bytes"].is_null());
}

}  // namespace
}  // namespace paceline
