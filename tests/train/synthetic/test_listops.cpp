// ListOps: hand-evaluated expressions, the generator's limits and statistics, and its refusals.
#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include <doctest/doctest.h>

#include "tests/train/util/messages.h"
#include "train/synthetic/listops.h"

using namespace flexformer;
using tests::contains, tests::message_of;

namespace {

// The shape of a row, read by recursion where the library uses a stack.
struct Reading {
  Index tokens = 0, depth = 0, min_args = 1000, max_args = 0;
  std::map<std::string, Index> operators;
  Index second_level_lists = 0, second_level_arguments = 0;
};

int read(std::istream& in, Reading& reading, Index level = 0) {
  std::string token;
  in >> token;
  ++reading.tokens;
  if (level == 1) ++reading.second_level_arguments;
  if (token[0] != '[') return token[0] == ']' ? -1 : token[0] - '0';
  if (level == 1) ++reading.second_level_lists;
  ++reading.operators[token];
  reading.depth = std::max(reading.depth, level + 1);
  std::vector<int> values;
  for (int v; (v = read(in, reading, level + 1)) >= 0;) values.push_back(v);
  if (level == 0) --reading.second_level_arguments;  // the closing bracket is none
  const Index args = Index(values.size());
  reading.min_args = std::min(reading.min_args, args);
  reading.max_args = std::max(reading.max_args, args);
  std::sort(values.begin(), values.end());
  int sum = 0;
  for (int v : values) sum += v;
  if (token == "[MAX") return values.back();
  if (token == "[MIN") return values.front();
  if (token == "[SM") return sum % 10;
  return (values[std::size_t(args - 1) / 2] + values[std::size_t(args) / 2]) / 2;
}

void check_rows(const std::vector<ListOpsRow>& rows, const ListOpsOptions& options) {
  for (const ListOpsRow& row : rows) {
    std::istringstream in(row.text);
    Reading reading;
    REQUIRE(std::to_string(read(in, reading)) == row.label);
    REQUIRE(reading.tokens >= options.min_tokens);
    REQUIRE(reading.tokens <= options.max_tokens);
    REQUIRE(reading.depth <= options.max_depth);
    REQUIRE(reading.min_args >= options.min_args);
    REQUIRE(reading.max_args <= options.max_args);
    for (const auto& [op, count] : reading.operators)
      REQUIRE(std::count(options.operators.begin(), options.operators.end(), op.substr(1)) == 1);
  }
}

}  // namespace

TEST_CASE("listops: expressions evaluate as by hand") {
  CHECK(evaluate_listops("[MAX 2 9 [MIN 4 7 ] 0 ]") == 9);
  CHECK(evaluate_listops("[MIN 2 9 [MAX 1 0 ] 8 ]") == 1);
  CHECK(evaluate_listops("[MED 3 9 1 ]") == 3);
  CHECK(evaluate_listops("[MED 9 2 5 1 ]") == 3);  // (2 + 5) / 2 = 3.5, rounded down
  CHECK(evaluate_listops("[MED 7 4 ]") == 5);
  CHECK(evaluate_listops("[SM 9 9 9 ]") == 7);
  CHECK(evaluate_listops("[SM 5 5 ]") == 0);
  CHECK(evaluate_listops("[SM [MED 1 2 3 8 ] [MAX 9 0 ] [MIN 6 7 [SM 2 2 ] ] ]") == 5);  // 2 + 9 + 4 = 15
  CHECK(evaluate_listops("7") == 7);
  CHECK(evaluate_listops("( ( ( [MIN 8 ) ( ( ( [SM 7 ) 6 ) ] ) ) ] )") == 3);  // the spelling with groups
}

TEST_CASE("listops: text that is no expression is refused by name") {
  const auto error = [](std::string text) { return message_of([&] { evaluate_listops(text); }); };
  CHECK(contains(error("[MAX 1 12 ]"), "'12' at character 8 is none of [MAX"));
  CHECK(contains(error("[MAX 1 \n ]"), "'\\n' at character 8 is none of [MAX"));
  CHECK(contains(error("[AVG 1 2 ]"), "'[AVG' at character 1 is none of"));
  CHECK(contains(error("[MAX 1 2"), "ends before 1 of its operators are closed"));
  CHECK(contains(error("[MAX ]"), "']' at character 6 closes no operator with arguments"));
  CHECK(contains(error("]"), "closes no operator"));
  CHECK(contains(error("[MAX 1 2 ] 3"), "'3' follows a finished expression at character 12"));
  CHECK(contains(error(" "), "the expression is empty"));
}

TEST_CASE("listops: the spelling of the Long Range Arena files") {
  CHECK(lra_source("[MIN 1 8 ]") == "( ( ( [MIN 1 ) 8 ) ] )");
  CHECK(lra_source("[SM 0 3 [MAX 4 5 ] ]") == "( ( ( ( [SM 0 ) 3 ) ( ( ( [MAX 4 ) 5 ) ] ) ) ] )");
  CHECK(lra_tsv({{"[MIN 1 8 ]", "1"}, {"4", "4"}}) == "Source\tTarget\r\n( ( ( [MIN 1 ) 8 ) ] )\t1\r\n4\t4\r\n");
  for (const ListOpsRow& row : ListOps(ListOpsOptions::lra(), 2).take(5))
    CHECK(std::to_string(evaluate_listops(lra_source(row.text))) == row.label);
}

