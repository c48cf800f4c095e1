#include "worker/pipeline/piece_store.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/pieces.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr JobId kJob{3};
constexpr Instant kNow{absl::Hours(1)};

Instant After(absl::Duration pause) { return kNow + pause; }

std::vector<Cut> CutsOf(const PieceStore& store) {
  std::vector<Cut> cuts;
  for (const auto& [job, held] : store.Holdings()) {
    for (const auto& [cut, layers] : held) cuts.push_back(cut);
  }
  return cuts;
}

KeepRule FloorAt(Cut floor, std::vector<AttemptRow> rows = {{1, {}}}) {
  return {floor, std::move(rows), {}};
}

TEST(PieceStore, SaysWhatItHoldsAsRangesOfLayers) {
  PieceStore store;
  for (const int layer : {4, 0, 1}) {
    store.Deposit(kJob, {MakePiece({1, 10}, layer, "state")});
  }
  ASSERT_TRUE(store.Put(kJob, MakePiece({1, 5}, 2, "")).ok());

  EXPECT_THAT(
      store.Holdings(),
      ElementsAre(Pair(
          kJob, ElementsAre(Pair(Cut{1, 5}, ElementsAre(LayerRange{2, 3})),
                            Pair(Cut{1, 10}, ElementsAre(LayerRange{0, 2},
                                                         LayerRange{4, 5}))))));
  EXPECT_EQ(TextOf(store.Find(kJob, {{1, 10}, 4})), "state");
  EXPECT_EQ(store.Find(kJob, {{1, 10}, 2}), nullptr);
  EXPECT_EQ(store.Find(JobId{9}, {{1, 10}, 4}), nullptr);
}

// No attempt may begin with them: their state is not confirmed.
TEST(PieceStore, FindsWhatIsOfferedWhileItIsKeptAndDoesNotSayThatItHoldsIt) {
  PieceStore store;
  PiecePtr offered = MakePiece({1, 10}, 0, "offered");

  store.Offer(kJob, {offered});
  EXPECT_EQ(TextOf(store.Find(kJob, {{1, 10}, 0})), "offered");
  EXPECT_THAT(store.Holdings(), IsEmpty());
  store.Deposit(kJob, {MakePiece({1, 10}, 0, "held")});
  EXPECT_EQ(TextOf(store.Find(kJob, {{1, 10}, 0})), "held");
  store.Offer(kJob, {MakePiece({1, 11}, 0, "nobody keeps it")});

  EXPECT_EQ(store.Find(kJob, {{1, 11}, 0}), nullptr);
}

TEST(PieceStore, RefusesPiecesOfOthersBeyondItsRoomAndNeverItsOwn) {
  PieceStore store(/*most_bytes=*/10);
  store.Deposit(kJob, {MakePiece({1, 1}, 0, "twelve bytes")});
  int told = 0;
  const int listener = store.Listen([&told] { ++told; });

  const absl::Status refused = store.Put(kJob, MakePiece({1, 1}, 1, "x"));
  EXPECT_EQ(told, 1) << "the coordinator waits for a copy here";
  store.Unlisten(listener);
  store.Deposit(kJob, {MakePiece({1, 2}, 0, "more")});

  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_EQ(store.stats().refused_lately, 1);
  EXPECT_EQ(store.stats().pieces, 2);
  EXPECT_EQ(store.stats().bytes, 16);
  EXPECT_EQ(store.stats().refused, 1);
  // A piece that is here takes no room.
  EXPECT_TRUE(store.Put(kJob, MakePiece({1, 2}, 0, "more")).ok());
  // There is room again when a job is forgotten.
  store.OnKeep({}, kNow);
  store.OnAcknowledged(After(PieceStore::kForgetAfter));
  EXPECT_EQ(store.stats().refused_lately, 0);
}

TEST(PieceStore, DeclinesForAWhileFromTheFirstAcknowledgementOn) {
  PieceStore store;

  store.Decline();
  EXPECT_EQ(store.stats().refused_lately, 1);
  store.OnAcknowledged(kNow);
  store.OnAcknowledged(After(PieceStore::kDeclines - absl::Milliseconds(1)));
  EXPECT_EQ(store.stats().refused_lately, 1);

  int told = 0;
  const int listener = store.Listen([&told] { ++told; });
  store.OnAcknowledged(After(PieceStore::kDeclines));
  store.Unlisten(listener);
  EXPECT_EQ(store.stats().refused_lately, 0);
  EXPECT_EQ(told, 1) << "the coordinator may let it follow again";
}

TEST(PieceStore, DropsWhatIsBelowTheFloorOrSupersededButNoPins) {
  PieceStore store;
  for (const Cut cut : {Cut{1, 5}, {1, 10}, {1, 20}, {1, 30}, {2, 25}}) {
    store.Deposit(kJob, {MakePiece(cut, 0, "state")});
  }
  KeepRule rule = FloorAt({1, 20}, {{1, {}}, {2, {1, 20}}});
  rule.pins = {{1, 5}};

  store.OnKeep({{kJob, rule}}, kNow);

  EXPECT_THAT(CutsOf(store), ElementsAre(Cut{1, 5}, Cut{1, 20}, Cut{2, 25}));
  EXPECT_EQ(store.stats().pieces, 3);
  EXPECT_EQ(store.stats().bytes, 15);
  // A zombie's comes too late.
  store.Deposit(kJob, {MakePiece({1, 40}, 0, "state")});
  EXPECT_EQ(store.stats().pieces, 3);
}

TEST(PieceStore, DropsNothingWhileTheFloorIsNotKnown) {
  PieceStore store;
  store.Deposit(kJob, {MakePiece({1, 10}, 0, "state")});

  store.OnKeep({{kJob, {std::nullopt, {{1, {}}, {2, {}}}, {}}}}, kNow);

  EXPECT_THAT(CutsOf(store), ElementsAre(Cut{1, 10}));
}

