// GPT-2's files spell bytes as characters, the inverse of what tokenizer_vocabulary.cpp reads.
#include "train/tokenizers/tokenizer_files.h"

#include <algorithm>
#include <array>
#include <optional>

#include "train/tokenizers/tokenizer_kinds.h"
#include "train/tokenizers/tokenizer_sentencepiece.h"
#include "train/tokenizers/tokenizer_wordpiece.h"
#include "train/util/files.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

std::string spelled(const std::string& bytes) {
  static const std::array<std::uint32_t, 256> character_of = [] {
    std::array<std::uint32_t, 256> characters{};
    std::uint32_t next = 0x100;
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
      characters[byte] = printable ? byte : next++;
    }
    return characters;
  }();
  std::string out;
  for (const char byte : bytes) append_code_point(character_of[static_cast<unsigned char>(byte)], out);
  return out;
}

// A tokenizer as all files see it: a spelling for each id, and the tokens that stand outside of the vocabulary.
class Export {
 public:
  Export(const Tokenizer& tokenizer, const std::filesystem::path& folder, const TokenizerUse& use)
      : tokenizer_(tokenizer),
        folder_(folder),
        use_(use),
        published_(dynamic_cast<const PublishedTokenizer*>(&tokenizer)),
        wordpiece_(dynamic_cast<const WordPieceTokenizer*>(&tokenizer)),
        pieces_(dynamic_cast<const SentencePieceTokenizer*>(&tokenizer)) {
    count_ = std::int32_t(tokenizer.vocab_size());
    while (count_ > 0 && tokenizer.is_special(count_ - 1) && tokenizer.token(count_ - 1).starts_with("<unused_"))
      --count_;
    const Json json = tokenizer.to_json();
    if (json["lowercase"] == true) normalizer_.push_back({TextNormalizer::Step::lowercase});
    if (json.contains("merges") && !pieces_)
      for (const Json& merge : json["merges"])
        merges_.emplace_back(merge[0].get<std::int32_t>(), merge[1].get<std::int32_t>());
    if (published_)
      for (const TextNormalizer::Step& step : published_->rules().normalizer.steps()) normalizer_.push_back(step);
  }

  std::vector<std::string> write() {
    if (wordpiece_)
      write_wordpiece();
    else if (pieces_)
      write_pieces();
    else if (tokenizer_.name() == "word" || tokenizer_.name() == "char" || has_twins())
      return own();
    else
      write_bytes();
    return std::move(files_);
  }

 private:
  void file_of_bytes(const char* name, std::string_view bytes) {
    write_file_atomic(folder_ / name, bytes);
    files_.emplace_back(name);
  }
  void file(const char* name, const Json& json) { file_of_bytes(name, dump_json(json, 2) + "\n"); }

  std::vector<std::string> own() {
    file(kOwnTokenizerFile, tokenizer_.to_json());
    return std::move(files_);
  }

  const AddedToken* added(std::int32_t id) const {
    if (!published_) return nullptr;
    const auto found = std::ranges::find(published_->rules().added, id, &AddedToken::id);
    return found == published_->rules().added.end() ? nullptr : &*found;
  }
  bool is_outside(std::int32_t id) const { return added(id) && added(id)->always; }

  std::string spelling(std::int32_t id) const {
    const std::string& token = tokenizer_.token(id);
    if (tokenizer_.is_special(id) || is_outside(id)) return token;
    if (wordpiece_) return wordpiece_->piece(id);
    return pieces_ ? with_space_marks(pieces_->piece(id)) : spelled(token);
  }

  Json vocabulary() const {
    Json json = Json::object();
    for (std::int32_t id = 0; id < count_; ++id)
      if (!is_outside(id)) json[spelling(id)] = id;
    return json;
  }

  // Two merges of our bpe may make the same bytes, each a token of its own; in the files of others a spelling has one
  // id.
  bool has_twins() const { return tokenizer_.name() == "bpe" && std::ssize(vocabulary()) < count_; }

