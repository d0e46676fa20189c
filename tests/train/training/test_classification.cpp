// Text classification as a task: epochs, figures that do not depend on batches, short and odd tables.
#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "tests/nn/small_models.h"
#include "tests/train/training/small_runs.h"

using namespace flexformer;
using namespace flexformer::tests;

namespace {

// Rows of random tokens, 1 to 12 long, of three classes.
EncodedTexts random_rows(Index rows, std::uint64_t seed = 1) {
  Random random(seed);
  EncodedTexts texts;
  for (Index i = 0; i < rows; ++i) {
    EncodedText row;
    for (Index left = 1 + Index(random.below(12)); left > 0; --left)
      row.ids.push_back(std::int32_t(4 + random.below(vocabulary - 4)));
    row.label = std::int32_t(random.below(3));
    texts.rows.push_back(row);
  }
  return texts;
}

const LabelMap kThree({"a", "b", "c"});

std::string said_of(const ClassifierData& data) {
  std::string out;
  for (const std::string& line : data.description()) out += line + "\n";
  return out;
}

}  // namespace

TEST_CASE("an epoch takes every row once, in a new order, and what is left over makes a smaller last step") {
  Random random(1);
  const Classifier model(small_classifier("softmax"), random);
  const EncodedTexts texts = random_rows(10);
  ClassificationTask task(model, texts, texts, kThree, {.batch = 1, .accumulate = 4, .seed = 3});
  CHECK(ClassificationTask::steps_per_epoch(10, {.batch = 1, .accumulate = 4}) == 3);
  double all_rows = 0;
  for (Index row = 0; row < 10; ++row) {
    const std::int32_t label = texts.rows[std::size_t(row)].label;
    all_rows += double(
        cross_entropy(classify(model, texts, std::span(&row, 1), {}), Tensor::from_ints({1}, std::span(&label, 1)))
            .value()
            .item());
  }
  std::set<std::vector<float>> orders;
  for (Index epoch = 0; epoch < 3; ++epoch) {
    double sum = 0;
    Index rows = 0, smaller = 0;
    std::vector<float> order;
    for (Index step = 3 * epoch; step < 3 * epoch + 3; ++step) {
      const Index targets = task.begin_step(step);
      CHECK(task.micro_batches() == targets);
      rows += targets;
      smaller += targets == 2;
      for (Index micro = 0; micro < task.micro_batches(); ++micro)
        order.push_back(task.loss_sum(task.batch(micro), {}).value().item());
    }
    for (float loss : order) sum += double(loss);
    CHECK(rows == 10);
    CHECK(smaller == 1);
    CHECK(sum == doctest::Approx(all_rows).epsilon(1e-6));
    orders.insert(order);
  }
  CHECK(orders.size() == 3);
}

TEST_CASE("the rows of a step depend on the seed and the step alone") {
  Random random(1);
  const Classifier model(small_classifier("softmax"), random);
  const EncodedTexts texts = random_rows(23);
  const auto losses = [&](std::uint64_t seed, const std::vector<Index>& steps) {
    ClassificationTask task(model, texts, texts, kThree, {.batch = 4, .seed = seed});
    float last = 0;
    for (Index step : steps) task.begin_step(step), last = task.loss_sum(task.batch(0), {}).value().item();
    return last;
  };
  CHECK(losses(1, {0, 1, 2, 3, 4, 5, 6, 7, 8}) == losses(1, {8}));
  CHECK(losses(1, {8}) != losses(2, {8}));
}

