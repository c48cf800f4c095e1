#include "coordinator/mesh/measure_queue.h"

#include "absl/strings/str_cat.h"
#include "core/rpc/convert/measurement_convert.h"
#include "core/rpc/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAreArray;

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

void AddLink(const std::string& from, const std::string& to,
             v1::Measurement& measurement) {
  *measurement.add_links() =
      ToProto(LinkMeasurement{from, to, 1e8, 1e-3, /*measured_unix_ms=*/0});
}

v1::Measurement Link(int64_t id, const std::string& from,
                     const std::string& to) {
  v1::Measurement measurement;
  measurement.set_id(id);
  AddLink(from, to, measurement);
  return measurement;
}

// Lists the pairs that dial, one after another until nothing is left.
std::vector<std::string> Dialled(MeasureQueue& queue,
                                 const std::vector<std::string>& names) {
  std::vector<std::string> dialled;
  for (bool more = true; more;) {
    more = false;
    queue.Assign(Workers(names), At(0));
    for (const std::string& name : names) {
      const auto order = queue.OrderOf(name);
      if (!order.has_value() || !order->link.has_value()) continue;
      more = true;
      EXPECT_EQ(order->link->address, order->link->name + ":1");
      dialled.push_back(absl::StrCat(name, " ", order->link->name));
      EXPECT_TRUE(
          queue.OnMeasurement(name, Link(order->id, name, order->link->name)));
    }
  }
  return dialled;
}

TEST(MeasureQueue, AWorkerThatHasJoinedDialsTheOthersAndTheyDialIt) {
  MeasureQueue queue;
  queue.OnArrival("b", {"a", "b"});

  EXPECT_THAT(Dialled(queue, {"a", "b"}), ElementsAre("a b", "b a"));

  queue.OnArrival("c", {"a", "b"});
  EXPECT_FALSE(queue.Holds("c"));
  EXPECT_THAT(Dialled(queue, {"a", "b", "c"}),
              ElementsAre("a c", "b c", "c a", "c b"));
}

v1::Measurement Failed(int64_t id, const absl::Status& error) {
  v1::Measurement failed;
  failed.set_id(id);
  SetError(error, failed);
  return failed;
}

TEST(MeasureQueue, KeepsThatALinkCannotBeDialled) {
  MeasureQueue queue;
  for (const auto& [error, kept] :
       {std::pair(absl::UnavailableError("refused"), true),
        {absl::DeadlineExceededError("no answer"), true},
        {absl::FailedPreconditionError("its own address"), true},
        {absl::CancelledError("the order has changed"), false},
        {absl::InvalidArgumentError("no number"), false}}) {
    queue.Redial("a", "b");
    queue.Assign(Workers({"a", "b"}), At(0));
    ASSERT_TRUE(queue.OrderOf("a").has_value());

    const auto answer =
        queue.OnMeasurement("a", Failed(queue.OrderOf("a")->id, error));

    ASSERT_EQ(answer.has_value(), kept) << error;
    if (!kept) continue;
    ASSERT_EQ(answer->links_size(), 1);
    EXPECT_EQ(answer->links(0).from(), "a");
    EXPECT_EQ(answer->links(0).to(), "b");
    EXPECT_EQ(answer->links(0).error(), error.message());
  }
}

TEST(MeasureQueue, DialsAgainOnceHoweverOftenThatIsAsked) {
  MeasureQueue queue;
  queue.Redial("a", "b");
  queue.Redial("a", "b");

  EXPECT_THAT(Dialled(queue, {"a", "b"}), ElementsAre("a b"));
}

TEST(MeasureQueue, DialsInTurnWhereOneTakesLong) {
  MeasureQueue queue;
  for (const char* const name : {"a", "b"}) queue.Redial(name, "silent");
  std::vector<std::string> dialled;
  for (int i = 0; i < 4; ++i) {
    queue.Assign(Workers({"a", "b", "silent"}), At(0));
    const std::string from = queue.OrderOf("a").has_value() ? "a" : "b";
    dialled.push_back(from);
    queue.Redial(from, "silent");
    queue.OnMeasurement(
        from, Failed(queue.OrderOf(from)->id, absl::UnavailableError("no")));
  }

  EXPECT_THAT(dialled, ElementsAre("a", "b", "a", "b"));
}

