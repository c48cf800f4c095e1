// The tables that many schedules are to fill.
#include "tests/core/recover/world_state.h"

namespace paceline::recover_world {
namespace {

// A job that has ended is not disturbed, a queue is left at once, one runs
// whenever it is moved or loses a row, and nobody runs where replicas finish.
// A run fails where none is ordered: it is one that was not heard of for long.
constexpr const char* kAnyJob = "-xxxxxxrx--";
constexpr const char* kJobOfFailure = "-rrxxxx-r--";
constexpr const char* kRunningJob = "----x------";
// Few workers are in the last three phases, and not for long.
constexpr const char* kAnyWork = "xxxrrr";
constexpr const char* kWorkOfFailure = "-xxrrr";
constexpr const char* kIdleOrRunning = "x-x---";

constexpr const char* kWorkNames[] = {"idle",    "gathering", "running",
                                      "stopped", "done",      "failed"};

struct FaultRow {
  const char* name;
  const char* job = kAnyJob;
  const char* work = kAnyWork;
};
constexpr FaultRow kFaultRows[kFaults] = {
    {"kill"},
    {"kill machine"},
    {"restart"},
    {"freeze"},
    {"hang"},
    {"partition"},
    {"cut link"},
    {"fail", kJobOfFailure, kWorkOfFailure},
    {"move", kRunningJob, kIdleOrRunning},
    {"drain"},
    {"crash"},
    {"freeze coordinator"},
    {"slow store"},
    {"failing store"},
    {"roll back", kRunningJob, kIdleOrRunning},
    {"slow reports"},
    {"slow orders"},
    {"refuse"},
    {"standstill"}};

std::vector<world::TableRow> FaultRows(const char* FaultRow::*cells) {
  std::vector<world::TableRow> rows;
  for (const FaultRow& row : kFaultRows) rows.push_back({row.name, row.*cells});
  return rows;
}

std::vector<std::string> JobPhases() {
  std::vector<std::string> names;
  for (int i = 0; i < std::ssize(kJobPhaseNames); ++i) {
    names.emplace_back(JobPhaseName(static_cast<JobPhase>(i)));
  }
  return names;
}

std::vector<world::TableRow> TransitionRows() {
  std::vector<world::TableRow> rows;
  for (const JobTransition& row : kJobTransitions) {
    const bool is_rare =
        row.cause == JobCause::kHopeless || row.from == JobPhase::kFinishing;
    rows.push_back(
        {absl::StrCat(JobPhaseName(row.from), ", ", JobCauseName(row.cause)),
         is_rare ? "r" : "x"});
  }
  return rows;
}

}  // namespace

const char* FaultName(Fault fault) {
  return kFaultRows[static_cast<int>(fault)].name;
}

const char* WorkName(WorkPhase phase) {
  return kWorkNames[static_cast<int>(phase)];
}

const world::CoverageTables& Tables() {
  static const auto* const tables = new world::CoverageTables{
      {{"fault, by the phase of the job", FaultRows(&FaultRow::job),
        JobPhases()},
       {"fault, by the phase of the worker that it hits",
        FaultRows(&FaultRow::work),
        {std::begin(kWorkNames), std::end(kWorkNames)}},
       {"a worker: from, to",
        {{"idle", "-x---r"},
         {"gathering", "x-x-xx"},
         {"running", "x--xxx"},
         {"stopped", "x-----"},
         {"done", "x-----"},
         {"failed", "x-----"}},
        {std::begin(kWorkNames), std::end(kWorkNames)}},
       {"the job: phase, cause", TransitionRows(), {"times"}}},
      /*rare_schedules=*/100'000,
      {}};
  return *tables;
}

const std::vector<world::Count<WorldResult>>& WorldResult::Counts() {
  using R = WorldResult;
  static const auto* const counts = new std::vector<world::Count<R>>{
      {"faults", &R::faults},        {"attempts", &R::attempts},
      {"steps", &R::steps},          {"floors", &R::floors},
      {"events", &R::events},        {"ended: done", &R::done},
      {"ended: paused", &R::paused}, {"ended: failed", &R::failed}};
  return *counts;
}

}  // namespace paceline::recover_world