TEST_CASE("figures are means over rows and do not depend on how rows are batched") {
  Random random(1);
  const Classifier model(small_classifier("flexformer_n"), random);
  for (Index rows : {1, 5, 65}) {
    const EncodedTexts texts = random_rows(rows);
    double loss = 0, correct = 0;
    for (Index row = 0; row < rows; ++row) {
      const std::vector<float> x = classify(model, texts, std::span(&row, 1), {}).value().to_vector();
      const std::int32_t label = texts.rows[std::size_t(row)].label;
      double sum = 0;
      for (float logit : x) sum += std::exp(double(logit));
      loss += std::log(sum) - double(x[std::size_t(label)]);
      correct += std::max_element(x.begin(), x.end()) - x.begin() == label;
    }
    for (Index batch : {1, 2, 3, 5, 64}) {
      ClassificationTask task(model, texts, texts, kThree, {.batch = batch});
      const Evaluation result = task.evaluate({});
      CHECK(result.targets == rows);
      CHECK(result.loss == doctest::Approx(loss / double(rows)).epsilon(1e-6));
      CHECK(result.log.at("valid_accuracy") == correct / double(rows));
    }
    for (Index tokens : {1, 13, 40, 100000}) {
      std::multiset<Index> seen;
      for (const std::vector<Index>& group : length_groups(texts, tokens)) seen.insert(group.begin(), group.end());
      CHECK(Index(seen.size()) == rows);
      CHECK(Index(std::set<Index>(seen.begin(), seen.end()).size()) == rows);
    }
  }
}

TEST_CASE("every kind of attention learns a small table by heart") {
  const TemporaryFolder home;
  const std::string table = home.file("table.tsv", small_table(12));
  for (const AttentionKind& kind : attention_kinds()) {
    CAPTURE(kind.name);
    SmallClassifierRun run(
        home.path() / kind.name, table,
        {text("--model.attention=", kind.name), "--model.dropout=0", "--data.valid=" + table, "--train.batch=16",
         "--train.steps=60", "--train.lr=0.005", "--train.warmup=5", "--train.eval_every=0"});
    REQUIRE(run.train() == 0);
    CHECK(run.summary.at("valid_loss").get<double>() < 0.02);
    CHECK(run.summary.at("valid_accuracy") == 1.0);
  }
}

TEST_CASE("two rows are enough to train on, with any batch size") {
  const TemporaryFolder home;
  const std::string table = home.file("two.tsv", "label\ttext\npos\tgood\nneg\tbad\n");
  SmallClassifierRun run(home.path() / "run", table, {"--train.batch=64", "--train.warmup=0", "--train.lr=0.01"});
  CHECK(contains(said_of(run.data), "warning: no class has two rows to share; validation is on the training rows"));
  REQUIRE(run.train() == 0);
  CHECK(run.column("loss").back() < 0.1 * run.column("loss").front());
  CHECK(run.summary.at("valid_accuracy") == 1.0);
  CHECK(run.folder.has_best());
}

TEST_CASE("65 rows in batches of 64 make two steps an epoch, and one validation row is enough") {
  const TemporaryFolder home;
  const std::string table = home.file("table.tsv", small_table(65)),
                    one = home.file("one.tsv", "label\ttext\nup\trise\n");
  SmallClassifierRun run(home.path() / "run", table,
                         {"--data.valid=" + one, "--train.batch=64", "--train.steps=2", "--model.dropout=0"});
  CHECK(run.task->begin_step(0) + run.task->begin_step(1) == 65);
  REQUIRE(run.train() == 0);
  CHECK(run.summary.at("per_class").at("up").at("support") == 1);
  CHECK(std::isfinite(run.summary.at("valid_loss").get<double>()));
}

TEST_CASE("a table sorted by class is shuffled and split evenly, and is learned") {
  const TemporaryFolder home;
  std::string sorted = "label\ttext\n";
  for (const char* word : {"aaaaa", "bbbbb", "ccccc", "ddddd"})
    for (int i = 0; i < 100; ++i) sorted += text(word[0], "\t", word, " ", i % 10, "\n");
  SmallClassifierRun run(home.path() / "run", home.file("sorted.tsv", sorted),
                         {"--train.batch=16", "--train.steps=60", "--train.lr=0.005", "--train.eval_every=0"});
  for (Index c = 0; c < 4; ++c) {
    const auto count = [c](const EncodedTexts& texts) {
      return std::count_if(texts.rows.begin(), texts.rows.end(),
                           [c](const EncodedText& row) { return row.label == c; });
    };
    CHECK(count(run.data.train_texts) == 90);
    CHECK(count(run.data.valid_texts) == 10);
  }
  REQUIRE(run.train() == 0);
  CHECK(run.summary.at("valid_accuracy").get<double>() > 0.95);
  CHECK(run.summary.at("majority_accuracy") == 0.25);
}

