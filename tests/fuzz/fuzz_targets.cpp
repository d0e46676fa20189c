// Inputs of several files have a line "===" between them. Where checksums or complete alphabets would stop nearly every
// changed input at the door, the target builds the outer layers itself and the bytes fill what is inside.
#include "tests/fuzz/fuzz_targets.h"

#include <algorithm>
#include <cstring>

#include "nn/safetensors.h"
#include "tests/fuzz/fuzz_tools.h"
#include "tests/train/util/html_check.h"
#include "tests/train/util/png_writer.h"
#include "tests/train/util/temporary_folder.h"
#include "train/datasets/data_set.h"
#include "train/datasets/labels.h"
#include "train/datasets/pictures.h"
#include "train/models/classifier_run.h"
#include "train/models/language_run.h"
#include "train/models/model_options.h"
#include "train/reports/report.h"
#include "train/synthetic/listops.h"
#include "train/text/tokenized_text.h"
#include "train/tokenizers/tokenizer.h"
#include "train/util/files.h"
#include "train/util/inflate.h"
#include "train/util/png.h"
#include "train/util/utf8.h"

namespace flexformer::tests {
namespace {

namespace fs = std::filesystem;

// Fresh files with these names and contents; a name without a part is not there.
const TemporaryFolder& folder_of(std::initializer_list<const char*> names, std::string_view bytes) {
  static const TemporaryFolder folder;
  const std::vector<std::string_view> contents = parts(bytes);
  std::size_t n = 0;
  for (const char* name : names) {
    fs::create_directories((folder.path() / name).parent_path());
    if (n < contents.size())
      folder.file(name, contents[n++]);
    else
      fs::remove(folder.path() / name);
  }
  return folder;
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  const auto bytes = [](const Tensor& x) { return x.dtype() == DType::i32 ? (const void*)x.ints() : x.data(); };
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         (a.numel() == 0 || std::memcmp(bytes(a), bytes(b), std::size_t(a.numel()) * 4) == 0);
}

void safetensors(std::string_view bytes) {
  const SafetensorsFile file = read_safetensors(bytes, "f");
  const SafetensorsFile again = read_safetensors(write_safetensors(file), "again");
  promise(again.metadata == file.metadata && again.tensors.size() == file.tensors.size(), "safetensors: all there");
  for (std::size_t i = 0; i < file.tensors.size(); ++i)
    promise(
        again.tensors[i].name == file.tensors[i].name && same_bytes(again.tensors[i].tensor, file.tensors[i].tensor),
        "safetensors: what was written is read");
  load_tensors({{"a", Tensor::zeros({2})}}, file.tensors, "f");
}

// A header under its right length; the first byte says how many elements follow.
void safetensors_header(std::string_view header) {
  const std::size_t elements = Choices(header).below(65);
  const std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  safetensors(bytes.append(header).append(elements, 'x'));
}

void json(std::string_view bytes) {
  const Json json = parse_json(bytes, "f.json");
  const std::string written = dump_json(json, 2);
  promise(dump_json(parse_json(written, "again"), 2) == written, "json: what was written is read");
}

void config(std::string_view bytes) {
  const bool language = Choices(bytes).below(2);
  Options options(language ? "train_lm" : "train_classifier", "");
  (language ? add_language_options : add_classifier_options)(options);
  options.load_config(parse_json(bytes, "f.json"), "f.json");
  Options again = options;
  again.load_effective(parse_json(dump_json(options.effective()), "again"), "again");
  for (const Key& key : options.keys()) promise(again.value(key.name) == key.value, "config: effective() says all");
  settle_model_options(options, language);
  if (language)
    language_model_options(options, 256);
  else
    classifier_options(options, *make_tokenizer("byte", "", {.specials = {"<pad>", "<unk>"}}), 2);
}

void check_labels(const LabelMap& labels) {
  const std::string written = dump_json(labels.to_json());
  promise(LabelMap::from_json(parse_json(written, "again"), "again") == labels, "labels: what was written is read");
}

void use_table(const Table& table) {
  promise(!table.rows.empty(), "table: it has rows");
  table.description();
  table.place(table.rows.back());
  promise(count_shared_rows(table, table) == std::ssize(table.rows), "table: each row is shared with itself");
  if (!table.has_labels()) return;
  const LabelMap labels = LabelMap::of(table);
  check_labels(labels);
  const std::vector<std::int32_t> ids = label_ids(table, labels);
  for (std::size_t i = 0; i < ids.size(); ++i)
    promise(labels.name(ids[i]) == table.rows[i].label, "table: a label's id leads back to it");
  if (has_fractional_labels(table)) check_labels(LabelMap::of_numbers(table));
}

void table(std::string_view bytes) {
  Choices choose(bytes);
  TableOptions options;
  options.format = choose.of({"auto", "auto", "tsv", "csv", "trec", "lines", "jsonl", "json", "fasttext"});
  options.separator = choose.of({"auto", "auto", "tab", "comma", "semicolon", "bar"});
  options.header = choose.of({"auto", "true", "false"});
  options.label = choose.of({"", "label", "1", "2"});
  options.text = choose.of({"", "text", "2", "1"});
  options.text2 = choose.of({"", "", "text2", "3"});
  options.need_label = choose.below(2) == 0;
  options.skip_ragged = choose.below(2) == 1;
  const std::string name = choose.of({"f", "f.csv", "f.tsv", "f.csv.gz", "f.jsonl"});
  const std::string task = choose.of({"auto", "classification", "regression"});
  Table read = parse_table(bytes, name, options);
  use_table(read);
  if (!read.has_labels() || !options.need_label) return;
  const std::vector<std::int32_t> before = label_ids(read, LabelMap::of(read));
  settle_labels(read, task);
  const std::vector<std::int32_t> after = label_ids(read, LabelMap::of(read));
  for (std::size_t i = 1; i < after.size(); ++i)
    promise(before[i] != before[0] || after[i] == after[0], "table: equal labels stay equal");
}

void data_set(std::string_view bytes) {
  Choices choose(bytes);
  TableOptions options;
  options.format = choose.of({"auto", "auto", "tsv", "csv", "trec", "listops", "cifar10", "idx"});
  use_table(read_data_set(folder_of({"data"}, bytes).path() / "data", options));
}

// All that a tokenizer promises of any text.
void use_tokenizer(const Tokenizer& tokenizer, std::string_view text) {
  const std::string stored = dump_json(tokenizer.to_json());
  const auto again = Tokenizer::from_json(parse_json(stored, "again"), "again");
  promise(again->fingerprint() == tokenizer.fingerprint(), "tokenizer: what was written is read");
  tokenizer.token(tokenizer.start_id());
  const std::vector<std::int32_t> ids = tokenizer.encode(text);
  promise(again->encode(text) == ids, "tokenizer: its file gives the same ids");
  const std::string decoded = tokenizer.decode(ids);
  promise(tokenizer.covered_bytes(text, ids, ids.size()) == std::ssize(text), "tokenizer: all bytes are covered");
  std::int64_t covered = 0;
  for (std::size_t count = 0; count < std::min<std::size_t>(ids.size(), 20); ++count) {
    const std::int64_t now = tokenizer.covered_bytes(text, ids, count);
    promise(now >= covered && now <= std::ssize(text), "tokenizer: more tokens cover more bytes");
    covered = now;
  }
  std::vector<std::int32_t> in_pieces;
  TextSource source(text, "text");
  tokenize(source, tokenizer, {.piece_bytes = 7},
           [&](std::span<const std::int32_t> more) { in_pieces.insert(in_pieces.end(), more.begin(), more.end()); });
  promise(in_pieces == ids, "tokenizer: pieces give the ids of the whole");
  const bool unknown = std::ranges::find(ids, tokenizer.unknown_id()) != ids.end();
  if (tokenizer.name() == "word")
    promise(tokenizer.encode(decoded) == ids, "tokenizer: words come back as the same ids");
  else if (!unknown)
    promise(decoded == FoldedText({.text = text}, tokenizer.folding()).text(), "tokenizer: a text comes back, folded");
}

// A tokenizer.json of ours, and a text.
void tokenizer(std::string_view bytes) {
  const std::vector<std::string_view> files = parts(bytes);
  const auto read = Tokenizer::from_json(parse_json(files[0], "tokenizer.json"), "tokenizer.json");
  use_tokenizer(*read, files.back());
}

// A tokenizer made from one part of a text, used on all of it.
void made(std::string_view bytes) {
  Choices choose(bytes);
  const char* kind = choose.of({"byte", "char", "word", "bpe"});
  TokenizerOptions options;
  options.lowercase = choose.below(2);
  const std::size_t rules = choose.below(4);
  options.unicode = rules & 1;
  options.nfc = rules & 2;
  options.keep_newlines = choose.below(2);
  options.split_punctuation = choose.below(2);
  if (choose.below(2)) options.specials = {"<pad>", "<unk>"};
  options.vocab = std::string_view(kind) == "bpe" ? std::int64_t(258 + choose.below(40)) : 0;
  const std::string_view part = bytes.substr(0, choose.below(256));
  use_tokenizer(*make_tokenizer(kind, part, options), bytes);
}

// "@" followed by "BYTES@" stands for the 256 byte tokens, which no vocabulary can do without: "!":0,"\"":1 ...
std::string with_byte_tokens(std::string_view text) {
  constexpr std::string_view mark = "@BYTES@";
  const std::size_t at = text.find(mark);
  if (at == std::string_view::npos) return std::string(text);
  std::string tokens;
  std::uint32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    const std::uint32_t c = printable ? std::uint32_t(byte) : next++;
    std::string spelling = c < 0x80 ? std::string(1, char(c)) : std::string{char(0xC0 | c >> 6), char(0x80 | (c & 63))};
    tokens += flexformer::text(byte ? "," : "", dump_json(spelling), ":", byte);
  }
  return std::string(text.substr(0, at)).append(tokens).append(text.substr(at + mark.size()));
}

// One file is a tokenizer.json, two are vocab.json and merges.txt, and more encoder.json and vocab.bpe.
void vocabulary(std::string_view bytes) {
  const std::vector<std::string_view> files = parts(bytes);
  static const TemporaryFolder home;
  const char* const names[] = {"tokenizer.json", "vocab.json", "merges.txt", "encoder.json", "vocab.bpe"};
  for (const char* name : names) fs::remove(home.path() / name);
  const std::size_t first = files.size() == 1 ? 0 : files.size() == 2 ? 1 : 3;
  home.file(names[first], with_byte_tokens(files[0]));
  if (first) home.file(names[first + 1], files[1]);
  for (const bool parse_specials : {false, true}) {
    TokenizerOptions options;
    options.parse_specials = parse_specials;
    const auto tokenizer = load_vocabulary(home.path().string(), options);
    if (!parse_specials) use_tokenizer(*tokenizer, files.back());
    tokenizer->decode(tokenizer->encode(files.back()));
  }
}

// A picture file, whose chunks get the checksums they should have.
void png(std::string_view bytes) {
  std::string file(bytes);
  for (std::size_t at = 8; file.size() >= at + 12;) {
    const std::size_t length =
        std::size_t(static_cast<unsigned char>(file[at + 2])) * 256 + static_cast<unsigned char>(file[at + 3]);
    if (length > file.size() - at - 12) break;
    const std::string sum = big_endian(crc32(std::string_view(file).substr(at + 4, 4 + length)));
    file.replace(at + 8 + length, 4, sum);
    at += 12 + length;
  }
  const Picture picture = decode_png(file, "f");
  promise(std::ssize(picture.samples) == picture.width * picture.height * picture.channels, "png: all samples");
  promise(std::ssize(grey_values(picture)) == picture.width * picture.height, "png: all grey values");
}

// The rows of a picture; its header comes from the first bytes.
void png_rows(std::string_view bytes) {
  Choices choose(bytes);
  const unsigned width = unsigned(choose.below(40)), height = unsigned(choose.below(40));
  const int depth = choose.of({1, 2, 4, 8, 16}), colour = choose.of({0, 2, 3, 4, 6});
  const std::string_view palette = bytes.substr(0, colour == 3 ? 3 * choose.below(20) : 0);
  png(tests::png(width, height, depth, colour, std::string(bytes.substr(palette.size())), std::string(palette)));
}

void inflate(std::string_view bytes) {
  constexpr std::size_t most = 1 << 20;
  const std::size_t kind = Choices(bytes).below(3);
  std::string out;
  if (kind == 0) out = gunzip(bytes, most, "f");
  if (kind == 1) out = unzlib(bytes, most, "f");
  if (kind == 2) out = gunzip(std::string("\x1f\x8b\x08\0\0\0\0\0\0\0", 10).append(bytes), most, "f");
  promise(out.size() <= most, "inflate: no more than allowed");
  promise(unzlib(stored_zlib(out), most, "again") == out, "inflate: stored data come back");
}

// The pictures, and the labels beside them.
void idx(std::string_view bytes) {
  const fs::path file = folder_of({"x-images-idx3-ubyte", "x-labels-idx1-ubyte"}, bytes).path() / "x-images-idx3-ubyte";
  const std::vector<std::string> pictures = read_pictures(file);
  const Table table = read_data_set(file, {});
  promise(!looks_like_idx(parts(bytes)[0]) || pictures.size() == table.rows.size(), "idx: as many pictures both ways");
  use_table(table);
}

// Label bytes, and the pixels that all pictures share; or the bytes of a file, where it is long enough.
void cifar10(std::string_view bytes) {
  std::string file(bytes);
  if (bytes.size() < 3073) {
    file.clear();
    for (const char label : bytes.substr(0, 5)) file += label + std::string(3072, bytes.back());
    if (bytes.size() > 5) file.resize(file.size() - std::min(file.size(), bytes.size() - 6));
  }
  looks_like_cifar10(file);
  use_table(parse_cifar10(file, "f"));
}

// Lines of the metadata; pictures are imgs/a/ok.png, imgs/a/wide.png and imgs/a/empty.png.
void pathfinder(std::string_view bytes) {
  static const bool ready = [] {
    const TemporaryFolder& home = folder_of({"path/imgs/a/empty.png", "path/imgs/a/ok.png", "path/metadata/0.npy"}, "");
    home.file("path/imgs/a/ok.png", grey_png(2, "abcd"));
    home.file("path/imgs/a/wide.png", grey_png(4, "abcd"));
    return true;
  }();
  promise(ready, "pathfinder: the pictures are there");
  const TemporaryFolder& home = folder_of({"path/metadata/0.npy"}, bytes);
  use_table(read_data_set(home.path() / "path", {}));
}

void listops(std::string_view bytes) {
  without_parentheses(bytes);
  const int value = evaluate_listops(bytes);
  promise(value >= 0 && value <= 9, "listops: a value is a digit");
  promise(evaluate_listops(without_parentheses(lra_source(bytes))) == value, "listops: both spellings have one value");
}

// config.json, metrics.jsonl, summary.json and labels.json, as `compare` and a run that goes on read them.
void run_folder(std::string_view bytes) {
  const fs::path path =
      folder_of({"run/config.json", "run/metrics.jsonl", "run/summary.json", "run/labels.json"}, bytes).path() / "run";
  const auto fine = [](const std::string& page) { return fault(page).empty(); };
  std::string refusal;
  try {
    const RunRecord run = read_run(path);
    promise(fine(report_html(run)), "run folder: the report is a page");
    promise(fine(comparison_html({run, run})), "run folder: the comparison is a page");
  } catch (const Error& error) {
    refusal = error.what();
  }
  const RunFolder folder(path);
  folder.rewind(3);
  if (!fs::exists(folder.file("summary.json"))) folder.rewind(-1);
  if (!refusal.empty()) throw Error(refusal);
}

// The state in a checkpoint's header, the copy beside it, and the config of the model that it holds.
void checkpoint(std::string_view bytes) {
  const std::string_view state = parts(bytes)[0];
  const TemporaryFolder& home =
      folder_of({"saved/state", "saved/checkpoint/last.json", "saved/config.json", "saved/tokenizer.json"}, bytes);
  const fs::path path = home.path() / "saved";
  home.file("saved/checkpoint/last.safetensors",
            write_safetensors({{{"w", Tensor::zeros({2})}}, {{"state", std::string(state)}}}));
  const TrainingState read = TrainingState::from_json(parse_json(state, "state"), "state");
  const std::string written = dump_json(read.to_json());
  promise(dump_json(TrainingState::from_json(parse_json(written, "again"), "again").to_json()) == written,
          "checkpoint: what was written is read");
  Parameters parameters;
  RunFolder folder(path);
  if (fs::exists(folder.file("config.json")))
    SavedLanguageModel saved(RunFolder::for_use(path.string(), "train_lm"));
  else
    folder.load_best(parameters, read.vocabulary);
}

void utf8(std::string_view bytes) {
  std::string together;
  bool valid = true;
  for (std::size_t at = 0; at < bytes.size();) {
    const CodePoint unit = next_code_point(bytes, at);
    promise(unit.length >= 1 && unit.length <= bytes.size() - at, "utf8: a unit is within the text");
    describe(unit, bytes.substr(at, unit.length));
    together += bytes.substr(at, unit.length);
    valid = valid && unit.valid;
    at += unit.length;
  }
  promise(together == bytes && is_valid_utf8(bytes) == valid, "utf8: the units are the text");
  promise(is_valid_utf8(printable(bytes)) && printable(printable(bytes)) == printable(bytes), "utf8: printable is so");
  promise(is_valid_utf8(quote(bytes)) && quote(bytes).size() <= 300, "utf8: a quotation is short and printable");
  promise(lowercase(bytes).size() == bytes.size(), "utf8: lower case keeps the length");
  promise(lowercase(lowercase(bytes)) == lowercase(bytes), "utf8: lower case stays as it is");
  promise(is_valid_utf8(bytes) == is_valid_utf8(lowercase(bytes)), "utf8: lower case stays UTF-8");
  promise(trim(trim(bytes)) == trim(bytes), "utf8: trimmed once is trimmed");
  promise(bytes_from_json(parse_json(dump_json(json_bytes(bytes)), "again"), "again") == bytes, "utf8: through JSON");
}

}  // namespace

