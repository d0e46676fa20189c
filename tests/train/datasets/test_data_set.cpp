// Data sets that are no tables: folders of texts, ListOps, pictures as sequences of pixels.
#include <doctest/doctest.h>

#include "tests/train/datasets/shown_rows.h"
#include "tests/train/training/small_runs.h"
#include "tests/train/util/png_writer.h"
#include "train/datasets/pictures.h"

using namespace flexformer;
using namespace flexformer::tests;
using doctest::Contains;
namespace fs = std::filesystem;

namespace {

// Writes "a/b/c.txt" with the folders it needs.
void put(const fs::path& path, std::string_view bytes) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary).write(bytes.data(), std::streamsize(bytes.size()));
}

Table read(const fs::path& path, const TableOptions& options = {}) { return read_data_set(path, options); }

// A gzip file of one stored block, from stored_zlib()'s.
std::string gzipped(const std::string& bytes) {
  const std::string zlib = stored_zlib(bytes);
  std::string out("\x1f\x8b\x08\0\0\0\0\0\0\xff", 10);
  out += zlib.substr(2, zlib.size() - 6);
  for (std::uint32_t value : {crc32(bytes), std::uint32_t(bytes.size())})
    for (int shift : {0, 8, 16, 24}) out += char(value >> shift);
  return out;
}

std::string idx(unsigned kind, const std::vector<unsigned>& sizes, const std::string& data) {
  std::string out = big_endian(0x800 + kind);
  for (unsigned size : sizes) out += big_endian(size);
  return out + data;
}

// `count` pictures of 4 x 3: those of odd number are bright.
std::string pixels(unsigned count) {
  std::string out;
  for (unsigned i = 0; i < count; ++i)
    for (unsigned p = 0; p < 12; ++p) out += char(i % 2 ? 200 + p + i % 3 : p + i % 3);
  return out;
}
std::string labels(unsigned count) {
  std::string out;
  for (unsigned i = 0; i < count; ++i) out += char(i % 2 ? 7 : 3);
  return out;
}

std::string cifar10_record(int label, char red, char green, char blue) {
  return char(label) + std::string(1024, red) + std::string(1024, green) + std::string(1024, blue);
}

}  // namespace

TEST_CASE("a folder for each class is read in order of names, without texts that have no label") {
  const TemporaryFolder home;
  const fs::path train = home.path() / "train";
  put(train / "pos/10_9.txt", "great\n");
  put(train / "pos/0_9.txt", "\xEF\xBB\xBFgood, \xE9\nindeed\r\n");
  put(train / "neg/3_1.txt", "");
  put(train / "unsup/1_0.txt", "who knows");
  put(train / "notes/readme.md", "# not a text");
  put(train / ".cache/x.txt", "hidden");
  put(train / "urls_pos.txt", "no class");
  const Table table = read(train);
  CHECK(shown(table) == Rows{"neg: ", "pos: good, \xE9\nindeed", "pos: great"});
  CHECK(
      table.description() ==
      "folder, 3 rows; empty texts kept: 1; unsup, the texts without label, left out; folders without .txt files left "
      "out: 'notes'");
  CHECK_THROWS_WITH_AS(label_ids(table, LabelMap({"good", "pos"})),
                       Contains("train/neg: the label 'neg' is not one of those in the training data"), Error);
  CHECK_THROWS_WITH_AS(read(home.path()),
                       Contains("holds no folders of .txt files, but folders of such folders; give one of them: "
                                "--data.train="),
                       Error);
  CHECK_THROWS_WITH_AS(
      read(train / "pos"),
      Contains("holds no folders of .txt files, one for each class; is one of its files meant: 0_9.txt, 10_9.txt"),
      Error);
  CHECK_THROWS_WITH_AS(read(train, {.format = "csv"}), Contains("is a folder, but data.format=csv is a file"), Error);
  CHECK_THROWS_WITH_AS(read(train / "urls_pos.txt", {.format = "folder"}),
                       Contains("is a file, but data.format=folder is a folder"), Error);
  CHECK_THROWS_WITH_AS(read(home.path() / "nowhere"), Contains("no such file"), Error);
}

