#include "train/reports/html.h"

#include "tensor/error.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

// What pictures need. Colours c0 to c7 tell curves apart on both backgrounds, also for most colour-blind readers. On
// paper it is always light.
constexpr const char* kChartStyle = R"css(
:root { color-scheme: light dark; --paper: #fff; --panel: #f6f7f9; --ink: #1b222c; --soft: #586474;
  --rule: #dce1e7; --c0: #1f6fb5; --c1: #c8560b; --c2: #23834a; --c3: #8b4bb3; --c4: #927000; --c5: #c22d59;
  --c6: #0d8288; --c7: #6a7079 }
@media screen and (prefers-color-scheme: dark) {
  :root { --paper: #14181d; --panel: #1b2027; --ink: #e3e8ee; --soft: #9ca8b6; --rule: #343c47;
    --c0: #66b1f1; --c1: #f29b5d; --c2: #68c58b; --c3: #c495e6; --c4: #d8b64d; --c5: #f17c9d; --c6: #4fc7ca;
    --c7: #aab1ba } }
svg { overflow: visible }
svg text { font-size: 12px; fill: var(--soft) }
svg .x { text-anchor: middle }
svg .y { text-anchor: end; dominant-baseline: central }
svg path { fill: none }
.grid { stroke: var(--rule); stroke-width: 1 }
.axis, .tick { stroke: var(--soft); stroke-width: 1 }
.cursor { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 3 3 }
.line { stroke: var(--c); stroke-width: 2; stroke-linejoin: round; stroke-linecap: round }
.line.dashed { stroke-dasharray: 7 5 }
.line.faint { stroke-width: 1; opacity: .35 }
.dots { stroke: var(--c); stroke-width: 6; stroke-linecap: round }
.dots.small { stroke-width: 4; opacity: .75 }
.c0 { --c: var(--c0) } .c1 { --c: var(--c1) } .c2 { --c: var(--c2) } .c3 { --c: var(--c3) }
.c4 { --c: var(--c4) } .c5 { --c: var(--c5) } .c6 { --c: var(--c6) } .c7 { --c: var(--c7) }
)css";

// The rest of a page. The one size in pixels is the width at which two charts stand side by side.
constexpr const char* kStyle = R"css(
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 1120px; padding: 28px 20px 40px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", Helvetica, Arial, sans-serif }
h1 { font-size: 26px; line-height: 1.2; margin: 0 0 4px; overflow-wrap: anywhere }
h2 { font-size: 17px; margin: 34px 0 10px }
header { margin-bottom: 16px }
p { margin: 0 0 8px }
.soft, .note, footer { color: var(--soft) }
footer { margin-top: 36px; font-size: 13px; border-top: 1px solid var(--rule); padding-top: 10px }
.state { display: inline-block; border: 1px solid; border-radius: 99px; padding: 0 10px; font-size: 13px;
  color: var(--c1); vertical-align: 4px; margin-left: 8px; font-weight: 500 }
.state.finished { color: var(--c2) }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(210px, 45%), 1fr)); gap: 10px;
  margin: 0 0 16px }
.figures div { background: var(--panel); border-radius: 8px; padding: 9px 12px }
.figures b { display: block; font-size: 20px; font-weight: 600; line-height: 1.3 }
.figures small { display: block; color: var(--soft); font-size: 12.5px; line-height: 1.35 }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); gap: 0 24px;
  align-items: start }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); gap: 14px }
.chart { margin: 0; padding: 12px 14px 8px; background: var(--panel); border-radius: 8px; min-width: 0;
  break-inside: avoid }
figcaption { color: var(--soft) }
figcaption strong { color: var(--ink) }
.legend { font-size: 13px; min-height: 20px; margin: 0 0 2px; display: flex; flex-wrap: wrap; gap: 0 16px }
.legend span { overflow-wrap: anywhere }
.legend i { display: inline-block; width: 16px; margin-right: 6px; vertical-align: 4px;
  border-top: 2.5px solid var(--c) }
