#include "client/render/report.h"

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

json JobJson(const v1::Job& job) {
  return json::parse(ToJson(ToDocument(job, /*with_curve=*/true)));
}

TEST(JobDocument, HasTheDocumentedKeys) {
  const json job = JobJson(SucceededJob());

  EXPECT_THAT(job, Includes(R"({
    "id": 7, "state": "succeeded", "step": 20, "steps": 20,
    "test_accuracy": 0.90125, "weights_sha256": "00ff",
    "weights_path": "/state/jobs/7/weights.safetensors", "threads": 1,
    "cpu_capability": "avx2", "samples_per_second": 640.0, "estimate": null,
    "predicted_step_seconds": null, "measured_step_seconds": null,
    "drift": []})"));
  EXPECT_EQ(job["loss"][1], json({{"step", 10}, {"value", 1.25}}));
  EXPECT_EQ(job["evaluations"].size(), 2u);
  const json& worker = job["workers"][0];
  EXPECT_THAT(worker, Includes(R"({"id": 1, "name": "w1", "stages": [0, 1]})"));
  EXPECT_EQ(Keys(worker["seconds"]),
            (std::vector<std::string>{"aggregate", "backward", "data",
                                      "evaluation", "forward", "optimizer",
                                      "orders", "receive_wait", "send",
                                      "snapshot", "unexplained", "wall"}));
  EXPECT_EQ(worker["seconds"]["unexplained"], 0.25);
}

TEST(JobDocument, TellsOfTheLastRecoveryAsTheTableDoes) {
  v1::Job job = SucceededJob();
  EXPECT_TRUE(JobJson(job)["recovery"].is_null());
  EXPECT_THAT(RenderJob(job, {}), Not(HasSubstr("recovery")));
  job.set_floor_step(40);
  job.mutable_recovery()->set_recoveries(1);
  job.mutable_recovery()->set_why("w3 is lost");
  job.mutable_recovery()->set_from_step(40);
  job.mutable_recovery()->set_again(6);
  job.mutable_recovery()->mutable_seconds()->set_leave(0.25);

  EXPECT_EQ(JobJson(job)["floor_step"], 40);
  EXPECT_EQ(JobJson(job)["recovery"]["seconds"]["leave"], 0.25);
  EXPECT_THAT(RenderJob(job, {}), HasSubstr("state kept of:   step 40\n"));
  EXPECT_THAT(RenderJob(job, {}),
              HasSubstr("w3 is lost; from step 40, 6 steps again; detect 0.00 "
                        "s, leave 0.25 s"));
  job.mutable_spec()->set_kind(kInferKind);
  EXPECT_THAT(RenderJob(job, {}),
              Says("stored up to:    micro-batch 40\n",
                   "; from micro-batch 40, 6 micro-batches again; "));
}

TEST(JobDocument, ALossThatIsNotFiniteIsNullAndASkippedStepSaysSo) {
  v1::Job job = SucceededJob();
  *job.mutable_curve() = Losses({{1, NAN, true}, {2, 0.5, false}});
  job.mutable_curve(1)->set_unix_ms(1'700'000'000'123);

  const json loss = JobJson(job)["loss"];

  EXPECT_EQ(loss, json::parse(R"([
    {"step": 1, "value": null, "skipped": true},
    {"step": 2, "value": 0.5, "unix_ms": 1700000000123}])"));
}

TEST(JobDocument, CountsSkippedStepsAndTheTableOnlySaysSoWhenThereAre) {
  v1::Job job = SucceededJob();
  EXPECT_EQ(JobJson(job)["skipped_steps"], 0);
  EXPECT_THAT(RenderJob(job, {}), Not(HasSubstr("skipped")));

  job.set_skipped_steps(3);

  EXPECT_EQ(JobJson(job)["skipped_steps"], 3);
  EXPECT_THAT(RenderJob(job, {}), HasSubstr("skipped steps:   3\n"));
}

TEST(JobDocument, NamesTheBlocksOfFaultsAndThoseWhoseWorkerIsGone) {
  v1::Job job = SucceededJob();
  v1::FaultSpec& fault = *job.mutable_spec()->add_faults();
  fault.set_kind(kSkipStage);
  fault.set_block(2);
  job.add_skipped_blocks(1);

  EXPECT_EQ(JobJson(job)["skipped_blocks"], Document({1, 2}));
  EXPECT_THAT(RenderJob(job, {}), HasSubstr("without blocks:  1, 2\n"));
}

