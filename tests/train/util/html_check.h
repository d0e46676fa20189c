// What a test asks of a page: what is in it, and whether it is well formed and stands by itself.
#pragma once
#include <cctype>
#include <string>
#include <vector>

#include "tensor/error.h"
#include "tests/train/util/messages.h"
#include "train/util/utf8.h"

namespace flexformer::tests {

inline int count(const std::string& all, const std::string& part) {
  int times = 0;
  for (std::size_t at = 0; (at = all.find(part, at)) != std::string::npos; at += part.size()) ++times;
  return times;
}

// What stands between two texts, the first time.
inline std::string between(const std::string& all, const std::string& before, const std::string& after) {
  const std::size_t begin = all.find(before);
  if (begin == std::string::npos) return "";
  const std::size_t from = begin + before.size();
  return all.substr(from, all.find(after, from) - from);
}

// The first thing wrong with a page, or "": elements that do not nest, attributes that are not name="value" or that
// fetch something, characters HTML forbids.
inline std::string fault(const std::string& html) {
  if (!html.starts_with("<!doctype html>\n")) return "no doctype";
  std::vector<std::string> open;
  for (std::size_t at = html.find('\n'); (at = html.find('<', at)) != std::string::npos;) {
    std::size_t end = at + 1;
    const auto name_from = [&](std::size_t from) {
      for (end = from; end < html.size() && (std::isalnum(html[end]) || html[end] == '-');) ++end;
      return html.substr(from, end - from);
    };
    const std::string where = html.substr(at, 60);
    if (html[at + 1] == '/') {
      const std::string name = name_from(at + 2);
      if (open.empty() || open.back() != name || html[end] != '>') return "wrong end: " + where;
      open.pop_back();
      at = end;
      continue;
    }
    const std::string name = name_from(at + 1);
    if (name.empty()) return "a bare <: " + where;
    while (html[end] == ' ') {
      const std::string attribute = name_from(end + 1);
      if (attribute.empty() || html.compare(end, 2, "=\"") != 0) return "bad attribute: " + where;
      const bool in_page = html.compare(end, 24, "=\"data:image/png;base64,") == 0;
      if ((attribute == "src" && !in_page) || attribute == "href" || attribute.starts_with("on"))
        return "not by itself: " + where;
      end = html.find('"', end + 2) + 1;
    }
    if (html.compare(end, 2, "/>") == 0) {
      at = end;
      continue;
    }
    if (html[end] != '>') return "no end of the tag: " + where;
    at = end;
    if (name == "meta") continue;
    if (name != "script" && name != "style") {
      open.push_back(name);
      continue;
    }
    const std::string raw = html.substr(at, html.find("</" + name + ">", at) - at);  // no markup in there
    for (const char* outside : {"http", "url(", "@import", "import(", "fetch("})
      if (contains(raw, outside)) return name + " fetches something: " + outside;
    at += raw.size() + name.size() + 3;
  }
  if (!open.empty()) return "never closed: " + open.back();
  for (std::size_t at = 0; at < html.size();) {
    const CodePoint unit = next_code_point(html, at);
    if (!unit.valid || (unit.value < 0x20 && unit.value != '\n' && unit.value != '\t'))
      return text("a forbidden character at ", at);
    at += unit.length;
  }
  return "";
}

}  // namespace flexformer::tests
