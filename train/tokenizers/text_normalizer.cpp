#include "train/tokenizers/text_normalizer.h"

#include <algorithm>
#include <array>

#include "tensor/error.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

using Step = TextNormalizer::Step;

// By Step::Kind: the name in our files, and Hugging Face's type where a step is one of its own there.
struct StepName {
  const char *ours, *theirs;
};
constexpr std::array<StepName, 10> step_names = {{{"nfc", "NFC"},
                                                  {"nfd", "NFD"},
                                                  {"nfkc", "NFKC"},
                                                  {"nfkd", "NFKD"},
                                                  {"lowercase", "Lowercase"},
                                                  {"strip_marks", "StripAccents"},
                                                  {"clean", nullptr},
                                                  {"space_chinese", nullptr},
                                                  {"strip_accents", nullptr},
                                                  {"replace", "Replace"}}};

bool is_white(std::uint32_t c) {
  return c < 0x80 ? c == ' ' || (c >= 9 && c <= 13) : char_class(c) == CharClass::space;
}

bool is_chinese(std::uint32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

// What one character becomes, for the steps that look at no other.
void append_changed(const Step& step, const CodePoint& unit, std::string_view bytes, std::string& out) {
  const std::uint32_t c = unit.value;
  switch (step.kind) {
    case Step::lowercase:
      if (unit.valid) return append_lower(c, out);
      break;
    case Step::strip_marks:
      if (unit.valid && c >= 0x300 && (bert_class(c) == BertClass::mark || bert_class(c) == BertClass::other_mark))
        return;
      break;
    case Step::clean:
      if (c == '\t' || c == '\n' || c == '\r') {
        out += ' ';
        return;
      }
      if (!unit.valid || c == 0xFFFD || bert_class(c) == BertClass::control) return;
      if (is_white(c)) {
        out += ' ';
        return;
      }
      break;
    case Step::space_chinese:
      if (unit.valid && is_chinese(c)) {
        out.append(" ").append(bytes).append(" ");
        return;
      }
      break;
    case Step::strip_accents: {
      if (!unit.valid || c < 0x80) break;
      std::vector<std::uint32_t> parts;
      append_decomposition(c, false, parts);
      for (const std::uint32_t part : parts)
        if (bert_class(part) != BertClass::mark) append_code_point(part, out);
      return;
    }
    case Step::replace:
      if (bytes == step.from) {
        out += step.to;
        return;
      }
      break;
    default:
      break;
  }
  out += bytes;
}

std::string changed(const Step& step, std::string_view text, std::vector<std::size_t>* ends) {
  if (step.kind <= Step::nfkd) return normalized(text, NormalForm(step.kind), ends);
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint unit = next_code_point(text, at);
    append_changed(step, unit, text.substr(at, unit.length), out);
    at += unit.length;
    if (ends) ends->resize(out.size(), at);
  }
  return out;
}

}  // namespace

TextNormalizer TextNormalizer::bert(bool clean, bool chinese, bool strip_accents, bool lowercase) {
  std::vector<Step> steps;
  if (clean) steps.push_back({Step::clean});
  if (chinese) steps.push_back({Step::space_chinese});
  if (strip_accents) steps.push_back({Step::strip_accents});
  if (lowercase) steps.push_back({Step::lowercase});
  return TextNormalizer(std::move(steps));
}

bool TextNormalizer::has(Step::Kind kind) const { return std::ranges::find(steps_, kind, &Step::kind) != steps_.end(); }

std::string TextNormalizer::operator()(std::string_view text, std::vector<std::size_t>* ends) const {
  std::string result(text);
  if (ends) {
    ends->resize(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) (*ends)[i] = i + 1;
  }
  std::vector<std::size_t> step_ends;
  for (const Step& step : steps_) {
    step_ends.clear();
    result = changed(step, result, ends ? &step_ends : nullptr);
    if (!ends) continue;
    for (std::size_t& end : step_ends) end = (*ends)[end - 1];
    ends->swap(step_ends);
  }
  return result;
}

Json TextNormalizer::to_json() const {
  Json json = Json::array();
  for (const Step& step : steps_) {
    const char* name = step_names[step.kind].ours;
    json.push_back(step.kind == Step::replace ? Json{{name, {json_bytes(step.from), json_bytes(step.to)}}}
                                              : Json(name));
  }
  return json;
}

