// Names that are looked for in the text as it is cut it first; what lies between is normalised, and the other names cut
// that. A place in the normalised text is one in the text only where the characters before it made nothing behind it.
#include "train/tokenizers/tokenizer_published.h"

#include <algorithm>

#include "tensor/error.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

bool is_white(const CodePoint& unit) { return unit.valid && char_class(unit.value) == CharClass::space; }

std::size_t white_before(std::string_view text, std::size_t at, std::size_t from) {
  while (at > from) {
    std::size_t start = at - 1;
    while (start > from && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
    if (!is_white(next_code_point(text, start))) break;
    at = start;
  }
  return at;
}

std::size_t white_behind(std::string_view text, std::size_t at) {
  while (at < text.size() && is_white(next_code_point(text, at))) at += next_code_point(text, at).length;
  return at;
}

}  // namespace

void PublishedTokenizer::Names::add(std::string name, const AddedToken& token) {
  if (name.empty()) return;
  auto& list = by_byte_[static_cast<unsigned char>(name[0])];
  longest_ = std::max(longest_, name.size());
  strips_ = strips_ || token.lstrip || token.rstrip;
  const auto place = std::ranges::find_if(list, [&](const auto& other) { return other.first.size() < name.size(); });
  list.insert(place, {std::move(name), token});
}

PublishedTokenizer::Names::Found PublishedTokenizer::Names::find(std::string_view text, std::size_t from,
                                                                 std::size_t limit) const {
  for (std::size_t at = from; at < limit; ++at)
    for (const auto& [name, token] : by_byte_[static_cast<unsigned char>(text[at])]) {
      if (!text.substr(at).starts_with(name)) continue;
      const std::size_t end = at + name.size();
      return {token.lstrip ? white_before(text, at, from) : at, token.rstrip ? white_behind(text, end) : end, token.id};
    }
  return {limit, limit, -1};
}

PublishedTokenizer::PublishedTokenizer(std::vector<std::string> tokens, std::vector<std::int32_t> special_ids,
                                       bool lowercase, TextRules rules, const std::string& source)
    : Tokenizer(std::move(tokens), std::move(special_ids), lowercase), rules_(std::move(rules)) {
  for (const AddedToken& added : rules_.added) {
    if (added.id < 0 || added.id >= vocab_size())
      fail(source, ": 'added' names the token ", added.id, ", which is not there");
    if (!added.always && !rules_.parse_specials) continue;
    const bool later = added.normalized && !rules_.normalizer.empty();
    (later ? later_names_ : names_).add(later ? rules_.normalizer(token(added.id)) : token(added.id), added);
  }
  if (rules_.parse_specials)
    for (const std::int32_t id : special_ids_)
      if (std::ranges::find(rules_.added, id, &AddedToken::id) == rules_.added.end() &&
          !token(id).starts_with("<unused_"))
        names_.add(token(id), {.id = id});
  longest_name_ = names_.longest() + later_names_.longest();
}

bool PublishedTokenizer::is_added(std::int32_t id) const {
  return std::ranges::any_of(rules_.added, [&](const AddedToken& added) { return added.id == id && added.always; });
}

std::size_t PublishedTokenizer::encode_settled(const TextPart& part, std::vector<std::int32_t>& ids) const {
  return walk(part, ids, nullptr);
}

std::size_t PublishedTokenizer::walk_stretch(const Stretch& stretch, std::size_t at,
                                             const std::vector<std::size_t>* map, std::vector<std::int32_t>& ids,
                                             std::vector<std::size_t>* ends) const {
  const std::size_t before = ids.size(), settled = append_tokens(stretch, ids);
  if (!ends) return settled;
  for (const std::size_t end : ends_of(stretch, std::span(ids).subspan(before)))
    ends->push_back(!map ? at + end : at + end == 0 ? 0 : (*map)[at + end - 1]);
  return settled;
}

std::size_t PublishedTokenizer::walk(const TextPart& part, std::vector<std::int32_t>& ids,
                                     std::vector<std::size_t>* ends) const {
  const std::string_view text = part.text;
  const std::size_t limit = text.size() - std::min(text.size(), part.last ? 0 : names_.longest());
  std::size_t from = 0, name_begins = 0;
  bool follows_name = false;
  Names::Found found{0, 0, -1};
  while (from < limit && (found = names_.find(text, from, limit)).id >= 0) {
    if (!part.last && found.end == text.size()) break;  // white space behind it may go on
    if (found.begin > from)
      walk_between({text.substr(from, found.begin - from), part.first && from == 0, follows_name, true}, from, ids,
                   ends);
    ids.push_back(found.id);
    if (ends) ends->push_back(found.end);
    name_begins = found.begin;
    from = found.end;
    follows_name = true;
  }
  std::string_view rest =
      text.substr(from, part.last ? text.npos : std::max(found.id >= 0 ? found.begin : limit, from) - from);
  if (!part.last && names_.strips()) rest = rest.substr(0, white_before(rest, rest.size(), 0));
  const std::size_t done =
      rest.empty() ? 0 : walk_between({rest, part.first && from == 0, follows_name, part.last}, from, ids, ends);
  if (part.last || done > 0 || !follows_name) return from + done;
  ids.pop_back();  // the name: what follows it must be seen together with it
  if (ends) ends->pop_back();
  return name_begins;
}

