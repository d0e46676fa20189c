#include "train/util/unicode.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "train/util/utf8.h"

namespace flexformer {
namespace {

#include "train/util/unicode_tables.inc"

// Takes the numbers out of a packed table, one after the other.
class Numbers {
 public:
  explicit Numbers(std::string_view packed) : left_(packed) {}
  bool done() const { return left_.empty(); }
  std::uint32_t next() {
    std::uint32_t number = 0, digit;
    int shift = 0;
    do {
      digit = std::uint32_t(left_.front() - '0');
      left_.remove_prefix(1);
      number |= (digit & 31) << shift;
      shift += 5;
    } while (digit & 32);
    return number;
  }
  std::int32_t next_signed() {
    const auto number = std::int32_t(next());
    return number & 1 ? -(number + 1) / 2 : number / 2;
  }

 private:
  std::string_view left_;
};

// Runs of equal classes, each as 256 * its first code point + its class.
class Classes {
 public:
  explicit Classes(std::string_view packed) {
    std::uint32_t first = 0;
    for (Numbers numbers(packed); !numbers.done();) {
      first += numbers.next();
      runs_.push_back(256 * first + numbers.next());
    }
  }
  unsigned operator()(std::uint32_t code_point) const {
    return *(std::upper_bound(runs_.begin(), runs_.end(), 256 * code_point + 255) - 1) & 255;
  }

 private:
  std::vector<std::uint32_t> runs_;
};

unsigned combining_class(std::uint32_t code_point) {
  static const Classes classes(packed_combining_classes);
  return code_point < 0x300 ? 0 : classes(code_point);
}

// Hangul syllables are numbered by their letters: leading L, vowel V, trailing T (the standard, section 3.12).
constexpr std::uint32_t hangul = 0xAC00, hangul_l = 0x1100, hangul_v = 0x1161, hangul_t = 0x11A7;
constexpr std::uint32_t count_l = 19, count_v = 21, count_t = 28;

class Decompositions {
 public:
  static const Decompositions& table() {
    static const Decompositions table;
    return table;
  }

  void append(std::uint32_t c, bool compatible, std::vector<std::uint32_t>& out) const {
    if (c >= hangul && c < hangul + count_l * count_v * count_t) {
      const std::uint32_t index = c - hangul;
      out.push_back(hangul_l + index / count_t / count_v);
      out.push_back(hangul_v + index / count_t % count_v);
      if (index % count_t) out.push_back(hangul_t + index % count_t);
      return;
    }
    const auto found = c < 0xA0 ? by_code_point_.end() : by_code_point_.find(c);
    if (found == by_code_point_.end() || (found->second.compatible && !compatible)) {
      out.push_back(c);
      return;
    }
    for (std::uint32_t i = 0; i < found->second.length; ++i)
      append(elements_[found->second.first + i], compatible, out);
  }

  // The character that two compose to, or 0.
  std::uint32_t composed(std::uint32_t a, std::uint32_t b) const {
    if (a >= hangul_l && a < hangul_l + count_l && b >= hangul_v && b < hangul_v + count_v)
      return hangul + ((a - hangul_l) * count_v + b - hangul_v) * count_t;
    if (a >= hangul && (a - hangul) % count_t == 0 && a < hangul + count_l * count_v * count_t && b > hangul_t &&
        b < hangul_t + count_t)
      return a + b - hangul_t;
    const auto found = composed_.find(std::uint64_t(a) << 32 | b);
    return found == composed_.end() ? 0 : found->second;
  }

  // Whether nothing in the block of 256 code points around this one changes, composes or has a class.
  bool is_plain(std::uint32_t c) const { return c < 0xA0 || !has_special_[c >> 8]; }

  bool is_second(std::uint32_t c) const {
    return (c >= hangul_v && c < hangul_v + count_v) || (c > hangul_t && c < hangul_t + count_t) ||
           std::ranges::binary_search(seconds_, c);
  }

 private:
  enum Kind { compatible, composes, canonical };
  struct Place {
    std::uint32_t first, length;
    bool compatible;
  };

  Decompositions() {
    std::uint32_t c = 0;
    std::array<std::int32_t, 2> before = {0, 0};
    for (Numbers numbers(packed_decompositions); !numbers.done();) {
      c += numbers.next();
      const std::uint32_t what = numbers.next(), run = numbers.next(), length = what / 4, moving = run % 3;
      std::vector<std::uint32_t> base;
      for (std::uint32_t i = 0; i < length; ++i) base.push_back(std::uint32_t(before[i > 0] += numbers.next_signed()));
      for (std::uint32_t n = 0; n < run / 3; ++n, ++c) {
        if (n && moving) ++(moving == 1 ? base.front() : base.back());
        by_code_point_[c] = {std::uint32_t(elements_.size()), length, what % 4 == compatible};
        elements_.insert(elements_.end(), base.begin(), base.end());
        if (what % 4 != composes || length != 2) continue;
        composed_[std::uint64_t(base[0]) << 32 | base[1]] = c;
        seconds_.push_back(base[1]);
      }
    }
    std::ranges::sort(seconds_);
    for (const auto& [special, place] : by_code_point_) has_special_[special >> 8] = true;
    for (const std::uint32_t second : seconds_) has_special_[second >> 8] = true;
    for (std::uint32_t special = 0; special < 0x110000; ++special)
      if (combining_class(special) || (special >= hangul_l && special < hangul_l + 256) ||
          (special >= hangul && special < hangul + count_l * count_v * count_t))
        has_special_[special >> 8] = true;
  }

