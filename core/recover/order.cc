#include "core/recover/order.h"

namespace paceline {

JobReport Believed(JobReport report, OrderNumber newest,
                   std::optional<int64_t> attempt) {
  if (report.echo > newest) report.echo = {};
  const auto unheard_of = [&attempt](int64_t said) {
    return !attempt.has_value() || said > *attempt;
  };
  if (unheard_of(report.attempt)) {
    report.attempt = report.step = 0;
    report.phase = WorkPhase::kIdle;
    report.error = absl::OkStatus();
    report.kept.reset();
  }
  if (unheard_of(report.floor.attempt)) report.floor = {};
  if (report.pieces.has_value()) {
    std::erase_if(*report.pieces, [&unheard_of](const Piece& piece) {
      return unheard_of(piece.cut.attempt);
    });
  }
  return report;
}

}  // namespace paceline
