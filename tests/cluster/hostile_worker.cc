// hostile_worker ADDRESS NAME JOB [TLS_FOLDER]: a worker that is welcome in the
// mesh, has no part in the job, and says what nobody gave out.  Prints how its
// uploads end, one code a line, and goes on until it is killed.
#include <poll.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "core/rpc/channel.h"
#include "core/rpc/status.h"
#include "core/rpc/tls.h"
#include "grpcpp/client_context.h"
#include "paceline/v1/coordinator.grpc.pb.h"

namespace paceline {
namespace {

constexpr int64_t kFarAway = int64_t{1} << 50;

v1::WorkerMessage HelloOf(const std::string& name) {
  v1::WorkerMessage hello;
  v1::Registration& registration = *hello.mutable_registration();
  registration.set_protocol_version(kProtocolVersion);
  registration.set_name(name);
  registration.set_machine_id("machine-of-" + name);
  registration.set_incarnation(getpid());
  registration.set_address("127.0.0.1:1");
  registration.set_http_address("127.0.0.1:1");
  registration.set_pid(getpid());
  registration.set_cpu_capability("default");
  registration.set_cpu_model("cpu");
  registration.set_architecture("x86_64");
  registration.set_cores(1);
  return hello;
}

// Claims of the attempt, in every field that has one.
v1::WorkerMessage ClaimsOf(int64_t sequence, int64_t job, int64_t attempt) {
  v1::WorkerMessage message;
  v1::Heartbeat& beat = *message.mutable_heartbeat();
  beat.set_sequence(sequence);
  beat.mutable_echo()->set_term(kFarAway);
  v1::RunState& run = *beat.mutable_run();
  run.set_job(job);
  run.set_attempt(attempt);
  run.set_plan_version(attempt);
  run.set_phase(v1::RunState::PHASE_DONE);
  run.set_step(kFarAway);
  run.set_steps(kFarAway);
  run.set_total_samples(1 << 30);
  beat.add_steps()->set_step(kFarAway);
  beat.add_evaluations()->set_step(kFarAway);
  v1::KeptState& kept = *beat.mutable_kept();
  kept.set_job(job);
  kept.set_attempt(attempt);
  kept.set_applied(kFarAway);
  v1::PiecesHeld::OfJob& pieces = *beat.mutable_pieces()->add_jobs();
  pieces.set_job(job);
  pieces.mutable_floor()->set_attempt(attempt);
  pieces.mutable_floor()->set_step(kFarAway);
  v1::PiecesHeld::HeldCut& held = *pieces.add_cuts();
  *held.mutable_cut() = pieces.floor();
  held.add_layers()->set_last(64);
  return message;
}

absl::Status Upload(v1::Coordinator::Stub& stub, int64_t job, int64_t attempt) {
  grpc::ClientContext context;
  v1::WeightsReceipt receipt;
  const auto writer = stub.UploadWeights(&context, &receipt);
  v1::WeightsPiece piece;
  piece.set_job(job);
  piece.set_attempt(attempt);
  piece.set_plan_version(attempt);
  piece.set_tensor("net.fc3.bias");
  piece.set_data(std::string(4, 'x'));
  writer->Write(piece);
  writer->WritesDone();
  return FromGrpc(writer->Finish());
}

int Main(int argc, char** argv) {
  if (argc < 4) return 2;
  const int64_t job = std::strtoll(argv[3], nullptr, 10);
  if (argc > 4) {
    const absl::Status used = UseTls(TlsFiles(argv[4]));
    if (!used.ok()) {
      std::fprintf(stderr, "%s\n", used.ToString().c_str());
      return 1;
    }
  }
  const auto channel = MakeChannel(argv[1], Role::kCoordinator);
  const auto stub = v1::Coordinator::NewStub(channel);
  grpc::ClientContext context;
  const auto stream = stub->Attach(&context);
  stream->Write(HelloOf(argv[2]));
  v1::CoordinatorMessage answer;
  if (!stream->Read(&answer)) {
    std::fprintf(stderr, "%s\n", stream->Finish().error_message().c_str());
    return 1;
  }
  for (int64_t i = 0;; ++i) {
    const int64_t attempts[] = {kFarAway, 1, 2, 3};
    if (!stream->Write(ClaimsOf(i + 1, job, attempts[i % 4]))) return 0;
    if (i < 4) {
      std::printf("%s\n", absl::StatusCodeToString(
                              Upload(*stub, job, attempts[i]).code())
                              .c_str());
      std::fflush(stdout);
    }
    poll(nullptr, 0, 50);
  }
}

}  // namespace
}  // namespace paceline

int main(int argc, char** argv) { return paceline::Main(argc, argv); }