TEST(MeasureQueue, WorkersOfAPausedJobDialAndDoNothingElse) {
  MeasureQueue queue;
  queue.Redial("a", "b");
  queue.Request(Spec(), "avx2", {"a"}, /*links=*/false);
  std::vector<MeasureWorker> workers = Workers({"a", "b"});
  workers[0].busy = true;
  queue.Assign(workers, At(0));
  EXPECT_FALSE(queue.OrderOf("a").has_value());

  workers[0].paused = true;
  queue.Assign(workers, At(0));
  ASSERT_TRUE(queue.OrderOf("a").has_value());
  EXPECT_TRUE(queue.OrderOf("a")->link.has_value());
  queue.OnMeasurement("a", Link(queue.OrderOf("a")->id, "a", "b"));
  queue.Assign(workers, At(0));
  EXPECT_FALSE(queue.OrderOf("a").has_value()) << "the profile waits";
}

TEST(MeasureQueue, MeasuresTheLinksToThoseThatCameLastInALargeMesh) {
  MeasureQueue queue;
  std::vector<std::string> names;
  for (int i = 0; i < 100; ++i) names.push_back(absl::StrCat("w", i));
  queue.OnArrival("new", names);
  names.push_back("new");

  std::vector<std::string> expected;
  for (size_t i = 100 - kMostLinks; i < 100; ++i) {
    expected.push_back(absl::StrCat("new w", i));
    expected.push_back(absl::StrCat("w", i, " new"));
  }
  EXPECT_THAT(Dialled(queue, names), UnorderedElementsAreArray(expected));
}

TEST(MeasureQueue, TakesAnAnswerOnce) {
  MeasureQueue queue;
  queue.OnArrival("b", {"a"});
  queue.Assign(Workers({"a", "b"}), At(0));
  const int64_t id = queue.OrderOf("a")->id;

  EXPECT_FALSE(queue.OnMeasurement("b", Link(id, "a", "b")));
  EXPECT_FALSE(queue.OnMeasurement("a", Link(id + 1, "a", "b")));
  EXPECT_TRUE(queue.OnMeasurement("a", Link(id, "a", "b")));
  EXPECT_FALSE(queue.OnMeasurement("a", Link(id, "a", "b")));
}

// Kept all that an answer named, of whomever.
TEST(MeasureQueue, KeepsTheLinkThatItAskedForOnce) {
  MeasureQueue queue;
  const int64_t request = queue.Request(Spec(), "avx2", {"a", "b"}, true);
  const std::vector<MeasureWorker> workers = Workers({"a", "b", "c"});
  queue.Assign(workers, At(0));
  for (const char* name : {"a", "b"}) {
    v1::Measurement layers;
    layers.set_id(queue.OrderOf(name)->id);
    AddLink(name, "c", layers);
    AddLink(name, "", layers);
    const auto kept = queue.OnMeasurement(name, layers);
    ASSERT_TRUE(kept.has_value());
    EXPECT_THAT(kept->links(), IsEmpty()) << "layers were asked for";
  }
  queue.Assign(workers, At(1));
  ASSERT_TRUE(queue.OrderOf("a").has_value());
  v1::Measurement answer = Link(queue.OrderOf("a")->id, "a", "b");
  const v1::Measurement asked_for = answer;
  AddLink("a", "c", answer);
  AddLink("c", "b", answer);
  AddLink("b", "a", answer);
  AddLink("a", "b", answer);
  answer.mutable_links(4)->set_bytes_per_second(3e8);

  const auto kept = queue.OnMeasurement("a", answer);

  ASSERT_TRUE(kept.has_value());
  EXPECT_EQ(kept->DebugString(), asked_for.DebugString());
  EXPECT_EQ(queue.View(request, At(0))->links_size(), 1);
}

TEST(MeasureQueue, GivesWayToAJobAndGoesOnAfterIt) {
  MeasureQueue queue;
  queue.OnArrival("b", {"a"});
  std::vector<MeasureWorker> workers = Workers({"a", "b"});
  queue.Assign(workers, At(0));

  workers[0].busy = true;
  queue.Assign(workers, At(1));
  EXPECT_FALSE(queue.OrderOf("a").has_value());
  EXPECT_FALSE(queue.OrderOf("b").has_value());

  workers[0].busy = false;
  queue.Assign(workers, At(2));
  EXPECT_TRUE(queue.OrderOf("a").has_value() || queue.OrderOf("b").has_value());
}

TEST(MeasureQueue, PutsWhatAPersonAskedForFirst) {
  MeasureQueue queue;
  queue.OnArrival("b", {"a"});

  const int64_t id = queue.Request(Spec(), "avx2", {"b"}, false);
  queue.Assign(Workers({"a", "b"}), At(0));

  const auto order = queue.OrderOf("b");
  ASSERT_TRUE(order.has_value() && order->layers.has_value());
  EXPECT_EQ(order->cpu_capability, "avx2");
  EXPECT_TRUE(queue.Holds("b"));
  EXPECT_THAT(queue.View(id, At(0))->waiting(),
              ElementsAre("layers on b: being measured"));
}

