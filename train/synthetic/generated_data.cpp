// Pictures grow batch by batch. A batch counts once its metadata is there, written last and after its pictures have
// reached the disk; every picture is a function of its number, so a batch that was cut short is simply made again.
#include "train/synthetic/generated_data.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "tensor/error.h"
#include "tensor/parallel.h"
#include "train/util/files.h"
#include "train/util/json_file.h"
#include "train/util/png.h"

namespace flexformer {
namespace {

namespace fs = std::filesystem;

constexpr Index kBatch = 1000;

class GrowingFolder {
 public:
  GrowingFolder(fs::path folder, const Json& settings) : folder_(std::move(folder)), part_(folder_) {
    part_ += ".part";
    for (const fs::path& path : {folder_, part_})
      if (fs::exists(path) && !made_with(path, settings))
        fail(path.string(), " was made with other settings; remove it or give another folder");
    if (complete()) return;
    fs::create_directories(part_);
    write_json_atomic(part_ / "settings.json", settings);
  }
  bool complete() const { return fs::exists(folder_); }
  const fs::path& part() const { return part_; }
  void finish() { fs::rename(part_, folder_); }

 private:
  static bool made_with(const fs::path& path, const Json& settings) {
    const fs::path file = path / "settings.json";
    return fs::exists(file) && read_json(file) == settings;
  }

  fs::path folder_, part_;
};

// Without waiting for the disk: write_batch() does that once for all.
void write_quickly(const fs::path& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary);
  if (!out.write(bytes.data(), std::streamsize(bytes.size())).flush()) fail("cannot write ", path.string());
}

// The pictures begin ... end-1 and their metadata, whose fields are the Long Range Arena's: folder, file, number,
// label, continuity, dashes of a long and of a short contour, length, thickness and margin of a dash, contrasts.
void write_batch(const fs::path& folder, const PathfinderOptions& options, std::uint64_t seed, Index begin, Index end) {
  const std::string batch = text(begin / kBatch), relative = "imgs/" + batch;
  fs::create_directories(folder / relative);
  std::vector<PathfinderPicture> pictures(std::size_t(end - begin));
  parallel_for(end - begin, 16, [&](Index from, Index to) {
    for (Index i = from; i < to; ++i) pictures[std::size_t(i)] = make_pathfinder(options, seed, begin + i);
  });
  std::string metadata;
  for (std::size_t i = 0; i < pictures.size(); ++i) {
    const std::string name = text("sample_", i, ".png");
    write_quickly(folder / relative / name, encode_png({kPathfinderSize, kPathfinderSize, 1, pictures[i].pixels}));
    metadata += text(relative, " ", name, " ", i, " ", int(pictures[i].connected), " 1.0 ", options.contour, " ",
                     options.contour / 3, " 2 0.5 1 1\n");
  }
  ::sync();
  write_file_atomic(folder / "metadata" / (batch + ".npy"), metadata);
}

}  // namespace

std::string pathfinder_folder_name(Index contour) {
  return contour == 6 ? "curv_baseline" : text("curv_contour_length_", contour);
}

bool write_pathfinder(const fs::path& folder, const PathfinderOptions& options, std::uint64_t seed, Index rows,
                      const Proceed& proceed) {
  if (rows < 1) fail("pathfinder: ", rows, " pictures; at least 1 is needed");
  make_pathfinder(options, seed, 0);  // refuses wrong options before anything is written
  GrowingFolder growing(folder, {{"contour", options.contour}, {"rows", rows}, {"seed", seed}});
  if (growing.complete()) return true;
  fs::create_directories(growing.part() / "metadata");
  for (Index begin = 0, end; begin < rows; begin = end) {
    end = std::min(rows, begin + kBatch);
    if (fs::exists(growing.part() / "metadata" / text(begin / kBatch, ".npy"))) continue;
    write_batch(growing.part(), options, seed, begin, end);
    if (!proceed(end) && end < rows) return false;
  }
  growing.finish();
  return true;
}

bool write_listops(const fs::path& folder, const ListOpsOptions& options, std::uint64_t seed, Index rows,
                   Index held_out, const Proceed& proceed) {
  if (rows < 1 || held_out < 0)
    fail("listops: ", rows, " rows and ", held_out, " held out; at least 1 and 0 are needed");
  ListOps source(options, seed);
  GrowingFolder growing(folder, {{"rows", rows}, {"held_out", held_out}, {"seed", seed}});
  if (growing.complete()) return true;
  Index done = 0;
  for (const auto& [name, count] :
       {std::pair("basic_train.tsv", rows), {"basic_val.tsv", held_out}, {"basic_test.tsv", held_out}}) {
    if (!write_lra_tsv(growing.part() / name, source, count, [&](Index n) { return proceed(done + n); })) return false;
    done += count;
  }
  growing.finish();
  return true;
}

}  // namespace flexformer