  // As added_tokens of tokenizer.json has it.
  Json added_token(std::int32_t id) const {
    const AddedToken flags = added(id) ? *added(id) : AddedToken{.id = id};
    return {{"id", id},
            {"content", tokenizer_.token(id)},
            {"single_word", false},
            {"lstrip", flags.lstrip},
            {"rstrip", flags.rstrip},
            {"normalized", flags.normalized},
            {"special", tokenizer_.is_special(id)}};
  }

  // Only what a text of UTF-8 can hold has a place in JSON.
  bool fits_json() const {
    for (std::int32_t id = 0; id < count_; ++id)
      if ((wordpiece_ || tokenizer_.is_special(id) || is_outside(id)) && !is_valid_utf8(tokenizer_.token(id)))
        return false;
    return true;
  }

  Json frame() const {
    const auto token = [&](const char* role) {
      const std::int32_t id = tokenizer_.special_id(role);
      return Json::array({tokenizer_.token(id), id});
    };
    if (use_.frame == "roberta")
      return {{"type", "RobertaProcessing"},
              {"sep", token("<sep>")},
              {"cls", token("<cls>")},
              {"trim_offsets", true},
              {"add_prefix_space", false}};
    if (use_.frame == "bert") return {{"type", "BertProcessing"}, {"sep", token("<sep>")}, {"cls", token("<cls>")}};
    if (pieces_ && pieces_->vocabulary().adds_start && tokenizer_.special_id("<s>") >= 0) {
      const auto part = [](const char* kind, const char* id, int type) {
        return Json{{kind, {{"id", id}, {"type_id", type}}}};
      };
      const Json start = part("SpecialToken", "<s>", 0), start2 = part("SpecialToken", "<s>", 1);
      const std::int32_t id = tokenizer_.special_id("<s>");
      return {{"type", "TemplateProcessing"},
              {"single", {start, part("Sequence", "A", 0)}},
              {"pair", {start, part("Sequence", "A", 0), start2, part("Sequence", "B", 1)}},
              {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {id}}, {"tokens", {"<s>"}}}}}}};
    }
    if (pieces_ || wordpiece_) return nullptr;
    return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}};
  }

  void write_tokenizer_json(Json normalizer, const Json& cutter, const Json& decoder, Json model) {
    Json list = Json::array();
    for (std::int32_t id = 0; id < count_; ++id)
      if (tokenizer_.is_special(id) || is_outside(id)) list.push_back(added_token(id));
    file("tokenizer.json", Json{{"version", "1.0"},
                                {"truncation", nullptr},
                                {"padding", nullptr},
                                {"added_tokens", list},
                                {"normalizer", std::move(normalizer)},
                                {"pre_tokenizer", cutter},
                                {"post_processor", frame()},
                                {"decoder", decoder},
                                {"model", std::move(model)}});
  }

  // tokenizer_config.json and special_tokens_map.json.
  void write_settings(const char* kind, Json settings) {
    Json roles = Json::object(), decoder = Json::object(), outside = Json::object();
    const bool end_is_all = tokenizer_.special_id("<|endoftext|>") >= 0;
    const auto role = [&](const char* key, std::initializer_list<const char*> names) {
      for (const char* name : names)
        for (std::int32_t id = 0; id < count_; ++id)
          if (!roles.contains(key) && tokenizer_.is_special(id) && tokenizer_.token(id) == name) roles[key] = name;
    };
    role("bos_token", {"<s>", "<|endoftext|>"});
    role("eos_token", {"</s>", "<|endoftext|>"});
    role("unk_token", {"<unk>", "[UNK]", end_is_all ? "<|endoftext|>" : "<unk>"});
    role("pad_token", {"<pad>", "[PAD]"});
    role("mask_token", {"<mask>", "[MASK]"});
    if (use_.frame != "plain") {
      role("sep_token", {"[SEP]", "</s>"});
      role("cls_token", {"[CLS]", "<s>"});
    }
    for (std::int32_t id = 0; id < count_; ++id) {
      if (is_outside(id)) outside[tokenizer_.token(id)] = id;
      if (!tokenizer_.is_special(id) && !is_outside(id)) continue;
      Json token = added_token(id);
      token.erase("id");
      decoder[std::to_string(id)] = token;
    }
    if (!outside.empty()) file("added_tokens.json", outside);
    file("special_tokens_map.json", roles);
    settings.update(roles);
    settings["added_tokens_decoder"] = decoder;
    settings["tokenizer_class"] = kind;
    if (use_.longest > 0) settings["model_max_length"] = use_.longest;
    file("tokenizer_config.json", settings);
  }

  void write_bytes() {
    const auto* gpt2 = dynamic_cast<const Gpt2Tokenizer*>(&tokenizer_);
    std::string merges = "#version: 0.2\n";
    Json list = Json::array();
    for (const auto& [left, right] : merges_) {
      list.push_back(spelling(left) + " " + spelling(right));
      merges += list.back().get<std::string>() + "\n";
    }
    const Digits digits = gpt2 ? gpt2->digits() : Digits::with_blank;
    const bool prefix = gpt2 && gpt2->prefix_space();
    Json cutter = {{"type", "ByteLevel"}, {"add_prefix_space", prefix}, {"trim_offsets", true}, {"use_regex", true}};
    if (tokenizer_.name() == "bpe") {
      cutter["use_regex"] = false;
      const Json split = {
          {"type", "Split"}, {"pattern", {{"Regex", bpe_pattern()}}}, {"behavior", "Isolated"}, {"invert", false}};
      cutter = {{"type", "Sequence"}, {"pretokenizers", {split, cutter}}};
    }
    if (digits != Digits::with_blank)
      cutter = {{"type", "Sequence"},
                {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", digits == Digits::single}}, cutter}}};
    if (normalizer_.empty() && digits == Digits::with_blank) {
      file_of_bytes("vocab.json", dump_json(vocabulary()));
      file_of_bytes("merges.txt", merges);
    }
    write_tokenizer_json(TextNormalizer(normalizer_).to_hugging_face(), cutter, {{"type", "ByteLevel"}},
                         {{"type", "BPE"},
                          {"dropout", nullptr},
                          {"unk_token", nullptr},
                          {"continuing_subword_prefix", nullptr},
                          {"end_of_word_suffix", nullptr},
                          {"fuse_unk", false},
                          {"byte_fallback", false},
                          {"vocab", vocabulary()},
                          {"merges", list}});
    write_settings(tokenizer_.name() == "bpe" ? "PreTrainedTokenizerFast"
                   : use_.frame == "roberta"  ? "RobertaTokenizer"
                                              : "GPT2Tokenizer",
                   {{"add_prefix_space", prefix}});
  }

  void write_wordpiece() {
    using Step = TextNormalizer::Step;
    const TextNormalizer normalizer(normalizer_);
    const bool lower = normalizer.has(Step::lowercase), strip = normalizer.has(Step::strip_accents);
    const bool chinese = normalizer.has(Step::space_chinese);
    const bool is_berts = normalizer == TextNormalizer::bert(true, chinese, strip, lower);
    std::string lines;
    for (std::int32_t id = 0; id < count_; ++id) lines += spelling(id) + "\n";
    if (is_berts) file_of_bytes("vocab.txt", lines);
    if (fits_json())
      write_tokenizer_json(normalizer.to_hugging_face(), {{"type", "BertPreTokenizer"}},
                           {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}},
                           {{"type", "WordPiece"},
                            {"unk_token", "[UNK]"},
                            {"continuing_subword_prefix", "##"},
                            {"max_input_chars_per_word", 100},
                            {"vocab", vocabulary()}});
    write_settings("BertTokenizer",
                   {{"do_lower_case", lower}, {"strip_accents", strip}, {"tokenize_chinese_chars", chinese}});
  }

  void write_pieces() {
    using Vocabulary = SentencePieceVocabulary;
    const Vocabulary& vocabulary = pieces_->vocabulary();
    if (use_.llama2c) return file_of_bytes("tokenizer.bin", write_llama2c_tokenizer(*pieces_));
    const bool has_prefix = vocabulary.prefix != Vocabulary::never;
    std::int32_t inside = count_;  // tokens of the .model: added ones follow behind
    while (inside > 0 && is_outside(inside - 1)) --inside;
    bool fits_model = vocabulary.merges.empty() && !vocabulary.only_missing && normalizer_.empty();
    for (std::int32_t id = 0; id < inside; ++id) fits_model = fits_model && !is_outside(id);
    if (fits_model) {
      file_of_bytes("tokenizer.model", write_sentencepiece_model(*pieces_, inside));
    } else {
      Json normalizer = TextNormalizer(normalizer_).to_hugging_face(), cutter;
      Json steps = normalizer.is_null()                 ? Json::array()
                   : normalizer.contains("normalizers") ? normalizer["normalizers"]
                                                        : Json::array({normalizer});
      if (vocabulary.only_missing || vocabulary.prefix == Vocabulary::first) {
        const char* schemes[] = {"always", "first", "never"};
        cutter = {{"type", "Metaspace"},
                  {"replacement", kSpaceMark},
                  {"prepend_scheme", schemes[vocabulary.prefix]},
                  {"split", false}};
      } else {
        if (has_prefix) steps.push_back({{"type", "Prepend"}, {"prepend", kSpaceMark}});
        steps.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpaceMark}});
      }
      Json decoders = {{{"type", "Replace"}, {"pattern", {{"String", kSpaceMark}}}, {"content", " "}},
                       {{"type", "ByteFallback"}},
                       {{"type", "Fuse"}}};
      if (has_prefix) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
      write_tokenizer_json(steps.empty() ? Json() : Json{{"type", "Sequence"}, {"normalizers", steps}}, cutter,
                           {{"type", "Sequence"}, {"decoders", decoders}},
                           {{"type", "BPE"},
                            {"dropout", nullptr},
                            {"unk_token", tokenizer_.unknown_id() >= 0 ? Json("<unk>") : Json()},
                            {"fuse_unk", true},
                            {"byte_fallback", true},
                            {"vocab", this->vocabulary()},
                            {"merges", merges_of_pieces()}});
    }
    write_settings("LlamaTokenizer", {{"add_bos_token", vocabulary.adds_start && tokenizer_.special_id("<s>") >= 0},
                                      {"add_eos_token", false},
                                      {"legacy", vocabulary.prefix != Vocabulary::first},
                                      {"clean_up_tokenization_spaces", false}});
  }

  // Every two pieces that make a third, in the order of its score.
  Json merges_of_pieces() const {
    Json merges = Json::array();
    const SentencePieceVocabulary& vocabulary = pieces_->vocabulary();
    const auto add = [&](const std::string& left, const std::string& right) {
      merges.push_back(with_space_marks(left) + " " + with_space_marks(right));
    };
    for (const auto& [left, right] : vocabulary.merges) add(tokenizer_.token(left), tokenizer_.token(right));
    if (!vocabulary.merges.empty()) return merges;
    std::unordered_map<std::string_view, std::int32_t> ids;
    std::vector<std::int32_t> order;
    for (std::int32_t id = 0; id < count_; ++id)
      if (!tokenizer_.is_special(id) && !is_outside(id) && pieces_->piece(id) == tokenizer_.token(id)) {
        ids.emplace(tokenizer_.token(id), id);
        order.push_back(id);
      }
    std::ranges::stable_sort(order, std::greater<>(),
                             [&](std::int32_t id) { return vocabulary.scores[std::size_t(id)]; });
    for (const std::int32_t id : order) {
      const std::string_view piece = tokenizer_.token(id);
      for (std::size_t at = 1; at < piece.size(); ++at)
        if (ids.contains(piece.substr(0, at)) && ids.contains(piece.substr(at)))
          add(std::string(piece.substr(0, at)), std::string(piece.substr(at)));
    }
    return merges;
  }

  const Tokenizer& tokenizer_;
  const std::filesystem::path& folder_;
  const TokenizerUse& use_;
  const PublishedTokenizer* published_;
  const WordPieceTokenizer* wordpiece_;
  const SentencePieceTokenizer* pieces_;
  std::int32_t count_ = 0;  // tokens without the unused ones at the end
  std::vector<TextNormalizer::Step> normalizer_;
  std::vector<IdPair> merges_;
  std::vector<std::string> files_;
};

}  // namespace

std::vector<std::string> write_tokenizer_files(const Tokenizer& tokenizer, const std::filesystem::path& folder,
                                               const TokenizerUse& use) {
  return Export(tokenizer, folder, use).write();
}

}  // namespace flexformer
