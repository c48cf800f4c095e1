// Pieces between workers, over real sockets.
#include "tests/support/pieces.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/time/clock.h"
#include "coordinator/rpc/pieces.h"
#include "core/base/clock.h"
#include "core/os/thread.h"
#include "core/rpc/channel.h"
#include "core/rpc/status.h"
#include "gmock/gmock.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "paceline/v1/stage.grpc.pb.h"
#include "tests/cluster/plane_server.h"
#include "tests/support/says.h"
#include "worker/transport/piece/piece_client.h"
#include "worker/transport/piece/piece_server.h"
#include "worker/transport/stage/data_plane.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr JobId kJob{3};
constexpr Cut kCut{2, 40};
constexpr absl::Duration kLongest = absl::Seconds(60);

// More than a chunk, and no two layers' the same.
std::string StateOf(int layer) {
  std::string state(layer == 1 ? 0 : 700'001 + layer, 'a');
  for (size_t i = 0; i < state.size(); ++i) {
    state[i] = static_cast<char>(i * 31 + i / 251 + layer);
  }
  return state;
}

// A process that serves its pieces.
class Holder {
 public:
  explicit Holder(int64_t worker)
      : id({WorkerId{worker},
            Incarnation{static_cast<uint64_t>(100 + worker)}}),
        server({.incarnation = id.incarnation, .pieces = &store}) {}

  void Hold(int first, int last, Cut cut = kCut) {
    for (int layer = first; layer < last; ++layer) {
      store.Deposit(kJob, {MakePiece(cut, layer, StateOf(layer))});
    }
  }
  PieceSource Source(int first, int last) const {
    return {{first, last}, id, server.address()};
  }

  const MemberId id;
  PieceStore store;
  PlaneServer<DataPlane, PlaneOptions> server;
};

class PiecesTest : public testing::Test {
 protected:
  PieceWant Want(int layers, std::vector<PieceSource> sources) const {
    PieceWant want{kJob, kCut, {}, std::move(sources)};
    for (int layer = 0; layer < layers; ++layer) {
      want.bytes[layer] = static_cast<int64_t>(StateOf(layer).size());
    }
    return want;
  }
  void ExpectGathered(const PieceWant& want) {
    const auto pieces = client_.Gather(want, cancel_);
    ASSERT_TRUE(pieces.ok()) << pieces.status();
    ASSERT_THAT(*pieces, SizeIs(want.bytes.size()));
    for (size_t i = 0; i < pieces->size(); ++i) {
      EXPECT_EQ((*pieces)[i]->piece, (Piece{kCut, static_cast<int>(i)}));
      EXPECT_EQ(TextOf((*pieces)[i]), StateOf(static_cast<int>(i)));
    }
  }
  // Waits until this worker's store has the piece.
  bool Await(const Piece& piece) {
    SteadyMutex mutex;
    bool changed = true;
    const int id = store_.Listen([&] {
      SteadyLock lock(&mutex);
      changed = true;
    });
    const Instant give_up = SteadyNow() + kLongest;
    while (store_.Find(kJob, piece) == nullptr && SteadyNow() < give_up) {
      SteadyLock lock(&mutex);
      mutex.AwaitFor(absl::Condition(&changed), give_up - SteadyNow());
      changed = false;
    }
    store_.Unlisten(id);
    return store_.Find(kJob, piece) != nullptr;
  }
  static FollowOrder Follows(const Holder& holder, int first, int last) {
    return {
        kJob, kCut.attempt, holder.id, holder.server.address(), {first, last}};
  }

  PieceStore store_;
  CancelToken cancel_;
  PieceClient client_{store_};
};

// In gossip each member deposits a state of its own under the same cut.
TEST_F(PiecesTest, TakesNothingFromItsOwnStoreWhereOnlyTheSourceCounts) {
  Holder a(1);
  a.Hold(0, 3);
  for (int layer = 0; layer < 3; ++layer) {
    std::string other = StateOf(layer);
    std::reverse(other.begin(), other.end());
    store_.Deposit(kJob, {MakePiece(kCut, layer, other)});
  }
  PieceWant want = Want(3, {a.Source(0, 3)});

  want.from_store = false;

  ExpectGathered(want);
}

TEST_F(PiecesTest, GathersACutFromSeveralWorkersAndItsOwnStore) {
  Holder a(1);
  Holder b(2);
  a.Hold(0, 2);
  b.Hold(2, 5);
  store_.Deposit(kJob, {MakePiece(kCut, 5, StateOf(5))});

  ExpectGathered(Want(6, {a.Source(0, 2), b.Source(2, 5)}));
}

int OpenSockets() {
  int sockets = 0;
  std::error_code gone;  // the folder's own descriptor, for instance
  for (const auto& each :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    const auto what = std::filesystem::read_symlink(each.path(), gone);
    sockets += what.string().starts_with("socket:") ? 1 : 0;
  }
  return sockets;
}

TEST_F(PiecesTest, ClosesTheConnectionsOfCallsThatAreOver) {
  Holder holder(1);
  holder.Hold(0, 2);
  const auto gather = [&] { ExpectGathered(Want(2, {holder.Source(0, 2)})); };
  gather();
  const int before = OpenSockets();

  constexpr int kTimes = 20;
  for (int i = 0; i < kTimes; ++i) gather();

  const Instant give_up = SteadyNow() + kLongest;
  // Both ends of the last call may still be there.
  while (OpenSockets() > before + 2 && SteadyNow() < give_up) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_LE(OpenSockets(), before + 2);
}

TEST_F(PiecesTest, GoesOnWithAnotherSourceAfterAnError) {
  Holder empty(1);
  Holder gone(2);
  Holder whole(3);
  whole.Hold(0, 3);
  PieceSource restarted = whole.Source(0, 3);
  restarted.holder.worker = WorkerId{0};
  restarted.holder.incarnation.value += 1;
  const PieceWant want = Want(3, {restarted, empty.Source(0, 3),
                                  gone.Source(0, 3), whole.Source(0, 3)});
  gone.server.Stop();

  ExpectGathered(want);
}

TEST_F(PiecesTest, SaysWhichLayerHasNoSourceLeft) {
  Holder a(1);
  a.Hold(0, 2);

  const auto pieces =
      client_.Gather(Want(3, {a.Source(0, 2), a.Source(2, 3)}), cancel_);

  EXPECT_TRUE(absl::IsUnavailable(pieces.status())) << pieces.status();
  EXPECT_THAT(pieces.status().message(),
              Says("layer 2 of step 40 of attempt 2 of job 3", "worker 1: "));
}

TEST_F(PiecesTest, EndsWhenItIsCancelled) {
  cancel_.Cancel(absl::CancelledError("the order was withdrawn"));

  EXPECT_TRUE(absl::IsCancelled(client_.Gather(Want(1, {}), cancel_).status()));
}

TEST_F(PiecesTest, FollowsWhatIsDepositedAndWhatWasThere) {
  Holder a(1);
  a.Hold(0, 3);
  client_.Follow({Follows(a, 0, 2)});
  EXPECT_TRUE(Await({kCut, 0}));
  EXPECT_TRUE(Await({kCut, 1}));

  a.Hold(0, 3, {kCut.attempt, 50});
  EXPECT_TRUE(Await({{kCut.attempt, 50}, 0}));
  EXPECT_TRUE(Await({{kCut.attempt, 50}, 1}));

  EXPECT_EQ(store_.Find(kJob, {kCut, 2}), nullptr);
  EXPECT_EQ(TextOf(store_.Find(kJob, {kCut, 0})), StateOf(0));
}

TEST_F(PiecesTest, FollowsAgainAfterABreakAndWhomeverTheOrderNames) {
  Holder a(1);
  Holder b(2);
  client_.Follow({Follows(a, 0, 1)});
  a.Hold(0, 1);
  ASSERT_TRUE(Await({kCut, 0}));

  const int port = a.server.port();
  a.server.StopServer();
  a.Hold(0, 1, {kCut.attempt, 50});
  a.server.StartServerOn(port);
  EXPECT_TRUE(Await({{kCut.attempt, 50}, 0}));

  client_.Follow({Follows(b, 4, 5)});
  b.Hold(4, 5);
  EXPECT_TRUE(Await({kCut, 4}));
  a.Hold(0, 1, {kCut.attempt, 60});
  b.Hold(4, 5, {kCut.attempt, 60});
  EXPECT_TRUE(Await({{kCut.attempt, 60}, 4}));
  EXPECT_EQ(store_.Find(kJob, {{kCut.attempt, 60}, 0}), nullptr);
}

// In gossip two processes' states of a step differ.
TEST_F(PiecesTest, MixesNoTwoProcessesThatItFollowsOneAfterTheOther) {
  Holder a(1);
  Holder b(2);
  client_.Follow({Follows(a, 0, 2)});
  a.Hold(0, 2);
  ASSERT_TRUE(Await({kCut, 0}) && Await({kCut, 1}));
  a.Hold(0, 1, {kCut.attempt, 50});
  ASSERT_TRUE(Await({{kCut.attempt, 50}, 0}));

  client_.Follow({Follows(b, 0, 2)});
  b.Hold(1, 2, {kCut.attempt, 50});
  ASSERT_TRUE(Await({{kCut.attempt, 50}, 1}));

  EXPECT_EQ(store_.Find(kJob, {{kCut.attempt, 50}, 0}), nullptr);
  EXPECT_NE(store_.Find(kJob, {kCut, 0}), nullptr) << "it is whole";
}

TEST_F(PiecesTest, GoesOnFollowingWhenThereIsNoRoom) {
  PieceStore small(/*most_bytes=*/10);
  PieceClient client(small);
  Holder a(1);
  a.Hold(0, 1);
  SteadyNotification came;
  const int id = small.Listen([&] {
    const bool is_there = small.Find(kJob, {kCut, 1}) != nullptr;
    if (is_there && !came.HasBeenNotified()) came.Notify();
  });

  client.Follow({Follows(a, 0, 2)});
  a.Hold(1, 2);  // nothing in it

  EXPECT_TRUE(came.WaitFor(kLongest));
  small.Unlisten(id);
  EXPECT_EQ(small.stats().refused, 1);
}

// The job waited for ever for copies that nobody could take.
TEST_F(PiecesTest, SaysThatASourceHasBeenOutOfReachForLong) {
  PieceClient client(store_, "", /*patience=*/absl::Milliseconds(60));
  Holder near(1);
  Holder gone(2);
  gone.server.Stop();
  SteadyNotification declined;
  const int id = store_.Listen([&] {
    const bool is_said = store_.stats().refused_lately > 0;
    if (is_said && !declined.HasBeenNotified()) declined.Notify();
  });
  client.Follow({Follows(near, 0, 1), Follows(gone, 0, 1)});
  near.Hold(0, 1);
  ASSERT_TRUE(Await({kCut, 0}));

  EXPECT_TRUE(declined.WaitFor(kLongest));

  client.Shutdown();
  store_.Unlisten(id);
}

// --- Requests of anybody ----------------------------------------------------

// The end of an answer.
absl::Status Ask(const std::string& address, const v1::PieceRequest& request,
                 int* chunks = nullptr) {
  const auto stub = v1::Stage::NewStub(MakeChannel(address));
  grpc::ClientContext context;
  context.set_deadline(DeadlineAfter(kLongest));
  const auto stream = stub->Pieces(&context, request);
  for (v1::PieceChunk chunk; stream->Read(&chunk);) {
    EXPECT_LE(chunk.data().size(), 1 << 20);
    if (chunks != nullptr) ++*chunks;
  }
  return FromGrpc(stream->Finish());
}

v1::PieceRequest Request(const Holder& holder) {
  v1::PieceRequest request;
  request.set_to(holder.id.incarnation.value);
  request.set_job(kJob.value);
  request.set_attempt(kCut.attempt);
  request.set_step(kCut.step);
  request.add_layers()->set_last(2);
  return request;
}

TEST_F(PiecesTest, AnswersRequestsThatCannotBeWithAClearError) {
  using Change = std::function<void(v1::PieceRequest&)>;
  Holder a(1);
  a.Hold(0, 2);
  const auto code = [&a](const Change& change) {
    v1::PieceRequest request = Request(a);
    change(request);
    return Ask(a.server.address(), request).code();
  };
  using Code = absl::StatusCode;

  EXPECT_EQ(code([](auto&) {}), Code::kOk);
  EXPECT_EQ(code([](auto& r) { r.set_to(0); }), Code::kAborted);
  EXPECT_EQ(code([](auto& r) { r.set_to(7); }), Code::kAborted);
  EXPECT_EQ(code([](auto& r) { r.set_job(0); }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto& r) { r.set_job(99); }), Code::kNotFound);
  EXPECT_EQ(code([](auto& r) { r.set_attempt(-1); }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto& r) { r.set_attempt(9); }), Code::kNotFound);
  EXPECT_EQ(code([](auto& r) { r.set_step(-1); }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto& r) { r.clear_what(); }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto& r) { r.set_follow(false); }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto& r) { r.clear_layers(); }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto& r) { r.mutable_layers(0)->set_last(5000); }),
            Code::kInvalidArgument);
  EXPECT_EQ(code([](auto& r) { r.mutable_layers(0)->set_first(-1); }),
            Code::kInvalidArgument);
  EXPECT_EQ(code([](auto& r) { r.mutable_layers(0)->set_last(0); }),
            Code::kInvalidArgument);
  EXPECT_EQ(code([](auto& r) {
              for (int i = 0; i < 9000; ++i) *r.add_layers() = r.layers(0);
            }),
            Code::kInvalidArgument);
}

