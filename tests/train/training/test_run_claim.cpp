// Who may write into a run folder, and what becomes of one that is taken away.
#include <doctest/doctest.h>
#include <unistd.h>

#include "tests/train/util/html_check.h"
#include "tests/train/util/temporary_folder.h"
#include "train/training/run_folder.h"
#include "train/util/files.h"

using namespace flexformer;
using flexformer::tests::contains;
namespace fs = std::filesystem;

namespace {

}  // namespace

TEST_CASE("a run folder is in one process's hands, and a start that is refused leaves nothing") {
  const TemporaryFolder home;
  const fs::path path = home.path() / "a" / "run";
  const auto make = [&](bool resume = false) { return RunFolder::for_training((path / "").string(), "", resume); };
  {
    const RunFolder folder = make();
    CHECK(contains(read_file(path / "lock"), text("process ", getpid(), " on ")));
    CHECK(contains(message_of([&] { make(); }), text("/a/run' is in use by process ", getpid(), " on ")));
    CHECK(contains(message_of([&] { RunFolder(path).claim(); }), " since 20"));
    write_file_atomic(folder.file("tokenizer.json"), "half a start");
  }
  CHECK_FALSE(fs::exists(home.path() / "a"));  // with the folder above it, which was made for it

  make().keep();
  CHECK(fs::exists(path / "checkpoint"));
  CHECK_FALSE(fs::exists(path / "lock"));
  home.file("a/run/lock", "process 1 on another host, which was killed");
  home.file("a/run/tokenizer.json", "of a run before");
  home.file("a/run/notes.txt", "mine");
  make();
  CHECK(fs::exists(path / "tokenizer.json"));
  CHECK(fs::exists(path / "notes.txt"));
  CHECK(contains(message_of([&] { make(true); }), "no run has begun in "));
  home.file("a/run/config.json", "{}");
  make(true);
}

TEST_CASE("an out=DIR that cannot be a run folder is one error; a link to a folder is one") {
  const TemporaryFolder home;
  const auto said = [&](const char* out, bool resume = false) {
    return message_of([&] { RunFolder::for_training((home.path() / out).string(), "", resume); });
  };
  home.file("file", "");
  fs::create_symlink("nowhere", home.path() / "dangling");
  fs::create_directories(home.path() / "runs-1");
  home.file("runs-1/config.json", "{}");
  CHECK(contains(said("file"), "/file': there is a file of that name"));
  CHECK(contains(said("file/run"), "/file/run': Not a directory"));
  CHECK(contains(said("dangling"), "/dangling': there is a link to nothing"));
  CHECK(contains(said(std::string(300, 'x').c_str()), "File name too long"));
  CHECK(contains(said("runs_1", true), "there is no folder " + (home.path() / "runs_1; the run nearest").string()));
  CHECK_FALSE(fs::exists(home.path() / "runs_1"));
  fs::create_symlink("runs-1", home.path() / "link");
  CHECK(said("link") == "no error");
  CHECK(said("link/.", true) == "no error");
}

TEST_CASE("a run whose folder was deleted, moved or replaced stops; one whose lock alone was deleted goes on") {
  const TemporaryFolder home;
  const fs::path path = home.path() / "run";
  const Json line = {{"step", 1}};
  const auto begun = [&] {
    const RunFolder folder = RunFolder::for_training(path.string(), "", false);
    folder.keep();
    folder.log(line);
    return folder;
  };
  {
    const RunFolder folder = begun();
    fs::remove(path / "lock");
    folder.log(line);
    CHECK(fs::exists(path / "lock"));
    fs::rename(path, home.path() / "moved");
    CHECK(contains(message_of([&] { folder.log(line); }), "was deleted or moved while this program wrote into it"));
    fs::create_directory(path);  // of another run
    CHECK(contains(message_of([&] { folder.log(line); }), "was deleted or moved"));
    CHECK(fs::is_empty(path));
  }
  const RunFolder first = begun();
  fs::remove(path / "lock");
  const RunFolder second = RunFolder::for_training(path.string(), "", false);
  CHECK(contains(message_of([&] { first.log(line); }), "is in use by process"));
  second.log(line);
}
