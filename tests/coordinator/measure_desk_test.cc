#include "coordinator/measure_desk.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Instant At(double seconds) { return Instant() + absl::Seconds(seconds); }

std::vector<MeasureWorker> Workers(const std::vector<std::string>& names) {
  std::vector<MeasureWorker> workers;
  for (const std::string& name : names) {
    workers.push_back({name, name + ":1", /*live=*/true, /*busy=*/false});
  }
  return workers;
}

JobSpec Spec() {
  JobSpec spec;
  spec.model.name = "lenet";
  return spec;
}

Measurement Link(int64_t id, const std::string& from, const std::string& to) {
  Measurement measurement;
  measurement.id = id;
  measurement.links = {{from, to, 1e8, 1e-3, 0}, {to, from, 2e8, 1e-3, 0}};
  return measurement;
}

TEST(MeasureDesk, ProbesTheLinksOfAWorkerThatHasJoined) {
  MeasureDesk desk;

  desk.OnArrival("b", {"a", "b"});
  desk.Assign(Workers({"a", "b"}), At(0));

  const auto order = desk.OrderOf("b");
  ASSERT_TRUE(order.has_value());
  ASSERT_TRUE(order->link.has_value());
  EXPECT_EQ(order->link->name, "a");
  EXPECT_EQ(order->link->address, "a:1");
  EXPECT_FALSE(desk.OrderOf("a").has_value());
  EXPECT_FALSE(desk.Holds("b"));
}

TEST(MeasureDesk, MeasuresOneThingAWorkerAtATime) {
  MeasureDesk desk;
  desk.OnArrival("c", {"a", "b"});

  desk.Assign(Workers({"a", "b", "c"}), At(0));
  const int64_t first = desk.OrderOf("c")->id;
  EXPECT_TRUE(desk.OnMeasurement("c", Link(first, "c", "a")));
  desk.Assign(Workers({"a", "b", "c"}), At(1));

  ASSERT_TRUE(desk.OrderOf("c").has_value());
  EXPECT_EQ(desk.OrderOf("c")->link->name, "b");
}

TEST(MeasureDesk, TakesAnAnswerOnce) {
  MeasureDesk desk;
  desk.OnArrival("b", {"a"});
  desk.Assign(Workers({"a", "b"}), At(0));
  const int64_t id = desk.OrderOf("b")->id;

  EXPECT_FALSE(desk.OnMeasurement("a", Link(id, "b", "a")));
  EXPECT_FALSE(desk.OnMeasurement("b", Link(id + 1, "b", "a")));
  EXPECT_TRUE(desk.OnMeasurement("b", Link(id, "b", "a")));
  EXPECT_FALSE(desk.OnMeasurement("b", Link(id, "b", "a")));
}

// Kept all that an answer named, of whomever.
TEST(MeasureDesk, KeepsTheLinksThatItAskedForOneEachWay) {
  MeasureDesk desk;
  const int64_t request = desk.Request(Spec(), "avx2", {"a", "b"}, true);
  const std::vector<MeasureWorker> workers = Workers({"a", "b", "c"});
  desk.Assign(workers, At(0));
  for (const char* name : {"a", "b"}) {
    Measurement layers;
    layers.id = desk.OrderOf(name)->id;
    layers.links = {{name, "c", 3e8, 1e-3, 0}, {name, "", 3e8, 1e-3, 0}};
    const auto kept = desk.OnMeasurement(name, layers);
    ASSERT_TRUE(kept.has_value());
    EXPECT_THAT(kept->links, IsEmpty()) << "layers were asked for";
  }
  desk.Assign(workers, At(1));
  ASSERT_TRUE(desk.OrderOf("a").has_value());
  Measurement answer = Link(desk.OrderOf("a")->id, "a", "b");
  const std::vector<LinkMeasurement> asked_for = answer.links;
  answer.links.push_back({"a", "c", 3e8, 1e-3, 0});
  answer.links.push_back({"c", "b", 3e8, 1e-3, 0});
  answer.links.push_back({"b", "a", 3e8, 1e-3, 0});

  const auto kept = desk.OnMeasurement("a", answer);

  ASSERT_TRUE(kept.has_value());
  EXPECT_EQ(kept->links, asked_for);
  EXPECT_EQ(desk.View(request, At(0))->links, asked_for);
}

TEST(MeasureDesk, GivesWayToAJobAndGoesOnAfterIt) {
  MeasureDesk desk;
  desk.OnArrival("b", {"a"});
  std::vector<MeasureWorker> workers = Workers({"a", "b"});
  desk.Assign(workers, At(0));

  workers[0].busy = true;
  desk.Assign(workers, At(1));
  EXPECT_FALSE(desk.OrderOf("b").has_value());

  workers[0].busy = false;
  desk.Assign(workers, At(2));
  EXPECT_TRUE(desk.OrderOf("b").has_value());
}

TEST(MeasureDesk, PutsWhatAPersonAskedForFirst) {
  MeasureDesk desk;
  desk.OnArrival("b", {"a"});

  const int64_t id = desk.Request(Spec(), "avx2", {"b"}, false);
  desk.Assign(Workers({"a", "b"}), At(0));

  const auto order = desk.OrderOf("b");
  ASSERT_TRUE(order.has_value() && order->layers.has_value());
  EXPECT_EQ(order->cpu_capability, "avx2");
  EXPECT_TRUE(desk.Holds("b"));
  EXPECT_THAT(desk.View(id, At(0))->waiting,
              ElementsAre("layers on b: being measured"));
}