TEST_F(PiecesTest, NamesTheLayerThatIsMissing) {
  Holder a(1);
  a.Hold(0, 1);
  int chunks = 0;

  const absl::Status end = Ask(a.server.address(), Request(a), &chunks);

  EXPECT_TRUE(absl::IsNotFound(end)) << end;
  EXPECT_THAT(end.message(),
              HasSubstr("layer 1 of step 40 of attempt 2 of job 3"));
  EXPECT_EQ(chunks, 0);
}

TEST_F(PiecesTest, HoldsNothingWithoutAStore) {
  PlaneServer<DataPlane, PlaneOptions> server({.incarnation = {5}});
  v1::PieceRequest request = Request(Holder(1));
  request.set_to(5);

  EXPECT_TRUE(absl::IsNotFound(Ask(server.address(), request)));
}

TEST_F(PiecesTest, TakesNoMoreThanSomeStreamsOfAHost) {
  Holder a(1);
  v1::PieceRequest request = Request(a);
  request.set_follow(true);
  struct Follower {
    std::unique_ptr<v1::Stage::Stub> stub;
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::PieceChunk>> stream;
  };
  std::vector<std::unique_ptr<Follower>> followers;
  a.Hold(0, 1);
  for (int i = 0; i < StreamLimit::kMostOfAHost; ++i) {
    auto& follower = followers.emplace_back(std::make_unique<Follower>());
    follower->stub = v1::Stage::NewStub(MakeChannel(a.server.address()));
    follower->stream = follower->stub->Pieces(&follower->context, request);
    v1::PieceChunk chunk;
    ASSERT_TRUE(follower->stream->Read(&chunk));
  }

  EXPECT_TRUE(absl::IsResourceExhausted(Ask(a.server.address(), request)));

  for (const auto& follower : followers) follower->context.TryCancel();
}

