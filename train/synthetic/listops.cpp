// Expressions are read by one fold with an explicit stack (text may come from a file, nested however deep); the value
// and the Long Range Arena spelling are two uses of it.
#include "train/synthetic/listops.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "train/util/files.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

using std::string_view;

int maximum(std::vector<int>& values) { return *std::ranges::max_element(values); }
int minimum(std::vector<int>& values) { return *std::ranges::min_element(values); }
int sum_modulo_10(std::vector<int>& values) { return std::accumulate(values.begin(), values.end(), 0) % 10; }
int median(std::vector<int>& values) {
  std::ranges::sort(values);
  const std::size_t upper = values.size() / 2, lower = (values.size() - 1) / 2;
  return (values[lower] + values[upper]) / 2;
}

struct Operator {
  string_view name;
  int (*value)(std::vector<int>&);
};
constexpr Operator operators[] = {{"MAX", maximum}, {"MIN", minimum}, {"MED", median}, {"SM", sum_modulo_10}};

const Operator* find_operator(string_view name) {
  const auto found = std::ranges::find(operators, name, &Operator::name);
  return found == std::end(operators) ? nullptr : found;
}

// Builds a value from the leaves up: digit(d) for a digit, apply(op, arguments) for a closed list.
template <class Value, class Digit, class Apply> Value fold(string_view expression, Digit digit, Apply apply) {
  struct List {
    const Operator* op;
    std::vector<Value> arguments;
  };
  std::vector<List> open = {{nullptr, {}}};  // the bottom collects the result
  std::size_t end = 0;
  for (std::size_t begin; (begin = expression.find_first_not_of(' ', end)) != string_view::npos;) {
    end = std::min(expression.find(' ', begin), expression.size());
    const string_view token = expression.substr(begin, end - begin);
    if (token == "(" || token == ")") continue;
    const bool finished = open.size() == 1 && !open[0].arguments.empty();
    if (finished) fail("listops: ", quote(token), " follows a finished expression at character ", begin + 1);
    if (token.size() == 1 && token[0] >= '0' && token[0] <= '9') {
      open.back().arguments.push_back(digit(token[0] - '0'));
    } else if (token == "]") {
      if (open.back().arguments.empty())
        fail("listops: ']' at character ", begin + 1, " closes no operator with arguments");
      List list = std::move(open.back());
      open.pop_back();
      open.back().arguments.push_back(apply(*list.op, list.arguments));
    } else {
      const Operator* op = token[0] == '[' ? find_operator(token.substr(1)) : nullptr;
      if (!op)
        fail("listops: ", quote(token), " at character ", begin + 1, " is none of [MAX [MIN [MED [SM ] ( ) 0 ... 9");
      open.push_back({op, {}});
    }
  }
  if (open.size() > 1)
    fail("listops: the expression ends before ", open.size() - 1, " of its operators are closed by ']'");
  if (open[0].arguments.empty()) fail("listops: the expression is empty");
  return std::move(open[0].arguments[0]);
}

constexpr const char* kLraHeader = "Source\tTarget\r\n";
std::string lra_line(const ListOpsRow& row) { return lra_source(row.text) + "\t" + row.label + "\r\n"; }

// Fewest and most tokens of an expression; in double, for the most may be astronomic.
struct Lengths {
  double least, most;
};
Lengths lengths(const ListOpsOptions& o) {
  Lengths argument{1, 1};
  for (Index level = o.max_depth; level > 1; --level) {
    const Lengths list{2 + double(o.min_args) * argument.least, 2 + double(o.max_args) * argument.most};
    const double p = o.operator_probability;
    argument = {p < 1 ? 1 : list.least, p > 0 ? list.most : 1};
  }
  return {2 + double(o.min_args) * argument.least, 2 + double(o.max_args) * argument.most};
}

void check_options(const ListOpsOptions& o) {
  if (o.operators.empty()) fail("listops: no operators; choose of MAX, MIN, MED, SM");
  for (const std::string& name : o.operators)
    if (!find_operator(name)) fail("listops: unknown operator '", name, "'; choose of MAX, MIN, MED, SM");
  if (o.max_depth < 1 || o.max_depth > 100) fail("listops: max_depth is ", o.max_depth, "; 1 to 100 is allowed");
  if (o.min_args < 1 || o.max_args < o.min_args)
    fail("listops: ", o.min_args, " to ", o.max_args, " arguments; at least 1, and min_args <= max_args, is needed");
  if (!(o.operator_probability >= 0 && o.operator_probability <= 1))
    fail("listops: operator_probability is ", o.operator_probability, "; 0 to 1 is allowed");
  const Lengths possible = lengths(o);
  if (o.min_tokens > o.max_tokens || double(o.min_tokens) > possible.most || double(o.max_tokens) < possible.least)
    fail("listops: rows of ", o.min_tokens, " to ", o.max_tokens,
         " tokens are asked for, but operators nested at most ", o.max_depth, " deep with ", o.min_args, " to ",
         o.max_args, " arguments give ", possible.least, " to ", possible.most,
         " tokens; change min_tokens, max_tokens, max_depth or max_args");
}

}  // namespace