TEST_CASE("a model trains on folders of texts") {
  const TemporaryFolder home;
  for (int i = 0; i < 20; ++i) {
    put(home.path() / "train/pos" / text(i, ".txt"), text("good ", i));
    put(home.path() / "train/neg" / text(i, ".txt"), text("bad ", i));
  }
  SmallClassifierRun run(home.path() / "run", (home.path() / "train").string(),
                         {"--train.steps=60", "--train.lr=0.005", "--train.eval_every=0"});
  REQUIRE(run.train() == 0);
  CHECK(run.summary.at("valid_accuracy") == 1.0);
  CHECK(run.options.text("data.format") == "auto");  // a table may still be the test
}

TEST_CASE("packed tables are read, and files of other kinds are named") {
  const TemporaryFolder home;
  CHECK(shown(read(home.file("t.csv.gz", gzipped("label,text\npos,\"a, b\"\n")))) == Rows{"pos: a, b"});
  CHECK(shown(read(home.file("t.tsv.gz", gzipped("\xEF\xBB\xBFlabel\ttext\npos\ta\n")))) == Rows{"pos: a"});
  CHECK_THROWS_WITH_AS(read(home.file("t.zip", "PK\x03\x04...")), Contains("t.zip: this is a zip archive: unpack it"),
                       Error);
  CHECK_THROWS_WITH_AS(read(home.file("t.bin", std::string("abc\0def\n", 8))),
                       Contains("t.bin: this is not a text file: byte 3 is zero"), Error);
  CHECK_THROWS_WITH_AS(read(home.file("t.png", grey_png(2, "abcd"))), Contains("t.png: this is one picture"), Error);
  CHECK(shown(read(home.file("u.tsv", std::string("\xFF\xFEp\0\t\0a\0", 8)))) == Rows{"p: a"});
  CHECK_THROWS_WITH_AS(read(home.file("cut.tsv.gz", gzipped("label\ttext\npos\ta\n").substr(0, 30))),
                       Contains("cut.tsv.gz: the compressed data ends too early; is the file complete?"), Error);
}

TEST_CASE("ListOps of the Long Range Arena loses its parentheses and is split by spaces") {
  const TemporaryFolder home;
  const std::string file = home.file("basic_train.tsv",
                                     "Source\tTarget\r\n( ( ( [MAX 2 ) 9 ) ] )\t9\r\n( ( ( [MIN 4 ) ( ( ( [SM 8 ) 8 ) "
                                     "] ) ) ] )\t4\r\n7\t7\r\n( ( [MED 3 ) ] )\t3\r\n");
  const Table table = read(file);
  CHECK(table.format == "listops");
  CHECK(shown(table) == Rows{"9: [MAX 2 9 ]", "4: [MIN 4 [SM 8 8 ] ]", "7: 7", "3: [MED 3 ]"});
  CHECK(without_parentheses("  ( 1  ) ") == "1");
  Options options("train_classifier", "");
  add_classifier_options(options);
  options.parse({"--data.train=" + file, "--data.valid=" + file});
  const ClassifierData data = load_classifier_data(options, nullptr, {});
  CHECK(options.integer("data.max_length") == 2000);
  CHECK(data.tokenizer->special_id("<unk>") >= 0);
  std::string words;
  for (std::int32_t id : data.train_texts.rows[1].ids) words += data.tokenizer->token(id) + "|";
  CHECK(words == "[MIN|4|[SM|8|8|]|]|");  // no <unk>, no lower case, brackets with their operators
  options.parse({"--data.max_length=5"});
  CHECK(load_classifier_data(options, nullptr, {}).train_texts.truncated == 1);
}

TEST_CASE("MNIST's files are read packed or not, with the labels beside them") {
  const TemporaryFolder home;
  const std::string plain = home.file("train-images-idx3-ubyte", idx(3, {10, 3, 4}, pixels(10)));
  CHECK_THROWS_WITH_AS(read(plain), Contains("its labels are not beside it;"), Error);
  home.file("train-labels-idx1-ubyte.gz", gzipped(idx(1, {10}, labels(10))));
  const Table table = read(plain);
  CHECK(table.format == "idx");
  CHECK(table.rows.size() == 10);
  CHECK(table.rows[1].text == pixels(10).substr(12, 12));
  CHECK(*table.rows[1].label == "7");
  CHECK(table.description() == "idx, 10 rows; pictures of 4 x 3 pixels");
  CHECK(table.place(table.rows[1]) == plain + ", picture 2");
  const std::string packed = home.file("t10k.images.idx3.gz", gzipped(idx(3, {10, 3, 4}, pixels(10))));
  home.file("t10k.labels.idx1", idx(1, {10}, labels(10)));
  CHECK(shown(read(packed)) == shown(table));
}