// --- Answers of anybody -------------------------------------------------

// Answers with these chunks, once to each caller.
class Liar final : public v1::Stage::Service {
 public:
  explicit Liar(std::vector<v1::PieceChunk> chunks)
      : chunks_(std::move(chunks)) {
    server_ = StartServer({.listen = "127.0.0.1:0"}, {this}).value();
  }
  ~Liar() override { server_.server->Shutdown(); }

  PieceSource Source() const {
    return {
        {0, 2}, {WorkerId{0}, {1}}, absl::StrCat("127.0.0.1:", server_.port)};
  }

  grpc::Status Pieces(grpc::ServerContext*, const v1::PieceRequest*,
                      grpc::ServerWriter<v1::PieceChunk>* writer) override {
    for (const v1::PieceChunk& chunk : chunks_) writer->Write(chunk);
    return grpc::Status::OK;
  }

 private:
  const std::vector<v1::PieceChunk> chunks_;
  BoundServer server_;
};

std::vector<v1::PieceChunk> HonestChunks() {
  std::vector<v1::PieceChunk> chunks;
  for (int layer = 0; layer < 2; ++layer) {
    const std::string state = StateOf(layer);
    const size_t half = state.size() / 2;
    for (const size_t offset : {size_t{0}, half}) {
      if (offset > 0 && half == 0) continue;
      v1::PieceChunk& chunk = chunks.emplace_back();
      chunk.set_attempt(kCut.attempt);
      chunk.set_step(kCut.step);
      chunk.set_layer(layer);
      chunk.set_total_bytes(static_cast<int64_t>(state.size()));
      chunk.set_offset(static_cast<int64_t>(offset));
      chunk.set_checksum(MakePiece(kCut, layer, state)->checksum);
      chunk.set_data(offset == 0 ? state.substr(0, half) : state.substr(half));
      if (half == 0) break;
    }
  }
  return chunks;
}