// One attempt: its random numbers and what it has written so far.
struct ListOps::Draw {
  RandomKey key;
  std::uint64_t position = 0;
  std::string text;
  Index tokens = 0;

  double uniform() { return uniform_at(key, position++); }
  Index below(Index n) { return Index(uniform() * double(n)); }
  void write(string_view token) {
    if (tokens++ > 0) text += ' ';
    text += token;
  }
};

ListOpsOptions ListOpsOptions::lra() {
  return {.operators = {"MIN", "MAX", "MED", "SM"},
          .max_depth = 9,
          .min_args = 2,
          .max_args = 10,
          .min_tokens = 501,
          .max_tokens = 1999,
          .operator_probability = 0.25};
}

ListOps::ListOps(ListOpsOptions options, std::uint64_t seed) : options_(std::move(options)), seed_(seed) {
  check_options(options_);
}

// Writes an operator with its arguments; false as soon as the row is longer than allowed.
bool ListOps::expression(Draw& draw, Index level) const {
  draw.write("[" + options_.operators[std::size_t(draw.below(Index(options_.operators.size())))]);
  const Index args = options_.min_args + draw.below(options_.max_args - options_.min_args + 1);
  for (Index i = 0; i < args; ++i) {
    if (draw.tokens >= options_.max_tokens) return ++draw.tokens, false;
    if (level < options_.max_depth && draw.uniform() < options_.operator_probability) {
      if (!expression(draw, level + 1)) return false;
    } else {
      draw.write(string_view("0123456789").substr(std::size_t(draw.below(10)), 1));
    }
  }
  draw.write("]");
  return draw.tokens <= options_.max_tokens;
}

ListOpsRow ListOps::next() {
  constexpr int patience = 100000;
  Index too_short = 0, too_long = 0, repeated = 0;
  for (int i = 0; i < patience; ++i) {
    Draw draw;
    draw.key = {seed_ ^ 0x6c6973746f7073ull, attempts_++};  // "listops": other uses of the seed draw others
    if (!expression(draw, 1)) {
      ++too_long;
    } else if (draw.tokens < options_.min_tokens) {
      ++too_short;
    } else if (!seen_.insert(fnv1a64(draw.text)).second) {
      ++repeated;
    } else {
      return {draw.text, std::to_string(evaluate_listops(draw.text))};
    }
  }
  give_up(too_short, too_long, repeated);
}

void ListOps::give_up(Index too_short, Index too_long, Index repeated) const {
  fail("listops: after ", seen_.size(), " rows, ", too_short + too_long + repeated,
       " draws gave no new one: ", too_short, " were shorter than ", options_.min_tokens, " tokens, ", too_long,
       " longer than ", options_.max_tokens, ", ", repeated,
       " repeated; ask for fewer rows or widen min_tokens ... max_tokens");
}

std::vector<ListOpsRow> ListOps::take(Index rows) {
  std::vector<ListOpsRow> result;
  for (Index i = 0; i < rows; ++i) result.push_back(next());
  return result;
}

ListOpsSplits make_listops(const ListOpsOptions& options, std::uint64_t seed, Index train, Index valid, Index test) {
  ListOps source(options, seed);
  ListOpsSplits splits;
  splits.train = source.take(train);
  splits.valid = source.take(valid);
  splits.test = source.take(test);
  return splits;
}

int evaluate_listops(string_view expression) {
  return fold<int>(
      expression, [](int digit) { return digit; },
      [](const Operator& op, std::vector<int>& arguments) { return op.value(arguments); });
}

std::string lra_source(string_view expression) {
  return fold<std::string>(
      expression, [](int digit) { return std::to_string(digit); },
      [](const Operator& op, const std::vector<std::string>& arguments) {
        std::string list;
        for (std::size_t i = 0; i <= arguments.size(); ++i) list += "( ";
        list += text("[", op.name);
        for (const std::string& argument : arguments) list += " " + argument + " )";
        return list + " ] )";
      });
}

std::string lra_tsv(const std::vector<ListOpsRow>& rows) {
  std::string tsv = kLraHeader;
  for (const ListOpsRow& row : rows) tsv += lra_line(row);
  return tsv;
}

bool write_lra_tsv(const std::filesystem::path& path, ListOps& source, Index rows,
                   const std::function<bool(Index)>& proceed) {
  AtomicFile file(path);
  file.write(kLraHeader);
  for (Index i = 0; i < rows; ++i) {
    file.write(lra_line(source.next()));
    if (i % 100 == 99 && !proceed(i + 1)) return false;
  }
  file.commit();
  return true;
}

}  // namespace flexformer
