// What a run says while it works: one line on a terminal, rewritten; elsewhere plain lines, flushed as they are
// written.
#pragma once
#include <chrono>
#include <string>

#include "tensor/shape.h"

namespace flexformer {

// Seconds since construction or reset().
class Stopwatch {
 public:
  void reset() { start_ = std::chrono::steady_clock::now(); }
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

class Console {
 public:
  Console();
  ~Console() { end_progress(); }

  // The progress line: rewritten on a terminal (at most ten times a second unless `always`), else printed if `always`.
  void progress(const std::string& line, bool always);
  // A line that stays.
  void say(const std::string& line);
  void end_progress();

 private:
  bool terminal_, open_ = false;
  Stopwatch since_;
};

// Numbers as people read them: "1.234", "5,678 tokens/s", "3 min 20 s", "123 MB".
std::string fixed(double value, int decimals);  // "inf" and "nan" in words
std::string grouped(Index value);
std::string duration(double seconds);
std::string megabytes(Index bytes);

}  // namespace flexformer
