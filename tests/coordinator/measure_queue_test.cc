// The queue of measurements answers the questions of tests/golden/coordinator/
// measurements.txt.
//
//   mesh a b            these workers are attached, at b:1
//   a is busy | gone | paused | free
//   arrives b a         another process of b, beside a
//   redial a b          a shall dial b again
//   layers a b          a person asks for them; also links a b, script a
//   files a b           ... whether they can read /data and /w
//   at 10               it is that late; tells who has which order
//   answer a TEXT       to a's order; tells what of it is kept
//   dial all            each dials what it is asked to, while there is more
//   view 1              of a person's measurement
#include "coordinator/mesh/measure_queue.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/rpc/convert/mirror.h"
#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"
#include "tests/support/golden.h"
#include "tests/support/text_proto.h"

namespace paceline {
namespace {

class QueueScript {
 public:
  std::string Play(const std::string& script) {
    for (const absl::string_view line : absl::StrSplit(script, '\n')) {
      words_ = absl::StrSplit(line, ' ');
      EXPECT_TRUE(Do(words_[0])) << line;
    }
    return out_;
  }

 private:
  std::vector<std::string> Rest(size_t i) const {
    return {words_.begin() + static_cast<std::ptrdiff_t>(i), words_.end()};
  }
  void Say(const std::string& text) { absl::StrAppend(&out_, text, "\n"); }
  void Assign() {
    std::vector<MeasureWorker> workers;
    for (const auto& [name, state] : states_) {
      workers.push_back({name, name + ":1", state != "gone",
                         state == "busy" || state == "paused",
                         state == "paused"});
    }
    queue_.Assign(workers, now_);
  }

  bool Do(const std::string& verb) {
    if (verb == "mesh") {
      for (const std::string& name : Rest(1)) states_[name] = "free";
    } else if (verb == "arrives") {
      queue_.OnArrival(words_[1], Rest(2));
    } else if (verb == "redial") {
      queue_.Redial(words_[1], words_[2]);
    } else if (verb == "files") {
      queue_.RequestFiles(
          Parse<v1::StartProfileRequest>(R"(files: "/data" files: "/w")"),
          Rest(1));
    } else if (verb == "layers" || verb == "links" || verb == "script") {
      JobSpec spec;
      spec.model.name = verb == "script" ? kScriptModel : "lenet";
      if (verb == "script") spec.model.file = "/net.pt";
      queue_.Request(spec, "avx2", Rest(1), /*links=*/verb == "links");
    } else if (verb == "at") {
      now_ = At(std::stod(words_[1]));
      Assign();
      Say(absl::StrCat("after ", words_[1], " s"));
      Look();
    } else if (verb == "answer") {
      Answer(words_[1], absl::StrJoin(Rest(2), " "));
    } else if (verb == "dial") {
      while (DialOnce()) {
      }
    } else if (verb == "view") {
      View(std::stoll(words_[1]));
    } else if (words_[1] == "is") {
      states_[verb] = words_[2];
    } else {
      return false;
    }
    return true;
  }

  static std::string TextOf(const v1::MeasureOrder& order) {
    if (order.has_link()) {
      return absl::StrCat("dials ", order.link().name(), " at ",
                          order.link().address());
    }
    if (order.has_files()) {
      return "looks for " + absl::StrJoin(order.files().paths(), " ");
    }
    return absl::StrCat("measures ", order.layers().spec().model().name(),
                        " at ", order.layers().cpu_capability());
  }
  void Look() {
    for (const auto& [name, state] : states_) {
      const auto order = queue_.OrderOf(name);
      if (!order.has_value() && !queue_.Holds(name)) continue;
      Say(absl::StrCat(name, queue_.Holds(name) ? " (held)" : "", ": ",
                       order.has_value() ? absl::StrCat("order ", order->id(),
                                                        ": ", TextOf(*order))
                                         : "no order"));
    }
  }

  // Without a text: the link that it was asked for.
  void Answer(const std::string& name, const std::string& text) {
    const auto order = queue_.OrderOf(name);
    v1::Measurement answer;
    if (order.has_value()) answer.set_id(order->id());
    if (!text.empty()) {
      MergeText(text, answer);
    } else if (order.has_value() && order->has_link()) {
      *answer.add_links() =
          ToProto(LinkMeasurement{name, order->link().name(), 1e8, 1e-3, 0});
    }
    const auto kept = queue_.OnMeasurement(name, answer);
    Say(kept.has_value() ? "kept: " + kept->ShortDebugString() : "not kept");
  }
  bool DialOnce() {
    Assign();
    bool more = false;
    for (const auto& [name, state] : states_) {
      const auto order = queue_.OrderOf(name);
      if (!order.has_value() || !order->has_link()) continue;
      more = true;
      Say(absl::StrCat(name, " ", TextOf(*order)));
      const size_t told = out_.size();
      Answer(name, "");
      out_.resize(told);
    }
    return more;
  }

  void View(int64_t request) {
    const auto view = queue_.View(request, now_);
    if (!view.ok()) return Say(view.status().ToString());
    for (const auto& profile : view->profiles()) {
      Say("profile: " + profile.ShortDebugString());
    }
    for (const auto& link : view->links()) {
      Say("link: " + link.ShortDebugString());
    }
    for (const auto& file : view->missing()) {
      Say("missing: " + file.ShortDebugString());
    }
    for (const std::string& note : view->notes()) Say("note: " + note);
    for (const std::string& text : view->waiting()) Say("waits: " + text);
    for (const std::string& text : view->failed()) Say("failed: " + text);
  }

  std::vector<std::string> words_;
  std::string out_;
  MeasureQueue queue_;
  std::map<std::string, std::string> states_;
  Instant now_ = At(0);
};

TEST(MeasureQueue, TellsWhoMeasuresWhat) {
  ExpectAnswers("coordinator/measurements", [](const std::string& script) {
    return QueueScript().Play(script);
  });
}

}  // namespace
}  // namespace paceline