TEST_CASE("IDX files that do not fit themselves or each other are refused") {
  const TemporaryFolder home;
  const auto refused = [&](const std::string& pictures, const std::string& label_bytes, const char* reason) {
    const std::string file = home.file("x-images-idx3-ubyte", pictures);
    home.file("x-labels-idx1-ubyte", label_bytes);
    CHECK_THROWS_WITH_AS(read(file, {.format = "idx"}), Contains(reason), Error);
  };
  const std::string good = idx(3, {2, 3, 4}, pixels(2));
  refused(good.substr(0, 30), labels(2),
          "its IDX header promises 2 x 3 x 4 bytes, but 14 follow; is the file complete?");
  refused(good.substr(0, 9), labels(2), "the IDX header is cut off");
  refused(idx(3, {~0u, ~0u, ~0u}, "x"), labels(2), "promises 4294967295 x 4294967295 x 4294967295 bytes, but 1 follow");
  refused(idx(3, {0, 3, 4}, ""), labels(2), "an IDX file without data");
  refused("label\ttext\n", labels(2), "expected IDX bytes with 3 dimensions (pictures), which start with 0 0 8 3");
  refused(good, idx(3, {2, 3, 4}, pixels(2)), "expected IDX bytes with 1 dimension (labels)");
  refused(good, idx(1, {3}, labels(3)), "has 3 labels, but");
  const std::string other = home.file("digits.idx", good);
  CHECK_THROWS_WITH_AS(read(other), Contains("which file has its labels? The names must be as MNIST's"), Error);
}

TEST_CASE("pictures are tokens 0 to 255 to a model, one for each pixel") {
  const TemporaryFolder home;
  const std::string file = home.file("a-images-idx3-ubyte", idx(3, {40, 3, 4}, pixels(40)));
  home.file("a-labels-idx1-ubyte", idx(1, {40}, labels(40)));
  const Arguments arguments = {"--train.steps=40", "--train.lr=0.005", "--train.eval_every=0"};
  SmallClassifierRun run(home.path() / "run", file, arguments + Arguments{"--data.max_length=12"});
  CHECK(run.options.text("data.tokenizer") == "byte");
  CHECK(run.options.text("data.format") == "idx");
  const std::vector<std::int32_t>& ids = run.data.train_texts.rows[0].ids;
  const std::string& row = run.data.train->rows[0].text;
  REQUIRE(ids.size() == 12);
  for (std::size_t i = 0; i < 12; ++i) CHECK(ids[i] == 4 + static_cast<unsigned char>(row[i]));
  REQUIRE(run.train() == 0);
  CHECK(run.summary.at("valid_accuracy") == 1.0);

  const SavedClassifier saved(run.folder);
  CHECK(saved.options.text("data.format") == "idx");  // predict reads pictures by it
  CHECK(read_pictures(file).size() == 40);
  CHECK(read_pictures(home.file("one.png", grey_png(4, row))) == Rows{row});
  CHECK_THROWS_WITH_AS(read_pictures(home.file("a.txt", "text")), Contains("this model reads pictures; give a PNG"),
                       Error);
  CHECK_THROWS_WITH_AS(SmallClassifierRun(home.path() / "b", file, {"--data.tokenizer=word"}),
                       Contains("data.tokenizer=word cannot read pictures"), UsageError);
  CHECK_THROWS_WITH_AS(SmallClassifierRun(home.path() / "c", file, {"--data.lowercase=true"}),
                       Contains("data.lowercase=true would change the grey values"), UsageError);
  Options options("train_classifier", "");
  add_classifier_options(options);
  options.parse({"--data.train=" + file, "--model.pool=cls"});
  load_classifier_data(options, nullptr, {});
  CHECK(options.integer("data.max_length") == 13);  // 12 pixels and <cls>
}