.legend i.dashed { border-top-style: dashed }
.legend b { font-variant-numeric: tabular-nums }
.legend .at { color: var(--soft); margin-left: auto; font-variant-numeric: tabular-nums }
.note { font-size: 13px; margin: 2px 0 4px }
.empty { color: var(--soft); padding: 60px 0; text-align: center }
figure svg { display: block; width: 100%; height: auto; touch-action: pan-y }
.table { overflow-x: auto; margin-bottom: 14px }
table { border-collapse: collapse; width: 100%; font-size: 14px }
th, td { text-align: left; padding: 4px 14px 4px 0; border-bottom: 1px solid var(--rule); vertical-align: top;
  overflow-wrap: break-word }
th { font-weight: 500; color: var(--soft) }
.numeric th + th, .numeric td + td { text-align: right; padding: 4px 0 4px 14px; font-variant-numeric: tabular-nums }
.numeric td + td { white-space: nowrap }
.numeric th + th { min-width: 76px }
.matrix { width: auto }
.matrix th, .matrix td { border: 0; text-align: center; padding: 5px 8px; min-width: 42px; max-width: 130px;
  vertical-align: middle }
.matrix tr > :first-child { text-align: right; padding-left: 0 }
.matrix td { background: rgb(31 111 181 / var(--share)); border: 2px solid var(--paper); border-radius: 6px;
  white-space: nowrap; font-variant-numeric: tabular-nums }
.matrix .wrong { background: rgb(200 86 11 / var(--share)) }
.matrix .strong { color: #fff }
pre, code { font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace }
pre { margin: 0 0 10px; padding: 10px 14px; background: var(--panel); border-radius: 8px; white-space: pre-wrap;
  overflow-wrap: anywhere }
summary { cursor: pointer; color: var(--soft); margin-bottom: 8px }
h3 { font-size: 15px; margin: 20px 0 4px }
section details { margin-top: 22px }
.panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(48%, 205px), 1fr)); gap: 10px }
.panels .chart { padding: 8px 10px }
.panels figcaption { font-size: 13px; line-height: 1.35; margin-bottom: 4px }
.panels .legend { gap: 0 10px; font-size: 12px }
.map { display: block; width: 100%; aspect-ratio: 1; image-rendering: pixelated }
@media screen and (prefers-color-scheme: dark) { .map { filter: invert(1) hue-rotate(180deg) } }
@media (max-width: 600px) {
  body { padding: 18px 14px 30px }
  .chart { padding: 10px 10px 6px }
  svg text { font-size: 15px }
  .numeric td + td { white-space: normal } }
@media print {
  body { padding: 0; max-width: none; font-size: 11pt }
  .chart, .figures div, pre, tr { break-inside: avoid }
  .map { print-color-adjust: exact; -webkit-print-color-adjust: exact }
  .charts, .pair { grid-template-columns: 1fr 1fr }
  .matrix td, .chart, .figures div, pre { print-color-adjust: exact; -webkit-print-color-adjust: exact } }
)css";

