#include "core/trust/secret.h"

#include <sys/stat.h>

#include "core/os/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

class SecretTest : public ::testing::Test {
 protected:
  std::string Written(const std::string& text, int mode = 0600) {
    EXPECT_TRUE(WriteFileAtomically(path_, text, mode).ok());
    return std::string(UseSecret(path_).message());
  }

  const TempFolder folder_;
  const std::string path_ = folder_.path() + "/secret";
};

TEST_F(SecretTest, IsDrawnAnewForItsOwnerAlone) {
  ASSERT_TRUE(MakeSecret(path_).ok());
  const std::string first = ReadFile(path_, 1000).value();
  ASSERT_TRUE(MakeSecret(path_).ok());
  struct stat about = {};
  ASSERT_EQ(stat(path_.c_str(), &about), 0);

  EXPECT_EQ(about.st_mode & 0777, 0600u);
  EXPECT_NE(ReadFile(path_, 1000).value(), first);
  ASSERT_TRUE(UseSecret(path_).ok());
  EXPECT_TRUE(IsUsedSecret(UsedSecret()));
  EXPECT_FALSE(IsUsedSecret(first.substr(0, first.size() - 1)));
  EXPECT_FALSE(IsUsedSecret(""));
}

TEST_F(SecretTest, AFileThatIsNoneOfThisUsersAloneIsRefused) {
  const std::string good(32, 'x');
  EXPECT_EQ(Written(good), "");
  EXPECT_THAT(Written(good, 0644), HasSubstr("chmod 600"));
  EXPECT_THAT(Written(good, 0602), HasSubstr("chmod 600"));
}

TEST_F(SecretTest, AFileWithoutOneWordIsRefusedAndNamed) {
  for (const std::string text :
       {"", "short", "two words that are long", "not\x80quite\x01ascii-text"}) {
    EXPECT_THAT(Written(text), HasSubstr("must hold one word")) << text;
  }
  EXPECT_THAT(Written(std::string(1 << 20, 'x')), HasSubstr("more than 512"));
  for (const std::string& path : {folder_.path(), folder_.path() + "/none"}) {
    const absl::Status refused = UseSecret(path);
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
    EXPECT_THAT(refused.message(), HasSubstr(path));
  }
}

}  // namespace
}  // namespace paceline
