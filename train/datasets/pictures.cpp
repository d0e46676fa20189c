#include "train/datasets/pictures.h"

#include <algorithm>
#include <charconv>

#include "tensor/error.h"
#include "train/util/files.h"
#include "train/util/png.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kCifar10[] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                         "dog",      "frog",       "horse", "ship", "truck"};
constexpr std::size_t kPlane = 32 * 32, kRecord = 1 + 3 * kPlane;
constexpr std::string_view kIdxPictures("\0\0\x08\x03", 4), kIdxLabels("\0\0\x08\x01", 4);

unsigned char byte(std::string_view bytes, std::size_t at) { return static_cast<unsigned char>(bytes[at]); }

Table picture_table(const std::string& source, const char* format) {
  Table table;
  table.source = source;
  table.format = format;
  table.label_column = table.text_column = 1;
  return table;
}

void note_size(Table& table, Index width, Index height) {
  table.notes.push_back(text("pictures of ", width, " x ", height, " pixels"));
}

std::uint32_t big_endian(std::string_view bytes, std::size_t at) {
  return std::uint32_t(byte(bytes, at)) << 24 | std::uint32_t(byte(bytes, at + 1)) << 16 |
         std::uint32_t(byte(bytes, at + 2)) << 8 | byte(bytes, at + 3);
}

struct Idx {
  std::vector<std::size_t> sizes;
  std::string_view data;
};

// The sizes behind the magic number, and the data, which must have just as many bytes.
Idx idx_parts(std::string_view bytes, std::string_view magic, const std::string& source) {
  const std::size_t dimensions = byte(magic, 3), header = 4 + 4 * dimensions;
  if (!bytes.starts_with(magic))
    fail(source, ": expected IDX bytes with ", dimensions, dimensions == 1 ? " dimension" : " dimensions", " (",
         dimensions == 1 ? "labels" : "pictures", "), which start with 0 0 8 ", dimensions);
  if (bytes.size() < header) fail(source, ": the IDX header is cut off; is the file complete?");
  Idx idx{{}, bytes.substr(header)};
  std::string sizes;
  double needed = 1;  // three 32-bit sizes may overflow any whole number
  for (std::size_t i = 0; i < dimensions; ++i) {
    needed *= double(idx.sizes.emplace_back(big_endian(bytes, 4 + 4 * i)));
    sizes += text(i ? " x " : "", idx.sizes[i]);
  }
  if (needed != double(idx.data.size()))
    fail(source, ": its IDX header promises ", sizes, " bytes, but ", idx.data.size(),
         " follow; is the file complete?");
  if (needed == 0) fail(source, ": an IDX file without data");
  return idx;
}

// "train-images-idx3-ubyte.gz" -> "train-labels-idx1-ubyte.gz", or the same without or with the ending .gz.
fs::path labels_beside(const fs::path& pictures) {
  std::string name = pictures.filename().string();
  for (char mark : {'-', '.'}) {
    const std::string from = text("images", mark, "idx3"), to = text("labels", mark, "idx1");
    const std::size_t at = name.find(from);
    if (at == std::string::npos) continue;
    name.replace(at, from.size(), to);
    const fs::path beside = pictures.parent_path() / name;
    if (fs::exists(beside)) return beside;
    const fs::path other = name.ends_with(".gz") ? beside.parent_path() / beside.stem() : fs::path(beside) += ".gz";
    if (fs::exists(other)) return other;
    fail(pictures.string(), ": its labels are not beside it; ", beside.string(), " is expected");
  }
  fail(pictures.string(),
       ": which file has its labels? The names must be as MNIST's: X-images-idx3-ubyte, "
       "X-labels-idx1-ubyte");
}

std::string cifar10_pixels(std::string_view bytes, std::size_t record) {
  std::string grey(kPlane, '\0');
  const std::size_t red = record * kRecord + 1;
  for (std::size_t i = 0; i < kPlane; ++i)
    grey[i] = char(grey_value(byte(bytes, red + i), byte(bytes, red + kPlane + i), byte(bytes, red + 2 * kPlane + i)));
  return grey;
}

void check_cifar10_size(std::string_view bytes, const std::string& source) {
  if (bytes.empty() || bytes.size() % kRecord)
    fail(source, ": ", bytes.size(), " bytes are no whole number of CIFAR-10 records of ", kRecord,
         "; is the file complete?");
}

// Pathfinder's metadata files in order of their numbers.
std::vector<fs::path> metadata_files(const fs::path& folder) {
  std::vector<std::pair<int, fs::path>> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string stem = entry.path().stem().string();
    int number = 0;
    const auto [end, wrong] = std::from_chars(stem.data(), stem.data() + stem.size(), number);
    if (wrong == std::errc{} && end == stem.data() + stem.size()) files.emplace_back(number, entry.path());
  }
  if (files.empty()) fail(quote(folder.string(), 400), " holds no metadata files (0.npy, 1.npy ...)");
  std::ranges::sort(files);
  std::vector<fs::path> paths;
  for (auto& [number, path] : files) paths.push_back(std::move(path));
  return paths;
}

struct Sample {
  std::string file, label;
};

Sample pathfinder_sample(std::string_view line, const std::string& where) {
  std::vector<std::string_view> fields;
  for (std::size_t end = 0, begin; (begin = line.find_first_not_of(' ', end)) != std::string_view::npos;) {
    end = std::min(line.find(' ', begin), line.size());
    fields.push_back(line.substr(begin, end - begin));
  }
  if (fields.size() < 4 || (fields[3] != "0" && fields[3] != "1"))
    fail(where, ": expected 'FOLDER FILE NUMBER LABEL ...' with the label 0 or 1, found ", quote(line));
  const std::string file = text(fields[0], "/", fields[1]);
  const fs::path inside = fs::path(file).lexically_normal();
  if (inside.is_absolute() || inside.begin()->string() == "..")
    fail(where, ": the picture ", quote(file), " is outside of the data set's folder");
  return {file, std::string(fields[3])};
}

}  // namespace

