// Rounds over gRPC: what every transport of rounds promises, and fences, other
// processes, hostile peers.
#include "worker/transport/round/round_plane.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "core/base/random.h"
#include "core/rpc/convert/round_convert.h"
#include "core/transfer/frame_codec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "paceline/v1/round.pb.h"
#include "tests/cluster/round_receiver.h"
#include "tests/support/pipeline/round_transport_suite.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

TEST_F(RoundReceiver, ReadsFramesThatProtobufWrote) {
  Open();

  for (const std::string& ours :
       {EncodeRoundHello(header_), Chunk(0), Chunk(1), Offer()}) {
    v1::RoundFrame proto;
    ASSERT_TRUE(proto.ParseFromString(ours));
    EXPECT_EQ(proto.job(), 3);
    EXPECT_EQ(proto.from().worker_id(), 2);
    EXPECT_EQ(proto.to().incarnation(), 100u);
    sender_.Write(proto.SerializeAsString());
  }

  ASSERT_TRUE(sink_.AwaitMessages(1));
  EXPECT_EQ(sink_.got()[0].payload->bytes(), part_->bytes());
  EXPECT_TRUE(sender_.End().ok());
}

TEST_F(RoundReceiver, HoldsANewerAttemptUntilItsOwnOrderComes) {
  FrameHeader newer = header_;
  newer.fence.attempt = 2;
  Open();
  sender_.Write(MessageBytes(newer, CommitFrom(1, 8)));

  transport_.reset();
  Open({kRoundFence.job, 2, 1});

  EXPECT_TRUE(sender_.AwaitReceipt());
  ASSERT_TRUE(sink_.AwaitMessages(1));
  EXPECT_EQ(sink_.got()[0].message.attempt, 2);
}

TEST_F(RoundReceiver, HoldsOneWhoIsNoPeerYet) {
  Open();
  transport_->SetPeers({});
  sender_.Write(MessageBytes(header_, CommitFrom(1, 8)));

  transport_->SetPeers(Peers());

  ASSERT_TRUE(sink_.AwaitMessages(1));
}

TEST_F(RoundReceiver, EndsTheStreamOfOneWhoIsNoPeerAnyMore) {
  Open();
  sender_.Write(EncodeRoundHello(header_));
  ASSERT_TRUE(sender_.AwaitReceipt());

  transport_->SetPeers({});

  EXPECT_EQ(sender_.AwaitEnd().code(), absl::StatusCode::kAborted);
}

TEST_F(RoundReceiver, EndsAnOlderAttemptAndAnOlderPlanOfItsAttempt) {
  for (const Fence& fence : {Fence{kRoundFence.job, 2, 1},
                             Fence{kRoundFence.job, kRoundFence.attempt,
                                   kRoundFence.plan_version + 1}}) {
    RoundRecorder sink;
    RoundNode node(0);
    const auto transport = node.Open(&sink, fence);
    RawSender sender(node.address());
    sender.Write(Chunk(0));

    const absl::Status end = sender.End();

    EXPECT_TRUE(absl::IsAborted(end));
    EXPECT_THAT(end.message(), HasSubstr("plan=1 is over"));
    EXPECT_EQ(node.plane.stats().frames_dropped_old, 1);
    EXPECT_TRUE(sink.got().empty());
  }
}

TEST_F(RoundReceiver, RefusesWhatIsForAnotherProcessOrAClosedRun) {
  Open();
  FrameHeader other = header_;
  other.to.incarnation.value += 1;
  EXPECT_TRUE(absl::IsNotFound(EndOf(EncodeRoundHello(other))));

  transport_.reset();

  EXPECT_TRUE(absl::IsAborted(EndOf(EncodeRoundHello(header_))));
}

