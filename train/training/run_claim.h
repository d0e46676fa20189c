// The right to write into a run folder, which one process has at a time. A file `lock` in the folder carries it:
// flock() belongs to the open file and ends with the process, however that ends, so no lock is ever left over. Its line
// says who has it. Folders of several machines and containers are told apart by the file system alone, never by process
// ids.
#pragma once
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace flexformer {

class RunClaim {
 public:
  // Makes the folder `path`, with those above it, and claims it. Null where something of that name is there already.
  static std::shared_ptr<RunClaim> make(const std::filesystem::path& path);
  // The same for a folder that may be there. Throws Error with the holder's process, host and time where another
  // process has it, and where it cannot be made or written. A file system without locks gets a warning on stderr.
  static std::shared_ptr<RunClaim> take(const std::filesystem::path& path);

  // Gives the folder free. Unless keep() was called, what a run writes and was not there before is removed, and so are
  // the folders that were made: a start that was refused leaves nothing.
  ~RunClaim();
  RunClaim(const RunClaim&) = delete;
  RunClaim& operator=(const RunClaim&) = delete;

  void keep() { kept_ = true; }
  // Throws Error if the folder is no longer this process's own: deleted, moved, or in other hands.
  void check();
  // Whether nothing was in the folder but what a start leaves that was killed.
  bool was_empty() const;

 private:
  explicit RunClaim(std::filesystem::path path) : path_(std::move(path)) {}
  bool make_folder();  // false where something of that name is there
  bool lock();         // false where the folder has vanished
  void remove_files();
  void remove_folders() noexcept;
  std::filesystem::path lock_file() const { return path_ / "lock"; }

  std::filesystem::path path_;
  std::vector<std::filesystem::path> made_;  // outermost first
  std::set<std::string> before_;             // names in the folder
  int lock_ = -1, folder_ = -1;              // open files
  bool kept_ = false;
};

}  // namespace flexformer
