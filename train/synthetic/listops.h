// ListOps: nested list operations over digits, written as "[MAX 2 9 [MIN 4 7 ] 0 ]"; the label is the value, 0 to 9
// (Nangia and Bowman, "ListOps: a diagnostic dataset for latent tree learning", 2018). The defaults make the short
// embedded task of the classifier; ListOpsOptions::lra() the long one of the Long Range Arena benchmark.
//
// A row is drawn from (seed, attempt number) alone and kept if its length fits and no earlier row equals it, so the
// rows of one generator are all different and those of a split never appear in another.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "tensor/random.h"
#include "tensor/shape.h"

namespace flexformer {

struct ListOpsOptions {
  std::vector<std::string> operators = {"MAX", "MIN"};  // of MAX, MIN, MED (floor of the median), SM (sum modulo 10)
  Index max_depth = 2;                                  // operators nested in each other, 1 to 100
  Index min_args = 2, max_args = 5;                     // of an operator; each number equally likely
  Index min_tokens = 6, max_tokens = 20;                // "[MAX", "]" and each digit count as one
  double operator_probability = 0.35;                   // of an argument, where the depth allows; else an even digit

  // Long Range Arena: four operators, up to 10 arguments, 501 to 1,999 tokens. Its generator counts the level of the
  // digits in its depth of 10, so operators nest 9 deep.
  static ListOpsOptions lra();
};

struct ListOpsRow {
  std::string text;
  std::string label;  // "0" to "9"
};

class ListOps {
 public:
  // Throws Error for options out of range and for lengths that no expression can have.
  ListOps(ListOpsOptions options, std::uint64_t seed);

  // The next row, different from all before. Throws Error when 100,000 draws in a row gave none.
  ListOpsRow next();
  std::vector<ListOpsRow> take(Index rows);

 private:
  struct Draw;
  bool expression(Draw& draw, Index level) const;
  [[noreturn]] void give_up(Index too_short, Index too_long, Index repeated) const;

  ListOpsOptions options_;
  std::uint64_t seed_, attempts_ = 0;
  std::unordered_set<std::uint64_t> seen_;  // fingerprints: a hundred thousand long rows would fill the memory
};

struct ListOpsSplits {
  std::vector<ListOpsRow> train, valid, test;
};

// Three sets of rows without a common one.
ListOpsSplits make_listops(const ListOpsOptions& options, std::uint64_t seed, Index train, Index valid, Index test);

// The value of an expression, its tokens separated by spaces; "(" and ")" are passed over. Throws Error, naming the
// token, for text that is no expression.
int evaluate_listops(std::string_view expression);

// The spelling of the Long Range Arena files, which groups each operator with its arguments one by one:
// "[MIN 1 8 ]" -> "( ( ( [MIN 1 ) 8 ) ] )". Throws Error as evaluate_listops() does.
std::string lra_source(std::string_view expression);
// A whole file in that spelling: "Source<tab>Target", then one row a line, lines ended by "\r\n".
std::string lra_tsv(const std::vector<ListOpsRow>& rows);

// Writes the next `rows` rows of `source` as such a file. `proceed(rows done)` is asked now and then; when it says no,
// there is no file and false is returned.
bool write_lra_tsv(const std::filesystem::path& path, ListOps& source, Index rows,
                   const std::function<bool(Index)>& proceed);

}  // namespace flexformer