TEST_CASE("texts are cut after exactly max_length tokens, and those that were are counted") {
  const TemporaryFolder home;
  std::string table = "label\ttext\n";
  for (int length : {15, 16, 17, 5000}) {
    table += length % 2 ? "odd\t" : "even\t";
    for (int i = 0; i < length; ++i) table += text("w", i, i + 1 < length ? " " : "\n");
  }
  const std::string file = home.file("long.tsv", table);
  const std::string valid = home.file("valid.tsv", "label\ttext\nodd\tw1\n");
  for (bool first : {false, true}) {
    SmallClassifierRun run(
        home.path() / text("run", first), file,
        {"--data.valid=" + valid, first ? "--model.pool=cls" : "--model.pool=mean", "--train.steps=2"});
    const std::vector<EncodedText>& rows = run.data.train_texts.rows;
    CHECK(run.data.train_texts.truncated == (first ? 3 : 2));  // <cls> takes a place
    CHECK(contains(said_of(run.data), text("tokens: median 17, 95 % have at most 5000, longest 5000; ",
                                           first ? "3 rows (75.0" : "2 rows (50.0", " %) cut to data.max_length=16")));
    CHECK(rows[0].ids.size() == (first ? 16 : 15));
    for (int i : {1, 2, 3}) CHECK(rows[std::size_t(i)].ids.size() == 16);
    CHECK(rows[2].ids == rows[3].ids);  // the same beginning
    REQUIRE(run.train() == 0);
  }
}

TEST_CASE("empty texts are one <unk>, are counted, and train") {
  const TemporaryFolder home;
  const std::string table = home.file("empty.tsv", "label\ttext\npos\t\nneg\t   \npos\t\n\nneg\t\n");
  for (int batch : {1, 4}) {
    SmallClassifierRun run(
        home.path() / text(batch), table,
        {text("--train.batch=", batch), "--train.steps=5", "--data.tokenizer=byte", "--data.valid=" + table});
    CHECK(contains(said_of(run.data), "empty texts stand as one <unk>"));
    for (const EncodedText& row : run.data.train_texts.rows) CHECK(row.ids.size() >= 1);
    REQUIRE(run.train() == 0);
    for (double loss : run.column("loss")) CHECK((std::isfinite(loss) && loss > 0));
  }
}

TEST_CASE("bytes that are not UTF-8 in texts and labels pass through a whole run and back") {
  const TemporaryFolder home;
  std::string table = "label\ttext\n";
  for (int i = 0; i < 6; ++i) table += i % 2 ? "caf\xe9\tna\xefve text\n" : "caf\xe8\t\xff\xfe raw\n";
  for (const char* tokenizer : {"word", "char", "byte", "bpe"}) {
    SmallClassifierRun run(home.path() / tokenizer, home.file("latin1.tsv", table),
                           {text("--data.tokenizer=", tokenizer), "--train.steps=3", "--data.vocab=0"});
    REQUIRE(run.train() == 0);
    CHECK(read_json(run.folder.file("summary.json")).at("per_class").size() == 2);
    const SavedClassifier saved(run.folder);
    CHECK(saved.labels == *run.data.labels);
    CHECK(saved.labels.name(0) == "caf\xe8");
  }
}

TEST_CASE("a run does not go on with other labels, and a label never trained is an error") {
  const TemporaryFolder home;
  const std::string table = home.file("table.tsv", small_table());
  const Arguments arguments = {"--train.steps=4", "--train.save_every=2"};
  SmallClassifierRun run(home.path() / "run", table, arguments);
  REQUIRE(run.train(3) == -1);
  std::string swapped = small_table();
  for (std::size_t at = 0; (at = swapped.find("down\t", at)) != std::string::npos; ++at) swapped.replace(at, 4, "zero");
  SmallClassifierRun other(home.path() / "run", home.file("swapped.tsv", swapped), arguments);
  CHECK_THROWS_WITH_AS(other.train(), doctest::Contains("was trained with tokenizer and labels of fingerprint"), Error);
  CHECK_THROWS_WITH_AS(load_labelled(run.options, home.file("new.tsv", "label\ttext\nsideways\trise\n"),
                                     *run.data.tokenizer, *run.data.labels),
                       doctest::Contains("sideways"), Error);
}

