// Errors. A user's mistake throws Error with one sentence: what failed, what was expected, the sizes seen and how to
// mend it. check() formats its message only when the condition fails.
#pragma once
#include <sstream>
#include <stdexcept>
#include <string>

namespace flexformer {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Glues its arguments into one string; anything with operator<< will do. Numbers are written with a decimal point
// whatever the user's locale is.
template <class... Parts> std::string text(const Parts&... parts) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  (out << ... << parts);
  return out.str();
}

// The op that checks, and the source line where it does (filled in by the conversion from the op's name).
struct CheckedOp {
  const char *name, *file;
  int line;
  CheckedOp(const char* name, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : name(name), file(file), line(line) {}
};

// Throws Error "op: message (file:line)" unless `ok`.
//   check("matmul", a.cols() == b.rows(), "inner sizes differ: a ", a.shape(), ", b ", b.shape(), "; transpose b?");
template <class... Parts> void check(CheckedOp op, bool ok, const Parts&... parts) {
  if (ok) [[likely]]
    return;
  throw Error(text(op.name, ": ", parts..., " (", op.file, ":", op.line, ")"));
}

// For mistakes in files, options and configurations, where our own source line would only distract.
template <class... Parts> [[noreturn]] void fail(const Parts&... parts) { throw Error(text(parts...)); }

}  // namespace flexformer
