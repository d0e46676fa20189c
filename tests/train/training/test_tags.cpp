// Labels that do not exclude each other, and several numbers: tables, training, and what is said of a text.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/train/training/small_runs.h"
#include "train/models/classifier_answer.h"
#include "train/training/regression_task.h"
#include "train/training/tags_task.h"

using namespace flexformer;
using namespace flexformer::tests;

namespace {

Table table_of(const std::string& text, const std::string& label, bool empty_labels = false) {
  TableOptions options;
  options.label = label;
  options.empty_labels = empty_labels;
  return parse_table(text, "t.csv", options);
}

}  // namespace

TEST_CASE("several columns of labels, or several labels in a cell, become values of each output") {
  const Table flags = table_of("text,rude,loud\na,1,0\nb,true,1\nc,0,False\n", "rude,loud");
  CHECK(flags.label_names == std::vector<std::string>{"rude", "loud"});
  CHECK(has_flags(flags));
  const LabelMap tags = LabelMap::of_tags(flags);
  CHECK(label_values(flags, tags) == std::vector<std::vector<float>>{{1, 0}, {1, 1}, {0, 0}});
  // Another file has its columns in another order.
  CHECK(label_values(table_of("loud,text,rude\n1,x,0\n", "loud,rude"), tags) ==
        std::vector<std::vector<float>>{{0, 1}});
  const Table cells = table_of("text,label\na,rude; loud\nb,\nc,calm|loud\n", "label", true);
  const LabelMap named = LabelMap::of_tags(cells);
  CHECK(named.list() == "'calm', 'loud', 'rude'");
  CHECK(label_values(cells, named) == std::vector<std::vector<float>>{{0, 1, 1}, {0, 0, 0}, {1, 1, 0}});
  const Table numbers = table_of("text,x,y\na,1,10\nb,3,10.5\n", "x,y");
  CHECK(!has_flags(numbers));
  const LabelMap values = LabelMap::of_values(numbers);
  CHECK(values.value(0) == LabelMap::Value{2, 1});
  CHECK(label_values(numbers, values) == std::vector<std::vector<float>>{{-1, -1}, {1, 1}});
  for (const LabelMap& map : {tags, named, values}) CHECK(LabelMap::from_json(map.to_json(), "l") == map);

  const auto refused = [](const auto& call, const char* message) {
    CHECK_THROWS_WITH_AS(call(), doctest::Contains(message), Error);
  };
  refused([&] { label_values(table_of("text,rude,loud\na,1,2\n", "rude,loud"), tags); },
          "t.csv:2: column 'loud' holds '2', which is no 0, 1, true or false");
  refused([&] { LabelMap::of_values(table_of("text,x,y\na,1,1\nb,,2\n", "x,y")); },
          "t.csv:3: column 'x' holds '', which is no number");
  refused([&] { label_values(table_of("text,label\na,mild\n", "label"), named); },
          "the label 'mild' is not one of those");
  refused([&] { label_values(table_of("text,rude\na,1\n", "rude"), values); },
          "data.label must name a column for each of 'x', 'y'");
  refused([&] { table_of("text,rude\na,1\n", "rude,loud"); }, "there is no column 'loud'");
  refused([&] { LabelMap::of_tags(std::vector<std::string>{"a", "a"}); }, "two labels have the name 'a'");
}

TEST_CASE("what is said of a text is a sigmoid for each label, or the numbers in their unit") {
  const LabelMap tags = LabelMap::of_tags(std::vector<std::string>{"a", "b"});
  const std::vector<double> p = answer_of({0, -1}, tags);
  CHECK(p[0] == 0.5);
  CHECK(p[1] == doctest::Approx(1 / (1 + std::exp(1))));
  CHECK(answer_line(p, tags, false) == "a\t0.5000");
  CHECK(answer_line({0.25, 0.125}, tags, false) == "(none)\t0.2500");
  CHECK(answer_line({0.75, 0.5}, tags, true) == R"({"task":"multilabel","labels":["a","b"],"all":{"a":0.75,"b":0.5}})");
  const LabelMap values = LabelMap::of_values(std::vector<std::string>{"x", "y"}, {{10, 2}, {0, 1}});
  CHECK(answer_line(answer_of({1.5f, -1}, values), values, true) ==
        R"({"task":"regression","values":{"x":13.0,"y":-1.0}})");
  CHECK(answer_line({1, 2}, values, false) == "1.0000,2.0000");
  const LabelMap classes(std::vector<std::string>{"n", "p"});
  CHECK(answer_line({0.25, 0.75}, classes, true) ==
        R"({"task":"classification","label":"p","probability":0.75,"all":{"n":0.25,"p":0.75}})");
}

TEST_CASE("losses of several outputs are means over them, and training learns both kinds") {
  const auto run = [](const LabelMap& labels, auto&& value_of) {
    EncodedTexts texts;
    for (std::int32_t i = 0; i < 32; ++i) {
      EncodedText row{{i % 2 ? 2 : 3, i / 2 % 2 ? 4 : 5}, {}, 0, 0, value_of(i % 2, i / 2 % 2)};
      texts.rows.push_back(row);
    }
    ClassifierOptions options;
    options.transformer.dim = 16, options.transformer.layers = 1, options.transformer.attention.heads = 2;
    options.transformer.attention.kind = "softmax";
    options.vocabulary = 8, options.classes = labels.outputs(), options.max_length = 8;
    Random random(3);
    const Classifier model(options, random);
    std::unique_ptr<TextTask> task;
    if (labels.kind() == LabelMap::tags)
      task = std::make_unique<TagsTask>(model, texts, texts, labels, ClassificationOptions{});
    else
      task = std::make_unique<RegressionTask>(model, texts, texts, labels, ClassificationOptions{});
    // The loss in double precision, from the outputs.
    std::vector<Index> all(32);
    for (Index i = 0; i < 32; ++i) all[std::size_t(i)] = i;
    const std::vector<float> out = classify(model, texts, all, {}).value().to_vector();
    double expected = 0;
    for (std::size_t i = 0; i < 32; ++i)
      for (std::size_t k = 0; k < 2; ++k) {
        const double x = double(out[2 * i + k]), y = double(texts.rows[i].values[k]);
        const double term = labels.kind() == LabelMap::tags ? std::log1p(std::exp(x)) - y * x : (x - y) * (x - y);
        expected += term / 2;
      }
    task->begin_step(0);
    CHECK(task->loss_sum(task->batch(0), {}).value().item() == doctest::Approx(expected).epsilon(1e-5));
    CHECK(task->evaluate({}).loss == doctest::Approx(expected / 32).epsilon(1e-5));
    Optimizer optimizer(model.parameters(), {.weight_decay = 0});
    for (Index step = 0; step < 60; ++step) {
      task->begin_step(step);
      model.parameters().clear_grads();
      Tape tape;
      const Var loss = scale(task->loss_sum(task->batch(0), {}), 1.0f / 32);
      tape.backward(loss);
      optimizer.step(0.02);
    }
    return task->figures(texts, {});
  };
  const Figures tags = run(LabelMap::of_tags(std::vector<std::string>{"a", "b"}), [](int a, int b) {
    return std::vector<float>{float(a), float(a && b)};
  });
  CHECK(tags.scores["accuracy"] == 1.0);
  CHECK(tags.scores["f1_macro"] == 1.0);
  const Figures values = run(LabelMap::of_values(std::vector<std::string>{"x", "y"}), [](int a, int b) {
    return std::vector<float>{float(a) - 1, 1 - float(b)};
  });
  CHECK(values.loss < 0.05);
}
