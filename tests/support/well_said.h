// Finds what no message may say, whatever it is about.
#pragma once

#include <regex>
#include <string>

namespace paceline {

// The first fault of `text` with its surroundings; empty: there is none.
// Faults: a plural after 1 ("1 devices"), and punctuation of two sentences that
// were put together ("may differ.;").
inline std::string IllSaid(std::string text) {
  // A page begins with its style, which is no message, and has entities.
  const size_t style = text.find("</style>");
  if (style != std::string::npos) text = text.substr(style);
  text = std::regex_replace(text, std::regex("&#?\\w+;"), "'");
  static const std::regex kPlural(
      R"((^|[^\w.,/:+-])1 (answer|attempt|block|channel|class(?=es)|core|curve|)"
      R"(cut|device|file|head|image|job|label|layer|level|line|link|)"
      R"(machine|measurement|member|micro-batch(?=es)|node|number|part|piece|)"
      R"(plan|point|profile|replica|round|row|run|sample|shard|stage|state|)"
      R"(step|tensor|text|thread|time|token|trial|update|value|worker)e?s\b)");
  static const std::regex kPunctuation(R"([.;,:] ?;|; ?[.,;]|:\.)");
  for (const std::regex* const fault : {&kPlural, &kPunctuation}) {
    std::smatch found;
    if (!std::regex_search(text, found, *fault)) continue;
    const auto at = static_cast<size_t>(found.position());
    return "ill said: ..." + text.substr(at > 40 ? at - 40 : 0, 80) + "...";
  }
  return "";
}

}  // namespace paceline