TEST_CASE("CIFAR-10's batches become grey, with the names of their classes") {
  const TemporaryFolder home;
  const fs::path folder = home.path() / "cifar-10-batches-bin";
  put(folder / "data_batch_1.bin", cifar10_record(0, '\xff', '\0', '\0') + cifar10_record(9, '\0', '\xff', '\0'));
  put(folder / "data_batch_2.bin", cifar10_record(3, '\0', '\0', '\xff'));
  put(folder / "test_batch.bin", cifar10_record(5, '\xff', '\xff', '\xff'));
  const Table table = read(folder);
  CHECK(shown(table) == Rows{"airplane: " + std::string(1024, char(76)), "truck: " + std::string(1024, char(149)),
                             "cat: " + std::string(1024, char(29))});
  CHECK(table.description() == "cifar10, 3 rows; pictures of 32 x 32 pixels; 2 batches");
  CHECK(shown(read(folder / "test_batch.bin")) == Rows{"dog: " + std::string(1024, '\xff')});
  CHECK_THROWS_WITH_AS(read(home.file("cut.bin", std::string(3000, 'x')), {.format = "cifar10"}),
                       Contains("cut.bin: 3000 bytes are no whole number of CIFAR-10 records of 3073"), Error);
  CHECK_THROWS_WITH_AS(read(home.file("bad.bin", cifar10_record(10, 0, 0, 0)), {.format = "cifar10"}),
                       Contains("bad.bin, picture 1: the label 10 is none of 0 to 9"), Error);
  CHECK_THROWS_WITH_AS(read(home.path(), {.format = "cifar10"}), Contains("holds no data_batch_1.bin"), Error);
}

TEST_CASE("Pathfinder's pictures have their labels in the metadata, whose files go by number") {
  const TemporaryFolder home;
  const fs::path root = home.path() / "curv_contour_length_14";
  const auto picture = [&](const char* name, const std::string& bytes) { put(root / "imgs" / name, bytes); };
  picture("2/sample_0.png", grey_png(2, "abcd"));
  picture("10/sample_1.png", png(2, 2, 8, 2, std::string("\0\xff\0\0\xff\0\0\0\xff\0\0\xff\0\0", 14)));
  picture("10/sample_2.png", "");  // as one in the original
  put(root / "metadata/10.npy", "imgs/10 sample_1.png 1 0 1.0 14 4\nimgs/10 sample_2.png 2 1 1.0 14 4\n");
  put(root / "metadata/2.npy", "imgs/2 sample_0.png 0 1 1.0 14 4\n");
  const Table table = read(root);
  CHECK(shown(table) == Rows{"1: abcd", "0: " + std::string(4, char(76))});
  CHECK(table.description() ==
        "pathfinder, 2 rows; pictures of 2 x 2 pixels; picture files without a byte left out: 1");
  put(root / "metadata/11.npy", "imgs/2 sample_0.png 0 maybe\n");
  CHECK_THROWS_WITH_AS(
      read(root), Contains("11.npy:1: expected 'FOLDER FILE NUMBER LABEL ...' with the label 0 or 1, found"), Error);
  put(root / "metadata/11.npy", "\x93NUMPY\x01");
  CHECK_THROWS_WITH_AS(read(root), Contains("11.npy: this is a NumPy array: save texts as lines"), Error);
  for (const char* outside : {"../.. etc/passwd 0 1\n", "/dev zero 0 1\n", "imgs/../.. x 0 1\n"}) {
    put(root / "metadata/11.npy", outside);
    CHECK_THROWS_WITH_AS(read(root), Contains("is outside of the data set's folder"), Error);
  }
  put(root / "metadata/11.npy", "imgs/2 gone.png 0 1\n");
  CHECK_THROWS_WITH_AS(read(root), Contains("gone.png': no such file"), Error);
  picture("2/gone.png", grey_png(3, "abc"));
  CHECK_THROWS_WITH_AS(read(root), Contains("gone.png: 3 x 1 pixels; the others have 2 x 2"), Error);
  picture("2/gone.png", "no picture");
  CHECK_THROWS_WITH_AS(read(root), Contains("gone.png: this is not a PNG file"), Error);
  fs::remove_all(root / "metadata");
  fs::create_directories(root / "metadata");
  CHECK_THROWS_WITH_AS(read(root), Contains("metadata' holds no metadata files (0.npy, 1.npy ...)"), Error);
  put(root / "metadata/0.npy", "\n");
  CHECK_THROWS_WITH_AS(read(root), Contains("holds no pictures"), Error);
}