TEST_F(PiecesTest, TakesNothingOfAnAnswerThatLies) {
  using Change = std::function<void(std::vector<v1::PieceChunk>&)>;
  const auto error = [this](const Change& change) {
    std::vector<v1::PieceChunk> chunks = HonestChunks();
    change(chunks);
    const Liar liar(chunks);
    return client_.Gather(Want(2, {liar.Source()}), cancel_)
        .status()
        .ToString();
  };

  EXPECT_EQ(error([](auto&) {}), "OK");
  EXPECT_THAT(error([](auto& c) { c[0].set_total_bytes(1 << 30); }),
              HasSubstr("has 1073741824 bytes, need 700001"));
  EXPECT_THAT(error([](auto& c) { c[0].set_total_bytes(-1); }),
              HasSubstr("has -1 bytes"));
  EXPECT_THAT(error([](auto& c) { c[1].set_total_bytes(5); }),
              HasSubstr("has 5 bytes"));
  EXPECT_THAT(error([](auto& c) { c[0].set_offset(1); }),
              HasSubstr("at 1 of 700001, need some at 0"));
  EXPECT_THAT(error([](auto& c) { c[1].set_offset(0); }),
              HasSubstr("at 0 of 700001, need some at 350000"));
  EXPECT_THAT(error([](auto& c) { c[1].mutable_data()->append("x"); }),
              HasSubstr("has 350002 bytes at 350000"));
  EXPECT_THAT(error([](auto& c) { c[1].clear_data(); }),
              HasSubstr("has 0 bytes at 350000"));
  EXPECT_THAT(error([](auto& c) { c[1].mutable_data()->back() ^= 1; }),
              HasSubstr("layer 0 of step 40 of attempt 2: the checksum"));
  EXPECT_THAT(error([](auto& c) { c[1].set_checksum(1); }),
              HasSubstr("in the middle of layer 0"));
  EXPECT_THAT(error([](auto& c) { c[0].set_layer(2); }),
              HasSubstr("layer 2 of step 40 of attempt 2 came"));
  EXPECT_THAT(error([](auto& c) { c[0].set_step(41); }),
              HasSubstr("not asked for"));
  EXPECT_THAT(error([](auto& c) { c[0].set_attempt(1); }),
              HasSubstr("not asked for"));
  EXPECT_THAT(error([](auto& c) { c[1] = c[2]; }),
              HasSubstr("in the middle of layer 0"));
  EXPECT_THAT(error([](auto& c) { c.insert(c.begin(), 2, c.back()); }),
              HasSubstr("layer 1 of step 40 of attempt 2 came, which was not"));
  EXPECT_THAT(error([](auto& c) { c.pop_back(); }),
              HasSubstr("ends without layer 1"));
  EXPECT_THAT(error([](auto& c) { c.erase(c.begin() + 1, c.end()); }),
              HasSubstr("ends without layer 0"));
}

