#include "core/transfer/checksum.h"

#include <string>

#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"

namespace paceline {
namespace {

// FIPS 180-4's examples, as NIST's "SHA256.pdf" prints them.
constexpr char kAbc[] =
    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
constexpr char kTwoBlocks[] =
    "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1";

TEST(Sha256, GivesThePublishedDigests) {
  Sha256 abc;
  abc.Update("abc");
  Sha256 two_blocks;
  two_blocks.Update("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq");

  EXPECT_EQ(abc.HexDigest(), kAbc);
  EXPECT_EQ(two_blocks.HexDigest(), kTwoBlocks);
}

TEST(Sha256, DoesNotCareHowTheBytesAreCut) {
  Sha256 hash;
  for (const char* part : {"", "a", "", "bc"}) hash.Update(part);

  EXPECT_EQ(hash.HexDigest(), kAbc);
}

TEST(HashFile, IsTheHashOfAllItsBytes) {
  const TempFolder folder;
  // More than is read at a time.
  std::string bytes(3 << 20, 'a');
  bytes.back() = 'b';
  folder.Write("weights", bytes);

  EXPECT_EQ(HashFile(folder.Path("weights")).value(),
            HashBytes({reinterpret_cast<const uint8_t*>(bytes.data()),
                       bytes.size()}));
  EXPECT_TRUE(absl::IsNotFound(HashFile(folder.Path("none")).status()));
}

}  // namespace
}  // namespace paceline
