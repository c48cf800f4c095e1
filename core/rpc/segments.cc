#include "core/rpc/segments.h"

#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define PACELINE_BOUNDS_PIECES 1
#endif

namespace paceline {
namespace {

// Below it a write may share a packet with the next one.
constexpr size_t kLeastBytes = 16 << 10;
// A piece may be scattered over this many parts; more end it early.
constexpr size_t kMostParts = 64;

size_t SizeOf(const msghdr& message) {
  size_t bytes = 0;
  for (size_t i = 0; i < message.msg_iovlen; ++i) {
    bytes += message.msg_iov[i].iov_len;
  }
  return bytes;
}

// Walks over the bytes of a message.
class Cutter {
 public:
  explicit Cutter(const msghdr& message) : message_(message) {}

  // The next piece; empty after the last one.
  msghdr Next() {
    msghdr piece = {};
    piece.msg_iov = parts_.data();
    size_t room = kPieceBytes;
    while (room > 0 && piece.msg_iovlen < kMostParts &&
           index_ < message_.msg_iovlen) {
      const iovec& whole = message_.msg_iov[index_];
      const size_t bytes = std::min(room, whole.iov_len - offset_);
      if (bytes > 0) {
        parts_[piece.msg_iovlen++] = {
            static_cast<char*>(whole.iov_base) + offset_, bytes};
      }
      room -= bytes;
      offset_ += bytes;
      if (offset_ == whole.iov_len) {
        ++index_;
        offset_ = 0;
      }
    }
    return piece;
  }

 private:
  const msghdr& message_;
  size_t index_ = 0;   // of the part where the next piece begins
  size_t offset_ = 0;  // in it
  std::array<iovec, kMostParts> parts_;
};

}  // namespace

ssize_t SendInPieces(const msghdr& message, int flags, const SendPiece& send) {
  ssize_t taken = 0;
  Cutter cutter(message);
  for (;;) {
    const msghdr piece = cutter.Next();
    const size_t bytes = SizeOf(piece);
    if (bytes == 0) return taken;
    const ssize_t sent = send(piece, flags | MSG_EOR);
    // Whoever writes the rest next time is told what is wrong.
    if (sent < 0) return taken > 0 ? taken : sent;
    taken += sent;
    if (static_cast<size_t>(sent) < bytes) return taken;
  }
}

}  // namespace paceline

#ifdef PACELINE_BOUNDS_PIECES

namespace {

// Only there does the end of a record mean no more than the end of a packet.
bool IsTcp(int fd) {
  int protocol = 0;
  socklen_t size = sizeof(protocol);
  return getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 &&
         protocol == IPPROTO_TCP;
}

}  // namespace

// Instead of libc's, for the whole program and the libraries that it loads.
extern "C" ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  const auto send = [fd](const msghdr& piece, int piece_flags) {
    return static_cast<ssize_t>(syscall(SYS_sendmsg, fd, &piece, piece_flags));
  };
  if (message->msg_controllen > 0 || message->msg_name != nullptr ||
      paceline::SizeOf(*message) < paceline::kLeastBytes || !IsTcp(fd)) {
    return send(*message, flags);
  }
  return paceline::SendInPieces(*message, flags, send);
}

#endif  // PACELINE_BOUNDS_PIECES

namespace paceline {

bool PiecesAreBounded() {
#ifdef PACELINE_BOUNDS_PIECES
  // A library finds this address under that name when it is loaded.
  return dlsym(RTLD_DEFAULT, "sendmsg") == reinterpret_cast<void*>(&sendmsg);
#else
  return false;
#endif
}

}  // namespace paceline
