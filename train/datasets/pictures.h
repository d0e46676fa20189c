// Pictures for a classifier that reads them as sequences of pixels: a row's text is the picture's grey values, one byte
// each, row by row from the top. With the byte tokenizer they become the tokens 0 .. 255, as in the Long Range Arena,
// and everything that is done with texts is done with pictures too.
#pragma once
#include "train/datasets/table.h"

namespace flexformer {

// IDX, the format of MNIST: big-endian numbers 0x00000803, count, height, width, then a byte a pixel. The labels are in
// a file of their own, 0x00000801, count, a byte each, whose name has "labels-idx1" for "images-idx3" (or "labels.idx1"
// for "images.idx3"); both may be packed (.gz). Throws Error for sizes that do not fit the file or each other.
Table read_idx(std::string_view bytes, const std::filesystem::path& path);
bool looks_like_idx(std::string_view bytes);

// CIFAR-10's binary batches: records of a label byte 0 .. 9 and 3 x 1,024 bytes, the red, green and blue planes of 32 x
// 32 pixels, made grey by grey_value() of png.h as the Long Range Arena does.
Table parse_cifar10(std::string_view bytes, const std::string& source);
Table read_cifar10_folder(const std::filesystem::path& path);  // data_batch_1.bin, data_batch_2.bin ... together
bool looks_like_cifar10(std::string_view bytes);               // by its size and its label bytes

// Pathfinder of the Long Range Arena: metadata/*.npy are text files with a line "imgs/0 sample_7.png 7 1 ..." for each
// picture, whose fourth field says whether the two dots are connected. Pictures without a byte, of which the original
// has one, are left out and mentioned; one outside of the folder is an Error.
Table read_pathfinder(const std::filesystem::path& path);

// Pictures without labels, for prediction: one PNG file, or all of an IDX or CIFAR-10 file.
std::vector<std::string> read_pictures(const std::filesystem::path& path);

}  // namespace flexformer