std::size_t PublishedTokenizer::walk_between(const Stretch& given, std::size_t at, std::vector<std::int32_t>& ids,
                                             std::vector<std::size_t>* ends) const {
  if (rules_.normalizer.empty()) return walk_stretch(given, at, nullptr, ids, ends);
  std::string_view text = given.text;
  if (!given.last) {
    std::size_t cut = text.size();
    const auto may_cut = [&] {
      if ((static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) return false;
      const CodePoint unit = next_code_point(text, cut);
      return unit.valid && begins_normal_part(unit.value);
    };
    while (cut > 0 && (cut == text.size() || !may_cut())) --cut;
    text = text.substr(0, cut);
  }
  std::vector<std::size_t> map;
  const std::string changed = rules_.normalizer(text, &map);
  for (std::size_t& end : map) end += at;
  const std::string_view whole = changed;
  const std::size_t limit = whole.size() - std::min(whole.size(), given.last ? 0 : later_names_.longest());
  std::size_t from = 0;
  bool begins = given.begins, follows_name = given.follows_name;
  for (Names::Found found; from < limit && (found = later_names_.find(whole, from, limit)).id >= 0; from = found.end) {
    if (!given.last && found.end == whole.size()) break;
    if (found.begin > from)
      walk_stretch({whole.substr(from, found.begin - from), begins, follows_name, true}, from, &map, ids, ends);
    ids.push_back(found.id);
    if (ends) ends->push_back(map[found.end - 1]);
    begins = false;
    follows_name = true;
  }
  std::size_t end = given.last ? whole.size() : std::max(limit, from);
  if (!given.last && later_names_.strips()) end = white_before(whole, end, from);
  const std::size_t before = ids.size(), ends_before = ends ? ends->size() : 0;
  while (end > from) {
    const bool last = given.last;
    const std::size_t done =
        from + walk_stretch({whole.substr(from, end - from), begins, follows_name, last}, from, &map, ids, ends);
    if (last || done == whole.size()) return given.last ? given.text.size() : text.size();
    if (done == from) break;
    if (map[done - 1] != map[done]) return map[done - 1] - at;
    // The end lies within what one group of characters became: once more, without that group.
    ids.resize(before);
    if (ends) ends->resize(ends_before);
    end = done;
    while (end > from && map[end - 1] == map[done]) --end;
  }
  if (given.last) return given.text.size();
  return from == 0 ? 0 : map[from - 1] - at;
}

std::vector<std::size_t> PublishedTokenizer::ends_of(const Stretch& stretch, std::span<const std::int32_t> ids) const {
  std::vector<std::size_t> ends;
  std::size_t at = 0;
  for (const std::int32_t id : ids) ends.push_back(std::min(at += token(id).size(), stretch.text.size()));
  return ends;
}

std::int64_t PublishedTokenizer::covered_bytes(std::string_view text, std::span<const std::int32_t> ids,
                                               std::size_t count) const {
  if (count >= ids.size()) return std::ssize(text);
  if (count == 0) return 0;
  std::vector<std::int32_t> found;
  std::vector<std::size_t> ends;
  for (const bool first : {true, false}) {
    found.clear();
    ends.clear();
    walk({.text = text, .first = first}, found, &ends);
    if (found.size() >= count && std::ranges::equal(std::span(found).first(count), ids.first(count))) break;
  }
  return ends.empty() ? 0 : std::int64_t(ends[std::min(count, ends.size()) - 1]);
}

void PublishedTokenizer::add_rules_to_json(Json& json) const {
  if (!rules_.normalizer.empty()) json["normalizer"] = rules_.normalizer.to_json();
  if (rules_.added.empty()) return;
  json["added"] = Json::array();
  for (const AddedToken& added : rules_.added) {
    Json one = {{"id", added.id}};
    if (!added.always) one["special"] = true;
    if (added.lstrip) one["lstrip"] = true;
    if (added.rstrip) one["rstrip"] = true;
    if (added.normalized) one["normalized"] = true;
    json["added"].push_back(one);
  }
}

TextRules PublishedTokenizer::rules_from_json(const Json& json, std::int64_t tokens, const std::string& source) {
  TextRules rules;
  const auto flag = [&](const Json& object, const char* key) {
    return object.contains(key) && json_get<bool>(object, key, source);
  };
  rules.parse_specials = flag(json, "parse_specials");
  if (json.contains("normalizer")) rules.normalizer = TextNormalizer::from_json(json["normalizer"], source);
  if (!json.contains("added")) return rules;
  for (const Json& one : json["added"]) {
    const auto id = json_get<std::int64_t>(one, "id", source + ": added");
    if (id < 0 || id >= tokens || (!rules.added.empty() && id <= rules.added.back().id))
      fail(source, ": added: the id ", id, " is outside of the vocabulary or not in order");
    rules.added.push_back(
        {std::int32_t(id), !flag(one, "special"), flag(one, "lstrip"), flag(one, "rstrip"), flag(one, "normalized")});
  }
  return rules;
}

}  // namespace flexformer
