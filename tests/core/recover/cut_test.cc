#include "core/recover/cut.h"

#include "gtest/gtest.h"

namespace paceline {
namespace {

MemberId Process(int64_t worker) { return {{worker}, {100}}; }

std::set<Piece> PiecesOf(Cut cut, std::initializer_list<int> layers) {
  std::set<Piece> pieces;
  for (const int layer : layers) pieces.insert({cut, layer});
  return pieces;
}

TEST(Lineage, ACutIsValidUpToTheBaseOfEveryLaterAttempt) {
  const Lineage lineage({{1, {}}, {2, {1, 10}}, {3, {1, 6}}});

  EXPECT_TRUE(lineage.IsValid({1, 6}));
  EXPECT_FALSE(lineage.IsValid({1, 7}));  // below attempt 2's base only
  EXPECT_FALSE(lineage.IsValid({2, 12}));
  EXPECT_TRUE(lineage.IsValid({3, 99}));
  EXPECT_TRUE(lineage.IsValid(Cut()));
}

TEST(Lineage, ACutOfAnUnknownAttemptIsNeitherValidNorSuperseded) {
  const Lineage lineage(std::vector<AttemptRow>{{1, {}}});

  EXPECT_FALSE(lineage.IsValid({2, 5}));
  EXPECT_FALSE(lineage.IsSuperseded({2, 5}));
}

// A resumed job's attempts begin with another job's checkpoint.
TEST(Lineage, WhatTheJobBeganFromIsValidWhereNoAttemptBeganBelowIt) {
  EXPECT_TRUE(Lineage().IsValid({0, 10}));
  using Rows = std::vector<AttemptRow>;
  EXPECT_TRUE(Lineage(Rows{{1, {0, 10}}, {2, {1, 15}}}).IsValid({0, 10}));
  EXPECT_FALSE(Lineage(Rows{{1, {}}}).IsValid({0, 10}));
}

TEST(Lineage, StatesAfterTheLastSoundStepCountForNothing) {
  Lineage lineage(std::vector<AttemptRow>{{1, {}}, {2, {1, 5}}});
  lineage.SetSound(2, 8);

  EXPECT_TRUE(lineage.IsValid({2, 8}));
  EXPECT_FALSE(lineage.IsValid({2, 9}));
  EXPECT_TRUE(lineage.IsSuperseded({2, 9}));
  EXPECT_TRUE(lineage.IsValid({1, 5}));
}

TEST(Holdings, TwoWorkersOnOneMachineAreOneHolder) {
  Holdings holdings(2);
  const Cut cut{1, 10};
  holdings.Set(Process(1), {1}, PiecesOf(cut, {0, 1}));
  holdings.Set(Process(2), {1}, PiecesOf(cut, {0, 1}));
  EXPECT_EQ(holdings.Copies().at(cut), 1);

  holdings.Set(Process(3), {3}, PiecesOf(cut, {0}));
  EXPECT_EQ(holdings.Copies().at(cut), 1);  // layer 1 has one machine still
  holdings.Set(Process(3), {3}, PiecesOf(cut, {0, 1}));
  EXPECT_EQ(holdings.Copies().at(cut), 2);
  EXPECT_EQ(holdings.Copies({Process(1)}).at(cut), 2);
  EXPECT_EQ(holdings.Copies({Process(1), Process(2)}).at(cut), 1);

  holdings.Remove(Process(3));
  EXPECT_EQ(holdings.Copies().at(cut), 1);
  EXPECT_EQ(holdings.HoldersOf(cut)[1],
            (std::vector<MemberId>{Process(1), Process(2)}));
}

// A peer names many cuts, of one layer each: gigabytes, with a place for each
// layer.
TEST(Holdings, TakeNoMoreMemoryThanWasReported) {
  Holdings holdings(/*layers=*/4096);
  std::set<Piece> pieces;
  for (int64_t step = 1; step <= 50'000; ++step) pieces.insert({{1, step}, 7});
  holdings.Set(Process(1), {1}, pieces);

  EXPECT_TRUE(holdings.Copies().empty());
}

TEST(Holdings, ACutIsCompleteWithinOneAttemptOnly) {
  Holdings holdings(2);
  holdings.Set(Process(1), {1}, PiecesOf({1, 10}, {0}));
  holdings.Set(Process(2), {2}, PiecesOf({2, 10}, {1}));

  EXPECT_TRUE(holdings.Copies().empty());
}

TEST(NewestCut, PassesOverWhatIsInvalidOrOnTooFewMachines) {
  const Lineage lineage({{1, {}}, {2, {1, 8}}});
  const std::map<Cut, int> copies = {
      {{1, 4}, 3}, {{1, 8}, 2}, {{1, 12}, 3}, {{2, 10}, 1}};
  const auto valid = [&](Cut cut) { return lineage.IsValid(cut); };

  EXPECT_EQ(NewestCut(copies, 1, valid), (Cut{2, 10}));
  EXPECT_EQ(NewestCut(copies, 2, valid), (Cut{1, 8}));
  EXPECT_EQ(NewestCut(copies, 3, valid), (Cut{1, 4}));
  EXPECT_EQ(NewestCut(copies, 4, valid), Cut());
}

TEST(FollowersOf, IsBoundByTheMachines) {
  EXPECT_EQ(FollowersOf(2, 5), 2);
  EXPECT_EQ(FollowersOf(2, 2), 1);
  EXPECT_EQ(FollowersOf(2, 1), 0);
  EXPECT_EQ(FollowersOf(2, 0), 0);
}

TEST(MayDrop, OnlyWhatIsBelowTheFloorOrSuperseded) {
  KeepRule rule{.floor = Cut{1, 6}, .rows = {{1, {}}, {2, {1, 8}}}, .pins = {}};

  EXPECT_TRUE(MayDrop({{1, 4}, 0}, rule));
  EXPECT_FALSE(MayDrop({{1, 6}, 0}, rule));
  EXPECT_FALSE(MayDrop({{1, 8}, 0}, rule));
  EXPECT_TRUE(MayDrop({{1, 9}, 0}, rule));    // attempt 2 began at 8
  EXPECT_FALSE(MayDrop({{3, 20}, 0}, rule));  // not heard of yet

  rule.pins = {{1, 4}};
  EXPECT_FALSE(MayDrop({{1, 4}, 0}, rule));
  rule.floor.reset();
  EXPECT_FALSE(MayDrop({{1, 2}, 0}, rule));
  EXPECT_FALSE(MayDrop({{1, 9}, 0}, rule));
}

TEST(CutText, NamesTheBeginning) {
  EXPECT_EQ(CutText({2, 10}), "step 10 of attempt 2");
  EXPECT_EQ(CutText(Cut()), "the beginning");
}

TEST(FloorAfter, IgnoresALowerFloorUntilAnAttemptBeginsBelowIt) {
  const auto rule = [](std::optional<Cut> floor) {
    KeepRule rule;
    rule.floor = floor;
    return rule;
  };
  EXPECT_EQ(FloorAfter(std::nullopt, rule(Cut{1, 10})), (Cut{1, 10}));
  EXPECT_EQ(FloorAfter(Cut{1, 10}, rule(Cut{1, 5})), (Cut{1, 10}));
  EXPECT_EQ(FloorAfter(Cut{1, 10}, rule(std::nullopt)), (Cut{1, 10}));

  KeepRule below = rule(Cut{1, 4});
  below.rows = {{1, {}}, {2, {1, 4}}};
  EXPECT_EQ(FloorAfter(Cut{1, 10}, below), (Cut{1, 4}));
}

}  // namespace
}  // namespace paceline
