#include "core/obs/http_server.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/os/thread.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

// A resolver that answers when it is told to: this machine's domain is
// "domain.example".
std::atomic<int> questions = 0;
std::atomic<bool> resolver_answers = false;

std::string OwnLabel() {
  char name[256] = {};
  EXPECT_EQ(gethostname(name, sizeof(name) - 1), 0);
  const std::string own = name;
  return own.substr(0, own.find('.'));
}

}  // namespace
}  // namespace paceline

// These take the place of libc's.
extern "C" int getaddrinfo_a(int /*mode*/, gaicb* list[], int /*entries*/,
                             sigevent* /*unused*/) {
  ++paceline::questions;
  EXPECT_EQ(list[0]->ar_request->ai_flags, AI_CANONNAME);
  EXPECT_EQ(getaddrinfo("127.0.0.1", nullptr, list[0]->ar_request,
                        &list[0]->ar_result),
            0);
  char*& name = list[0]->ar_result->ai_canonname;
  std::free(name);
  name = strdup((paceline::OwnLabel() + ".Domain.example").c_str());
  return 0;
}
extern "C" int gai_error(gaicb* /*question*/) noexcept {
  return paceline::resolver_answers ? 0 : EAI_INPROGRESS;
}

namespace paceline {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A client's connection to 127.0.0.1.
class Client {
 public:
  explicit Client(int port)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address),
                         sizeof(address)) == 0;
  }
  ~Client() { close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }

  // False when the server has hung up.
  bool Send(const std::string& text) {
    size_t sent = 0;
    while (sent < text.size()) {
      const ssize_t count =
          send(fd_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return false;
      sent += static_cast<size_t>(count);
    }
    return true;
  }

  void FinishSending() { shutdown(fd_, SHUT_WR); }

  // All until the server hangs up; "(timed out)" after 10 s of silence.
  std::string Receive() { return ReceiveUntil("(never)"); }
  // The same, but no more than is there once this is.
  std::string ReceiveUntil(const std::string& end) {
    std::string all;
    char buffer[4096];
    while (true) {
      pollfd entry{.fd = fd_, .events = POLLIN, .revents = 0};
      if (poll(&entry, 1, 10'000) <= 0) return all + "(timed out)";
      const ssize_t got = recv(fd_, buffer, sizeof(buffer), 0);
      if (got <= 0) return all;
      all.append(buffer, static_cast<size_t>(got));
      if (absl::StrContains(all, end)) return all;
    }
  }

 private:
  const int fd_;
  bool connected_ = false;
};

std::string Ask(int port, const std::string& request) {
  Client client(port);
  client.Send(request);
  return client.Receive();
}

std::string Fetch(int port, const std::string& path,
                  const std::string& headers = "") {
  return Ask(port, absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: x\r\n",
                                headers, "\r\n"));
}

// A server that serves "hello" at /hello; 0 when it did not start.
int StartHello(HttpServer& server) {
  server.Get("/hello", [] { return HttpAnswer{.body = "hello"}; });
  const absl::StatusOr<int> port = server.Start("127.0.0.1", 0);
  EXPECT_TRUE(port.ok()) << port.status();
  return port.value_or(0);
}

// A server that serves /hello.
class HelloServer : public ::testing::Test {
 protected:
  HttpServer server;
  const int port = StartHello(server);
};

TEST(HttpServer, ServesWhatAHandlerAnswers) {
  HttpServer server;
  server.Get("/healthz", [] {
    return HttpAnswer{.status = 503,
                      .body = "{\"ready\": false}",
                      .content_type = "application/json"};
  });
  const int port = StartHello(server);

  const std::string hello = Fetch(port, "/hello");
  const std::string health = Fetch(port, "/healthz");

  EXPECT_THAT(hello, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(hello, HasSubstr("Content-Type: text/plain; charset=utf-8\r\n"));
  EXPECT_THAT(hello, EndsWith("\r\n\r\nhello"));
  EXPECT_THAT(health, StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(health, HasSubstr("Content-Type: application/json\r\n"));
  EXPECT_THAT(health, EndsWith("\r\n\r\n{\"ready\": false}"));
}

TEST(HttpServer, CallsTheHandlerForEveryRequest) {
  HttpServer server;
  int calls = 0;
  server.Get("/calls", [&] {
    return HttpAnswer{.body = absl::StrCat("calls=", ++calls)};
  });
  const int port = StartHello(server);

  EXPECT_THAT(Fetch(port, "/calls"), EndsWith("calls=1"));
  EXPECT_THAT(Fetch(port, "/calls?x=y"), EndsWith("calls=2"));
}

// A server that is called x.example, besides its own names.
class NamedServer : public ::testing::Test {
 protected:
  NamedServer() {
    for (const char* path : {"/metrics", "/healthz", "/readyz"}) {
      server_.Get(path, [] { return HttpAnswer{.body = "answered"}; });
    }
    server_.AllowHosts({"X.example."});
    port_ = server_.Start("127.0.0.1", 0).value();
  }
  // The status of GET.
  std::string Get(const std::string& target, const std::string& headers,
                  const std::string& version = "1.1") {
    return Ask(port_, absl::StrCat("GET ", target, " HTTP/", version, "\r\n",
                                   headers, "\r\n"))
        .substr(9, 3);
  }
  std::string GetFrom(const std::string& host) {
    return Get("/metrics", absl::StrCat("Host: ", host, "\r\n"));
  }

 private:
  HttpServer server_;
  int port_ = 0;
};

TEST_F(NamedServer, AnswersToAddressesAndNamesOfItsOwn) {
  char name[256] = {};
  ASSERT_EQ(gethostname(name, sizeof(name) - 1), 0);
  const std::string own = name;
  for (const std::string& host :
       {std::string("127.0.0.1"), std::string("192.0.2.1:7480"),
        std::string("[::1]"), std::string("[2001:db8::1]:80"),
        std::string("[fe80::1%eth0]:80"), std::string("localhost"),
        std::string("LocalHost.:7480"), std::string("x.example"),
        std::string("X.EXAMPLE:1"), own, own + ":7480",
        own.substr(0, own.find('.')) + ".local"}) {
    EXPECT_EQ(GetFrom(host), "200") << host;
  }
}

TEST_F(NamedServer, AnswersToItsNameWithADomainAndWaitsForNoResolver) {
  const int before = questions;
  const std::string own = OwnLabel() + ".domain.example";
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(GetFrom(absl::StrCat(OwnLabel(), ".", i)), "421");
  }
  EXPECT_EQ(GetFrom(own), "421");
  EXPECT_LE(questions, before + 1) << "unless this took a minute";

  resolver_answers = true;

  EXPECT_EQ(GetFrom(own), "200");
  EXPECT_EQ(GetFrom(own + ":7480"), "200");
  EXPECT_EQ(GetFrom(OwnLabel() + ".other.example"), "421");
  EXPECT_GT(questions, 0);
}

TEST_F(NamedServer, AnswersToNoNameThatAStrangerMayHave) {
  for (const std::string host :
       {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example",
        "x.example.evil.example", "y.x.example", "evil.example:7480",
        "127.0.0.1:evil.example", "[::1].evil.example", "[::1", "[evil]",
        "localhost@evil.example", "localhost%.evil.example",
        "localhost, evil.example", "2130706433", ".", ":7480", ""}) {
    EXPECT_EQ(GetFrom(host), "421") << host;
  }
  char name[256] = {};
  ASSERT_EQ(gethostname(name, sizeof(name) - 1), 0);
  EXPECT_EQ(GetFrom(absl::StrCat(name, ".evil.example")), "421");
}

TEST(HttpServer, SaysHowToGiveItAName) {
  HttpServer server;
  server.AllowHosts({});
  const int port = StartHello(server);

  const std::string refused = Fetch(port, "/hello");

  EXPECT_THAT(refused, StartsWith("HTTP/1.1 421 Misdirected Request"));
  EXPECT_THAT(refused, HasSubstr("--http-host NAME"));
}

TEST_F(NamedServer, ProbesAreAnsweredWhateverTheName) {
  for (const char* path : {"/healthz", "/readyz"}) {
    EXPECT_EQ(Get(path, "Host: evil.example\r\n"), "200") << path;
    EXPECT_EQ(Get(path, ""), "200") << path;
  }
}

TEST_F(NamedServer, OneHostIsNamedOnceAndByNobodyElse) {
  const std::string own = "Host: localhost\r\n";
  const std::string evil = "Host: evil.example\r\n";
  EXPECT_EQ(Get("/metrics", own + own), "421");
  EXPECT_EQ(Get("/metrics", own + evil), "421");
  EXPECT_EQ(Get("/metrics", ""), "421");
  EXPECT_EQ(Get("/metrics", "", "1.0"), "200") << "no browser speaks it";
  EXPECT_EQ(Get("/metrics", evil, "1.0"), "421");
  EXPECT_EQ(Get("/metrics", own + "X-Forwarded-Host: evil.example\r\n"), "200");
  EXPECT_EQ(Get("/metrics", evil + "X-Forwarded-Host: localhost\r\n"), "421");
}

TEST_F(NamedServer, AnAbsoluteTargetIsNoPage) {
  EXPECT_EQ(Get("http://localhost/metrics", "Host: localhost\r\n"), "404");
  EXPECT_EQ(Get("http://evil.example/metrics", "Host: localhost\r\n"), "404");
  EXPECT_EQ(Get("http://localhost/metrics", "Host: evil.example\r\n"), "421");
}

TEST_F(HelloServer, AnswersHeadWithoutTheBody) {
  const std::string answer =
      Ask(port, "HEAD /hello HTTP/1.1\r\nHost: x\r\n\r\n");

  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Length: 5\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\n"));
}

TEST_F(HelloServer, KnowsOnlyItsOwnPages) {
  for (const std::string path :
       {"/", "/hell", "/hello/", "/hellooo", "/HELLO", "/../etc/passwd"}) {
    EXPECT_THAT(Fetch(port, path), StartsWith("HTTP/1.1 404 ")) << path;
  }
}

TEST_F(HelloServer, RefusesOtherMethodsAndTheirBodies) {
  for (const std::string method : {"POST", "PUT", "DELETE", "OPTIONS"}) {
    const std::string answer = Ask(port, method +
                                             " /hello HTTP/1.1\r\nHost: x\r\n"
                                             "Content-Length: 3\r\n\r\nabc");

    EXPECT_THAT(answer, StartsWith("HTTP/1.1 405 ")) << method;
    EXPECT_THAT(answer, HasSubstr("Allow: GET, HEAD\r\n")) << method;
  }
}

TEST_F(HelloServer, SendsTheWholeBodyHoweverManyRangesAreAskedFor) {
  std::string ranges = "0-0";
  for (int i = 0; i < 1000; ++i) ranges += ",0-";

  const std::string answer =
      Fetch(port, "/hello", "Range: bytes=" + ranges + "\r\n");

  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\nhello"));
}

TEST_F(HelloServer, SurvivesWhatIsNotHttp) {
  for (const std::string& junk :
       {std::string("\r\n\r\n"), std::string("GET\r\n\r\n"),
        std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11),
        std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), std::string(4096, 0),
        "GET /" + std::string(20'000, 'a') + " HTTP/1.1\r\n\r\n",
        std::string("GET /hello HTTP/1.1\r\nRange: bytes=9-x\r\n\r\n"),
        std::string("GET /%00%ff%zz HTTP/1.1\r\n\r\n")}) {
    Client client(port);
    client.Send(junk);
    client.FinishSending();
    EXPECT_FALSE(absl::EndsWith(client.Receive(), "(timed out)"));
  }

  EXPECT_THAT(Fetch(port, "/hello"), EndsWith("hello"));
}

TEST_F(HelloServer, HangsUpOnARequestAboveSixtyFourKibibytes) {
  Client client(port);
  client.Send("GET /hello HTTP/1.1\r\n");

  // Every line is short; there are far too many.
  bool taken = true;
  for (int i = 0; i < 1'000'000 && taken; ++i) {
    taken =
        client.Send("X-Header: 0123456789012345678901234567890123456789\r\n");
  }

  EXPECT_FALSE(taken) << "48 MB of headers were read";
}

TEST_F(HelloServer, HangsUpOnARequestThatTakesAboveFiveSeconds) {
  Client client(port);
  client.Send("GET /hello HT");  // and never the rest

  EXPECT_EQ(client.Receive(), "");
}

// How long /hello takes while `clients` have sent `request` and nothing else.
absl::Duration HelloBeside(int port, int clients, const std::string& request) {
  std::vector<std::unique_ptr<Client>> others;
  for (int i = 0; i < clients; ++i) {
    others.push_back(std::make_unique<Client>(port));
    others.back()->Send(request);
  }
  const Instant before = SteadyNow();
  EXPECT_THAT(Fetch(port, "/hello"), EndsWith("hello"));
  return SteadyNow() - before;
}

TEST(HttpServer, AnswersWithinASecondBesideTwentyClientsThatAreSlow) {
  HttpServer server;
  server.Get("/long",
             [] { return HttpAnswer{.body = std::string(200'000, 'x')}; });
  const int port = StartHello(server);
  for (const char* request :
       {"", "GET /hello HT",
        "POST /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n",
        // Nothing of the answer is read.
        "GET /long HTTP/1.1\r\nHost: x\r\n\r\n"}) {
    EXPECT_LT(HelloBeside(port, 20, request), absl::Seconds(1)) << request;
  }
}

TEST_F(HelloServer, HangsUpOnTheOldestOfTooManyHalfRequests) {
  Client oldest(port);
  oldest.Send("GET /hello HT");

  const Instant before = SteadyNow();
  HelloBeside(port, 300, "GET /hello HT");

  EXPECT_EQ(oldest.Receive(), "");
  EXPECT_LT(SteadyNow() - before, absl::Seconds(4)) << "it was the time limit";
}

TEST_F(HelloServer, TakesARequestThatComesInPieces) {
  Client client(port);
  for (const char* piece :
       {"GET /hel", "lo HTTP/1.1\r\nHost: x\r", "\n\r", "\n"}) {
    client.Send(piece);
  }

  EXPECT_THAT(client.Receive(), EndsWith("hello"));
}

TEST_F(HelloServer, AnswersMoreClientsThanItHasThreads) {
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 50; ++i) {
    clients.push_back(std::make_unique<Client>(port));
    clients.back()->Send("GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
  }

  for (auto& client : clients) {
    EXPECT_THAT(client->Receive(), EndsWith("hello"));
  }
}

TEST(HttpServer, SaysThatAPortIsInUseAndNamesTheFlag) {
  HttpServer first;
  const int port = StartHello(first);

  HttpServer second;
  const absl::Status status = second.Start("127.0.0.1", port).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(),
            absl::StrCat("port ", port,
                         " on 127.0.0.1 is in use: stop the other process or "
                         "choose another with --http HOST:PORT"));
}

TEST(HttpServer, SaysThatAnAddressIsNotOurs) {
  HttpServer server;

  // 192.0.2.0/24 is for documentation (RFC 5737): nobody's.
  const absl::Status status = server.Start("192.0.2.1", 0).status();

  ExpectError(status, absl::StatusCode::kUnavailable, HasSubstr("192.0.2.1"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("--http"));
}

TEST(HttpServer, ReachesIpv4ForLocalhostAndForAnEmptyHost) {
  for (const char* host : {"", "localhost"}) {
    HttpServer server;
    server.Get("/hello", [] { return HttpAnswer{.body = "hello"}; });

    const auto port = Value(server.Start(host, 0));

    EXPECT_THAT(Fetch(port, "/hello"), EndsWith("hello")) << host;
  }
}

TEST_F(HelloServer, StopsAtOnceWhateverItsClientsDo) {
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 30; ++i) {
    clients.push_back(std::make_unique<Client>(port));
    clients.back()->Send("GET /hello HT");  // and never the rest
  }

  const Instant before = SteadyNow();
  server.Stop();
  const absl::Duration took = SteadyNow() - before;

  // Waiting for one request would take its 5 seconds.
  EXPECT_LT(took, absl::Seconds(3));
  EXPECT_FALSE(Client(port).connected());
}

TEST(HttpServer, WaitsForARunningHandlerWhenItStops) {
  SteadyNotification entered;
  SteadyNotification leave;
  bool left = false;
  HttpServer server;
  server.Get("/slow", [&] {
    entered.Notify();
    leave.WaitForNotification();
    left = true;
    return HttpAnswer{};
  });
  const int port = StartHello(server);
  Client client(port);
  client.Send("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n");
  entered.WaitForNotification();
  Thread opener("opener", [&] { leave.Notify(); });

  server.Stop();

  EXPECT_TRUE(left);
}

// Counts to `count`; then `nothing` empty waits; then the end.
class CountingSource final : public EventSource {
 public:
  CountingSource(int count, int nothing) : count_(count), nothing_(nothing) {}
  const std::string* Next() override {
    if (next_ == count_ && nothing_-- <= 0) return nullptr;
    event_ = next_ == count_ ? "" : absl::StrCat(++next_);
    if (event_.empty()) {
      SteadyNotification never;
      never.WaitFor(absl::Milliseconds(10));
    }
    return &event_;
  }

 private:
  const int count_;
  int nothing_;
  int next_ = 0;
  std::string event_;
};

// A server whose /watch counts.
int StartCounting(HttpServer& server, int count, int nothing) {
  server.GetEvents("/watch", [=] {
    return std::make_unique<CountingSource>(count, nothing);
  });
  return StartHello(server);
}

TEST(HttpEvents, AreSentOneByOneAndASignOfLifeMeanwhile) {
  HttpServer server;
  const int port = StartCounting(server, 2, 1);

  const std::string answer = Fetch(port, "/watch");

  EXPECT_THAT(answer, HasSubstr("Content-Type: text/event-stream\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Security-Policy: default-src 'self'"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\ndata: 1\n\ndata: 2\n\n:\n\n"));
}

TEST(HttpEvents, AreRefusedToTooManyClientsAndDelayNoOtherPage) {
  HttpServer server;
  const int port = StartCounting(server, 1, 1'000'000);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 24; ++i) {
    clients.push_back(std::make_unique<Client>(port));
    clients.back()->Send("GET /watch HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_THAT(clients.back()->ReceiveUntil("data: 1"), HasSubstr("200 OK"));
  }

  EXPECT_THAT(Fetch(port, "/watch"), StartsWith("HTTP/1.1 503 "));
  EXPECT_LT(HelloBeside(port, 20, ""), absl::Seconds(1));

  // One leaves, another one may come.
  clients.pop_back();
  for (std::string answer; !absl::StrContains(answer, "data: 1");) {
    Client another(port);
    another.Send("GET /watch HTTP/1.1\r\nHost: x\r\n\r\n");
    answer = another.ReceiveUntil("\n\n");
  }
}

TEST(HttpEvents, AreNotWaitedForByAServerThatStops) {
  HttpServer server;
  const int port = StartCounting(server, 1, 1'000'000);
  Client client(port);
  client.Send("GET /watch HTTP/1.1\r\nHost: x\r\n\r\n");
  client.ReceiveUntil("data: 1");

  const Instant before = SteadyNow();
  server.Stop();

  EXPECT_LT(SteadyNow() - before, absl::Seconds(3));
}

TEST(HttpServer, GivesItsPortBackWhenItStopsOnceOrTwice) {
  HttpServer never_started;
  never_started.Stop();
  HttpServer first;
  const int port = StartHello(first);
  EXPECT_THAT(Fetch(port, "/hello"), EndsWith("hello"));
  first.Stop();
  first.Stop();

  HttpServer second;
  const auto again = Value(second.Start("127.0.0.1", port));

  EXPECT_EQ(again, port);
}

}  // namespace
}  // namespace paceline
