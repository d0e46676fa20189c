// The training loop over whole small runs: exact resume, independence of threads, gradient accumulation, memory.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tensor/allocator.h"
#include "tensor/parallel.h"
#include "tests/train/training/small_runs.h"

using namespace flexformer;
using namespace flexformer::tests;

namespace {

std::vector<std::vector<float>> values(const Parameters& parameters) {
  std::vector<std::vector<float>> out;
  for (const Parameter& parameter : parameters) out.push_back(parameter.var.value().to_vector());
  return out;
}

double largest_difference(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a[i].size(); ++j)
      largest = std::max(largest, std::fabs(double(a[i][j]) - double(b[i][j])));
  return largest;
}

// Plain gradient descent with rate 1: a step takes away exactly the gradient.
const Arguments kPlainDescent = {"--train.optimizer=sgd", "--train.momentum=0",  "--train.weight_decay=0",
                                 "--train.clip=0",        "--train.warmup=0",    "--train.schedule=constant",
                                 "--train.lr=1",          "--train.kernel_lr=1", "--train.steps=1",
                                 "--train.eval_every=0"};

// Where a run that was cut off resumes and what it then ends with, compared with one that was not.
template <class Run> void check_resume(const std::string& data, const Arguments& arguments, Index cut_at) {
  const TemporaryFolder home;
  Run unbroken(home.path() / "unbroken", data, arguments);
  REQUIRE(unbroken.train() == 0);
  {
    Run first(home.path() / "broken", data, arguments);
    REQUIRE(first.train(cut_at) == -1);
    CHECK(first.metrics().size() > 0);
  }
  Run second(home.path() / "broken", data, arguments);
  REQUIRE(second.train() == 0);
  CHECK(second.said.find("resuming at step 7 of 20") != std::string::npos);
  CHECK(second.checkpoint() == unbroken.checkpoint());
  CHECK(second.metrics() == unbroken.metrics());
  CHECK(second.summary.at("valid_loss") == unbroken.summary.at("valid_loss"));
  CHECK(second.summary.at("train_loss") == unbroken.summary.at("train_loss"));
  CHECK(read_file(second.folder.file("checkpoint/best.safetensors")) ==
        read_file(unbroken.folder.file("checkpoint/best.safetensors")));
}

}  // namespace

TEST_CASE("a language run cut off in its warm-up and resumed equals an unbroken one bit for bit, for every kind") {
  for (const AttentionKind& kind : attention_kinds()) {
    CAPTURE(kind.name);
    check_resume<SmallLanguageRun>(
        small_text(),
        {text("--model.attention=", kind.name), "--model.dropout=0.1", "--train.save_every=7", "--train.eval_every=5"},
        10);
  }
}

TEST_CASE("a run in the shape of a published model resumes bit for bit too") {
  check_resume<SmallLanguageRun>(
      small_text(),
      {"--model.attention=softmax", "--model.norm=rms", "--model.activation=swiglu", "--model.kv_heads=1",
       "--model.biases=false", "--model.head_bias=false", "--model.norm_first=false", "--model.norm_embeddings=true",
       "--model.position=rope", "--model.rope_theta=100", "--train.save_every=7", "--train.eval_every=5"},
      10);
}

TEST_CASE("a classifier run cut off within an epoch and resumed equals an unbroken one bit for bit") {
  const TemporaryFolder folder;
  const std::string table = folder.file("table.tsv", small_table());
  for (const char* optimizer : {"adamw", "adam", "sgd"})
    check_resume<SmallClassifierRun>(
        table,
        {"--model.dropout=0.1", "--train.batch=3", "--train.accumulate=2", "--train.save_every=7",
         "--train.eval_every=4", text("--train.optimizer=", optimizer)},
        12);
}

TEST_CASE("the same run gives the same bits again, with 1, 2 and 3 threads") {
  const TemporaryFolder home;
  std::string first;
  int run_number = 0;
  for (int count : {1, 1, 2, 3}) {
    set_threads(count);
    SmallLanguageRun run(
        home.path() / text(run_number++), small_text(),
        {"--model.dropout=0.1", "--train.steps=10", "--train.batch=8", "--train.block=64", "--train.eval_every=0"});
    REQUIRE(run.train() == 0);
    if (first.empty()) first = run.checkpoint();
    CHECK(run.checkpoint() == first);
  }
  set_threads(1);
}

TEST_CASE("the losses of a small run are those of the day this was written") {
  struct Row {
    const char* kind;
    std::vector<double> losses;
  };
  for (const Row& row : {Row{"softmax", {2.0969067, 1.9992992, 1.9499233, 1.8772211, 1.8411045, 1.8520446}},
                         Row{"flexformer_s", {2.1023107, 2.0075858, 1.9082969, 1.9298356, 1.8574821, 1.8237816}},
                         Row{"flexformer_n", {2.0520699, 1.9716194, 1.9147378, 1.8784562, 1.8307208, 1.8325758}}}) {
    CAPTURE(row.kind);
    const TemporaryFolder home;
    SmallLanguageRun run(
        home.path(), small_text(),
        {text("--model.attention=", row.kind), "--train.lr=0.002", "--train.warmup=2", "--train.steps=6"});
    REQUIRE(run.train() == 0);
    const std::vector<double> losses = run.column("loss");
    CHECK(losses[0] == doctest::Approx(std::log(double(run.tokenizer->vocab_size()))).epsilon(0.02));
    REQUIRE(losses.size() == row.losses.size());
    for (std::size_t i = 0; i < losses.size(); ++i) CHECK(losses[i] == doctest::Approx(row.losses[i]).epsilon(1e-4));
  }
}

