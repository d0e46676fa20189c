// What the small files beside a vocabulary say: tokens that were added to it, which are special, and how texts are
// treated. Several files may say the same thing; where two contradict each other, that is an error that names both.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <optional>

#include "train/tokenizers/tokenizer_published.h"

namespace flexformer {

// A token by name, as far as files describe it.
struct TokenName {
  std::int64_t id = -1;         // -1: no file says it
  std::optional<bool> special;  // none: it was added, and no file says more
  bool lstrip = false, rstrip = false, single_word = false;
  std::optional<bool> normalized;
  std::string source;  // the file that describes it
};

class TokenNames {
 public:
  // Reads added_tokens.json, tokenizer_config.json and special_tokens_map.json as far as they are in the folder.
  void read_folder(const std::filesystem::path& folder, VocabularyReport& report);
  // An object with "content", "id" and flags, as added_tokens of tokenizer.json has them.
  void add(const Json& token, const std::string& source);

  const std::map<std::string, TokenName>& all() const { return names_; }
  // Whether some file says which tokens are special.
  bool says_special() const { return says_special_; }
  const TokenName* find(const std::string& name) const;

  // The value of a key of tokenizer_config.json; none where it is missing or null.
  std::optional<bool> flag(const char* key) const;
  std::string setting(const char* key) const;
  const std::string& config_source() const { return config_source_; }
  // Throws Error naming key and value if the flag is this one; `why` follows.
  void refuse(const char* key, bool value, const char* why) const;
  // Throws Error if tokenizer_config.json says the opposite of what `other` has.
  void agree(const char* key, bool value, const std::string& other) const;

 private:
  void add_name(const std::string& name, const TokenName& token);
  void add_role(const char* key, const Json& value, const std::string& source, VocabularyReport& report);

  std::map<std::string, TokenName> names_;
  std::map<std::string, std::pair<std::string, std::string>> roles_;  // "pad_token" -> name, file
  Json config_ = Json::object();
  std::string config_source_;
  bool says_special_ = false;
};

// A vocabulary in the making: what each id stands for, as the files spell it.
struct TokenTable {
  std::vector<std::string> tokens;
  std::vector<std::int32_t> special_ids;
  std::vector<AddedToken> added;
};

// Puts names into a table of spellings by id: those with ids behind its end follow (ids without a name become
// "<unused_ID>", which is special), special ones and added ones are noted. `looks_special` decides where no file does,
// of the tokens that `reachable` says no text makes; then the report says so. `special_ids` are special whatever else
// is said. Missing options.specials come last.
TokenTable named_tokens(std::vector<std::string> spellings, const TokenNames& names,
                        const std::function<bool(const std::string&)>& reachable,
                        const std::function<bool(const std::string&)>& looks_special,
                        const std::vector<std::int32_t>& special_ids, const std::string& source,
                        const TokenizerOptions& options);

// Throws Error naming the first token, or the order of merging, in which two readings of one vocabulary differ.
void check_agree(const Tokenizer& a, const std::string& a_source, const Tokenizer& b, const std::string& b_source);

}  // namespace flexformer
