#include "client/commands/predict_fit.h"

#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client/commands/command.h"
#include "client/files/whole_file.h"
#include "client/render/table.h"
#include "client/render/text.h"
#include "core/base/status_macros.h"

namespace paceline {
namespace {

absl::StatusOr<TimePredictor> FitFiles(const std::vector<std::string>& files) {
  std::vector<TimingTable> tables;
  for (const std::string& file : files) {
    PACELINE_ASSIGN_OR_RETURN(const std::string text,
                              ReadWholeFile(file, kMaxTimingFileBytes));
    PACELINE_ASSIGN_OR_RETURN(TimingTable table, ParseTimingCsv(file, text));
    tables.push_back(std::move(table));
  }
  PACELINE_ASSIGN_OR_RETURN(CurveSet set, BuildCurves(tables));
  return TimePredictor(std::move(set));
}

struct Asked {
  std::string at;
  TimePrediction prediction;
};

absl::StatusOr<std::vector<Asked>> Ask(const TimePredictor& predictor,
                                       const std::vector<std::string>& at) {
  std::vector<Asked> asked;
  for (const std::string& text : at) {
    PACELINE_ASSIGN_OR_RETURN(const TimeQuery query, ParseTimeQuery(text));
    PACELINE_ASSIGN_OR_RETURN(const TimePrediction prediction,
                              predictor.Predict(query));
    asked.push_back({text, prediction});
  }
  return asked;
}

// --- documents --------------------------------------------------------------

// `error` after the keys of `before`.
Document WithError(Document before, const RelativeError& error) {
  before["mean_relative_error"] = error.mean;
  before["median_relative_error"] = error.median;
  return before;
}

Document ToDocument(const Evaluation& result, const std::vector<Asked>& asked) {
  Document document = WithError({{"points", result.points}}, result.predicted);
  document["heldout_curves"] = WithError(
      {{"curves", result.heldout_curves}, {"points", result.heldout_points}},
      result.heldout);
  document["heldout_curves"]["interval_coverage"] = result.heldout_coverage;
  document["line"] = WithError({}, result.line);
  Document& decades = document["decades"] = Document::array();
  for (const DecadeError& decade : result.decades) {
    decades.push_back(WithError({{"size", decade.size_column},
                                 {"from", decade.from},
                                 {"to", decade.to},
                                 {"points", decade.points}},
                                decade.predicted));
    decades.back()["line"] = WithError({}, decade.line);
  }
  document["interval_level"] = kIntervalLevel;
  document["interval_coverage"] = result.interior_coverage;
  document["curves"] = result.curves;
  document["copied_curves"] = result.copied_curves;
  document["measured_points"] = result.measured_points;
  document["dropped_rows"] = result.dropped_rows;
  document["sampled"] = result.sampled;
  Document& predictions = document["predictions"] = Document::array();
  for (const Asked& one : asked) {
    predictions.push_back(
        Document{{"at", one.at},
                 {"seconds", one.prediction.seconds},
                 {"low_seconds", one.prediction.low_seconds},
                 {"high_seconds", one.prediction.high_seconds},
                 {"basis", std::string(TimeBasisName(one.prediction.basis))}});
  }
  return document;
}

// --- tables -----------------------------------------------------------------

// "1.88 %"; "-" where nothing was measured.
std::string Percent(double part) {
  if (std::isnan(part)) return "-";
  return absl::StrFormat("%.3g %%", 100 * part);
}

std::string ErrorText(const RelativeError& error) {
  return absl::StrCat("mean ", Percent(error.mean), ", median ",
                      Percent(error.median));
}

std::string DecadesTable(const std::vector<DecadeError>& decades) {
  constexpr Table::Align kRight = Table::Align::kRight;
  Table table({{"size"},
               {"from", kRight},
               {"to", kRight},
               {"points", kRight},
               {"mean error", kRight},
               {"median", kRight},
               {"line's mean", kRight},
               {"line's median", kRight}});
  for (const DecadeError& decade : decades) {
    table.AddRow({decade.size_column, HumanNumber(decade.from),
                  HumanNumber(decade.to), absl::StrCat(decade.points),
                  Percent(decade.predicted.mean),
                  Percent(decade.predicted.median), Percent(decade.line.mean),
                  Percent(decade.line.median)});
  }
  return table.Render();
}

std::string PredictionsTable(const std::vector<Asked>& asked) {
  constexpr Table::Align kRight = Table::Align::kRight;
  Table table({{"at"},
               {"seconds", kRight},
               {"from", kRight},
               {"to", kRight},
               {"basis"}});
  for (const Asked& one : asked) {
    table.AddRow({one.at, HumanNumber(one.prediction.seconds),
                  HumanNumber(one.prediction.low_seconds),
                  HumanNumber(one.prediction.high_seconds),
                  std::string(TimeBasisName(one.prediction.basis))});
  }
  return table.Render();
}

std::string Render(const Evaluation& result, const std::vector<Asked>& asked) {
  std::string text = DecadesTable(result.decades);
  absl::StrAppend(
      &text, "\n",
      RenderFacts(
          {{"points left out",
            absl::StrCat(result.points, ": ", ErrorText(result.predicted))},
           {"one line a curve", ErrorText(result.line)},
           {"curves left out",
            absl::StrCat(result.heldout_curves, " (", result.heldout_points,
                         " points): ", ErrorText(result.heldout))},
           {"in their interval",
            absl::StrCat("points ", Percent(result.interior_coverage),
                         ", curves ", Percent(result.heldout_coverage),
                         ", meant ", Percent(kIntervalLevel))},
           {"fitted", absl::StrCat(result.measured_points, " points of ",
                                   result.curves, " curves, of which ",
                                   result.copied_curves, " copy another")}}));
  if (!asked.empty()) {
    absl::StrAppend(&text, "\n", PredictionsTable(asked));
  }
  return text;
}

void NoteWhatWasLeft(Console& console, const Evaluation& result) {
  if (result.dropped_rows > 0) {
    console.Note(absl::StrCat(
        "note: ", result.dropped_rows,
        " rows have a time that is not finite and positive; left aside"));
  }
  if (result.sampled) {
    console.Note(absl::StrCat("note: not all points were left out, but ",
                              result.points, ", evenly taken"));
  }
}

}  // namespace

absl::StatusOr<TimeQuery> ParseTimeQuery(absl::string_view text) {
  const auto error = [&](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("--at ", Printable(text), ": ", what));
  };
  TimeQuery query;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (pair.first.empty() || pair.first.size() == part.size()) {
      return error(absl::StrCat("'", Printable(part),
                                "' is not of the form COLUMN=VALUE"));
    }
    if (!IsSizeColumn(pair.first)) {
      query.features.emplace_back(pair.first, pair.second);
      continue;
    }
    if (!query.size_column.empty()) {
      return error(absl::StrCat("has two sizes, ", query.size_column, " and ",
                                pair.first));
    }
    query.size_column = std::string(pair.first);
    if (!absl::SimpleAtod(pair.second, &query.size)) {
      return error(absl::StrCat(pair.first, " '", Printable(pair.second),
                                "' is no number"));
    }
  }
  if (query.size_column.empty()) {
    return error("needs a size, as elements=4096");
  }
  return query;
}

ExitCode PredictFitCommand(Console& console, const PredictFitOptions& options) {
  const auto predictor = FitFiles(options.files);
  if (!predictor.ok()) return ReportError(console, predictor.status());
  const auto asked = Ask(*predictor, options.at);
  if (!asked.ok()) return ReportError(console, asked.status());
  const Evaluation& result = predictor->evaluation();
  NoteWhatWasLeft(console, result);
  if (console.table()) {
    console.Print(Render(result, *asked));
  } else {
    console.Print(ToDocument(result, *asked));
  }
  return kExitOk;
}

}  // namespace paceline
