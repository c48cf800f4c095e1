// Keeps what gRPC writes in pieces that a traffic shaper takes whole.
//
// Linux hands large writes to the network as packets of up to 64 KiB, and cuts
// them as late as it can: in the card, if it is able to.  A token bucket (tbf,
// and what is built on one: a provider's limit, an emulated link) takes nothing
// that is larger than its bucket, often 64 KiB too, headers included; so it
// cuts each of them by itself, and the machine that sends pays for packets of
// 1.5 KB: on machines of 0.4 core at 1 Gbit/s a gradient of 100 MiB over four
// members took 2.8 s, and 1.5 s with pieces (2026-11).
//
// The kernel lets a process say where a packet ends (MSG_EOR).  gRPC 1.51 does
// not use that, and gives no other code its sockets.  But gRPC calls sendmsg()
// of libc, and a program's own sendmsg() replaces that one: see segments.cc.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <functional>

namespace paceline {

// 43 segments of Ethernet: over IPv6 1428 bytes each and 86 of headers, so
// 65,102 bytes of a bucket of 65,536; over IPv4 less.
inline constexpr size_t kPieceBytes = 43 * 1428;

// One write of a part of a message; like sendmsg(), with more flags.
using SendPiece = std::function<ssize_t(const msghdr&, int flags)>;

// Gives `send` the bytes of `message` in order, at most kPieceBytes a time,
// with `flags` and MSG_EOR, until all are taken, a piece is not taken whole, or
// one fails.  Returns what was taken, and -1 where nothing was.
ssize_t SendInPieces(const msghdr& message, int flags, const SendPiece& send);

// Says whether this program's large TCP writes go through SendInPieces().  They
// do not under a sanitizer, whose own sendmsg() must be the first.
bool PiecesAreBounded();

}  // namespace paceline
