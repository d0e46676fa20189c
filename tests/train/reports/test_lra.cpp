// The Long Range Arena: its configurations, the share of a set that is kept for the test, and the table of a sweep.
#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "tests/train/training/small_runs.h"
#include "train/reports/lra_table.h"

using namespace flexformer;
using namespace flexformer::tests;

TEST_CASE("every configuration of the Long Range Arena is one of train_classifier, with the paper's n") {
  for (const LraTask& task : lra_tasks())
    for (const bool small : {false, true}) {
      CAPTURE(task.name);
      Options options("train_classifier", "");
      add_classifier_options(options);
      Arguments arguments = {"--config=train/configs/lra-" + task.name + ".json"};
      if (small) arguments.push_back("--config=train/configs/lra-small.json");
      options.parse(arguments);
      CHECK(options.integer("model.features") == (small || task.name == "image" ? 16 : 64));
      CHECK((options.given("data.test") || options.real("data.test_share") > 0));
      CHECK(options.integer("model.dim") % options.integer("model.heads") == 0);
    }
}

TEST_CASE("the paper's accuracies have the means that it states") {
  const std::vector<std::pair<const char*, double>> means = {
      {"softmax", 56.55},  {"linear", 51.49},     {"performer", 50.48},    {"rfa", 51.27},         {"cosformer", 56.50},
      {"hedgehog", 57.47}, {"polaformer", 57.23}, {"flexformer_s", 59.11}, {"flexformer_n", 59.99}};
  CHECK(means.size() == attention_kind_names().size());
  for (const auto& [kind, mean] : means) {
    CAPTURE(kind);
    double sum = 0;
    for (const LraTask& task : lra_tasks()) sum += paper_accuracy(kind, task.name);
    CHECK(sum / 5 == doctest::Approx(mean).epsilon(0.02 / mean));
  }
  CHECK(std::isnan(paper_accuracy("softmax", "pathx")));
  CHECK(std::isnan(paper_accuracy("none", "text")));
}

TEST_CASE("a sweep's table has mean and deviation over seeds, beside the paper's figure") {
  const MeanDeviation d = mean_deviation({1, 2, 3, 6});
  CHECK(d.mean == 3);
  CHECK(d.deviation == doctest::Approx(std::sqrt(14.0 / 3)));
  CHECK(std::isnan(mean_deviation({5}).deviation));
  const Json results = lra_results({{"text", "softmax", 1, 60},
                                    {"listops", "softmax", 1, 30},
                                    {"text", "linear", 1, 50},
                                    {"text", "softmax", 2, 62}});
  REQUIRE(results.size() == 3);
  CHECK(results[0].at("task") == "listops");
  CHECK(results[0].at("deviation").is_null());
  CHECK(results[1].at("seeds").dump() == R"({"1":60.0,"2":62.0})");
  CHECK(results[1].at("mean") == 61.0);
  CHECK(results[1].at("paper") == 65.66);
  const std::string expected =
      "test accuracy, %  listops        text                  mean\n"
      "softmax           30.00 (37.23)  61.00 ± 1.41 (65.66)  45.50 (51.44)\n"
      "linear            -              50.00 (62.64)         -\n";
  CHECK(lra_table(results).starts_with(expected));
}

TEST_CASE("a share of the training rows becomes the test set, the same rows for every seed") {
  const TemporaryFolder home;
  const std::string file = (home.path() / "table.tsv").string();
  write_file_atomic(file, small_table(100));
  const auto load = [&](const Arguments& arguments) {
    Options options("train_classifier", "");
    add_classifier_options(options);
    options.parse(Arguments{"--data.min_count=1", "--data.train=" + file} + arguments);
    return load_classifier_data(options, nullptr, {});
  };
  const auto lines = [](const Table& table) {
    std::set<std::int64_t> out;
    for (const Row& row : table.rows) out.insert(row.line);
    return out;
  };
  const ClassifierData one = load({"--data.test_share=0.1", "--seed=1"}),
                       two = load({"--data.test_share=0.1", "--seed=2"});
  CHECK(one.test->rows.size() == 10);
  CHECK(one.valid->rows.size() == 10);
  CHECK(one.train->rows.size() == 80);
  CHECK(lines(*one.test) == lines(*two.test));
  CHECK(lines(*one.valid) != lines(*two.valid));
  std::set<std::int64_t> all = lines(*one.train);
  all.merge(lines(*one.valid));
  all.merge(lines(*one.test));
  CHECK(all.size() == 100);
  CHECK_FALSE(load({}).test);
  CHECK_THROWS_WITH_AS(load({"--data.test_share=0.1", "--data.test=" + file}), doctest::Contains("exclude each other"),
                       UsageError);
}
