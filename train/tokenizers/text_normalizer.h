// What published tokenizers do to a text before they cut it: a chain of steps, as the "normalizer" of a tokenizer.json
// of Hugging Face names them.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "train/util/json_file.h"
#include "train/util/unicode.h"

namespace flexformer {

class TextNormalizer {
 public:
  struct Step {
    enum Kind { nfc, nfd, nfkc, nfkd, lowercase, strip_marks, clean, space_chinese, strip_accents, replace };
    Kind kind;
    std::string from = {}, to = {};  // of replace: one character, and what stands for it
    bool operator==(const Step&) const = default;
  };

  TextNormalizer() = default;
  explicit TextNormalizer(std::vector<Step> steps) : steps_(std::move(steps)) {}
  // BERT's: no control characters, blanks around Chinese characters, no accents, small letters.
  static TextNormalizer bert(bool clean, bool chinese, bool strip_accents, bool lowercase);

  bool empty() const { return steps_.empty(); }
  bool has(Step::Kind kind) const;
  const std::vector<Step>& steps() const { return steps_; }

  // `ends` gets, for each byte of the result, where in `text` that ends which it was made from.
  std::string operator()(std::string_view text, std::vector<std::size_t>* ends = nullptr) const;

  // An array of steps; what from_json() reads. Throws Error "source: ..." for anything else.
  Json to_json() const;
  static TextNormalizer from_json(const Json& json, const std::string& source);

  // Reads and writes the "normalizer" of Hugging Face. Throws Error naming the value for a step that is not known here.
  static TextNormalizer from_hugging_face(const Json& json, const std::string& source);
  Json to_hugging_face() const;

  bool operator==(const TextNormalizer&) const = default;

 private:
  std::vector<Step> steps_;
};

}  // namespace flexformer
