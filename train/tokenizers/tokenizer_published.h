// What the tokenizers of published models share: names that stand for tokens wherever a text holds them, and a
// normaliser for what lies between. Kinds differ in how they cut that.
#pragma once
#include <array>

#include "train/tokenizers/text_normalizer.h"
#include "train/tokenizers/tokenizer.h"

namespace flexformer {

// A token outside of the vocabulary's own rules. Where its name stands, it is that token.
struct AddedToken {
  std::int32_t id = 0;
  bool always = true;                   // else special: only with parse_specials
  bool lstrip = false, rstrip = false;  // the white space before, behind goes
  bool normalized = false;              // looked for in the normalised text; else in the text as it is
  bool operator==(const AddedToken&) const = default;
};

struct TextRules {
  TextNormalizer normalizer = {};
  std::vector<AddedToken> added = {};  // by id; special tokens that are not here have no flags
  bool parse_specials = false;
};

class PublishedTokenizer : public Tokenizer {
 public:
  std::size_t lookahead() const override { return kLookahead + longest_name_; }
  std::int64_t covered_bytes(std::string_view text, std::span<const std::int32_t> ids,
                             std::size_t count) const override;
  const TextRules& rules() const { return rules_; }

 protected:
  PublishedTokenizer(std::vector<std::string> tokens, std::vector<std::int32_t> special_ids, bool lowercase,
                     TextRules rules, const std::string& source);

  // Part of a text between names, normalised.
  struct Stretch {
    std::string_view text;
    bool begins;        // the text begins here,
    bool follows_name;  // or a name stood before
    bool last;          // it ends there; else more follows
  };
  // Appends the ids of a stretch and returns how many bytes of it they settle, as encode_part() does.
  virtual std::size_t append_tokens(const Stretch& stretch, std::vector<std::int32_t>& ids) const = 0;
  // Where each id that append_tokens() gave for a stretch ends in it.
  virtual std::vector<std::size_t> ends_of(const Stretch& stretch, std::span<const std::int32_t> ids) const;

  std::size_t encode_settled(const TextPart& part, std::vector<std::int32_t>& ids) const override;
  // Whether texts are cut as they are.
  bool is_plain() const { return names_.empty() && rules_.normalizer.empty(); }
  bool is_added(std::int32_t id) const;  // one of rules().added

  // The keys "parse_specials", "added" and "normalizer", each only where it says something, so that the hash of older
  // files stays as it was.
  void add_rules_to_json(Json& json) const;
  static TextRules rules_from_json(const Json& json, std::int64_t tokens, const std::string& source);

  TextRules rules_;

 private:
  // Names by their first byte, the longest first.
  class Names {
   public:
    void add(std::string name, const AddedToken& token);
    bool empty() const { return longest_ == 0; }
    std::size_t longest() const { return longest_; }
    bool strips() const { return strips_; }
    struct Found {
      std::size_t begin, end;  // with the white space that goes
      std::int32_t id;         // -1: none
    };
    // The first name that begins in text[from, limit).
    Found find(std::string_view text, std::size_t from, std::size_t limit) const;

   private:
    std::array<std::vector<std::pair<std::string, AddedToken>>, 256> by_byte_;
    std::size_t longest_ = 0;
    bool strips_ = false;
  };
  // encode_part(), which also says where each token ends.
  std::size_t walk(const TextPart& part, std::vector<std::int32_t>& ids, std::vector<std::size_t>* ends) const;
  std::size_t walk_between(const Stretch& given, std::size_t at, std::vector<std::int32_t>& ids,
                           std::vector<std::size_t>* ends) const;
  // A stretch that starts at `at` of a text, or, with `map`, of a normalised text whose bytes come from map[i].
  std::size_t walk_stretch(const Stretch& stretch, std::size_t at, const std::vector<std::size_t>* map,
                           std::vector<std::int32_t>& ids, std::vector<std::size_t>* ends) const;

  Names names_, later_names_;  // to be found in the text, and in the normalised text
  std::size_t longest_name_ = 0;
};

}  // namespace flexformer
