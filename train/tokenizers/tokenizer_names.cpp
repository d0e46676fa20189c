#include "train/tokenizers/tokenizer_names.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "tensor/error.h"
#include "train/util/files.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 7> role_keys = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                  "pad_token", "cls_token", "mask_token"};
constexpr std::array<std::string_view, 5> bert_names = {"[PAD]", "[UNK]", "[CLS]", "[SEP]",
                                                        "[MASK]"};  // of its vocab.txt
constexpr std::int64_t most_unnamed = 4096;                         // ids between names

bool flag_of(const Json& object, const char* key, const std::string& source) {
  return object.contains(key) && json_get<bool>(object, key, source);
}

TokenName described(const Json& token, const std::string& source) {
  TokenName name;
  name.source = source;
  if (token.contains("special")) name.special = json_get<bool>(token, "special", source);
  name.lstrip = flag_of(token, "lstrip", source);
  name.rstrip = flag_of(token, "rstrip", source);
  name.single_word = flag_of(token, "single_word", source);
  if (token.contains("normalized")) name.normalized = json_get<bool>(token, "normalized", source);
  return name;
}

}  // namespace

void TokenNames::add_name(const std::string& name, const TokenName& token) {
  if (name.empty()) fail(token.source, ": an added token has no name");
  const auto [place, is_new] = names_.emplace(name, token);
  TokenName& known = place->second;
  if (is_new) return;
  if (known.id >= 0 && token.id >= 0 && known.id != token.id)
    fail(token.source, ": ", quote(name), " has the id ", token.id, ", but ", known.id, " in ", known.source,
         "; mend one of the two files");
  if (known.special && token.special && *known.special != *token.special)
    fail(token.source, ": ", quote(name), " is ", *token.special ? "" : "not ", "special, but in ", known.source,
         " it is ", *known.special ? "" : "not", "; mend one of the two files");
  if (known.id < 0) known.id = token.id;
  if (!known.special) known.special = token.special;
}

void TokenNames::add(const Json& token, const std::string& source) {
  TokenName name = described(token, source);
  name.id = json_get<std::int64_t>(token, "id", source);
  if (!name.special) name.special = false;
  says_special_ = true;
  const auto content = json_get<std::string>(token, "content", source);
  if (const TokenName* known = find(content); known && known->source == source)
    fail(source, " has ", quote(content), " twice");
  add_name(content, name);
}

void TokenNames::add_role(const char* key, const Json& value, const std::string& source, VocabularyReport& report) {
  if (value.is_null()) return;
  TokenName token;
  std::string name;
  if (value.is_object()) {
    token = described(value, source);
    name = json_get<std::string>(value, "content", source + ": " + key);
  } else if (value.is_string()) {
    name = value.get<std::string>();
  } else {
    fail(source, ": ", key, " is not the name of a token but ", quote(dump_json(value)));
  }
  token.source = source;
  token.special = {};
  if (name.empty()) return;
  says_special_ = true;
  add_name(name, token);
  names_[name].special = true;  // a part to play makes it so
  const auto [known, is_new] = roles_.emplace(key, std::pair(name, source));
  if (!is_new && known->second.first != name && std::string_view(key) != "additional_special_tokens")
    report.notes.push_back(text(source, ": ", key, " is ", quote(name), ", but ", quote(known->second.first), " in ",
                                known->second.second));
}