TEST_F(RoundReceiver, LetsALaterStreamOfASenderTakeThePlaceOfAnEarlier) {
  Open();
  RawSender earlier(node_.address());
  earlier.Write(EncodeRoundHello(header_));
  ASSERT_TRUE(earlier.AwaitReceipt());

  RawSender later(node_.address());
  later.Write(MessageBytes(header_, CommitFrom(1, 8)));

  EXPECT_EQ(earlier.AwaitEnd().code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(sink_.AwaitMessages(1));
}

// The gradient's values would come to other places.
TEST_F(RoundReceiver, RefusesChunksOfAnotherSize) {
  Open();
  FrameHeader smaller = part_header_;
  smaller.chunk_bytes = 1000;

  const absl::Status end =
      EndOf(EncodeRoundChunkPrefix(smaller, 1000, 0) + std::string(1000, 'x'));

  EXPECT_TRUE(absl::IsInvalidArgument(end)) << end;
  EXPECT_THAT(end.message(), HasSubstr("chunks of 1000"));
}

TEST_F(RoundReceiver, SaysDataLossOfAChunkWithAWrongChecksum) {
  Open();
  std::string chunk = Chunk(0);
  chunk.back() ^= 1;

  const absl::Status end = EndOf(chunk);

  EXPECT_EQ(end.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(end.message(), HasSubstr("part of step 4"));
  EXPECT_EQ(node_.plane.stats().checksum_errors, 1);
}

TEST_F(RoundReceiver, TakesWhatIsMissingOnASecondStream) {
  Open();
  ASSERT_TRUE(EndOf(Chunk(1)).ok());

  EXPECT_TRUE(EndOf({Chunk(0), Chunk(1), Offer()}).ok());

  ASSERT_TRUE(sink_.AwaitMessages(1));
  EXPECT_EQ(sink_.got()[0].payload->bytes(), part_->bytes());
  EXPECT_EQ(node_.plane.stats().frames_dropped_duplicate, 1);
}

TEST_F(RoundReceiver, WantsChunksAgainThatCameTooEarly) {
  Open();
  absl::Notification early;
  sink_.SetMemory(
      [&early](const MemberId&, const PayloadKey&,
               size_t) -> absl::StatusOr<std::shared_ptr<RoundPayload>> {
        early.Notify();
        return nullptr;
      });
  const std::vector<std::string> frames = {EncodeRoundHello(header_), Chunk(0),
                                           Chunk(1), Offer()};
  RawSender first(node_.address());
  first.Write(frames[0]);
  first.Write(frames[1]);
  early.WaitForNotification();

  sink_.SetMemory(nullptr);
  first.Write(frames[2]);
  first.Write(frames[3]);
  const absl::Status ended = first.AwaitEnd();
  const absl::Status again = EndOf(frames);

  EXPECT_EQ(ended.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(ended.message(),
              HasSubstr("came too early and was dropped: send it again"));
  EXPECT_TRUE(again.ok()) << again;
  ASSERT_TRUE(sink_.AwaitMessages(1));
  EXPECT_EQ(sink_.got()[0].payload->bytes(), part_->bytes());
}

TEST_F(RoundReceiver, AsksForNoMemoryForForgottenSteps) {
  Open();
  transport_->Forget(5);
  // The first of a sender learns of it at its end.
  ASSERT_TRUE(EndOf(EncodeRoundHello(header_)).ok());
  transport_->Forget(5);

  EXPECT_TRUE(EndOf({Chunk(0), Offer()}).ok());

  ASSERT_TRUE(sink_.AwaitMessages(1));
  EXPECT_EQ(sink_.got()[0].payload, nullptr);
  EXPECT_EQ(sink_.asked(), 0);
}

TEST_F(RoundReceiver, LetsGoOfForgottenMemoryAtOnce) {
  Open();
  std::weak_ptr<RoundPayload> memory;
  sink_.SetMemory([&](const MemberId&, const PayloadKey&, size_t bytes) {
    auto payload = BlockPool(0).Make(bytes);
    memory = payload;
    return payload;
  });
  sender_.Write(Chunk(0));
  sender_.Write(MessageBytes(header_, CommitFrom(1, 8)));
  ASSERT_TRUE(sink_.AwaitMessages(1));
  ASSERT_FALSE(memory.expired());

  transport_->Forget(5);

  // A frame that is still being taken lets go at its end.
  sender_.Write(MessageBytes(header_, CommitFrom(1, 9)));
  ASSERT_TRUE(sink_.AwaitMessages(2));
  EXPECT_TRUE(memory.expired());
}

// Releases up to 0.1.0 asked each sender on their machine for its memory.
class OlderReceiver final : public v1::Round::Service {
 public:
  grpc::Status Exchange(
      grpc::ServerContext* /*context*/,
      grpc::ServerReaderWriter<v1::RoundReceipt, v1::RoundFrame>* stream)
      override {
    v1::RoundReceipt receipt;
    google::protobuf::UnknownFieldSet* const fields =
        receipt.GetReflection()->MutableUnknownFields(&receipt);
    fields->AddFixed64(1, 77);
    fields->AddVarint(2, 1);
    for (v1::RoundFrame frame; stream->Read(&frame);) {
      if (!stream->Write(receipt)) break;
      if (frame.data().empty()) continue;
      EXPECT_EQ(frame.GetReflection()->GetUnknownFields(frame).field_count(),
                0);
      data_ += frame.data();
      if (frame.has_message()) whole_.Notify();
    }
    return grpc::Status::OK;
  }

  const std::string& AwaitData() {
    whole_.WaitForNotification();
    return data_;
  }

 private:
  std::string data_;
  absl::Notification whole_;
};

TEST(RoundPlane, SendsChunksToAReceiverThatAsksForItsMemory) {
  OlderReceiver older;
  BoundServer server = StartServer({.listen = "127.0.0.1:0"}, {&older}).value();
  RoundRecorder sink;
  RoundNode node(1);
  const auto transport = node.Open(&sink);
  transport->SetPeers(
      {{TestMember(0), "w0", absl::StrCat("127.0.0.1:", server.port)}});
  ASSERT_TRUE(sink.AwaitLink(0, /*up=*/true));
  const auto part = ReadyPayload(kTwoChunks, 1);

  transport->Send(TestMember(0), OfferFrom(1, PartKey(4), *part), PartKey(4),
                  part);

  const std::string& data = older.AwaitData();
  EXPECT_TRUE(std::equal(data.begin(), data.end(), part->bytes().begin(),
                         part->bytes().end(),
                         [](char a, uint8_t b) { return uint8_t(a) == b; }));
  transport->Close();
  server.Shutdown(absl::Seconds(10));
}

struct BadFrames {
  std::string name;
  std::vector<std::string> frames;
  std::string why;
};
void PrintTo(const BadFrames& bad, std::ostream* out) { *out << bad.name; }

std::vector<BadFrames> AllBadFrames() {
  const FrameHeader header = HeaderOf(1, 0);
  const FrameHeader part = WithPayload(header, PartKey(4), kTwoChunks);
  const auto payload = ReadyPayload(kTwoChunks, 1);
  const RoundMessage offer = OfferFrom(1, PartKey(4), *payload);
  FrameHeader longer = part;
  longer.payload_bytes += 1;
  FrameHeader another = HeaderOf(2, 0);
  return {
      {"Nothing", {""}, "of no job"},
      {"Huge", {std::string(2 << 20, '\x0a')}, "before a hello"},
      {"NoMessage",
       {EncodeRoundMessage(header, "\xff\xff\xff\xff")},
       "is no message of a round"},
      {"NoBody", {EncodeRoundMessage(header, "")}, "without a body"},
      {"MessageBeforeItsBytes",
       {MessageBytes(part, offer)},
       "before the bytes"},
      {"HalfOfTheBytes",
       {ChunkBytes(part, *payload, 1), MessageBytes(part, offer)},
       "before the bytes"},
      {"AnotherSizeThanBefore",
       {ChunkBytes(part, *payload, 0), MessageBytes(longer, offer)},
       "and had"},
      {"ChunkBeyondTheEnd",
       {EncodeRoundChunkPrefix(
            [&] {
              FrameHeader beyond = part;
              beyond.chunk = 2;
              return beyond;
            }(),
            3, 0) +
        "abc"},
       "chunk 2 of"},
      {"AnotherSenderOnTheSameStream",
       {EncodeRoundHello(header), EncodeRoundHello(another)},
       "a stream of worker 2 with a frame of worker 3"},
      {"NegativeStep",
       {MessageBytes(header, MessageFrom(1, Commit{-1, 1}))},
       "Commit.step is -1, need 0 to"},
  };
}

class RoundBadFrames : public RoundReceiver,
                       public ::testing::WithParamInterface<BadFrames> {};

INSTANTIATE_TEST_SUITE_P(All, RoundBadFrames,
                         ::testing::ValuesIn(AllBadFrames()),
                         [](const auto& info) { return info.param.name; });

TEST_P(RoundBadFrames, AreRefusedAndTheSenderIsToldWhy) {
  Open();

  const absl::Status end = EndOf(GetParam().frames);

  EXPECT_EQ(end.code(), absl::StatusCode::kInvalidArgument) << end;
  EXPECT_THAT(end.message(), HasSubstr(GetParam().why));
  EXPECT_TRUE(sink_.got().empty());
  EXPECT_EQ(node_.plane.stats().frames_refused, 1);
}

TEST_F(RoundReceiver, SurvivesFramesWithFlippedBytes) {
  Open();
  const auto part = ReadyPayload(2000, 1);
  const FrameHeader header = WithPayload(header_, PartKey(4), 2000);
  const std::vector<std::string> good = {Chunk(0), Offer()};
  SplitMix64 random(23);
  // Whatever is asked for is given.
  sink_.SetMemory(
      [](const MemberId&, const PayloadKey&,
         size_t bytes) -> absl::StatusOr<std::shared_ptr<RoundPayload>> {
        if (bytes > 1 << 20) return absl::InvalidArgumentError("too large");
        return BlockPool(0).Make(bytes);
      });

  for (int i = 0; i < 150; ++i) {
    std::vector<std::string> bad = good;
    std::string& frame = bad[random.Below(2)];
    const size_t head = std::min<size_t>(frame.size(), 80);
    frame[random.Below(head)] ^= static_cast<char>(1 + random.Below(255));
    // A stream of another attempt or sender would be held: not waited for.
    RawSender sender(node_.address());
    for (const std::string& each : bad) sender.Write(each);
  }

  RawSender sender(node_.address());
  sender.Write(MessageBytes(HeaderOf(2, 0), CommitFrom(2, 1234)));
  while (sink_.got().empty() ||
         CommittedStep(sink_.got().back().message) != 1234) {
    ASSERT_TRUE(sink_.AwaitMessages(sink_.got().size() + 1));
  }
}

class RoundShortHold : public RoundReceiver {
 protected:
  RoundShortHold()
      : RoundReceiver(PlaneOptions{.incarnation = Incarnation{100},
                                   .hold = absl::Milliseconds(20)}) {}
};

TEST_F(RoundShortHold, EndsAStreamWhoseOrderNeverComes) {
  EXPECT_EQ(EndOf(EncodeRoundHello(header_)).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(RoundShortHold, RefusesAnotherProcessBeforeAnyOrder) {
  FrameHeader other = header_;
  other.to.incarnation.value = 7;

  EXPECT_EQ(EndOf(EncodeRoundHello(other)).code(), absl::StatusCode::kNotFound);
}

// --- what every transport of rounds promises --------------------------------

std::unique_ptr<RoundNet> MakeNet(const std::vector<RoundSink*>& sinks) {
  return std::make_unique<RpcRoundNet>(sinks);
}

INSTANTIATE_TEST_SUITE_P(Rpc, RoundTransportSuite, ::testing::Values(MakeNet));

}  // namespace
}  // namespace paceline