namespace {

// Scores between 0 and 5 with one decimal: how many of a text's eight words are "up", in a random order.
std::string scored_table(Index rows, std::uint64_t seed) {
  Random random(seed);
  std::string out = "score\tsentence1\tsentence2\n";
  for (Index i = 0; i < rows; ++i) {
    Index ups = 0;
    std::string words;
    for (int word = 0; word < 8; ++word) {
      const bool up = random.below(2);
      ups += up;
      words += up ? "up " : "down ";
    }
    out += text(fixed(double(ups) * 0.6, 1), "\t", words, "\tnothing\n");
  }
  return out;
}

}  // namespace

TEST_CASE("scores are learned as numbers: one output, squared error, correlations in the summary") {
  const TemporaryFolder home;
  const std::string valid = home.file("valid.tsv", scored_table(40, 2));
  SmallClassifierRun run(home.path() / "run", home.file("train.tsv", scored_table(200, 1)),
                         {"--data.valid=" + valid, "--train.batch=16", "--train.steps=150", "--train.lr=0.005",
                          "--train.warmup=5", "--train.eval_every=50", "--model.dropout=0"});
  CHECK(run.options.text("data.task") == "regression");
  CHECK(run.options.text("data.text2") == "sentence2");
  CHECK(run.model->options().classes == 1);
  CHECK(contains(said_of(run.data), "labels: numbers, mean 2."));
  REQUIRE(run.train() == 0);
  CHECK(run.summary.at("valid_pearson").get<double>() > 0.999);
  CHECK(run.summary.at("valid_spearman").get<double>() > 0.9);
  CHECK(run.summary.at("valid_loss").get<double>() < 0.01);
  const double deviation = run.data.labels->deviation();
  CHECK(run.summary.at("valid_mse").get<double>() ==
        doctest::Approx(run.summary.at("valid_loss").get<double>() * deviation * deviation));
  CHECK_FALSE(run.summary.contains("valid_accuracy"));
  CHECK(run.column("valid_pearson").size() == 4);  // at the start and at steps 50, 100 and 150
  const SavedClassifier saved(run.folder);
  CHECK(saved.labels == *run.data.labels);
  const EncodedTexts again = load_labelled(saved.options, valid, *saved.tokenizer, saved.labels);
  const Figures figures = make_text_task(*saved.model, again, again, saved.labels, saved.options)->figures(again, {});
  CHECK(figures.loss == doctest::Approx(run.summary.at("best_valid_loss").get<double>()).epsilon(1e-6));
  CHECK(contains(figures.words, "Pearson 1.0"));
}

TEST_CASE("the loss of a regression is the squared error in units of the deviation") {
  const TemporaryFolder home;
  SmallClassifierRun run(home.path() / "run", home.file("train.tsv", scored_table(5, 3)), {"--train.batch=5"});
  REQUIRE(run.data.train_texts.rows.size() == 4);  // a tenth, but at least one row, is for validation
  CHECK(run.task->begin_step(0) == 4);
  const std::vector<Index> rows = {0, 1, 2, 3};
  const std::vector<float> outputs = classify(*run.model, run.data.train_texts, rows, {}).value().to_vector();
  double sum = 0;
  for (Index row : rows) {
    const double y = parse_json(*run.data.train->rows[std::size_t(row)].label, "label").get<double>();
    const double error =
        double(outputs[std::size_t(row)]) - (y - run.data.labels->mean()) / run.data.labels->deviation();
    sum += error * error;
  }
  CHECK(run.task->loss_sum(run.task->batch(0), {}).value().item() == doctest::Approx(sum).epsilon(1e-5));
}

TEST_CASE("the kind of labels can be chosen, and a wrong choice is refused") {
  const TemporaryFolder home;
  const std::string scores = home.file("scores.tsv", scored_table(40, 1)),
                    words = home.file("words.tsv", small_table());
  CHECK_FALSE(
      SmallClassifierRun(home.path() / "a", scores, {"--data.task=classification"}).data.labels->is_regression());
  CHECK_THROWS_WITH_AS(SmallClassifierRun(home.path() / "b", words, {"--data.task=regression"}),
                       doctest::Contains("is not a number; for classes give"), Error);
  CHECK_THROWS_WITH_AS(SmallClassifierRun(home.path() / "c", scores, {"--train.class_weights=balanced"}),
                       doctest::Contains("train.class_weights=balanced needs classes"), Error);
  SmallClassifierRun numbers(home.path() / "d", scores), classes(home.path() / "e", words);
  CHECK_THROWS_WITH_AS(
      load_classifier_data(classes.options, nullptr, numbers.data.labels),
      doctest::Contains("data.task=classification, but the model to start from was trained for regression"), Error);
}

