#include "core/rpc/segments.h"

#include <netinet/in.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <string>
#include <vector>

#include "core/base/thread.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// Bytes of which each says where it belongs.
std::string Pattern(size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * 7 / 5);
  return text;
}

// `text` in parts of these sizes.
std::vector<iovec> PartsOf(std::string& text,
                           const std::vector<size_t>& sizes) {
  std::vector<iovec> parts;
  char* at = text.data();
  for (const size_t size : sizes) {
    parts.push_back({at, size});
    at += size;
  }
  return parts;
}

msghdr MessageOf(std::vector<iovec>& parts) {
  msghdr message = {};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  return message;
}

// Takes pieces, at most `room` bytes in all.
struct Taker {
  explicit Taker(size_t bytes = SIZE_MAX) : room(bytes) {}

  size_t room;
  std::string text;
  std::vector<size_t> sizes;
  std::vector<int> flags;

  ssize_t operator()(const msghdr& piece, int piece_flags) {
    if (room == 0) {
      errno = EAGAIN;
      return -1;
    }
    flags.push_back(piece_flags);
    size_t taken = 0;
    for (size_t i = 0; i < piece.msg_iovlen; ++i) {
      const iovec& part = piece.msg_iov[i];
      const size_t bytes = std::min(part.iov_len, room);
      text.append(static_cast<char*>(part.iov_base), bytes);
      taken += bytes;
      room -= bytes;
    }
    sizes.push_back(taken);
    return static_cast<ssize_t>(taken);
  }
};

TEST(SendInPieces, KeepsTheBytesInOrderAndPiecesBelowTheLimit) {
  std::string text = Pattern(150'000);
  std::vector<iovec> parts = PartsOf(text, {1, 0, 69'999, 20'000, 60'000, 0});
  Taker taker;

  const ssize_t sent =
      SendInPieces(MessageOf(parts), MSG_NOSIGNAL, std::ref(taker));

  EXPECT_EQ(sent, 150'000);
  EXPECT_EQ(taker.text, text);
  EXPECT_THAT(taker.sizes,
              ElementsAre(kPieceBytes, kPieceBytes, 150'000 - 2 * kPieceBytes));
  EXPECT_THAT(taker.flags, Each(MSG_NOSIGNAL | MSG_EOR));
}

TEST(SendInPieces, EndsAPieceEarlyThatIsScattered) {
  std::string text = Pattern(300 * 100);
  std::vector<iovec> parts = PartsOf(text, std::vector<size_t>(300, 100));
  Taker taker;

  EXPECT_EQ(SendInPieces(MessageOf(parts), 0, std::ref(taker)), 30'000);

  EXPECT_EQ(taker.text, text);
}

TEST(SendInPieces, SaysHowMuchWasTakenWhereTheSocketIsFull) {
  std::string text = Pattern(200'000);
  std::vector<iovec> parts = PartsOf(text, {200'000});
  Taker within(kPieceBytes + 1000);
  Taker between(kPieceBytes);
  Taker full(0);

  EXPECT_EQ(SendInPieces(MessageOf(parts), 0, std::ref(within)),
            static_cast<ssize_t>(kPieceBytes + 1000));
  EXPECT_EQ(SendInPieces(MessageOf(parts), 0, std::ref(between)),
            static_cast<ssize_t>(kPieceBytes));
  EXPECT_EQ(SendInPieces(MessageOf(parts), 0, std::ref(full)), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST(PiecesAreBounded, InAProgramThatNoSanitizerWatches) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  EXPECT_FALSE(PiecesAreBounded());
#else
  EXPECT_TRUE(PiecesAreBounded());
#endif
}

// Two ends of a connection over loopback.
class Connection {
 public:
  Connection() {
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener, any, size), 0);
    EXPECT_EQ(listen(listener, 1), 0);
    EXPECT_EQ(getsockname(listener, any, &size), 0);
    out = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(out, any, size), 0);
    in = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    close(listener);
  }
  ~Connection() {
    close(out);
    close(in);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int out = -1;
  int in = -1;
};

TEST(Sendmsg, LosesNothingOfALargeWrite) {
  const Connection connection;
  std::string text = Pattern(3'000'000);
  std::vector<iovec> parts = PartsOf(text, {9, 1'000'000, 1'999'991});
  std::string received(text.size(), '\0');
  Thread reader("reader", [&] {
    recv(connection.in, received.data(), received.size(), MSG_WAITALL);
  });

  const msghdr message = MessageOf(parts);
  const ssize_t sent = sendmsg(connection.out, &message, MSG_NOSIGNAL);
  shutdown(connection.out, SHUT_WR);
  reader.Join();

  EXPECT_EQ(sent, 3'000'000);
  EXPECT_TRUE(received == text);
}

TEST(Sendmsg, FailsLikeLibcsWhereThePeerIsGone) {
  const Connection connection;
  std::string text = Pattern(100'000);
  std::vector<iovec> parts = PartsOf(text, {100'000});
  shutdown(connection.out, SHUT_WR);

  const msghdr message = MessageOf(parts);
  EXPECT_EQ(sendmsg(connection.out, &message, MSG_NOSIGNAL), -1);
  EXPECT_EQ(errno, EPIPE);
}

// A datagram that is cut would be two.
TEST(Sendmsg, LeavesDatagramsWhole) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends), 0);
  std::string text = Pattern(100'000);
  std::vector<iovec> parts = PartsOf(text, {50'000, 50'000});
  std::string received(200'000, '\0');

  const msghdr message = MessageOf(parts);
  ASSERT_EQ(sendmsg(ends[0], &message, 0), 100'000);

  EXPECT_EQ(recv(ends[1], received.data(), received.size(), 0), 100'000);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace paceline
