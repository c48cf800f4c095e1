#include "client/bench/options.h"

#include "client/closed_word.h"
#include "core/plan/policy.h"
#include "core/schedule/schedule.h"

namespace paceline {
namespace {

std::string CheckPolicy(const std::string& word) {
  return WhyNotAmong("policy", word, PolicyNames());
}

std::string CheckScheduleName(const std::string& word) {
  return WhyNotAmong("schedule", word, ScheduleNames());
}

void AddShared(CLI::App* app, BenchOptions& options) {
  app->add_option("--model", options.model,
                  "Name of a model, as 'model list' has it")
      ->type_name("MODEL")
      ->required();
  app->add_option("--stages", options.stages,
                  "How many; default: 1 and as many as there are workers")
      ->type_name("S,S,...")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  app->add_option("--policy", options.policies, "Who cuts; default: dp")
      ->type_name("POLICY,...")
      ->delimiter(',')
      ->check(CheckPolicy, "");
  app->add_option("--micro-batch", options.micro_batch,
                  "Samples of one micro-batch")
      ->type_name("B")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  app->add_option("--micro-batches", options.micro_batches,
                  "How many pass through")
      ->type_name("M")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 20))
      ->capture_default_str();
  app->add_option(
         "--tries", options.tries,
         "Rounds through all of it; of each the one of median speed-up "
         "is shown")
      ->type_name("N")
      ->check(CLI::Range(1, 99))
      ->capture_default_str();
  app->add_option("--paired", options.paired,
                  "One worker alone before and after everything it is compared "
                  "with, for N micro-batches (training: steps): for machines "
                  "that are now faster, now slower")
      ->type_name("N")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 20));
  app->add_flag("!--no-profile", options.profile,
                "Plans with what was measured before, if anything was");
  app->add_flag("--keep-jobs", options.keep_jobs,
                "Leaves the jobs, to be looked at with 'job show'");
}

}  // namespace

void AddBenchInferOptions(CLI::App* app, BenchOptions& options) {
  AddShared(app, options);
  app->footer(
      "Samples are made up, weights are drawn: it is the time that counts.\n"
      "Examples:\n"
      "  paceline bench infer --model lenet\n"
      "  paceline bench infer --model deit_small_patch16_224 "
      "--stages 1,2,3,4,6 --policy equal,min-cut,dp\n"
      "  paceline bench infer --model vit --set pipeline.codec=bf16 -o json");
}

void AddBenchTrainOptions(CLI::App* app, BenchOptions& options) {
  AddShared(app, options);
  app->add_option("--schedule", options.schedules,
                  "One of pipeline.schedule, or several; default: 1f1b")
      ->type_name("SCHEDULE,...")
      ->delimiter(',')
      ->check(CheckScheduleName, "");
  app->add_option("--steps", options.steps,
                  "Batches; the first one is not counted")
      ->type_name("N")
      ->check(CLI::Range(int64_t{2}, int64_t{1'000'000}))
      ->capture_default_str();
  app->footer(
      "Samples are made up; micro-batches are those of a batch.\n"
      "Examples:\n"
      "  paceline bench train --model lenet --micro-batch 8 "
      "--micro-batches 16\n"
      "  paceline bench train --model deit_small_patch16_224 --stages 1,4 "
      "--micro-batch 2 --micro-batches 32 --schedule 1f1b,zero-bubble");
}

}  // namespace paceline
