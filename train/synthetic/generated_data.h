// Data sets that are generated: folders of Pathfinder pictures and ListOps rows in the layout of the Long Range Arena.
//
// A folder grows as FOLDER.part, which gets its name when all is there. Settings stand in its settings.json: what was
// begun with the same ones is gone on with, and a folder complete with the same ones is left as it is. Both functions
// return false, with FOLDER.part left behind, when `proceed(rows done)`, asked now and then, says no. They throw Error
// for settings out of range, and if FOLDER or FOLDER.part was made with other settings.
#pragma once
#include <filesystem>
#include <functional>

#include "train/synthetic/listops.h"
#include "train/synthetic/pathfinder.h"

namespace flexformer {

using Proceed = std::function<bool(Index rows_done)>;

// Pictures 0 ... rows-1, 1,000 a batch B: imgs/B/sample_N.png and metadata/B.npy, a text with a line
// "imgs/B sample_N.png N LABEL ..." for each.
bool write_pathfinder(const std::filesystem::path& folder, const PathfinderOptions& options, std::uint64_t seed,
                      Index rows, const Proceed& proceed);
// The folder's name in the Long Range Arena: "curv_baseline" for 6 dashes, else "curv_contour_length_N".
std::string pathfinder_folder_name(Index contour);

// basic_train.tsv with `rows` rows, basic_val.tsv and basic_test.tsv with `held_out` each, all different.
bool write_listops(const std::filesystem::path& folder, const ListOpsOptions& options, std::uint64_t seed, Index rows,
                   Index held_out, const Proceed& proceed);

}  // namespace flexformer
