#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "core/transfer/checksum.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"

namespace paceline {
namespace {

TEST(HashFile, IsTheHashOfAllItsBytes) {
  const TempFolder folder;
  const std::string path = folder.Path("weights");
  // More than is read at a time.
  std::string bytes(3 << 20, 'a');
  bytes.back() = 'b';
  std::ofstream(path, std::ios::binary) << bytes;

  EXPECT_EQ(HashFile(path).value(),
            HashBytes({reinterpret_cast<const uint8_t*>(bytes.data()),
                       bytes.size()}));
  EXPECT_TRUE(absl::IsNotFound(HashFile(folder.Path("none")).status()));
}

}  // namespace
}  // namespace paceline