TEST_CASE("listops: rows of the embedded task keep its limits, and no row stands in two sets") {
  const ListOpsOptions options;
  const ListOpsSplits splits = make_listops(options, 1, 10000, 500, 1000);
  CHECK(splits.train.size() == 10000);
  CHECK(splits.valid.size() == 500);
  CHECK(splits.test.size() == 1000);
  check_rows(splits.train, options);
  check_rows(splits.test, options);
  std::set<std::string> texts;
  for (const auto* rows : {&splits.train, &splits.valid, &splits.test})
    for (const ListOpsRow& row : *rows) texts.insert(row.text);
  CHECK(texts.size() == 11500);
}

TEST_CASE("listops: labels of the embedded task are spread, the extremes most frequent") {
  std::map<std::string, Index> count;
  for (const ListOpsRow& row : ListOps({}, 6).take(10000)) ++count[row.label];
  REQUIRE(count.size() == 10);
  for (const auto& [label, n] : count) {
    CHECK(n > 300);
    CHECK(n < 2500);
    if (label != "0" && label != "9") CHECK(n < std::min(count["0"], count["9"]));
  }
}

TEST_CASE("listops: operators come as often as asked, arguments evenly") {
  const ListOpsOptions wide{.operators = {"MAX", "MIN", "MED", "SM"}, .min_tokens = 1, .max_tokens = 1000};
  Index lists = 0, arguments = 0, total = 0;
  std::map<std::string, Index> operators;
  std::map<Index, Index> sizes;
  for (const ListOpsRow& row : ListOps(wide, 8).take(10000)) {
    std::istringstream in(row.text);
    Reading reading;
    read(in, reading);
    lists += reading.second_level_lists;
    arguments += reading.second_level_arguments;
    ++sizes[reading.second_level_arguments];
    for (const auto& [op, n] : reading.operators) operators[op] += n, total += n;
  }
  CHECK(double(lists) / double(arguments) == doctest::Approx(0.35).epsilon(0.03));
  for (const auto& [op, n] : operators) CHECK(double(n) / double(total) == doctest::Approx(0.25).epsilon(0.04));
  // Short rows repeat and are dropped, so only the longer roots are compared.
  CHECK(double(sizes[4]) / double(sizes[5]) == doctest::Approx(1).epsilon(0.06));
}

TEST_CASE("listops: the long rows have the lengths and depth of the Long Range Arena") {
  const ListOpsOptions options = ListOpsOptions::lra();
  const std::vector<ListOpsRow> rows = ListOps(options, 3).take(300);
  check_rows(rows, options);
  std::vector<Index> lengths;
  Index deepest = 0;
  for (const ListOpsRow& row : rows) {
    std::istringstream in(row.text);
    Reading reading;
    read(in, reading);
    lengths.push_back(reading.tokens);
    deepest += reading.depth == 9;
  }
  std::sort(lengths.begin(), lengths.end());
  CHECK(lengths[150] > 850);
  CHECK(lengths[150] < 1070);
  CHECK(deepest > 295);
}

TEST_CASE("listops: a seed gives the same rows everywhere, another seed others") {
  const std::vector<ListOpsRow> rows = ListOps({}, 1).take(50), again = ListOps({}, 1).take(50);
  CHECK(rows[0].text == "[MAX [MAX 5 0 1 1 ] 7 [MAX 0 3 8 0 ] ]");
  Index shared = 0;
  const std::vector<ListOpsRow> other = ListOps({}, 2).take(50);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CHECK(rows[i].text == again[i].text);
    shared += rows[i].text == other[i].text;
  }
  CHECK(shared == 0);
}

TEST_CASE("listops: what cannot be drawn is refused instead of tried for ever") {
  const auto made = [](ListOpsOptions options, Index rows) {
    return message_of([&] { ListOps(options, 1).take(rows); });
  };
  CHECK(
      contains(made({.min_tokens = 50, .max_tokens = 60}, 1),
               "rows of 50 to 60 tokens are asked for, but operators nested at most 2 deep with 2 to 5 arguments give "
               "4 to 37 tokens"));
  CHECK(contains(made({.min_tokens = 1, .max_tokens = 3}, 1), "change min_tokens"));
  CHECK(contains(made({.min_tokens = 9, .max_tokens = 8}, 1), "rows of 9 to 8 tokens"));
  // Three arguments each: 5, 9, 13 or 17 tokens, never 6 to 8.
  CHECK(contains(made({.min_args = 3, .max_args = 3, .min_tokens = 6, .max_tokens = 8}, 1),
                 "after 0 rows, 100000 draws gave no new one"));
  const ListOpsOptions hundred{.operators = {"MAX"}, .max_depth = 1, .max_args = 2, .min_tokens = 4, .max_tokens = 4};
  CHECK(made(hundred, 100) == "no error");
  CHECK(contains(made(hundred, 101),
                 "after 100 rows, 100000 draws gave no new one: 0 were shorter than 4 tokens, 0 "
                 "longer than 4, 100000 repeated"));
}

TEST_CASE("listops: options out of range are named") {
  const auto error = [](ListOpsOptions options) { return message_of([&] { ListOps(options, 1); }); };
  CHECK(contains(error({.operators = {}}), "no operators; choose of MAX, MIN, MED, SM"));
  CHECK(contains(error({.operators = {"MAX", "AVG"}}), "unknown operator 'AVG'"));
  CHECK(contains(error({.max_depth = 0}), "max_depth is 0; 1 to 100"));
  CHECK(contains(error({.max_depth = 101}), "max_depth is 101"));
  CHECK(contains(error({.min_args = 0}), "0 to 5 arguments"));
  CHECK(contains(error({.min_args = 6}), "6 to 5 arguments"));
  CHECK(contains(error({.operator_probability = 1.5}), "operator_probability is 1.5; 0 to 1"));
}
