#include "train/tokenizers/tokenizer_hugging_face.h"

#include <algorithm>
#include <array>
#include <set>
#include <unordered_map>

#include "tensor/error.h"
#include "train/tokenizers/tokenizer_kinds.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

constexpr std::string_view gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

Json member_or(const Json& object, const char* key, const Json& other) {
  return object.is_object() && object.contains(key) && !object[key].is_null() ? object[key] : other;
}

std::string type_of(const Json& json) {
  const Json type = member_or(json, "type", "");
  return type.is_string() ? type.get<std::string>() : dump_json(type);
}

// The parts of a pipeline: a Sequence is its elements, null is none.
void flatten(const Json& json, const char* elements, std::vector<Json>& list) {
  if (type_of(json) != "Sequence") {
    if (!json.is_null()) list.push_back(json);
    return;
  }
  for (const Json& inner : member_or(json, elements, Json::array())) flatten(inner, elements, list);
}

class Reader {
 public:
  Reader(const Json& json, const std::string& source)
      : json_(json), source_(source), model_(json_member(json, "model", source)) {}

  HuggingFaceTokenizer read() {
    const std::string type = model_.contains("type")     ? type_of(model_)
                             : model_.contains("merges") ? "BPE"
                                                         : "WordPiece";
    flatten(member_or(json_, "normalizer", nullptr), "normalizers", normalizers_);
    flatten(member_or(json_, "pre_tokenizer", nullptr), "pretokenizers", cutters_);
    out_.vocabulary = json_member(model_, "vocab", source_ + ": model");
    if (type != "BPE" && type != "WordPiece") refuse("model.type", type, "there are BPE and WordPiece");
    if (!out_.vocabulary.is_object()) fail(source_, ": expected model.vocab to be an object");
    if (type == "WordPiece")
      read_wordpiece();
    else
      read_bpe();
    read_frame();
    check_decoder();
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const Json& value, const std::string& known) const {
    fail(source_, ": ", what, " ", quote(dump_json(value), 200), " is not supported; ", known);
  }

  // Refuses a key of the model that says something: not null, false, "" or 0.
  void refuse_model_key(const char* key, const std::string& known) const {
    const Json value = member_or(model_, key, nullptr);
    if (value != nullptr && value != false && value != "" && value != 0) refuse(text("model.", key), value, known);
  }

  void read_normalizer() {
    if (normalizers_.empty()) return;
    out_.normalizer = TextNormalizer::from_hugging_face({{"type", "Sequence"}, {"normalizers", normalizers_}}, source_);
  }

  void read_wordpiece() {
    out_.kind = "wordpiece";
    const auto only = [&](const char* key, const Json& value) {
      if (const Json found = member_or(model_, key, value); found != value)
        refuse(text("model.", key), found, "it must be " + dump_json(value));
    };
    only("unk_token", "[UNK]");
    only("continuing_subword_prefix", "##");
    only("max_input_chars_per_word", 100);
    read_normalizer();
    std::vector<std::string> types;
    for (const Json& cutter : cutters_) types.push_back(type_of(cutter));
    const bool same = types == std::vector<std::string>{"WhitespaceSplit", "Punctuation"} &&
                      member_or(cutters_[1], "behavior", "Isolated") == "Isolated";
    if (types != std::vector<std::string>{"BertPreTokenizer"} && !same)
      refuse("pre_tokenizer", member_or(json_, "pre_tokenizer", nullptr), "WordPiece is read with BertPreTokenizer");
  }

  void read_bpe() {
    const Json& merges = json_member(model_, "merges", source_ + ": model");
    if (!merges.is_array()) fail(source_, ": expected model.merges to be an array");
    for (const Json& merge : merges) {
      if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
        out_.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      else
        add_merge(out_.merges, merge.is_string() ? merge.get<std::string>() : dump_json(merge),
                  text(source_, ": model.merges[", out_.merges.size(), "]"));
    }
    for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges"})
      refuse_model_key(key, "tokens are made by merges alone");
    if (member_or(model_, "byte_fallback", false) == true)
      read_pieces();
    else
      read_bytes();
  }

