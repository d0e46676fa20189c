// Every data set a classifier can be trained on, as a Table: the tables of table.h, a folder of texts for each class,
// the files of GLUE, TREC and the Long Range Arena, and pictures as sequences of pixels. Files ending in .gz are
// unpacked.
#pragma once
#include "train/datasets/table.h"

namespace flexformer {

// The names of data.format, "auto" first.
const std::vector<std::string>& data_format_names();

// Reads `path` in options.format, which adds to the formats of read_table():
//  folder      a folder for each class, with a .txt file for each text: train/pos/0_9.txt; without any, the files that
//              have no ending at all are the texts. Classes and files are read in order of their names' bytes; line
//              breaks at a text's end are dropped; a class "unsup" (texts without label), hidden folders and other
//              files are left out and mentioned.
//  listops     ListOps of the Long Range Arena: a tsv with the columns Source and Target. As its official loader does,
//              the parentheses, which only show how arguments are grouped, are dropped; the tokens left are separated
//              by spaces.
//  pathfinder, cifar10, idx  pictures, see pictures.h.
//
// Format `auto`: a folder is pathfinder if it holds imgs/ and metadata/, cifar10 if it holds data_batch_1.bin, else
// folder. A file is idx or cifar10 by what it starts with and its size, listops if its first line is
// "Source<tab>Target", else a table. Throws Error that names the file, also for one that is no text.
Table read_data_set(const std::filesystem::path& path, const TableOptions& options);

// A ListOps expression without "(" and ")".
std::string without_parentheses(std::string_view expression);

}  // namespace flexformer