void TokenNames::read_folder(const fs::path& folder, VocabularyReport& report) {
  const auto read = [&](const char* name) {
    std::error_code error;
    if (!fs::exists(folder / name, error)) return Json::object();
    report.files.push_back(name);
    const Json json = read_json(folder / name);
    if (!json.is_object()) fail((folder / name).string(), ": expected an object {...}, found ", json.type_name());
    return json;
  };
  const Json added = read("added_tokens.json"), roles = read("special_tokens_map.json");
  config_ = read("tokenizer_config.json");
  config_source_ = (folder / "tokenizer_config.json").string();
  if (config_.contains("added_tokens_decoder") && config_["added_tokens_decoder"].is_object())
    for (const auto& [id, token] : config_["added_tokens_decoder"].items()) {
      Json one = token;
      if (!one.is_object() || id.empty() || id.size() > 9 || id.find_first_not_of("0123456789") != id.npos)
        fail(config_source_, ": added_tokens_decoder: ", quote(id), " is no id of a token");
      one["id"] = std::stoll(id);
      add(one, config_source_);
    }
  const std::string source = (folder / "added_tokens.json").string();
  for (const auto& [name, id] : added.items())
    add_name(
        name,
        {.id = json_get<std::int64_t>(added, name.c_str(), source), .special = {}, .normalized = {}, .source = source});
  const std::string roles_source = (folder / "special_tokens_map.json").string();
  for (const Json* file : {static_cast<const Json*>(&config_), &roles}) {
    const std::string& from = file == &roles ? roles_source : config_source_;
    for (const char* key : role_keys)
      if (file->contains(key)) add_role(key, (*file)[key], from, report);
    const Json& more = file->contains("additional_special_tokens") ? (*file)["additional_special_tokens"] : Json();
    if (more.is_array())
      for (const Json& token : more) add_role("additional_special_tokens", token, from, report);
  }
}

const TokenName* TokenNames::find(const std::string& name) const {
  const auto found = names_.find(name);
  return found == names_.end() ? nullptr : &found->second;
}

std::optional<bool> TokenNames::flag(const char* key) const {
  if (!config_.contains(key) || config_[key].is_null()) return {};
  return json_get<bool>(config_, key, config_source_);
}

std::string TokenNames::setting(const char* key) const {
  return config_.contains(key) && config_[key].is_string() ? config_[key].get<std::string>() : "";
}

void TokenNames::refuse(const char* key, bool value, const char* why) const {
  if (flag(key) == value) fail(config_source_, ": ", key, " = ", value ? "true" : "false", " is not supported: ", why);
}

void TokenNames::agree(const char* key, bool value, const std::string& other) const {
  if (const auto said = flag(key); said && *said != value)
    fail(config_source_, ": ", key, " is ", *said ? "true" : "false", ", but ", other, " says ",
         value ? "true" : "false", "; mend one of the two files");
}

TokenTable named_tokens(std::vector<std::string> spellings, const TokenNames& names,
                        const std::function<bool(const std::string&)>& reachable,
                        const std::function<bool(const std::string&)>& looks_special,
                        const std::vector<std::int32_t>& special_ids, const std::string& source,
                        const TokenizerOptions& options) {
  VocabularyReport ignored, &report = options.report ? *options.report : ignored;
  std::map<std::string, std::int32_t> id_of;
  for (std::size_t id = 0; id < spellings.size(); ++id)
    if (!spellings[id].empty()) id_of.emplace(spellings[id], std::int32_t(id));
  std::string without_id, without_row;
  for (const auto& [name, token] : names.all()) {
    const auto found = id_of.find(name);
    if (found != id_of.end() && token.id >= 0 && token.id != found->second)
      fail(token.source, ": ", quote(name), " has the id ", token.id, ", but ", found->second, " in ", source);
    if (found != id_of.end()) continue;
    if (token.id < 0) {
      without_id += (without_id.empty() ? "" : ", ") + quote(name);
      continue;
    }
    if (options.rows > 0 && token.id >= options.rows && options.rows >= std::ssize(spellings)) {
      without_row += (without_row.empty() ? "" : ", ") + quote(name);
      continue;
    }
    if (token.id >= std::ssize(spellings) + most_unnamed)
      fail(token.source, ": the id ", token.id, " of ", quote(name), " is far behind the ", spellings.size(),
           " tokens of ", source);
    if (token.id >= std::ssize(spellings)) spellings.resize(std::size_t(token.id) + 1);
    std::string& place = spellings[std::size_t(token.id)];
    if (!place.empty())
      fail(source, ": ", quote(std::min(place, name)), " and ", quote(std::max(place, name)), " both have the id ",
           token.id);
    place = name;
    id_of.emplace(name, std::int32_t(token.id));
  }
  if (!without_id.empty()) report.notes.push_back("special tokens without an id, left out: " + without_id);
  if (!without_row.empty())
    report.notes.push_back(
        text("added tokens behind the ", options.rows, " rows of the model, left out: ", without_row));
  TokenTable table;
  std::string guessed, fillers;
  std::int64_t filler_count = 0;
  for (std::size_t i = 0; i < spellings.size(); ++i) {
    const auto id = std::int32_t(i);
    std::string& name = spellings[i];
    const TokenName* known = names.find(name);
    const bool is_reachable = reachable(name);
    if (name.empty()) {
      name = text("<unused_", id, ">");
      table.special_ids.push_back(id);
    } else if (std::ranges::binary_search(special_ids, id)) {
      table.special_ids.push_back(id);
    } else if (known) {
      const bool always = !known->special.value_or(false);
      if (known->single_word) fail(known->source, ": single_word = true of ", quote(name), " is not supported");
      if (!always) table.special_ids.push_back(id);
      const AddedToken added{id, always, known->lstrip, known->rstrip, known->normalized.value_or(always)};
      if (always || added.lstrip || added.rstrip || added.normalized) table.added.push_back(added);
    } else if (!is_reachable && !names.says_special() && looks_special(name)) {
      if (std::ranges::find(bert_names, name) == bert_names.end()) guessed += (guessed.empty() ? "" : ", ") + name;
      table.special_ids.push_back(id);
    } else if (!is_reachable) {
      if (++filler_count == 1) fillers = quote(name);
    }
  }
  if (!guessed.empty())
    report.notes.push_back("no file says which tokens are special; by their look these are: " + quote(guessed, 200));
  if (filler_count)
    report.notes.push_back(text("tokens that no text makes: ", filler_count, ", the first is ", fillers));
  for (const std::string& special : options.specials) {
    if (std::ranges::any_of(table.special_ids, [&](std::int32_t id) { return spellings[std::size_t(id)] == special; }))
      continue;
    table.special_ids.push_back(std::int32_t(spellings.size()));
    spellings.push_back(special);
  }
  table.tokens = std::move(spellings);
  return table;
}