TEST_F(PiecesTest, AFollowerTakesNoMemoryForWhatDoesNotFit) {
  std::vector<v1::PieceChunk> chunks = HonestChunks();
  chunks[0].set_total_bytes(int64_t{32} << 30);
  const Liar liar(chunks);
  PieceStore small(/*most_bytes=*/1'000'000);
  SteadyNotification refused;
  const int listener = small.Listen([&] {
    if (small.stats().refused_lately > 0 && !refused.HasBeenNotified())
      refused.Notify();
  });
  PieceClient client(small);

  client.Follow({{kJob,
                  kCut.attempt,
                  liar.Source().holder,
                  liar.Source().address,
                  {0, 2}}});

  EXPECT_TRUE(refused.WaitFor(kLongest));
  client.Shutdown();
  small.Unlisten(listener);
}

TEST(PieceFetcher, TakesNothingOfAnAnswerThatLies) {
  using Change = std::function<void(std::vector<v1::PieceChunk>&)>;
  const auto error = [](const Change& change) {
    std::vector<v1::PieceChunk> chunks = HonestChunks();
    chunks.resize(2);  // of layer 0
    change(chunks);
    const Liar liar(chunks);
    const auto size = static_cast<int64_t>(StateOf(0).size());
    int64_t taken = 0;
    const auto fetched = GrpcPieceFetcher().Fetch(
        {{liar.Source().address, {1}}, kJob, {kCut, 0}, size},
        [&taken](absl::string_view bytes) {
          taken += static_cast<int64_t>(bytes.size());
          return absl::OkStatus();
        });
    EXPECT_LE(taken, size);
    return fetched.status().ToString();
  };

  EXPECT_EQ(error([](auto&) {}), "OK");
  EXPECT_THAT(error([](auto& c) { c[0].set_total_bytes(5); }),
              HasSubstr("of 5; need"));
  EXPECT_THAT(error([](auto& c) { c[1].set_offset(0); }), HasSubstr("at 0 of"));
  EXPECT_THAT(error([](auto& c) { c[1].mutable_data()->append("x"); }),
              HasSubstr("350002 bytes at"));
  EXPECT_THAT(error([](auto& c) { c[0].set_layer(1); }), HasSubstr("layer 1"));
  EXPECT_THAT(error([](auto& c) { c[0].set_step(41); }), HasSubstr("step 41"));
  EXPECT_THAT(error([](auto& c) { c[0].set_attempt(1); }), HasSubstr("came"));
  EXPECT_THAT(error([](auto& c) { c.pop_back(); }),
              HasSubstr("came as 350000"));
  EXPECT_THAT(error([](auto& c) { c.clear(); }), HasSubstr("came as 0"));
}