TEST_CASE("balanced class weights make each class count alike, with mean 1 over the training rows") {
  Random random(1);
  const Classifier model(small_classifier("softmax"), random);
  EncodedTexts texts = random_rows(12);
  for (Index i = 0; i < 12; ++i) texts.rows[std::size_t(i)].label = i < 9 ? 0 : 1;  // class 2 has no row
  for (float smoothing : {0.0f, 0.1f}) {
    double wanted = 0;
    for (Index row = 0; row < 12; ++row) {
      const std::int32_t label = texts.rows[std::size_t(row)].label;
      const double weight = label == 0 ? 12.0 / (2 * 9) : 12.0 / (2 * 3);
      wanted +=
          weight * double(cross_entropy(classify(model, texts, std::span(&row, 1), {}),
                                        Tensor::from_ints({1}, std::span(&label, 1)), {.label_smoothing = smoothing})
                              .value()
                              .item());
    }
    ClassificationTask task(model, texts, texts, kThree, {.batch = 12, .label_smoothing = smoothing, .balanced = true});
    CHECK(task.begin_step(0) == 12);
    CHECK(task.loss_sum(task.batch(0), {}).value().item() == doctest::Approx(wanted).epsilon(1e-5));
    ClassificationTask plain(model, texts, texts, kThree, {.batch = 12, .label_smoothing = smoothing});
    CHECK(plain.evaluate({}).loss == task.evaluate({}).loss);  // validation is not weighted
  }
}

TEST_CASE("a pair of texts that the header names is read as a pair") {
  const TemporaryFolder home;
  std::string table = "sentence1\tsentence2\tlabel\n";
  for (int i = 0; i < 20; ++i) table += text("same\t", i % 2 ? "same" : "other", "\t", i % 2 ? "yes" : "no", "\n");
  const std::string file = home.file("pairs.tsv", table);
  SmallClassifierRun joined(home.path() / "joined", file);
  CHECK(joined.data.train_texts.rows[0].ids.size() == 3);  // same <sep> other
  CHECK(joined.data.train_texts.rows[0].ids[1] == joined.data.tokenizer->special_id("<sep>"));
  SmallClassifierRun apart(home.path() / "apart", file,
                           {"--model.pair=two_tower", "--train.steps=60", "--train.lr=0.01", "--train.eval_every=0"});
  CHECK(apart.data.train_texts.rows[0].ids2.size() == 1);
  REQUIRE(apart.train() == 0);
  CHECK(apart.summary.at("valid_accuracy") == 1.0);
}

TEST_CASE("before training the data is described: lengths, shares of classes, rows met twice") {
  const TemporaryFolder home;
  const std::string train = home.file("train.tsv", "label\ttext\na\tone\na\tone two\na\tone two three\nb\tx\n");
  const std::string valid = home.file("valid.tsv", "label\ttext\na\tone\nb\tx\nb\ty\nb\t\n");
  SmallClassifierRun run(home.path() / "run", train, {"--data.valid=" + valid, "--data.test=" + valid});
  const std::string said = said_of(run.data);
  CAPTURE(said);
  CHECK(contains(said, "training: 4 rows; tokens: median 2, 95 % have at most 3, longest 3 (tsv, 4 rows; line 1"));
  CHECK(contains(said, "validation: 4 rows; tokens: median 1, 95 % have at most 1, longest 1; 1 empty texts stand as"));
  CHECK(contains(said,
                 "classes: 2; share of training / validation / test rows: a 75.0 / 25.0 / 25.0 %; b 25.0 / "
                 "75.0 / 75.0 %"));
  CHECK(contains(said,
                 "warning: 2 validation rows (50.0 %) and 2 test rows (50.0 %) have the same text as a training "
                 "row"));
}