const std::vector<FuzzTarget>& fuzz_targets() {
  static const std::vector<FuzzTarget> targets = {
      {"safetensors", safetensors},
      {"safetensors_header", safetensors_header},
      {"json", json},
      {"config", config},
      {"table", table},
      {"text_file", text_file},
      {"scored", scored},
      {"data_set", data_set},
      {"tokenizer", tokenizer},
      {"vocabulary", vocabulary},
      {"text", made},
      {"png", png},
      {"png_rows", png_rows},
      {"inflate", inflate},
      {"idx", idx},
      {"cifar10", cifar10},
      {"pathfinder", pathfinder},
      {"listops", listops},
      {"run_folder", run_folder},
      {"checkpoint", checkpoint},
      {"utf8", utf8},
  };
  return targets;
}

const FuzzTarget* find_fuzz_target(std::string_view name) {
  const auto found = std::ranges::find(fuzz_targets(), name, &FuzzTarget::name);
  return found == fuzz_targets().end() ? nullptr : &*found;
}

void run_fuzz_target(const FuzzTarget& target, std::string_view bytes) {
  constexpr std::size_t longest = 8000;
  try {
    target.read(bytes);
  } catch (const Error& error) {
    const std::string_view message = error.what();
    promise(!message.empty() && message.size() <= longest, "an error's message is not too long");
    promise(printable(message) == message, "an error's message is one printable line");
  }
}

}  // namespace flexformer::tests