// The values at the step under the pointer, written into the legend. They are read back from the curves, so the page
// holds every number once.
constexpr const char* kScript = R"js(
for (const figure of document.querySelectorAll("figure.chart")) {
  const svg = figure.querySelector("svg");
  if (!svg) continue;
  const [left, right, bottom, top] = svg.dataset.frame.split(" ").map(Number);
  const [x0, x1, y0, y1] = svg.dataset.axes.split(" ").slice(0, 4).map(Number);
  const [logX, logY] = svg.dataset.axes.split(" ").slice(4).map(scale => scale === "log");
  const between = (low, high, share, log) => log ? low * (high / low) ** share : low + (high - low) * share;
  const short = (value, digits) => Number(value.toPrecision(digits)).toLocaleString("en");
  const value = y => short(between(y0, y1, (y - bottom) / (top - bottom), logY), 4);
  const across = x => {
    const step = between(x0, x1, (x - left) / (right - left), logX);
    return svg.dataset.across + " " + ("whole" in svg.dataset ? Math.round(step).toLocaleString("en") : short(step, 3));
  };
  const entries = figure.querySelectorAll(".legend b"), at = figure.querySelector(".at");
  const cursor = svg.querySelector(".cursor");
  const curves = [...svg.querySelectorAll("[data-entry]")].map(path => ({
    entry: entries[path.dataset.entry],
    points: (path.getAttribute("d").match(/[-\d.]+,[-\d.]+/g) || []).map(pair => pair.split(",").map(Number))
  }));
  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
    let nearest = null;
    for (const curve of curves) {
      let best = null;
      for (const point of curve.points) if (!best || Math.abs(point[0] - x) < Math.abs(best[0] - x)) best = point;
      curve.entry.textContent = best ? value(best[1]) : "";
      if (best && (nearest === null || Math.abs(best[0] - x) < Math.abs(nearest - x))) nearest = best[0];
    }
    if (nearest === null) return;
    at.textContent = across(nearest);
    cursor.setAttribute("d", `M${nearest},${top}V${bottom}`);
  });
  svg.addEventListener("pointerleave", () => {
    for (const element of [at, ...entries]) element.textContent = "";
    cursor.setAttribute("d", "");
  });
}
)js";

bool allowed(const CodePoint& unit) {
  if (!unit.valid) return false;
  const std::uint32_t c = unit.value;
  const bool control = c < 0x20 || (c >= 0x7F && c < 0xA0);
  return !control || c == '\t' || c == '\n' || c == '\r';
}

}  // namespace

std::string escape(std::string_view bytes) {
  std::string out;
  for (std::size_t at = 0; at < bytes.size();) {
    const CodePoint unit = next_code_point(bytes, at);
    switch (allowed(unit) ? unit.value : 0) {
      case 0:
        out += "\xEF\xBF\xBD";  // U+FFFD
        break;
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '\r':
        out += "&#13;";  // a bare one would be read as a line feed
        break;
      default:
        out += bytes.substr(at, unit.length);
    }
    at += unit.length;
  }
  return out;
}

std::string escape_path(std::string_view bytes) {
  std::string out;
  for (char c : escape(bytes)) out += c == '/' ? std::string("/<wbr/>") : std::string(1, c);
  return out;
}

std::string chart_style() { return kChartStyle; }

std::string html_page(std::string_view title, const std::string& body) {
  // The policy forbids the browser to fetch anything at all, whatever the page came to contain.
  return std::string("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n") +
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
         "script-src 'unsafe-inline'; img-src data:\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
         escape(title) + "</title>\n<style>" + kChartStyle + kStyle + "</style>\n</head>\n<body>\n" + body +
         "<script>" + kScript + "</script>\n</body>\n</html>\n";
}

std::string html_image(std::string_view png, std::string_view title, std::string_view css_class) {
  constexpr const char* digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string base64;
  for (std::size_t at = 0; at < png.size(); at += 3) {
    const std::string_view three = png.substr(at, 3);
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 3; ++i)
      bits = bits << 8 | (i < three.size() ? static_cast<unsigned char>(three[i]) : 0);
    for (std::size_t i = 0; i < 4; ++i) base64 += i <= three.size() ? digits[bits >> (18 - 6 * i) & 63] : '=';
  }
  return text("<img class=\"", css_class, "\" alt=\"", escape(title), "\" title=\"", escape(title),
              "\" src=\"data:image/png;base64,", base64, "\"/>\n");
}

std::string html_table(const std::vector<std::string>& head, const std::vector<std::vector<std::string>>& rows,
                       bool numeric) {
  std::string out = std::string("<div class=\"table\"><table") + (numeric ? " class=\"numeric\"" : "") + ">\n";
  const auto add_row = [&](const std::vector<std::string>& cells, const char* tag) {
    out += "<tr>";
    for (const std::string& cell : cells) out += std::string("<") + tag + ">" + cell + "</" + tag + ">";
    out += "</tr>\n";
  };
  if (!head.empty()) add_row(head, "th");
  for (const auto& row : rows) add_row(row, "td");
  return out + "</table></div>\n";
}

}  // namespace flexformer