  void read_bytes() {
    out_.kind = "gpt2";
    read_normalizer();
    const Json given = member_or(json_, "pre_tokenizer", nullptr);
    bool has_pattern = false, has_bytes = false;
    for (const Json& cutter : cutters_) {
      const std::string type = type_of(cutter);
      const bool uses_pattern = member_or(cutter, "use_regex", true) == true;
      const Json pattern = member_or(member_or(cutter, "pattern", nullptr), "Regex", "");
      if (type == "Digits" && out_.digits == Digits::with_blank && !has_pattern && !has_bytes) {
        out_.digits = member_or(cutter, "individual_digits", false) == true ? Digits::single : Digits::run;
      } else if (type == "Split" && !has_pattern && !has_bytes &&
                 (pattern == gpt2_pattern || pattern == bpe_pattern()) &&
                 member_or(cutter, "behavior", "") == "Isolated" && member_or(cutter, "invert", false) == false) {
        if (pattern == bpe_pattern()) out_.kind = "bpe";
        has_pattern = true;
      } else if (type == "ByteLevel" && !has_bytes && uses_pattern != has_pattern) {
        has_bytes = true;
        out_.prefix_space = member_or(cutter, "add_prefix_space", true) == true;
        if (out_.prefix_space && cutters_.size() > 1)
          refuse("pre_tokenizer", given, "add_prefix_space must be false here");
      } else {
        refuse("pre_tokenizer", given,
               "byte-level BPE is read where it cuts texts as GPT-2 does, with Digits before it");
      }
    }
    if (!has_bytes) refuse("pre_tokenizer", given, "BPE is read with a ByteLevel pre_tokenizer, or with byte_fallback");
  }

  void read_pieces() {
    out_.kind = "sentencepiece";
    using Vocabulary = SentencePieceVocabulary;
    const Json given = member_or(json_, "normalizer", nullptr);
    bool replaces = false;
    const auto last_is = [&](const char* type) {
      return !normalizers_.empty() && type_of(normalizers_.back()) == type;
    };
    if (last_is("Replace") && member_or(normalizers_.back(), "content", "") == kSpaceMark &&
        member_or(normalizers_.back(), "pattern", nullptr) == Json{{"String", " "}}) {
      replaces = true;
      normalizers_.pop_back();
    }
    if (replaces && last_is("Prepend") && member_or(normalizers_.back(), "prepend", "") == kSpaceMark) {
      out_.prefix = Vocabulary::always;
      normalizers_.pop_back();
    }
    read_normalizer();
    if (cutters_.empty() && replaces) return;
    const bool metaspace = cutters_.size() == 1 && type_of(cutters_[0]) == "Metaspace";
    if (!metaspace || replaces)
      refuse("pre_tokenizer", member_or(json_, "pre_tokenizer", nullptr),
             "BPE with byte_fallback is read with spaces replaced by U+2581, by the normalizer or by Metaspace");
    const Json& cutter = cutters_[0];
    if (const Json mark = member_or(cutter, "replacement", kSpaceMark); mark != kSpaceMark)
      refuse("pre_tokenizer.replacement", mark, "it must be U+2581");
    const Json scheme =
        member_or(cutter, "prepend_scheme", member_or(cutter, "add_prefix_space", true) == true ? "always" : "never");
    if (scheme != "always" && scheme != "first" && scheme != "never")
      refuse("pre_tokenizer.prepend_scheme", scheme, "there are always, first and never");
    out_.prefix = scheme == "always" ? Vocabulary::always : scheme == "first" ? Vocabulary::first : Vocabulary::never;
    out_.only_missing = out_.prefix != Vocabulary::never;
    if (member_or(cutter, "split", true) == true)
      for (const auto& [piece, id] : out_.vocabulary.items())
        if (piece.find(kSpaceMark, 1) != piece.npos)
          refuse("pre_tokenizer.split", true, "the token " + quote(piece) + " goes on behind a space");
  }

  // What stands around texts.
  void read_frame() {
    std::vector<Json> processors;
    const Json given = member_or(json_, "post_processor", nullptr);
    flatten(given, "processors", processors);
    std::erase_if(processors, [](const Json& part) { return type_of(part) == "ByteLevel"; });
    out_.single = {"$A"};
    out_.pair = {"$A", "$B"};
    if (processors.empty()) return;
    const Json& part = processors[0];
    const std::string type = type_of(part);
    const auto name_of = [&](const char* key, const char* other) {
      const Json token = member_or(part, key, Json::array({other, 0}));
      return token.is_array() && !token.empty() && token[0].is_string() ? token[0].get<std::string>()
                                                                        : std::string(other);
    };
    if (processors.size() > 1) refuse("post_processor", given, "there may be one frame around texts");
    if (type == "BertProcessing" || type == "RobertaProcessing") {
      const bool roberta = type == "RobertaProcessing";
      const std::string cls = name_of("cls", roberta ? "<s>" : "[CLS]"),
                        sep = name_of("sep", roberta ? "</s>" : "[SEP]");
      out_.single = {cls, "$A", sep};
      out_.pair = {cls, "$A", sep, "$B", sep};
      if (roberta) out_.pair.insert(out_.pair.begin() + 3, sep);
    } else if (type == "TemplateProcessing") {
      out_.single = template_of(part, "single");
      out_.pair = template_of(part, "pair");
    } else {
      refuse("post_processor", given, "there are TemplateProcessing, BertProcessing, RobertaProcessing and ByteLevel");
    }
  }

