#include "core/rpc/status.h"

#include <string>

#include "gtest/gtest.h"

namespace paceline {
namespace {

TEST(Status, KeepsEveryCodeAndTheMessageBothWays) {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code),
                              code == 0 ? "" : "stage 2: got 3, need 4");

    const grpc::Status wire = ToGrpc(status);

    EXPECT_EQ(static_cast<int>(wire.error_code()), code);
    EXPECT_EQ(FromGrpc(wire), status);
  }
}

TEST(Status, ReadsACodeThatNobodyKnowsAsUnknown) {
  for (const int code : {-1, 17, 31}) {
    const absl::Status status =
        FromGrpc(grpc::Status(static_cast<grpc::StatusCode>(code), "odd"));

    EXPECT_EQ(status.code(), absl::StatusCode::kUnknown) << code;
    EXPECT_EQ(status.message(), "odd");
  }
}

TEST(Status, ReadsTheAnswerOfAWebServerAsUnavailable) {
  for (const char* message :
       {"Received http2 header with status: 404",
        "failed to connect to all addresses; last error: OK",
        "failed to connect to all addresses; last error: UNIMPLEMENTED: "
        "ipv4:127.0.0.1:80: Trying to connect an http1.x server"}) {
    const grpc::Status wire(grpc::StatusCode::UNIMPLEMENTED, message);

    EXPECT_TRUE(SpeaksNoGrpc(wire));
    EXPECT_EQ(FromGrpc(wire).code(), absl::StatusCode::kUnavailable);
  }
  EXPECT_FALSE(SpeaksNoGrpc({grpc::StatusCode::UNIMPLEMENTED, ""}));
}

TEST(Status, CutsAMessageThatWouldNotFitBetweenTwoCharacters) {
  // One byte, then characters of two: the limit falls inside of one.
  std::string text = "x";
  while (text.size() < 2 * kMaxStatusMessageBytes) text += "\xC3\xBC";

  const std::string cut =
      ToGrpc(absl::InvalidArgumentError(text)).error_message();

  EXPECT_EQ(cut.size(), kMaxStatusMessageBytes - 1u);
  EXPECT_EQ(cut, text.substr(0, cut.size()));
}

}  // namespace
}  // namespace paceline
