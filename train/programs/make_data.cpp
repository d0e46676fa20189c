// make_data: writes the generated data sets of the Long Range Arena, Pathfinder and ListOps, in its layout and sizes.
#include <iostream>

#include "tensor/parallel.h"
#include "train/synthetic/generated_data.h"
#include "train/util/log.h"
#include "train/util/program.h"

namespace flexformer {
namespace {

int make_data(Options& options) {
  const bool pictures = options.text("kind") == "pathfinder";
  const Index contour = options.integer("contour"), held_out = options.integer("held_out");
  for (const char* key : {pictures ? "held_out" : "contour"})
    if (options.given(key)) throw UsageError(text(key, " is given, but kind=", options.text("kind"), " has none"));
  if (options.text("out").empty())
    options.set("out", pictures ? "data/pathfinder32/" + pathfinder_folder_name(contour) : "data/listops");
  if (options.integer("rows") == 0) options.set("rows", Index(pictures ? 200000 : 96000));
  set_threads(int(options.integer("threads")));
  const std::string& out = options.text("out");
  const Index rows = options.integer("rows"), all = rows + (pictures ? 0 : 2 * held_out);
  const auto seed = std::uint64_t(options.integer("seed"));

  watch_stop_signals();
  Console console;
  Stopwatch watch;
  Index first = 0;  // of what this run makes
  const Proceed proceed = [&](Index done) {
    if (first == 0) first = done;
    const double left = watch.seconds() / double(std::max<Index>(1, done - first)) * double(all - done);
    console.progress(text(grouped(done), " of ", grouped(all), done > first ? "  " + duration(left) + " left" : ""),
                     done % std::max<Index>(1000, all / 10 / 1000 * 1000) == 0);
    return stop_signal() == 0;
  };
  const bool done = pictures ? write_pathfinder(out, {.contour = contour}, seed, rows, proceed)
                             : write_listops(out, ListOpsOptions::lra(), seed, rows, held_out, proceed);
  if (!done) {
    console.say(text("stopped; the same command ", pictures ? "goes on" : "starts afresh"));
    return 128 + stop_signal();
  }
  const std::string files = pictures ? out
                                     : text(out, "/basic_train.tsv --data.valid=", out,
                                            "/basic_val.tsv --data.test=", out, "/basic_test.tsv");
  console.say(text(out, " is complete: ", grouped(all), pictures ? " pictures" : " rows",
                   "; train with: make train-text ARGS=\"--data.train=", files, "\""));
  return 0;
}

}  // namespace
}  // namespace flexformer

int main(int argc, char** argv) {
  flexformer::Options options("make_data", "Writes the generated data sets of the Long Range Arena.");
  options.add_choice("kind", "pathfinder", {"pathfinder", "listops"},
                     "pictures of two dashed contours, are two marked ends connected; or nested list operations");
  options.add_path("out", "", "folder to write; empty: its name in the Long Range Arena, under data/");
  options.add_integer("rows", 0,
                      {.unit = "rows", .help = "0: as many as the original, 200000 pictures or 96000 training rows"});
  options.add_integer("held_out", 2000, {.unit = "rows", .help = "of ListOps, for validation, and again for the test"});
  options.add_integer("contour", 14,
                      {.min = 3,
                       .max = 14,
                       .unit = "dashes",
                       .help = "of Pathfinder's long contours; the originals have 6 (easy), 9 and 14 (hard)"});
  options.add_integer("seed", 1, {.max = 9.0e15, .help = "the same seed gives the same files"});
  options.add_integer("threads", 0,
                      {.max = 1024, .unit = "threads", .help = "0: all it may use; results do not depend on it"});
  return flexformer::run_program(options, argc, argv, flexformer::make_data);
}