  std::vector<std::string> template_of(const Json& part, const char* key) const {
    std::vector<std::string> names;
    for (const Json& element : json_member(part, key, source_ + ": post_processor")) {
      const Json special = member_or(element, "SpecialToken", nullptr),
                 sequence = member_or(element, "Sequence", nullptr);
      const Json id = member_or(special.is_null() ? sequence : special, "id", nullptr);
      if (!id.is_string()) refuse(text("post_processor.", key), element, "it is no SpecialToken and no Sequence");
      names.push_back((special.is_null() ? "$" : "") + id.get<std::string>());
    }
    return names;
  }

  // Decoders make text of tokens. Each kind has its own, in several spellings.
  void check_decoder() const {
    std::vector<Json> decoders;
    flatten(member_or(json_, "decoder", nullptr), "decoders", decoders);
    const std::vector<std::string> known =
        out_.kind == "gpt2" || out_.kind == "bpe" ? std::vector<std::string>{"ByteLevel"}
        : out_.kind == "wordpiece"                ? std::vector<std::string>{"WordPiece"}
                                   : std::vector<std::string>{"Metaspace", "Replace", "ByteFallback", "Fuse", "Strip"};
    for (const Json& decoder : decoders)
      if (std::ranges::find(known, type_of(decoder)) == known.end())
        refuse("decoder", decoder, "it does not belong to this kind of vocabulary");
  }

  const Json& json_;
  const std::string& source_;
  const Json& model_;
  std::vector<Json> normalizers_, cutters_;
  HuggingFaceTokenizer out_;
};

}  // namespace

void add_merge(std::vector<Spellings>& merges, std::string_view merge, const std::string& place) {
  const std::size_t at = merge.find(' ');
  if (at == merge.npos || at == 0 || at + 1 == merge.size() || merge.find(' ', at + 1) != merge.npos)
    fail(place, ": expected two tokens with one blank between them, found ", quote(merge));
  merges.emplace_back(merge.substr(0, at), merge.substr(at + 1));
}

HuggingFaceTokenizer read_hugging_face(const Json& json, const std::string& source) {
  return Reader(json, source).read();
}

SentencePieceVocabulary HuggingFaceTokenizer::pieces(std::vector<std::string> spellings,
                                                     const std::string& source) const {
  SentencePieceVocabulary out;
  out.prefix = prefix;
  out.only_missing = only_missing;
  out.adds_start = single == std::vector<std::string>{"<s>", "$A"};
  if (!out.adds_start && single != std::vector<std::string>{"$A"})
    fail(source, ": post_processor: what stands around a text, ", dump_json(single),
         ", is not supported; there are [\"<s>\",\"$A\"] and [\"$A\"]");
  std::unordered_map<std::string, std::int32_t> ids;
  for (std::string& spelling : spellings) {
    out.pieces.push_back(with_spaces(std::move(spelling)));
    ids.emplace(out.pieces.back(), std::int32_t(out.pieces.size()) - 1);
  }
  // The merges that make a piece must stand side by side: then their place is the piece's score.
  out.scores.assign(out.pieces.size(), 0);
  std::set<std::pair<std::int32_t, std::int32_t>> pairs;
  bool has_scores = true;
  std::int32_t last = -1;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string left = with_spaces(merges[rank].first), right = with_spaces(merges[rank].second);
    const auto found_left = ids.find(left), found_right = ids.find(right), made = ids.find(left + right);
    if (found_left == ids.end() || found_right == ids.end() || made == ids.end())
      fail(source, ": model.merges[", rank, "]: ",
           quote(found_left == ids.end()    ? left
                 : found_right == ids.end() ? right
                                            : left + right),
           " is no token of model.vocab");
    out.merges.emplace_back(found_left->second, found_right->second);
    pairs.insert(out.merges.back());
    float& score = out.scores[std::size_t(made->second)];
    if (made->second != last) {
      has_scores = has_scores && score == 0;
      score = -float(rank + 1);
    }
    last = made->second;
  }
  for (std::size_t id = 0; has_scores && id < out.pieces.size(); ++id) {
    const std::string& piece = out.pieces[id];
    for (std::size_t at = 1; at < piece.size(); ++at) {
      if ((static_cast<unsigned char>(piece[at]) & 0xC0) == 0x80) continue;
      const auto left = ids.find(piece.substr(0, at)), right = ids.find(piece.substr(at));
      if (left != ids.end() && right != ids.end() && !pairs.contains({left->second, right->second})) has_scores = false;
    }
  }
  if (has_scores)
    out.merges.clear();
  else
    out.scores.assign(out.pieces.size(), 0);
  return out;
}

}  // namespace flexformer
