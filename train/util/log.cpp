#include "train/util/log.h"

#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iomanip>
#include <iostream>

namespace flexformer {

Console::Console() {
  const char* kind = std::getenv("TERM");
  terminal_ = isatty(STDOUT_FILENO) && kind && std::strcmp(kind, "dumb") != 0;
}

void Console::progress(const std::string& line, bool always) {
  if (!terminal_) {
    if (always) std::cout << line << std::endl;
    return;
  }
  if (open_ && !always && since_.seconds() < 0.1) return;
  since_.reset();
  std::cout << "\r\033[K" << line << std::flush;  // back to the start of the line, and clear it
  open_ = true;
}

void Console::say(const std::string& line) {
  end_progress();
  std::cout << line << std::endl;
}

void Console::end_progress() {
  if (open_) std::cout << std::endl;
  open_ = false;
}

std::string fixed(double value, int decimals) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out << std::fixed << std::setprecision(decimals) << value;
  return out.str();
}

std::string grouped(Index value) {
  std::string digits = std::to_string(value);
  for (Index i = Index(digits.size()) - 3; i > (value < 0 ? 1 : 0); i -= 3) digits.insert(std::size_t(i), 1, ',');
  return digits;
}

std::string duration(double seconds) {
  if (!(std::abs(seconds) < 1e9)) return "a long time";
  const Index s = Index(seconds + 0.5);
  if (s < 60) return text(s, " s");
  if (s < 3600) return text(s / 60, " min ", s % 60, " s");
  return text(s / 3600, " h ", s % 3600 / 60, " min");
}

std::string megabytes(Index bytes) { return text(grouped((bytes + 999999) / 1000000), " MB"); }

}  // namespace flexformer