TEST(PieceStore, TakesALowerFloorOnlyFromAnAttemptThatBeganBelowTheOld) {
  PieceStore store;
  store.OnKeep({{kJob, FloorAt({1, 30})}}, kNow);

  store.OnKeep({{kJob, FloorAt({1, 20})}}, kNow);
  EXPECT_EQ(store.Floor(kJob), (Cut{1, 30}));
  store.OnKeep({{kJob, {std::nullopt, {{1, {}}}, {}}}}, kNow);
  EXPECT_EQ(store.Floor(kJob), (Cut{1, 30}));

  store.OnKeep({{kJob, {std::nullopt, {{1, {}}, {2, {1, 20}}}, {}}}}, kNow);
  EXPECT_EQ(store.Floor(kJob), std::nullopt);
  store.OnKeep({{kJob, FloorAt({1, 20}, {{1, {}}, {2, {1, 20}}})}}, kNow);
  EXPECT_EQ(store.Floor(kJob), (Cut{1, 20}));
}

TEST(PieceStore, ForgetsAJobThatIsNotNamedWhileTheCoordinatorLives) {
  PieceStore store;
  store.Deposit(kJob, {MakePiece({1, 10}, 0, "state")});
  store.OnKeep({{kJob, FloorAt({1, 10})}}, kNow);
  store.OnAcknowledged(After(absl::Hours(1)));
  EXPECT_EQ(store.stats().pieces, 1);

  store.OnKeep({}, kNow);
  store.OnAcknowledged(After(PieceStore::kForgetAfter - absl::Seconds(1)));
  EXPECT_EQ(store.stats().pieces, 1);
  store.OnAcknowledged(After(PieceStore::kForgetAfter));

  EXPECT_THAT(store.Holdings(), IsEmpty());
  EXPECT_EQ(store.stats().pieces, 0);
  EXPECT_EQ(store.stats().bytes, 0);
}

TEST(PieceStore, RemembersAJobThatIsNamedAgain) {
  PieceStore store;
  store.Deposit(kJob, {MakePiece({1, 10}, 0, "state")});

  store.OnKeep({}, kNow);
  store.OnKeep({{kJob, FloorAt({1, 10})}}, After(absl::Seconds(50)));
  store.OnKeep({}, After(absl::Seconds(55)));
  store.OnAcknowledged(After(PieceStore::kForgetAfter));

  EXPECT_EQ(store.stats().pieces, 1);
}

TEST(PieceStore, GivesTheNewestDepositOfEachLayerOnce) {
  PieceStore store;
  store.Deposit(kJob, {MakePiece({1, 10}, 0, "")});
  store.Deposit(kJob, {MakePiece({1, 10}, 1, "")});
  store.Deposit(kJob, {MakePiece({1, 10}, 7, "")});
  store.Deposit(kJob, {MakePiece({1, 20}, 0, "")});
  ASSERT_TRUE(store.Put(kJob, MakePiece({1, 20}, 1, "")).ok());

  std::vector<Piece> got;
  PieceStore::Deposited next;
  while (next = store.NextDeposit(kJob, 1, {{0, 2}}, next.number),
         next.piece != nullptr) {
    got.push_back(next.piece->piece);
  }

  EXPECT_THAT(got, ElementsAre(Piece{{1, 10}, 1}, Piece{{1, 20}, 0}));
}

TEST(PieceStore, GivesFollowersOfAnAttemptNothingOfAnother) {
  PieceStore store;
  store.Deposit(kJob, {MakePiece({1, 30}, 0, "lost")});
  const auto next = [&store](int64_t attempt) {
    return store.NextDeposit(kJob, attempt, {{0, 1}}, 0).piece;
  };
  EXPECT_EQ(next(2), nullptr);
  ASSERT_TRUE(store.Put(kJob, MakePiece({1, 20}, 0, "base")).ok());

  store.Deposit(kJob, {AsOf({2, 20}, *store.Find(kJob, {{1, 20}, 0}))});

  ASSERT_NE(next(2), nullptr);
  EXPECT_EQ(next(2)->piece, (Piece{{2, 20}, 0}));
  EXPECT_EQ(TextOf(next(2)), "base");
  EXPECT_EQ(next(2)->data, store.Find(kJob, {{1, 20}, 0})->data);
  EXPECT_EQ(next(1), nullptr);
}

TEST(PieceStore, TellsItsListenersOfEveryPieceThatComes) {
  PieceStore store;
  int told = 0;
  const int id = store.Listen([&told] { ++told; });

  store.Deposit(kJob, {MakePiece({1, 10}, 0, "")});
  ASSERT_TRUE(store.Put(kJob, MakePiece({1, 10}, 1, "")).ok());
  EXPECT_EQ(told, 2);
  store.Unlisten(id);
  store.Deposit(kJob, {MakePiece({1, 20}, 0, "")});

  EXPECT_EQ(told, 2);
}

TEST(PieceStore, CopiesAStateThatGoesOnChanging) {
  Tensor first = Tensor::Zeros(DType::kF32, {2});
  Tensor second = Tensor::Zeros(DType::kF32, {3});
  ScatteredBytes state;
  state.Add(first);
  state.Add(second);
  second.As<float>()[2] = 1;

  const PiecePtr piece = CopyPiece({{1, 10}, 4}, state);
  second.As<float>()[2] = 2;

  ASSERT_EQ(piece->size, 20);
  EXPECT_EQ(reinterpret_cast<const float*>(piece->data.get())[4], 1);
  EXPECT_EQ(piece->checksum, HashBytes(piece->bytes()));
}

}  // namespace
}  // namespace paceline