TEST(JobDocument, WhatIsNotThereYetIsNull) {
  v1::Job queued;
  queued.set_id(1);
  queued.set_state(v1::JOB_STATE_QUEUED);

  const json job = JobJson(queued);

  EXPECT_EQ(job["state"], "queued");
  EXPECT_EQ(job["loss"], json::array());
  EXPECT_THAT(job, Includes(R"({
    "test_accuracy": null, "weights_sha256": null, "weights_path": null,
    "checkpoints": [], "resumed": null,
    "started_unix_ms": null, "phase": null})"));
}

TEST(JobDocument, NamesItsCheckpointsAndTheOneThatItBeganFrom) {
  v1::Job job = SucceededJob();
  job.mutable_resumed()->set_job(3);
  job.mutable_resumed()->set_step(40);
  for (const int64_t step : {60, 80}) {
    job.add_checkpoints()->mutable_cut()->set_step(step);
  }

  EXPECT_EQ(JobJson(job)["checkpoints"], json({60, 80}));
  EXPECT_EQ(JobJson(job)["resumed"], json({{"job", 3}, {"step", 40}}));
  const std::string text = RenderJob(job, {});
  EXPECT_THAT(text, HasSubstr("step 40 of job 3\n"));
  EXPECT_THAT(text, HasSubstr("step 60, step 80\n"));
}

v1::Job Predicted(const std::string& source) {
  v1::Job job = Parse<v1::Job>(R"(
    estimate { step_seconds: 0.5 samples_per_second: 128 bubble_share: 0.25
               stage_seconds: [0.01, 0.02] measured: true }
    drift { stage: 0 predicted_seconds: 0.01 measured_seconds: 0.012
            worker_id: 5 layer_seconds: 0.008 }
    drift { stage: 1 predicted_seconds: 0.02 worker_id: 6 }
    step_seconds: 0.6)");
  job.mutable_estimate()->set_source(source);
  return job;
}

TEST(JobDocument, HasPredictedBesideMeasured) {
  v1::Job job = SucceededJob();
  job.MergeFrom(Predicted("measured"));
  job.add_stage_times()->set_micro_batches(7);

  const json document = JobJson(job);

  EXPECT_EQ(document["estimate"]["step_seconds"], 0.5);
  EXPECT_EQ(document["predicted_step_seconds"], 0.5);
  EXPECT_EQ(document["measured_step_seconds"], 0.6);
  EXPECT_EQ(document["drift"][0], json({{"stage", 0},
                                        {"worker_id", 5},
                                        {"predicted_seconds", 0.01},
                                        {"measured_seconds", 0.012},
                                        {"measured_over_predicted", 1.2},
                                        {"layer_seconds", 0.008},
                                        {"micro_batches", 7}}));
  EXPECT_TRUE(document["drift"][1]["micro_batches"].is_null());
  EXPECT_TRUE(document["drift"][1]["layer_seconds"].is_null());
  EXPECT_TRUE(document["drift"][1]["measured_seconds"].is_null());
}

TEST(JobTable, ShowsPredictedBesideMeasuredAndTheirRatio) {
  v1::Job job = SucceededJob();
  job.MergeFrom(Predicted("layer times measured on w1"));

  const std::string text = RenderJob(job, {});

  EXPECT_THAT(text, Says("stage 0, a micro-batch        10.000       "
                         "12.000   1.20\n",
                         "20.000            -      -\n",
                         "500.000      600.000   1.20\n",
                         "predicted from: layer times measured on w1"));
}

TEST(JobDocument, CountsTheStagesThatWereChosen) {
  v1::Job job = SucceededJob();

  EXPECT_EQ(JobJson(job)["stages"], 2);
  job.clear_workers();
  EXPECT_EQ(JobJson(job)["stages"], 0);
  EXPECT_THAT(RenderJob(job, {}), HasSubstr("stages not chosen yet, 1f1b"));
}

TEST(WorkerDocument, HasTheDocumentedKeys) {
  const auto worker = Parse<v1::Worker>(R"(
    id: 2 state: WORKER_STATE_BUSY job: 3 stages: 1
    registration { name: "w2" pid: 4711 address: "127.0.0.1:40001" })");

  EXPECT_THAT(json::parse(ToJson(ToDocument(worker))), Includes(R"({
    "id": 2, "name": "w2", "pid": 4711, "state": "busy",
    "address": "127.0.0.1:40001", "job": 3, "stages": [1]})"));
}