TEST(MeasureQueue, SaysWhatIsFinishedAndWhatNot) {
  MeasureQueue queue;
  const int64_t id = queue.Request(Spec(), "avx2", {"a", "b"}, true);
  const std::vector<MeasureWorker> workers = Workers({"a", "b"});
  queue.Assign(workers, At(0));
  v1::Measurement layers;
  layers.set_id(queue.OrderOf("a")->id);
  layers.mutable_profile()->set_device("a");
  const JobSpec spec = Spec();
  layers.mutable_profile()->set_model(
      ModelKey(spec.model, spec.data.shape, spec.data.classes));

  queue.OnMeasurement("a", layers);
  queue.Assign(workers, At(1));

  const auto view = queue.View(id, At(0));
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->profiles_size(), 1);
  EXPECT_THAT(view->waiting(),
              ElementsAre("layers on b: being measured",
                          "link a to b: waits for worker b: layers on b",
                          "link b to a: waits for worker b: layers on b"));
}

TEST(MeasureQueue, FailsAloudWhatAPersonAskedForOfAWorkerThatStaysAway) {
  MeasureQueue queue;
  const int64_t id = queue.Request(Spec(), "avx2", {"a"}, false);
  std::vector<MeasureWorker> workers = Workers({"a"});
  queue.Assign(workers, At(0));
  workers[0].live = false;

  queue.Assign(workers, At(1));
  EXPECT_THAT(queue.View(id, At(0))->failed(), IsEmpty());
  queue.Assign(workers, At(22));

  EXPECT_THAT(queue.View(id, At(0))->failed(),
              ElementsAre("layers on a: worker a is gone"));
  EXPECT_THAT(queue.View(id, At(0))->waiting(), IsEmpty());
}

// A link whose other end is gone cannot be measured, and keeps nobody.
TEST(MeasureQueue, HoldsNobodyForAWorkerThatIsGone) {
  MeasureQueue queue;
  queue.Request(Spec(), "default", {"a", "b"}, /*links=*/true);
  std::vector<MeasureWorker> workers = Workers({"a", "b"});
  queue.Assign(workers, At(0));
  for (const char* name : {"a", "b"}) {
    v1::Measurement layers;
    layers.set_id(queue.OrderOf(name)->id);
    queue.OnMeasurement(name, layers);
  }
  queue.Assign(workers, At(1));
  ASSERT_TRUE(queue.Holds("a"));
  ASSERT_TRUE(queue.Holds("b"));

  workers[1].live = false;
  queue.Assign(workers, At(2));

  EXPECT_FALSE(queue.Holds("a"));
}

TEST(MeasureQueue, GivesTheSameOrderToAWorkerThatCameBack) {
  MeasureQueue queue;
  queue.Request(Spec(), "avx2", {"a"}, false);
  std::vector<MeasureWorker> workers = Workers({"a"});
  queue.Assign(workers, At(0));
  const int64_t id = queue.OrderOf("a")->id;
  workers[0].live = false;
  queue.Assign(workers, At(1));

  queue.OnArrival("a", {});
  workers[0].live = true;
  queue.Assign(workers, At(3));

  ASSERT_TRUE(queue.OrderOf("a").has_value());
  EXPECT_EQ(queue.OrderOf("a")->id, id);
}

TEST(MeasureQueue, EndsWhatTakesTooLong) {
  MeasureQueue queue;
  const int64_t id = queue.Request(Spec(), "avx2", {"a", "b"}, true);
  const std::vector<MeasureWorker> workers = Workers({"a", "b"});
  queue.Assign(workers, At(0));
  v1::Measurement failed;
  SetError(absl::ResourceExhaustedError("no memory"), failed);
  for (const char* name : {"a", "b"}) {
    failed.set_id(queue.OrderOf(name)->id);
    queue.OnMeasurement(name, failed);
  }
  queue.Assign(workers, At(1));

  queue.Assign(workers, At(62));

  EXPECT_THAT(queue.View(id, At(0))->failed(),
              ElementsAre("layers on a: no memory", "layers on b: no memory",
                          HasSubstr("link a to b: not finished after 1m")));
}