  std::unordered_map<std::uint32_t, Place> by_code_point_;
  std::vector<std::uint32_t> elements_, seconds_;
  std::vector<bool> has_special_ = std::vector<bool>(0x1100);
  std::unordered_map<std::uint64_t, std::uint32_t> composed_;
};

// Marks in the order of their classes, those of equal class as they came.
void put_in_order(std::vector<std::uint32_t>& part) {
  for (auto from = part.begin(); from != part.end();) {
    const auto is_mark = [](std::uint32_t c) { return combining_class(c) != 0; };
    const auto first = std::find_if(from, part.end(), is_mark);
    from = std::find_if_not(first, part.end(), is_mark);
    std::stable_sort(first, from, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
  }
}

// Each character joins the last starter where the two compose and nothing between them is in the way.
void compose(std::vector<std::uint32_t>& part) {
  const Decompositions& table = Decompositions::table();
  std::size_t starter = 0, kept = 0;
  bool has_starter = false;
  unsigned last_class = 0;
  for (const std::uint32_t c : part) {
    const unsigned here = combining_class(c);
    const bool adjacent = has_starter && kept == starter + 1;
    if (has_starter && (adjacent || (last_class < here && last_class != 0)))
      if (const std::uint32_t joined = table.composed(part[starter], c)) {
        part[starter] = joined;
        continue;
      }
    if (here == 0) starter = kept, has_starter = true;
    last_class = here;
    part[kept++] = c;
  }
  part.resize(kept);
}

}  // namespace

CharClass char_class(std::uint32_t code_point) {
  static const Classes classes(packed_char_classes);
  return CharClass(classes(code_point));
}

BertClass bert_class(std::uint32_t code_point) {
  static const Classes classes(packed_bert_classes);
  return BertClass(classes(code_point));
}

void append_lower(std::uint32_t code_point, std::string& out) {
  struct Run {
    std::uint32_t first, count, step;
    std::int32_t added;
  };
  static const std::vector<Run> runs = [] {
    std::vector<Run> all;
    std::uint32_t first = 0;
    for (Numbers numbers(packed_lower); !numbers.done();) {
      first += numbers.next();
      const std::uint32_t count = numbers.next();
      all.push_back({first, count / 2, count % 2 + 1, numbers.next_signed()});
    }
    return all;
  }();
  if (code_point == 0x130) return append_code_point('i', out), append_code_point(0x307, out);
  if (code_point < 0x80) {
    out += char(code_point >= 'A' && code_point <= 'Z' ? code_point + 32 : code_point);
    return;
  }
  // Runs of step 2 may lie between each other's code points, so the one before may be the right one too.
  auto run = std::ranges::upper_bound(runs, code_point, {}, &Run::first);
  for (int tries = 0; tries < 2 && run != runs.begin(); ++tries) {
    --run;
    const std::uint32_t distance = code_point - run->first;
    if (distance % run->step == 0 && distance / run->step < run->count)
      return append_code_point(std::uint32_t(std::int32_t(code_point) + run->added), out);
  }
  append_code_point(code_point, out);
}

void append_decomposition(std::uint32_t code_point, bool compatible, std::vector<std::uint32_t>& out) {
  Decompositions::table().append(code_point, compatible, out);
}

bool begins_normal_part(std::uint32_t code_point) {
  if (code_point < 0x300 || Decompositions::table().is_plain(code_point)) return true;
  const auto stays_apart = [](std::uint32_t c) {
    return combining_class(c) == 0 && !Decompositions::table().is_second(c);
  };
  std::vector<std::uint32_t> parts;
  append_decomposition(code_point, true, parts);
  return stays_apart(code_point) && stays_apart(parts[0]);
}

std::string normalized(std::string_view text, NormalForm form, std::vector<std::size_t>* ends) {
  const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  const bool composes = form == NormalForm::nfc || form == NormalForm::nfkc;
  std::string out;
  out.reserve(text.size());
  std::vector<std::uint32_t> part;
  const auto finish = [&](std::size_t end) {
    if (part.size() > 1) {
      put_in_order(part);
      if (composes) compose(part);
    }
    for (const std::uint32_t c : part) append_code_point(c, out);
    part.clear();
    if (ends) ends->resize(out.size(), end);
  };
  const auto is_ascii = [&](std::size_t at) { return static_cast<unsigned char>(text[at]) < 0x80; };
  for (std::size_t at = 0; at < text.size();) {
    if (is_ascii(at) && (at + 1 == text.size() || is_ascii(at + 1))) {  // no mark follows
      finish(at);
      out += text[at++];
      if (ends) ends->resize(out.size(), at);
      continue;
    }
    const CodePoint unit = next_code_point(text, at);
    if (!unit.valid || begins_normal_part(unit.value)) finish(at);
    if (unit.valid)
      append_decomposition(unit.value, compatible, part);
    else
      out += text[at];
    at += unit.length;
    if (!unit.valid) finish(at);
  }
  finish(text.size());
  return out;
}

}  // namespace flexformer