TEST_CASE("the first steps equal gradient descent written by hand, whatever gradients lay around before") {
  const TemporaryFolder home;
  SmallLanguageRun run(home.path() / "a", small_text(),
                       kPlainDescent + Arguments{"--train.steps=3", "--train.lr=0.1", "--train.weight_decay=0.5"});
  SmallLanguageRun hand(home.path() / "b", small_text());
  {
    Tape tape;  // a probe whose gradients must not count
    run.task->begin_step(5);
    tape.backward(run.task->loss_sum(run.task->batch(0), {}));
  }
  REQUIRE(run.train() == 0);
  for (Index step = 0; step < 3; ++step) {
    hand.model->parameters().clear_grads();
    Tape tape;
    const double targets = double(hand.task->begin_step(step));
    tape.backward(hand.task->loss_sum(hand.task->batch(0), {}));
    for (const Parameter& p : hand.model->parameters()) {
      if (!p.var.has_grad()) continue;
      Tensor value = p.var.value();
      for (Index i = 0; i < value.numel(); ++i) {
        const double gradient = p.var.grad().data()[i] / targets + (p.decay ? 0.5 : 0.0) * value.data()[i];
        value.data()[i] = float(value.data()[i] - 0.1 * gradient);
      }
    }
  }
  CHECK(largest_difference(values(run.model->parameters()), values(hand.model->parameters())) < 1e-6);
}

TEST_CASE("four rows have the same gradient as 1 x 4, 2 x 2 and 4 x 1 micro-batches, of unequal lengths too") {
  const TemporaryFolder home;
  const std::string table = home.file("table.tsv", small_table());
  std::vector<std::vector<float>> language, classifier;
  for (int batch : {4, 2, 1}) {
    const Arguments shape =
        kPlainDescent + Arguments{text("--train.batch=", batch), text("--train.accumulate=", 4 / batch)};
    SmallLanguageRun lm(home.path() / text("lm", batch), small_text(), shape);
    SmallClassifierRun cls(home.path() / text("cls", batch), table, shape + Arguments{"--model.dropout=0"});
    const auto start = values(cls.model->parameters());
    REQUIRE(lm.train() == 0);
    REQUIRE(cls.train() == 0);
    CHECK(largest_difference(values(cls.model->parameters()), start) > 1e-3);
    if (language.empty()) language = values(lm.model->parameters()), classifier = values(cls.model->parameters());
    CHECK(largest_difference(values(lm.model->parameters()), language) < 1e-6);
    CHECK(largest_difference(values(cls.model->parameters()), classifier) < 1e-6);
  }
}

TEST_CASE("accumulation does not change how many steps there are, and tokens are those of all micro-batches") {
  const TemporaryFolder home;
  SmallLanguageRun run(home.path(), small_text(), {"--train.steps=10", "--train.accumulate=8"});
  REQUIRE(run.train() == 0);
  CHECK(run.summary.at("steps") == 10);
  CHECK(run.summary.at("tokens") == 10 * 8 * 4 * 16);
  CHECK(run.column("loss").size() == 10);
}

TEST_CASE("the learning rate follows the schedule and stays within [0, lr], with a warm-up longer than the run too") {
  for (int warmup : {0, 3, 1000}) {
    const TemporaryFolder home;
    SmallLanguageRun run(
        home.path(), small_text(),
        {text("--train.warmup=", warmup), "--train.steps=6", "--train.lr=0.01", "--train.min_lr=0.001"});
    REQUIRE(run.train() == 0);
    const Schedule schedule{ScheduleKind::cosine, 0.01, 0.001, warmup, 6};
    const std::vector<double> rates = run.column("lr");
    REQUIRE(rates.size() == 6);
    for (Index step = 1; step <= 6; ++step) CHECK(rates[std::size_t(step - 1)] == schedule.at(step));
  }
}

TEST_CASE("memory stays as it is from the second step on, and evaluation builds no graph") {
  const TemporaryFolder home;
  SmallLanguageRun run(home.path(), small_text(),
                       {"--train.steps=200", "--train.eval_every=50", "--log_every=10", "--train.save_every=50"});
  std::vector<memory::Stats> seen;
  run.watched->before_step = [&](Index) { seen.push_back(memory::stats(Device::cpu)); };
  REQUIRE(run.train() == 0);
  REQUIRE(seen.size() == 200);
  for (const memory::Stats& stats : {seen[3], seen[100], seen[199]}) {
    CHECK(stats.live_bytes == seen[2].live_bytes);
    CHECK(stats.system_calls == seen[2].system_calls);
  }
  CHECK(run.watched->evaluations == 5);
  CHECK(run.watched->graphs == 0);
}

TEST_CASE("dropout does not touch evaluation, and evaluation does not touch training") {
  const TemporaryFolder home;
  const Arguments arguments = {"--model.dropout=0.5", "--train.eval_every=0"};
  SmallLanguageRun plain(home.path() / "a", small_text(), arguments),
      watched(home.path() / "b", small_text(), arguments);
  watched.watched->before_step = [&](Index) {
    const Evaluation first = watched.task->evaluate({}), second = watched.task->evaluate({});
    CHECK(first.loss == second.loss);
  };
  REQUIRE(plain.train() == 0);
  REQUIRE(watched.train() == 0);
  CHECK(plain.checkpoint() == watched.checkpoint());
}
