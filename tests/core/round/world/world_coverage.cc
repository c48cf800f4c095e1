#include "tests/core/round/world/world_coverage.h"

namespace paceline::round_world {

const std::string& FaultName(Fault fault) {
  return Tables().tables[0].rows[static_cast<size_t>(fault)].name;
}

const std::string& RoundPhaseName(RoundPhase phase) {
  return Tables().tables[0].columns[static_cast<size_t>(phase)];
}

// Once and six times in the first 100,000 seeds: what is rare.
const world::CoverageTables& Tables() {
  static const auto* const tables = new world::CoverageTables{
      {
          {"fault, by what the member that it hit was doing",
           {{"kill", "xxxxxxxx"},          {"restart", "xxxxxxxx"},
            {"join", "xxxxxxxx"},          {"pause", "xxxxxxxx"},
            {"partition", "xxxxxxxx"},     {"cut link", "xxxxxxxx"},
            {"coordinator", "xxxxxxxx"},   {"slow store", "xxxxxxxx"},
            {"failing store", "xxxxxxxx"}, {"restore", "xxxxxxxx"},
            {"corrupt state", "xxxxxxxx"}, {"slow part", "pxxxxxxx"},
            {"spoilt part", "pxxxxxxx"},   {"lying part", "pxxxxxxx"},
            {"repeated part", "pxxxxxxx"}, {"lose requests", "xxxxxxxx"},
            {"lose replies", "xxxxxxxx"},  {"duplicate", "xxxxxxxx"},
            {"delay", "xxxxxxxx"},         {"reorder", "xxxxxxxx"}},
           {"listening", "levelling", "computing", "waiting", "holding",
            "gathering", "spreading", "committing"}},
          {"message, by the phase of the member that it came to",
           {{"part", "xxx"},
            {"want", "xxx"},
            {"result", "xxx"},
            {"hold", "xxx"},
            {"commit", "xxx"},
            {"committed", "xxx"},
            {"too old", "xxx"},
            {"answer", "xxx"},
            {"fetch", "rxx"},
            {"fetched", "rxx"},
            {"level", "xxx"},
            {"level done", "xxx"},
            {"state wanted", "xxx"},
            {"state", "xxx"}},
           {"listening", "levelling", "running"}},
          {"a member: event, by its phase",
           {{"newer view with it", "xxx"},
            {"newer view without it", "xxx"},
            {"older view", "xxx"},
            {"message of an older view", "xxx"},
            {"message of another attempt", "xxx"},
            {"takes a state", "xxx"},
            {"committed result", "xxx"},
            {"level, applies", ".x."},
            {"level, holds", ".x."},
            {"level, has it", ".r."},
            {"level done", ".x."},
            {"own part ready", "xxx"},
            {"results of all shards", "..x"},
            {"commit", "..x"},
            {"proof of a commit", "..x"},
            {"sends a past result", "xxx"},
            {"says it is too old", "rxx"},
            {"too old: asks for a state", "xxx"},
            {"offers its state", ".xx"},
            {"sends what it holds", ".x."},
            {"suspects the silent", ".xx"}},
           {"listening", "levelling", "running"}},
          {"a shard's server: state, by event",
           {{"open", "xxxxx....."},
            {"closed", "....xxxx.."},
            {"void", "....xx..xx"},
            {"spread", "....xx..xx"}},
           {"first part", "all spoken", "deadline", "too few", "once more",
            "late", "sum", "no sum", "all hold", "differ"}},
          {"a leveller: state, by event",
           {{"asking", "xxxxxx....x"},
            {"fetching", "......xh..x"},
            {"spreading", "x.......xxx"}},
           {"answer", "is a joiner", "more since", "last: done", "last: spread",
            "last: fetch", "bytes", "applied it", "hold", "last hold",
            "new view"}},
      },
      /*rare_schedules=*/1'000'000,
      {{'p', "a listener computes no part that could be wrong"},
       {'h',
        "whoever committed the step had this leveller's hold: it need not "
        "fetch"},
       {'.', "no row of README.md: nothing happens"}}};
  return *tables;
}

}  // namespace paceline::round_world