TextNormalizer TextNormalizer::from_json(const Json& json, const std::string& source) {
  std::vector<Step> steps;
  if (!json.is_array()) fail(source, ": normalizer is no array but ", quote(dump_json(json)));
  for (const Json& element : json) {
    const bool replaces = element.is_object() && element.size() == 1 && element.contains("replace") &&
                          element["replace"].is_array() && element["replace"].size() == 2;
    const auto found = std::ranges::find_if(
        step_names, [&](const StepName& name) { return element.is_string() && element == name.ours; });
    if (!replaces && (found == step_names.end() || element == "replace"))
      fail(source, ": there is no step ", quote(dump_json(element)), " of a normalizer");
    if (replaces)
      steps.push_back({Step::replace, bytes_from_json(element["replace"][0], source),
                       bytes_from_json(element["replace"][1], source)});
    else
      steps.push_back({Step::Kind(found - step_names.begin())});
  }
  return TextNormalizer(std::move(steps));
}

TextNormalizer TextNormalizer::from_hugging_face(const Json& json, const std::string& source) {
  if (json.is_null()) return {};
  const auto refuse = [&] {
    fail(source, ": normalizer ", quote(dump_json(json), 200), " is not supported; there are NFC, NFD, NFKC, NFKD, ",
         "Lowercase, StripAccents, BertNormalizer, Replace of one character, and a Sequence of them");
  };
  const Json type = json.is_object() && json.contains("type") ? json["type"] : Json();
  if (type == "Sequence") {
    std::vector<Step> steps;
    for (const Json& inner : json_member(json, "normalizers", source + ": normalizer"))
      for (const Step& step : from_hugging_face(inner, source).steps_) steps.push_back(step);
    return TextNormalizer(std::move(steps));
  }
  if (type == "BertNormalizer") {
    const auto flag = [&](const char* key, bool other) {
      return json.contains(key) && !json[key].is_null() ? json_get<bool>(json, key, source + ": normalizer") : other;
    };
    const bool lowercase = flag("lowercase", true);
    return bert(flag("clean_text", true), flag("handle_chinese_chars", true), flag("strip_accents", lowercase),
                lowercase);
  }
  if (type == "Replace") {
    const Json& pattern = json_member(json, "pattern", source + ": normalizer");
    const std::string from = pattern.is_object() && pattern.size() == 1 && pattern.contains("String")
                                 ? json_get<std::string>(pattern, "String", source + ": normalizer")
                                 : "";
    if (from.empty() || next_code_point(from, 0).length != from.size()) refuse();
    return TextNormalizer(
        std::vector<Step>{{Step::replace, from, json_get<std::string>(json, "content", source + ": normalizer")}});
  }
  for (std::size_t kind = 0; kind < step_names.size(); ++kind)
    if (step_names[kind].theirs && type == step_names[kind].theirs)
      return TextNormalizer(std::vector<Step>{{Step::Kind(kind)}});
  refuse();
  return {};
}

Json TextNormalizer::to_hugging_face() const {
  Json list = Json::array();
  std::vector<Step> left = steps_;
  const auto take = [&](Step::Kind kind) {
    const bool there = !left.empty() && left.front().kind == kind;
    if (there) left.erase(left.begin());
    return there;
  };
  while (!left.empty()) {
    const Step step = left.front();
    if (step.kind == Step::clean || step.kind == Step::space_chinese || step.kind == Step::strip_accents) {
      const bool clean = take(Step::clean), chinese = take(Step::space_chinese);
      const bool strip = take(Step::strip_accents), lower = take(Step::lowercase);
      list.push_back({{"type", "BertNormalizer"},
                      {"clean_text", clean},
                      {"handle_chinese_chars", chinese},
                      {"strip_accents", strip},
                      {"lowercase", lower}});
      continue;
    }
    left.erase(left.begin());
    Json one = {{"type", step_names[step.kind].theirs}};
    if (step.kind == Step::replace) one.update({{"pattern", {{"String", step.from}}}, {"content", step.to}});
    list.push_back(one);
  }
  if (list.empty()) return nullptr;
  return list.size() == 1 ? list[0] : Json{{"type", "Sequence"}, {"normalizers", list}};
}

}  // namespace flexformer