TEST(MeasureQueue, TellsWhichFilesWhichWorkerCannotRead) {
  MeasureQueue queue;
  v1::StartProfileRequest request;
  request.add_files("/data");
  request.add_files("/w");
  const int64_t id = queue.RequestFiles(request, {"a", "b"});
  const std::vector<MeasureWorker> workers = Workers({"a", "b"});
  queue.Assign(workers, At(0));
  EXPECT_THAT(
      queue.View(id, At(0))->waiting(),
      ElementsAre("files on a: being measured", "files on b: being measured"));
  ASSERT_TRUE(queue.OrderOf("a").has_value());
  EXPECT_THAT(queue.OrderOf("a")->files, ElementsAre("/data", "/w"));

  for (const char* name : {"a", "b"}) {
    v1::Measurement answer;
    answer.set_id(queue.OrderOf(name)->id);
    v1::MissingFile& missing = *answer.add_missing();
    missing.set_path("/w");
    missing.set_why("gone");
    missing.set_worker("somebody else");
    answer.add_notes("3 files are not used");
    if (*name == 'a') queue.OnMeasurement(name, answer);
  }
  // b says nothing.
  queue.Assign(workers, At(10));

  const auto view = queue.View(id, At(10));
  EXPECT_THAT(view->waiting(), IsEmpty());
  ASSERT_EQ(view->missing_size(), 1);
  EXPECT_EQ(view->missing(0).path(), "/w");
  EXPECT_EQ(view->missing(0).worker(), "a");
  EXPECT_THAT(view->notes(), ElementsAre("3 files are not used"));
  EXPECT_THAT(view->failed(),
              ElementsAre(HasSubstr("files on b: not finished after 10s")));
  EXPECT_FALSE(queue.Holds("b"));
}

JobSpec Script() {
  JobSpec spec;
  spec.model.name = kScriptModel;
  spec.model.file = "/net.pt";
  return spec;
}

TEST(MeasureQueue, EndsTheLookIntoAScriptWhoseCodeDoesNot) {
  MeasureQueue queue;
  const int64_t id = queue.Request(Script(), "avx2", {"a"}, false);
  for (int second = 0; second < 300; second += 20) {
    queue.Assign(Workers({"a"}), At(second));
    EXPECT_THAT(queue.View(id, At(second))->failed(), IsEmpty()) << second;
  }
  EXPECT_TRUE(queue.Holds("a"));

  queue.Assign(Workers({"a"}), At(300));

  EXPECT_THAT(queue.View(id, At(300))->failed(),
              ElementsAre("layers on a: not finished after 5m: does the code "
                          "of the script come to an end?"));
  EXPECT_FALSE(queue.OrderOf("a").has_value());
}

TEST(MeasureQueue, LooksIntoNoScriptThatNobodyAsksForAnyMore) {
  MeasureQueue queue;
  const int64_t script = queue.Request(Script(), "avx2", {"a"}, false);
  const int64_t layers = queue.Request(Spec(), "avx2", {"b"}, false);
  queue.Assign(Workers({"a", "b"}), At(0));
  ASSERT_TRUE(queue.View(script, At(10)).ok());

  queue.Assign(Workers({"a", "b"}), At(39));
  EXPECT_TRUE(queue.OrderOf("a").has_value());
  queue.Assign(Workers({"a", "b"}), At(40));

  EXPECT_FALSE(queue.OrderOf("a").has_value());
  EXPECT_FALSE(queue.Holds("a"));
  EXPECT_THAT(queue.View(script, At(41))->failed(),
              ElementsAre("layers on a: nobody waits for it any more"));
  EXPECT_TRUE(queue.OrderOf("b").has_value()) << "is kept for everybody";
  EXPECT_THAT(queue.View(layers, At(41))->failed(), IsEmpty());
}

TEST(MeasureQueue, GivesUpWhatOneProcessAfterAnotherEndsOver) {
  MeasureQueue queue;
  const int64_t id = queue.Request(Spec(), "avx2", {"a"}, false);
  for (int process = 1; process <= 3; ++process) {
    queue.Assign(Workers({"a"}), At(process));
    EXPECT_TRUE(queue.OrderOf("a").has_value()) << process;
    queue.OnArrival("a", {});
  }

  queue.Assign(Workers({"a"}), At(4));

  EXPECT_FALSE(queue.OrderOf("a").has_value());
  EXPECT_THAT(queue.View(id, At(4))->failed(),
              ElementsAre(HasSubstr("the worker's process ended 3 times")));
}

TEST(MeasureQueue, KnowsNoRequestThatNobodyMade) {
  EXPECT_TRUE(absl::IsNotFound(MeasureQueue().View(7, At(0)).status()));
}

}  // namespace
}  // namespace paceline
