#include "train/training/run_claim.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <iostream>
#include <system_error>
#include <utility>

#include "tensor/error.h"
#include "train/util/files.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

namespace fs = std::filesystem;

std::string reason(int error) { return std::generic_category().message(error); }

[[noreturn]] void fail_to_make(const fs::path& path, const std::string& why) {
  fail("cannot make the run folder ", quote(path.string(), 400), ": ", why);
}

// "process 1234 on HOST since 2025-01-31 12:00:00 UTC"
std::string this_process() {
  std::array<char, 256> host{}, when{};
  gethostname(host.data(), host.size() - 1);
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  std::strftime(when.data(), when.size(), "%Y-%m-%d %H:%M:%S %Z", localtime_r(&now, &local));
  return text("process ", getpid(), " on ", host.data(), " since ", when.data());
}

// The line of a lock that another process has; it writes that right after it took the lock.
std::string holder(int lock) {
  for (int tries = 0; tries < 20; ++tries, usleep(10000)) {
    std::array<char, 400> line{};
    if (pread(lock, line.data(), line.size() - 1, 0) > 0) return std::string(trim(line.data()));
  }
  return "another process";
}

bool same_file(int open_file, const fs::path& path) {
  struct stat a {
  }, b{};
  return fstat(open_file, &a) == 0 && stat(path.c_str(), &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

bool is_temporary(const std::string& name) { return name.ends_with(kTemporarySuffix); }

// What programs write before a run has begun.
bool is_of_a_start(const std::string& name) {
  for (const char* file : {"config.json", "tokenizer.json", "labels.json", "pretrained.json", "distill.json"})
    if (name == file) return true;
  return is_temporary(name) || name.find(".tokens-") != std::string::npos ||
         name.find(".vocabulary-") != std::string::npos;
}

}  // namespace

bool RunClaim::make_folder() {
  // Another start that is refused may take away a folder above that both need: then once more.
  for (int tries = 0;; ++tries) {
    std::vector<fs::path> above;
    std::error_code error;
    for (fs::path p = path_.parent_path(); !p.empty() && !fs::exists(p, error) && p != p.parent_path();
         p = p.parent_path())
      above.insert(above.begin(), p);
    for (const fs::path& p : above)
      if (mkdir(p.c_str(), 0777) == 0) made_.push_back(p);
    if (mkdir(path_.c_str(), 0777) == 0) {
      made_.push_back(path_);
      return true;
    }
    const int failed = errno;
    if (failed == ENOENT && tries < 10) continue;
    remove_folders();
    if (failed == EEXIST) return false;
    fail_to_make(path_, reason(failed));
  }
}

void RunClaim::remove_folders() noexcept {
  for (; !made_.empty(); made_.pop_back()) rmdir(made_.back().c_str());  // one that is in use is not empty, and stays
}

bool RunClaim::lock() {
  for (;;) {
    lock_ = open(lock_file().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock_ < 0 && errno == ENOENT) return false;
    if (lock_ < 0) fail("cannot write ", quote(lock_file().string(), 400), ": ", reason(errno));
    int failed;
    while ((failed = flock(lock_, LOCK_EX | LOCK_NB) ? errno : 0) == EINTR) continue;
    if (failed == EWOULDBLOCK) {
      const std::string other = holder(lock_);
      close(std::exchange(lock_, -1));
      fail(quote(path_.string(), 400), " is in use by ", other,
           "; let it end (kill -TERM saves a run and stops it), or choose another out");
    }
    if (failed)
      std::cerr << "warning: nothing keeps other programs out of " << printable(path_.string())
                << ", since its file system has no locks (" << reason(failed) << ")" << std::endl;
    if (failed || same_file(lock_, lock_file())) break;
    close(std::exchange(lock_, -1));  // of a process that has just ended and removed it
  }
  const std::string line = this_process() + "\n";
  if (ftruncate(lock_, 0) != 0 || pwrite(lock_, line.data(), line.size(), 0) != std::ssize(line)) {
    const int failed = errno;
    unlink(lock_file().c_str());
    fail("cannot write ", quote(lock_file().string(), 400), ": ", reason(failed),
         failed == ENOSPC ? "; free some space" : "");
  }
  folder_ = open(path_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path_, error))
    if (entry.path() != lock_file()) before_.insert(entry.path().filename().string());
  return true;
}

std::shared_ptr<RunClaim> RunClaim::make(const fs::path& path) {
  const std::shared_ptr<RunClaim> claim(new RunClaim(path));
  while (claim->make_folder())
    if (claim->lock()) return claim;
  return nullptr;
}

std::shared_ptr<RunClaim> RunClaim::take(const fs::path& path) {
  const std::shared_ptr<RunClaim> claim(new RunClaim(path));
  do {
    std::error_code error;
    if (!claim->make_folder() && !fs::is_directory(path, error))
      fail_to_make(path, fs::exists(path, error) ? "there is a file of that name" : "there is a link to nothing");
  } while (!claim->lock());
  return claim;
}

void RunClaim::remove_files() {
  std::vector<fs::path> written;
  for (const auto& entry : fs::directory_iterator(path_))
    if (const std::string name = entry.path().filename().string(); is_of_a_start(name) && !before_.count(name))
      written.push_back(entry.path());
  const fs::path checkpoint = path_ / "checkpoint";
  const bool made_checkpoint = !before_.count("checkpoint") && fs::exists(checkpoint);
  if (made_checkpoint)
    for (const auto& entry : fs::directory_iterator(checkpoint)) written.push_back(entry.path());
  for (const fs::path& file : written) fs::remove(file);
  if (made_checkpoint) fs::remove(checkpoint);
}

RunClaim::~RunClaim() {
  if (lock_ >= 0 && same_file(lock_, lock_file())) {
    try {
      if (!kept_) remove_files();
    } catch (const std::exception&) {  // what cannot be removed stays
    }
    unlink(lock_file().c_str());
  }
  for (const int file : {lock_, folder_})
    if (file >= 0) close(file);
  if (!kept_) remove_folders();
}

void RunClaim::check() {
  if (same_file(lock_, lock_file())) return;
  if (!same_file(folder_, path_))
    fail("the run folder ", quote(path_.string(), 400),
         " was deleted or moved while this program wrote into it; it stops without another save");
  // Someone deleted the lock alone. If nobody has taken the folder since, it is as good as ours.
  for (int* file : {&lock_, &folder_}) close(std::exchange(*file, -1));
  lock();
}

bool RunClaim::was_empty() const {
  return std::ranges::all_of(before_, [&](const std::string& name) {
    std::error_code error;
    return is_temporary(name) || (name == "checkpoint" && fs::is_empty(path_ / name, error));
  });
}

}  // namespace flexformer