// Breaks off after half of layer 0, and then gives what it is asked for.
class Breaking final : public v1::Stage::Service {
 public:
  Breaking() {
    server_ = StartServer({.listen = "127.0.0.1:0"}, {this}).value();
  }
  ~Breaking() override { server_.server->Shutdown(); }

  PieceSource Source() const {
    return {
        {0, 2}, {WorkerId{0}, {1}}, absl::StrCat("127.0.0.1:", server_.port)};
  }
  grpc::Status Pieces(grpc::ServerContext*, const v1::PieceRequest* request,
                      grpc::ServerWriter<v1::PieceChunk>* writer) override {
    offsets.push_back(request->offset());
    const std::vector<v1::PieceChunk> chunks = HonestChunks();
    if (offsets.size() == 1) {
      writer->Write(chunks[0]);
      return {grpc::StatusCode::UNAVAILABLE, "the connection broke"};
    }
    for (const v1::PieceChunk& chunk : chunks) {
      const bool is_there =
          chunk.layer() == 0 && chunk.offset() < request->offset();
      const bool is_asked = chunk.layer() < request->layers(0).last();
      if (!is_there && is_asked) writer->Write(chunk);
    }
    return grpc::Status::OK;
  }

  std::vector<int64_t> offsets;  // that it was asked for

 private:
  BoundServer server_;
};