namespace {

// Pieces of several characters by falling score, and equal ones by id: scores are ranks in one file and logarithms in
// another. Those that no two pieces make are left out: their scores say nothing.
std::vector<std::int32_t> order_of(const Json& json) {
  std::unordered_map<std::string, std::int32_t> ids;
  std::vector<std::int32_t> order;
  if (!json.contains("scores")) return order;
  for (std::int32_t id = 0; id < std::ssize(json["pieces"]); ++id)
    if (const Json& piece = json["pieces"][std::size_t(id)]; !piece.is_null())
      ids.emplace(bytes_from_json(piece, ""), id);
  for (const auto& [piece, id] : ids)
    for (std::size_t at = 1; at < piece.size(); ++at)
      if (ids.contains(piece.substr(0, at)) && ids.contains(piece.substr(at))) {
        order.push_back(id);
        break;
      }
  std::ranges::sort(order, [&](std::int32_t x, std::int32_t y) {
    const double a = json["scores"][std::size_t(x)].get<double>(), b = json["scores"][std::size_t(y)].get<double>();
    return a != b ? a > b : x < y;
  });
  return order;
}

}  // namespace

void check_agree(const Tokenizer& a, const std::string& a_source, const Tokenizer& b, const std::string& b_source) {
  const char* cure = "; take one of the files away, or give one by tokenizer=FILE";
  for (std::int32_t id = 0; id < std::min(a.vocab_size(), b.vocab_size()); ++id)
    if (a.token(id) != b.token(id))
      fail(a_source, " and ", b_source, " disagree: token ", id, " is ", quote(a.token(id)), " in the one and ",
           quote(b.token(id)), " in the other", cure);
  if (a.vocab_size() != b.vocab_size())
    fail(a_source, " has ", a.vocab_size(), " tokens, but ", b_source, " has ", b.vocab_size(), cure);
  const auto merges_of = [](const Tokenizer& tokenizer) {
    const Json json = tokenizer.to_json();
    return json.contains("merges") ? json["merges"] : Json(order_of(json));
  };
  if (merges_of(a) != merges_of(b)) fail(a_source, " and ", b_source, " disagree about the order of merging", cure);
}

}  // namespace flexformer