bool looks_like_idx(std::string_view bytes) { return bytes.starts_with(kIdxPictures); }

bool looks_like_cifar10(std::string_view bytes) {
  if (bytes.empty() || bytes.size() % kRecord) return false;
  for (std::size_t at = 0; at < bytes.size(); at += kRecord)
    if (byte(bytes, at) > 9) return false;
  return true;
}

Table read_idx(std::string_view bytes, const fs::path& path) {
  const Idx pictures = idx_parts(bytes, kIdxPictures, path.string());
  const fs::path labels_path = labels_beside(path);
  const std::string label_bytes = read_unpacked(labels_path);
  const Idx labels = idx_parts(label_bytes, kIdxLabels, labels_path.string());
  if (labels.sizes[0] != pictures.sizes[0])
    fail(labels_path.string(), " has ", labels.sizes[0], " labels, but ", path.string(), " ", pictures.sizes[0],
         " pictures");
  Table table = picture_table(path.string(), "idx");
  const std::size_t pixels = pictures.sizes[1] * pictures.sizes[2];
  for (std::size_t i = 0; i < labels.sizes[0]; ++i)
    table.rows.push_back(
        {std::string(pictures.data.substr(i * pixels, pixels)), {}, text(int(byte(labels.data, i))), Index(i) + 1});
  note_size(table, Index(pictures.sizes[2]), Index(pictures.sizes[1]));
  return table;
}

Table parse_cifar10(std::string_view bytes, const std::string& source) {
  check_cifar10_size(bytes, source);
  Table table = picture_table(source, "cifar10");
  for (std::size_t i = 0; i < bytes.size() / kRecord; ++i) {
    const unsigned label = byte(bytes, i * kRecord);
    if (label > 9) fail(source, ", picture ", i + 1, ": the label ", label, " is none of 0 to 9; is this CIFAR-10?");
    table.rows.push_back({cifar10_pixels(bytes, i), {}, std::string(kCifar10[label]), Index(i) + 1});
  }
  note_size(table, 32, 32);
  return table;
}

Table read_cifar10_folder(const fs::path& path) {
  std::string all;
  int batches = 0;
  for (fs::path file; fs::exists(file = path / text("data_batch_", batches + 1, ".bin")); ++batches) {
    const std::string bytes = read_file(file);
    check_cifar10_size(bytes, file.string());
    all += bytes;
  }
  if (batches == 0) fail(quote(path.string(), 400), " holds no data_batch_1.bin; give one file, or unpack the archive");
  Table table = parse_cifar10(all, path.string());
  table.notes.push_back(text(batches, " batches"));
  return table;
}

Table read_pathfinder(const fs::path& path) {
  Table table = picture_table(path.string(), "pathfinder");
  Index empty = 0, width = 0, height = 0;
  for (const fs::path& file : metadata_files(path / "metadata")) {
    const std::string bytes = read_text_file(file);
    if (bytes.starts_with("\x93NUMPY")) fail(file.string(), ": a NumPy array; lines of text are expected");
    Index number = 0;
    for (std::size_t at = 0, end; at < bytes.size(); at = end + 1) {
      end = std::min(bytes.find('\n', at), bytes.size());
      const std::string_view line = trim(std::string_view(bytes).substr(at, end - at));
      ++number;
      if (line.empty()) continue;
      const Sample sample = pathfinder_sample(line, text(file.string(), ":", number));
      const fs::path file_of_picture = path / sample.file;
      const std::string packed = read_file(file_of_picture);
      if (packed.empty()) {
        ++empty;
        continue;
      }
      const Picture picture = decode_png(packed, file_of_picture.string());
      if (table.rows.empty()) width = picture.width, height = picture.height;
      if (picture.width != width || picture.height != height)
        fail(file_of_picture.string(), ": ", picture.width, " x ", picture.height, " pixels; the others have ", width,
             " x ", height);
      table.rows.push_back({grey_values(picture), {}, sample.label, Index(table.rows.size()) + 1});
    }
  }
  if (table.rows.empty()) fail(quote(path.string(), 400), " holds no pictures");
  note_size(table, width, height);
  if (empty) table.notes.push_back(text("picture files without a byte left out: ", empty));
  return table;
}

std::vector<std::string> read_pictures(const fs::path& path) {
  const std::string bytes = read_unpacked(path), source = path.string();
  if (looks_like_png(bytes)) return {grey_values(decode_png(bytes, source))};
  std::vector<std::string> pictures;
  if (looks_like_idx(bytes)) {
    const Idx idx = idx_parts(bytes, kIdxPictures, source);
    const std::size_t pixels = idx.sizes[1] * idx.sizes[2];
    for (std::size_t i = 0; i < idx.sizes[0]; ++i) pictures.emplace_back(idx.data.substr(i * pixels, pixels));
  } else if (looks_like_cifar10(bytes)) {
    for (std::size_t i = 0; i < bytes.size() / kRecord; ++i) pictures.push_back(cifar10_pixels(bytes, i));
  } else {
    fail(source, ": this model reads pictures; give a PNG, IDX or CIFAR-10 file");
  }
  return pictures;
}

}  // namespace flexformer