TEST(JobTable, ShowsFactsCurveAccuracyAndSplit) {
  v1::Job job = SucceededJob();
  job.set_submitted_unix_ms(0);

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
            "WORKER  STAGES  LAYERS   WALL S  FWD %  BWD %  EVAL %  SEND %  "
            "WAIT %  GATE %  OPT %  SAVE %  DATA %  ORDERS %  OTHER %\n"
            "w1      0,1     0-3,4-7    10.0   20.0   40.0     0.0     0.0"
            "     0.0     0.0    0.0     0.0     0.0       0.0      2.5\n");
}

v1::ListJobsResponse Listed(const v1::Job& job) {
  v1::ListJobsResponse jobs;
  *jobs.add_jobs() = job;
  return jobs;
}

// They read as training jobs: schedule 1f1b, and an accuracy after step 0.
TEST(JobTable, OfInferenceTellsOfMicroBatchesAndOfNoSchedule) {
  v1::Job job = SucceededJob();
  job.mutable_spec()->set_kind(kInferKind);
  job.set_step(24);
  job.set_steps(25);
  *job.mutable_evaluations() =
      Parse<v1::Job>("evaluations { loss: 0.5 accuracy: 0.75 samples: 8 }")
          .evaluations();

  const std::string text = RenderJob(job, {});

  EXPECT_THAT(text, Says("kind:            infer\n",
                         "pipeline:        2 stages, forward only\n",
                         "micro-batches:   24/25\n"));
  EXPECT_THAT(text, Not(HasSubstr("STEP")));
  EXPECT_THAT(text, HasSubstr("0.5000    0.7500        8\n"));
  EXPECT_TRUE(JobJson(job)["schedule"].is_null());
  EXPECT_THAT(RenderJobs(Listed(job)), HasSubstr("24/25 micro-batches"));
  EXPECT_THAT(RenderJobs(Listed(SucceededJob())), HasSubstr("20/20 steps"));
}

TEST(JobTable, ListsOneClauseOfTheReasonAndAllOfItWhenWide) {
  v1::Job job = RunningJob(1, 20);
  const std::string why =
      "waits for w9; the same job would fail; put that right first";
  job.set_why(why);
  *job.add_workers() = Parse<v1::JobWorker>(R"(name: "w1")");
  *job.add_workers() = Parse<v1::JobWorker>(R"(name: "w2")");

  EXPECT_THAT(RenderJobs(Listed(job)), HasSubstr("  waits for w9\n"));
  EXPECT_THAT(RenderJobs(Listed(job)), Not(HasSubstr("w1,w2")));
  EXPECT_THAT(RenderJobs(Listed(job), /*wide=*/true),
              Says("MODEL", "SAMPLES/S", "lenet", "w1,w2", "640", why));
  job.set_why(std::string(100, 'x'));
  EXPECT_THAT(RenderJobs(Listed(job)),
              HasSubstr(absl::StrCat("  ", std::string(57, 'x'), "...\n")));
}

TEST(WorkerTable, TellsOfTheMachineWhenWide) {
  const v1::ListWorkersResponse workers = IdleWorkers({"w1"});

  EXPECT_THAT(RenderWorkers(workers), Not(HasSubstr("MACHINE")));
  EXPECT_THAT(RenderWorkers(workers, /*wide=*/true),
              Says("CPU MODEL", "MACHINE", "VERSION"));
}

TEST(JobTable, CannotBeBrokenByWhatAWorkerSays) {
  v1::Job job = SucceededJob();
  job.set_why("evil\n\x1b[2Jname: x");

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
  v1::Job job = SucceededJob();
  job.set_why("2 of 20 steps were skipped");

  EXPECT_THAT(RenderOutcome(job),
              HasSubstr("succeeded after 1 min 5 s: 2 of 20 steps were "
                        "skipped\n"));
  EXPECT_THAT(RenderJob(job, {}),
              HasSubstr("why:             2 of 20 steps were skipped\n"));
}

TEST(Plot, RisesAndFallsWithTheLoss) {
  const LossCurve curve = Losses({{1, 1}, {2, 2}, {3, 3}, {4, 4}});

  EXPECT_EQ(PlotLoss(curve, {.columns = 4, .rows = 2, .unicode = true}),
            "         4 |  ▃█\n"
            "         1 |▁▆██\n"
            "            step 1 4\n");
}

TEST(Plot, LeavesOutWhatIsNotFinite) {
  const LossCurve curve = Losses({{1, 1}, {2, NAN}, {3, INFINITY}, {4, 2}});

  const std::string plot = PlotLoss(curve, {.columns = 4, .rows = 2});

  EXPECT_THAT(plot, HasSubstr("         2 |   #\n"));
}