TEST_F(PiecesTest, GoesOnFromTheByteReachedAfterABreak) {
  Breaking breaking;

  ExpectGathered(Want(2, {breaking.Source()}));

  EXPECT_THAT(breaking.offsets, testing::ElementsAre(0, 350'000));
}

TEST_F(PiecesTest, AWorkerGivesTheRestOfAPiece) {
  Holder a(1);
  a.Hold(0, 2);
  std::string rest;
  const auto fetched =
      GrpcPieceFetcher().Fetch({{a.server.address(), a.id.incarnation},
                                kJob,
                                {kCut, 0},
                                std::ssize(StateOf(0)),
                                600'000},
                               [&rest](absl::string_view bytes) {
                                 rest.append(bytes.data(), bytes.size());
                                 return absl::OkStatus();
                               });

  EXPECT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_EQ(rest, StateOf(0).substr(600'000));
}

TEST_F(PiecesTest, AsksAnotherSourceWhenOneLies) {
  std::vector<v1::PieceChunk> chunks = HonestChunks();
  chunks[1].set_offset(0);
  const Liar liar(chunks);
  Holder honest(1);
  honest.Hold(0, 2);

  ExpectGathered(Want(2, {liar.Source(), honest.Source(0, 2)}));
}

// Says nothing until the call is over.
class Silent final : public v1::Stage::Service {
 public:
  Silent() { server_ = StartServer({.listen = "127.0.0.1:0"}, {this}).value(); }
  ~Silent() override { server_.server->Shutdown(); }

  std::string address() const {
    return absl::StrCat("127.0.0.1:", server_.port);
  }
  grpc::Status Pieces(grpc::ServerContext* context, const v1::PieceRequest*,
                      grpc::ServerWriter<v1::PieceChunk>*) override {
    while (!context->IsCancelled()) absl::SleepFor(absl::Milliseconds(5));
    return grpc::Status::OK;
  }

 private:
  BoundServer server_;
};

TEST(PieceFetcher, PassesOverAHolderThatHasComeToAHalt) {
  const Silent silent;

  const auto fetched = GrpcPieceFetcher(absl::Milliseconds(100))
                           .Fetch({{silent.address(), {1}}, kJob, {kCut, 0}, 9},
                                  [](auto) { return absl::OkStatus(); });

  EXPECT_TRUE(absl::IsDeadlineExceeded(fetched.status())) << fetched.status();
}

TEST_F(PiecesTest, AsksOthersWhenSourcesSayNothing) {
  const Silent silent;
  Holder honest(3);
  honest.Hold(0, 2);

  ExpectGathered(Want(2, {{{0, 2}, {WorkerId{1}, {1}}, silent.address()},
                          {{0, 2}, {WorkerId{2}, {2}}, silent.address()},
                          honest.Source(0, 2)}));
}

// --- Priority ----------------------------------------------------------------

class PieceService final
    : public v1::Stage::WithRawCallbackMethod_Pieces<v1::Stage::Service> {
 public:
  explicit PieceService(std::shared_ptr<PieceServer> server)
      : server_(std::move(server)) {}

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Pieces(
      grpc::CallbackServerContext* context,
      const grpc::ByteBuffer* request) override {
    return server_->Accept(context->peer(), *request);
  }

 private:
  const std::shared_ptr<PieceServer> server_;
};

TEST(PieceServer, LetsFramesPassButNeverStarves) {
  PieceStore store;
  store.Deposit(kJob, {MakePiece(kCut, 0, StateOf(0))});  // three chunks
  const auto shared = std::make_shared<PlaneShared>(
      PlaneOptions{.incarnation = {101}, .pieces = &store}, "test");
  std::atomic<bool> busy{true};
  const auto pieces =
      std::make_shared<PieceServer>(shared, [&busy] { return busy.load(); });
  PieceService service(pieces);
  BoundServer server =
      StartServer({.listen = "127.0.0.1:0"}, {&service}).value();
  const std::string address = absl::StrCat("127.0.0.1:", server.port);
  v1::PieceRequest request;
  request.set_to(101);
  request.set_job(kJob.value);
  request.set_attempt(kCut.attempt);
  request.set_step(kCut.step);
  request.add_layers()->set_last(1);

  const Instant begin = SteadyNow();
  int chunks = 0;
  EXPECT_TRUE(Ask(address, request, &chunks).ok());
  const absl::Duration took = SteadyNow() - begin;

  EXPECT_EQ(chunks, 3);
  EXPECT_GE(took, absl::Milliseconds(50));  // between three chunks
  pieces->Shutdown();
  server.server->Shutdown();
  shared->timers.Stop();
}

}  // namespace
}  // namespace paceline