TEST(MeasureDesk, SaysWhatIsFinishedAndWhatNot) {
  MeasureDesk desk;
  const int64_t id = desk.Request(Spec(), "avx2", {"a", "b"}, true);
  const std::vector<MeasureWorker> workers = Workers({"a", "b"});
  desk.Assign(workers, At(0));
  Measurement layers;
  layers.id = desk.OrderOf("a")->id;
  layers.profile.emplace();
  layers.profile->key.device = "a";

  desk.OnMeasurement("a", layers);
  desk.Assign(workers, At(1));

  const auto view = desk.View(id, At(0));
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->profiles.size(), 1u);
  EXPECT_THAT(view->waiting,
              ElementsAre("layers on b: being measured",
                          "link a - b: waits for worker b: layers on b"));
}

TEST(MeasureDesk, FailsAloudWhatAPersonAskedForOfAWorkerThatStaysAway) {
  MeasureDesk desk;
  const int64_t id = desk.Request(Spec(), "avx2", {"a"}, false);
  std::vector<MeasureWorker> workers = Workers({"a"});
  desk.Assign(workers, At(0));
  workers[0].live = false;

  desk.Assign(workers, At(1));
  EXPECT_THAT(desk.View(id, At(0))->failed, IsEmpty());
  desk.Assign(workers, At(22));

  EXPECT_THAT(desk.View(id, At(0))->failed,
              ElementsAre("layers on a: worker a is gone"));
  EXPECT_THAT(desk.View(id, At(0))->waiting, IsEmpty());
}

TEST(MeasureDesk, GivesTheSameOrderToAWorkerThatCameBack) {
  MeasureDesk desk;
  desk.Request(Spec(), "avx2", {"a"}, false);
  std::vector<MeasureWorker> workers = Workers({"a"});
  desk.Assign(workers, At(0));
  const int64_t id = desk.OrderOf("a")->id;
  workers[0].live = false;
  desk.Assign(workers, At(1));

  desk.OnArrival("a", {});
  workers[0].live = true;
  desk.Assign(workers, At(3));

  ASSERT_TRUE(desk.OrderOf("a").has_value());
  EXPECT_EQ(desk.OrderOf("a")->id, id);
}

TEST(MeasureDesk, EndsWhatTakesTooLong) {
  MeasureDesk desk;
  const int64_t id = desk.Request(Spec(), "avx2", {"a", "b"}, true);
  const std::vector<MeasureWorker> workers = Workers({"a", "b"});
  desk.Assign(workers, At(0));
  Measurement failed;
  failed.error = absl::ResourceExhaustedError("no memory");
  for (const char* name : {"a", "b"}) {
    failed.id = desk.OrderOf(name)->id;
    desk.OnMeasurement(name, failed);
  }
  desk.Assign(workers, At(1));

  desk.Assign(workers, At(62));

  EXPECT_THAT(desk.View(id, At(0))->failed,
              ElementsAre("layers on a: no memory", "layers on b: no memory",
                          HasSubstr("link a - b: not finished after 1m")));
}

JobSpec Script() {
  JobSpec spec;
  spec.model.name = kScriptModel;
  spec.model.file = "/net.pt";
  return spec;
}

TEST(MeasureDesk, EndsTheLookIntoAScriptWhoseCodeDoesNot) {
  MeasureDesk desk;
  const int64_t id = desk.Request(Script(), "avx2", {"a"}, false);
  for (int second = 0; second < 300; second += 20) {
    desk.Assign(Workers({"a"}), At(second));
    EXPECT_THAT(desk.View(id, At(second))->failed, IsEmpty()) << second;
  }
  EXPECT_TRUE(desk.Holds("a"));

  desk.Assign(Workers({"a"}), At(300));

  EXPECT_THAT(desk.View(id, At(300))->failed,
              ElementsAre("layers on a: not finished after 5m: does the code "
                          "of the script come to an end?"));
  EXPECT_FALSE(desk.OrderOf("a").has_value());
}

TEST(MeasureDesk, LooksIntoNoScriptThatNobodyAsksForAnyMore) {
  MeasureDesk desk;
  const int64_t script = desk.Request(Script(), "avx2", {"a"}, false);
  const int64_t layers = desk.Request(Spec(), "avx2", {"b"}, false);
  desk.Assign(Workers({"a", "b"}), At(0));
  ASSERT_TRUE(desk.View(script, At(10)).ok());

  desk.Assign(Workers({"a", "b"}), At(39));
  EXPECT_TRUE(desk.OrderOf("a").has_value());
  desk.Assign(Workers({"a", "b"}), At(40));

  EXPECT_FALSE(desk.OrderOf("a").has_value());
  EXPECT_FALSE(desk.Holds("a"));
  EXPECT_THAT(desk.View(script, At(41))->failed,
              ElementsAre("layers on a: nobody waits for it any more"));
  EXPECT_TRUE(desk.OrderOf("b").has_value()) << "is kept for everybody";
  EXPECT_THAT(desk.View(layers, At(41))->failed, IsEmpty());
}

TEST(MeasureDesk, GivesUpWhatOneProcessAfterAnotherEndsOver) {
  MeasureDesk desk;
  const int64_t id = desk.Request(Spec(), "avx2", {"a"}, false);
  for (int process = 1; process <= 3; ++process) {
    desk.Assign(Workers({"a"}), At(process));
    EXPECT_TRUE(desk.OrderOf("a").has_value()) << process;
    desk.OnArrival("a", {});
  }

  desk.Assign(Workers({"a"}), At(4));

  EXPECT_FALSE(desk.OrderOf("a").has_value());
  EXPECT_THAT(desk.View(id, At(4))->failed,
              ElementsAre(HasSubstr("the worker's process ended 3 times")));
}

TEST(MeasureDesk, KnowsNoRequestThatNobodyMade) {
  EXPECT_TRUE(absl::IsNotFound(MeasureDesk().View(7, At(0)).status()));
}

}  // namespace
}  // namespace paceline