TEST(Plot, SaysWhenNoLossIsFinite) {
  EXPECT_EQ(PlotLoss(Losses({{1, NAN}, {2, INFINITY}}), {}),
            "no finite loss\n");
  EXPECT_EQ(PlotLoss(Losses({{1, NAN}}), {}), "no finite loss\n");
  v1::Job job = SucceededJob();
  *job.mutable_curve() = Losses({{1, NAN, true}, {2, NAN, true}});

  EXPECT_THAT(RenderJob(job, {}), HasSubstr("\nloss\nno finite loss\n"));
}

TEST(Plot, NeedsTwoPointsInTheOrderOfTheirSteps) {
  EXPECT_EQ(PlotLoss(Losses({}), {}), "");
  EXPECT_EQ(PlotLoss(Losses({{1, 1}}), {}), "");
  EXPECT_EQ(PlotLoss(Losses({{9, 1}, {1, 2}}), {}), "");
  EXPECT_NE(PlotLoss(Losses({{1, 1}, {2, 1}}), {}), "");
  EXPECT_NE(PlotLoss(Losses({{1, 1}, {99, 5}, {10, 2}}), {}), "");
}

TEST(JobTable, ShowsTheReplicasOfAStageWithWhatTheyComputed) {
  const v1::Job job = Parse<v1::Job>(R"(
    workers { id: 5 name: "w1" stages { stage: 0 worker_id: 5 share: 3 } }
    workers { id: 6 name: "w2" stages { stage: 1 worker_id: 6 share: 1 } }
    workers { id: 7 name: "w3" stages { stage: 0 worker_id: 7 share: 1 } }
    drift { stage: 0 worker_id: 5 }
    drift { stage: 0 worker_id: 7 }
    drift { stage: 1 worker_id: 6 }
    stage_times { micro_batches: 12 }
    stage_times { micro_batches: 4 })");

  const std::string text = RenderJob(job, {});

  EXPECT_THAT(text, HasSubstr("w1      75.0 %             12\n"));
  EXPECT_THAT(text, HasSubstr("w3      25.0 %              4\n"));
  EXPECT_THAT(text, Not(HasSubstr("100.0 %")));
}

TEST(JobTable, ShowsStalenessAndVersionsOfStagesWithoutAFlush) {
  v1::Job job = SucceededJob();
  job.MergeFrom(Parse<v1::Job>(R"(
    versions { stage: 0 updates: 100 skipped_updates: 1 staleness: 250
               versions: 3 version_bytes: 3145728 }
    versions { stage: 1 updates: 100 versions: 1 version_bytes: 1024 })"));

  EXPECT_THAT(RenderJob(job, {}),
              HasSubstr("STAGE  UPDATES  SKIPPED  STALENESS  VERSIONS"));
  const json document = JobJson(job);
  EXPECT_EQ(document["versions"][0], json({{"stage", 0},
                                           {"updates", 100},
                                           {"skipped_updates", 1},
                                           {"staleness", 2.5},
                                           {"versions", 3},
                                           {"version_bytes", 3 << 20}}));
  job.clear_versions();
  EXPECT_THAT(RenderJob(job, {}), Not(HasSubstr("STALENESS")));
}

TEST(JobTable, ShowsThePeakOfMemoryBesideThePlanners) {
  v1::Job job = SucceededJob();
  EXPECT_THAT(RenderJob(job, {}), Not(HasSubstr("MEMORY OF")));
  job.mutable_workers(0)->set_predicted_memory_bytes(2 << 20);
  job.mutable_workers(0)->mutable_run()->set_peak_memory_bytes(3 << 20);
  *job.add_workers() = v1::JobWorker(job.workers(0));
  job.mutable_workers(1)->set_name("w2");
  job.mutable_workers(1)->clear_run();

  EXPECT_THAT(RenderJob(job, {}),
              HasSubstr("MEMORY OF  PREDICTED      PEAK  RATIO\n"
                        "w1          2.00 MiB  3.00 MiB   1.50\n"
                        "w2          2.00 MiB         -      -\n"));
  const json document = JobJson(job);
  EXPECT_EQ(document["workers"][0]["peak_memory_bytes"], 3 << 20);
  EXPECT_EQ(document["workers"][0]["predicted_memory_bytes"], 2 << 20);
  EXPECT_TRUE(document["workers"][1]["peak_memory_bytes"].is_null());
}

}  // namespace
}  // namespace paceline
