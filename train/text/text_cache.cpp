// A token file is found by its name, and believed for what its header says. Whatever goes wrong with these files costs
// time and no more: the text is there to begin again with.
#include "train/text/text_cache.h"

#include <chrono>

#include "tensor/error.h"
#include "train/text/token_file.h"
#include "train/util/program.h"

namespace flexformer {
namespace {

namespace fs = std::filesystem;

void say(const CacheOptions& cache, const std::string& line) {
  if (cache.reading.console) cache.reading.console->say(line);
}

std::string short_hash(std::uint64_t hash) { return fingerprint(hash).substr(0, 8); }

bool is_kept(const TextSource& text, const CacheOptions& cache) {
  return cache.place != "none" && text.is_file() && text.size() >= cache.min_bytes;
}

// Beside the text, and elsewhere, where the name tells texts of one name apart.
std::vector<fs::path> places(const TextSource& text, const std::string& ending, const CacheOptions& cache) {
  if (!is_kept(text, cache)) return {};
  std::error_code unknown;
  const fs::path path = text.name(), whole = fs::weakly_canonical(path, unknown);
  const std::string elsewhere = path.filename().string() + "-" + short_hash(fnv1a64(whole.string())) + ending;
  if (cache.place != "auto") return {fs::path(cache.place) / elsewhere};
  std::vector<fs::path> found = {fs::path(path) += ending};
  if (!cache.run_folder.empty()) found.push_back(cache.run_folder / elsewhere);
  return found;
}

// Makes a folder that was asked for, and deletes what writers of this file left that were killed. What other runs are
// still writing is younger.
void prepare(const fs::path& path, const CacheOptions& cache) {
  std::error_code error;  // of any kind shows when the file is written
  if (cache.place != "auto") fs::create_directories(path.parent_path(), error);
  const std::string beginning = path.filename().string() + ".";
  const fs::path parent = path.parent_path().empty() ? "." : path.parent_path();
  for (const auto& entry : fs::directory_iterator(parent, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(beginning) || !name.ends_with(kTemporarySuffix)) continue;
    std::error_code vanished;
    const auto changed = fs::last_write_time(entry.path(), vanished);
    if (!vanished && fs::file_time_type::clock::now() - changed > std::chrono::hours(1))
      fs::remove(entry.path(), vanished);
  }
}

// Why a text is tokenised that has no token file for this tokenizer.
std::string missing_reason(const TextSource& text, const Tokenizer& tokenizer) {
  std::error_code error;
  const fs::path path = text.name(), parent = path.parent_path().empty() ? "." : path.parent_path();
  for (const auto& entry : fs::directory_iterator(parent, error))
    if (entry.path().filename().string().starts_with(path.filename().string() + ".tokens-"))
      return flexformer::text("its token files were made with other tokenizers than this ", tokenizer.name(),
                              " tokenizer");
  return "there is no token file yet";
}

TokenizedText write_tokens(TextSource& text, const Tokenizer& tokenizer, const TokenFileKey& key, const fs::path& path,
                           const CacheOptions& cache) {
  prepare(path, cache);
  TokenFileWriter writer(path, key);
  const TextFigures figures =
      tokenize(text, tokenizer, cache.reading, [&](std::span<const std::int32_t> ids) { writer.append(ids); });
  writer.finish(figures);
  const Index bytes = figures.tokens * TokenRow::id_bytes(key.vocab);
  say(cache, flexformer::text("wrote ", path.string(), ": ", grouped(figures.tokens), " tokens, ", megabytes(bytes),
                              "; it may be deleted when no run needs it"));
  return read_token_file(path, key);
}

std::vector<fs::path> token_places(const TextSource& text, std::uint64_t tokenizer, const CacheOptions& cache) {
  return places(text, ".tokens-" + short_hash(tokenizer), cache);
}

// What a kept tokenizer depends on: options, and the texts as they are now.
Json made_with(const std::string& kind, const TokenizerOptions& options) {
  return {{"kind", kind},
          {"vocab", options.vocab},
          {"min_count", options.min_count},
          {"lowercase", options.lowercase},
          {"unicode", options.unicode},
          {"nfc", options.nfc},
          {"keep_newlines", options.keep_newlines},
          {"split_punctuation", options.split_punctuation},
          {"word_limit", options.word_limit},
          {"specials", options.specials}};
}

Json made_from(std::span<TextSource> texts) {
  Json stamps = Json::array();
  for (const TextSource& text : texts) {
    const FileStamp stamp = text.stamp();
    // A text that is no file counts by its bytes alone.
    stamps.push_back({stamp.bytes, stamp.modified_ns, fingerprint(stamp.sample)});
  }
  return stamps;
}

// The tokenizer of a file that was made from these texts; null where there is none, with a line if it is of no use.
std::unique_ptr<Tokenizer> read_vocabulary(const fs::path& path, const Json& with, const Json& from,
                                           const CacheOptions& cache) {
  std::error_code error;
  if (!fs::exists(path, error)) return nullptr;
  const std::string source = path.string();
  try {
    const Json json = read_json(path);
    if (json_member(json, "made_with", source) != with) fail("it was made with other options");
    if (json_member(json, "made_from", source) != from) fail("the text has changed since");
    return Tokenizer::from_json(json_member(json, "tokenizer", source), source);
  } catch (const Error& unusable) {
    say(cache, text("not using ", source, ": ", unusable.what()));
    return nullptr;
  }
}

}  // namespace

std::vector<fs::path> token_file_places(const TextSource& text, const Tokenizer& tokenizer, const CacheOptions& cache) {
  return token_places(text, tokenizer.hash(), cache);
}

TokenizedText cached_tokens(TextSource& text, const Tokenizer& tokenizer, const CacheOptions& cache) {
  if (!is_kept(text, cache)) return tokenize(text, tokenizer, cache.reading);
  const TokenFileKey key{text.stamp(), tokenizer.hash(), tokenizer.vocab_size()};
  const std::vector<fs::path> places = token_places(text, key.tokenizer, cache);
  std::string reason;
  for (const fs::path& path : places) {
    std::error_code error;
    if (!fs::exists(path, error)) continue;
    try {
      TokenizedText found = read_token_file(path, key);
      say(cache, flexformer::text("tokens of ", text.name(), " are taken from ", path.string()));
      return found;
    } catch (const Error& unusable) {
      if (reason.empty()) reason = flexformer::text(path.string(), ": ", unusable.what());
    }
  }
  say(cache, flexformer::text("tokenising ", text.name(), " (", megabytes(text.size()), "), since ",
                              reason.empty() ? missing_reason(text, tokenizer) : reason));
  if (text.size() >= kLongText) watch_stop_signals();  // so that Ctrl-C leaves no half of a file behind
  for (const fs::path& path : places) {
    try {
      return write_tokens(text, tokenizer, key, path, cache);
    } catch (const TokenFileFailed& failed) {
      say(cache, flexformer::text("no token file here: ", failed.reason));
    }
  }
  say(cache, "the tokens stay in memory; data.cache=FOLDER names a place for them");
  return tokenize(text, tokenizer, cache.reading);
}

std::unique_ptr<Tokenizer> cached_tokenizer(const std::string& kind, std::span<TextSource> texts,
                                            const TokenizerOptions& options, const CacheOptions& cache) {
  const Json with = made_with(kind, options);
  const auto make = [&] { return make_tokenizer(kind, texts, options, cache.reading); };
  const bool is_learned = is_tokenizer_name(kind) && kind != "byte";
  const bool all_files = std::ranges::all_of(texts, &TextSource::is_file);
  if (!is_learned || !all_files || !is_kept(texts.front(), cache)) return make();
  const fs::path path = places(texts.front(), ".vocabulary-" + short_hash(fnv1a64(dump_json(with))), cache).front();
  const Json from = made_from(texts);
  if (std::unique_ptr<Tokenizer> kept = read_vocabulary(path, with, from, cache)) {
    say(cache, text("the vocabulary of ", texts.front().name(), " is taken from ", path.string()));
    return kept;
  }
  std::unique_ptr<Tokenizer> made = make();
  for (TextSource& source : texts) source.check_unchanged();
  prepare(path, cache);
  try {
    write_json_atomic(path, {{"made_with", with}, {"made_from", from}, {"tokenizer", made->to_json()}});
  } catch (const Error& failed) {
    say(cache, text("the vocabulary is not kept: ", failed.what()));
  }
  return made;
}

}  // namespace flexformer
