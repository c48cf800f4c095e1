// Tokens with which machines and people join: questions of tests/golden/
// coordinator/tokens.txt.
//
//   create t uses: 2         a token t, for one use of a worker by default
//   use t k1/pi-1 3600       by that holder, so many seconds later, or 1
//   use-as client t k1/kim   ... for that role
//   guess t 1000             so many wrong secrets
//   revoke t; revoke-holder worker pi-1
//   key pi-1 k1              a worker presents its key
//   free pi-1; owner pi-1    its name; whose key's that is
//   list 7200                what is shown so many seconds later
//   later                    another coordinator, with what was stored
#include "coordinator/mesh/tokens.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"
#include "tests/support/golden.h"
#include "tests/support/text_proto.h"

namespace paceline {
namespace {

class TokenScript {
 public:
  std::string Play(const std::string& script) {
    for (const absl::string_view line : absl::StrSplit(script, '\n')) {
      words_ = absl::StrSplit(line, ' ');
      EXPECT_TRUE(Do(words_[0])) << line;
      Store();
    }
    return out_;
  }

 private:
  static Moment After(const std::string& seconds) {
    const double since = std::stod(seconds);
    return {At(since), static_cast<int64_t>(1000 * since) + 1'000'000};
  }
  std::string Word(size_t i, const std::string& otherwise = "") const {
    return i < words_.size() ? words_[i] : otherwise;
  }
  void Say(const std::string& text) { absl::StrAppend(&out_, text, "\n"); }
  void Say(const absl::Status& status) { Say(status.ToString()); }

  bool Do(const std::string& verb) {
    const std::string name = Word(1);
    if (verb == "create") {
      auto request = Parse<v1::CreateTokenRequest>(R"(role: "worker" uses: 1)");
      MergeText(absl::StrJoin(words_.begin() + 2, words_.end(), " "), request);
      const auto token =
          tokens_->OnCreate(request, name, "hash of " + name, After("0"));
      if (!token.ok()) Say(token.status());
    } else if (verb == "use") {
      Use("worker", name, "hash of " + name, Word(2), Word(3, "1"));
    } else if (verb == "use-as") {
      Use(name, Word(2), "hash of " + Word(2), Word(3), "1");
    } else if (verb == "guess") {
      for (int i = 0; i < std::stoi(Word(2)); ++i) {
        Use("worker", name, "a guess", "a", "1");
      }
    } else if (verb == "revoke") {
      Say(tokens_->OnRevoke(name).status());
    } else if (verb == "revoke-holder") {
      tokens_->OnRevokeHolder(name, Word(2));
    } else if (verb == "key") {
      Say(tokens_->OnKey(name, Word(2)));
    } else if (verb == "free") {
      tokens_->FreeName(name);
    } else if (verb == "owner") {
      Say("owner: " + tokens_->KeyOf(name));
    } else if (verb == "list") {
      const auto shown = tokens_->View({}, After(name));
      for (const v1::JoinToken& token : shown->tokens()) {
        Say("token: " + token.ShortDebugString());
      }
    } else if (verb == "later") {
      mesh_ = std::make_unique<MeshState>(BrainPolicy{}, Instant{});
      tokens_ = std::make_unique<Tokens>(*mesh_, stored_, keys_);
    } else {
      return false;
    }
    return true;
  }

  void Use(const std::string& role, const std::string& token,
           const std::string& secret, const std::string& holder,
           const std::string& seconds) {
    Say(tokens_->OnUse({token, secret, role, holder}, After(seconds)));
  }

  // Tells what is stored too.
  void Store() {
    const StoreBatch& writes = mesh_->actions.writes;
    EXPECT_TRUE(writes.durable ||
                (writes.tokens.empty() && writes.keys.empty()));
    for (const auto& [id, token] : writes.tokens) {
      stored_.erase(id);
      if (token.has_value()) stored_[id] = *token;
      Say(absl::StrCat(
          "stored: ", id, " ",
          token.has_value() ? token->ShortDebugString() : "is no more"));
    }
    for (const auto& [name, key] : writes.keys) {
      keys_[name] = key;
      Say(absl::StrCat("stored: ", name, " is of key '", key, "'"));
    }
    mesh_->actions = {};
  }

  std::vector<std::string> words_;
  std::string out_;
  std::map<std::string, v1::JoinToken> stored_;
  std::map<std::string, std::string> keys_;
  std::unique_ptr<MeshState> mesh_ =
      std::make_unique<MeshState>(BrainPolicy{}, Instant{});
  std::unique_ptr<Tokens> tokens_ =
      std::make_unique<Tokens>(*mesh_, stored_, keys_);
};

TEST(Tokens, LetSomebodyInOrSayWhyNot) {
  ExpectAnswers("coordinator/tokens", [](const std::string& script) {
    return TokenScript().Play(script);
  });
}

}  // namespace
}  // namespace paceline
