// Distillation as a task: what learns, what stands still, and what is measured.
#include <doctest/doctest.h>

#include <numeric>

#include "tests/train/training/small_runs.h"
#include "tests/train/util/temporary_folder.h"
#include "train/training/distillation_task.h"

using namespace flexformer;
using namespace flexformer::tests;

namespace {

// A student of a random teacher: the same weights around kernels that start anew.
struct SmallStudent : SmallLanguageRun {
  explicit SmallStudent(const std::filesystem::path& out, const Arguments& arguments = {})
      : SmallLanguageRun(out, small_text(), Arguments{"--train.kernel_lr=1", "--train.lr=0.005"} + arguments),
        distillation(*task, model->transformer()) {
    for (const Parameter& p : model->parameters())
      if (Var var = p.var; !p.kernel) var.set_requires_grad(false);
    watched = std::make_unique<WatchedTask>(distillation);
  }
  DistillationTask distillation;
};

}  // namespace

TEST_CASE("distillation brings kernels closer to softmax's weights and changes nothing else") {
  for (const char* kind : {"flexformer_s", "flexformer_n", "hedgehog"}) {
    CAPTURE(std::string(kind));
    const TemporaryFolder home;
    SmallStudent student(home.path() / "run", {text("--model.attention=", kind)});
    const std::uint64_t hash = hash_without_kernels(student.parameters());
    const std::vector<float> kernel = student.model->transformer().blocks[0].attention.w1.value().to_vector();
    const double before = student.distillation.evaluate({}).loss;
    CHECK(student.train() == 0);
    CHECK(student.summary.at("valid_loss").get<double>() < before);
    CHECK(hash_without_kernels(student.parameters()) == hash);
    CHECK(student.model->transformer().blocks[0].attention.w1.value().to_vector() != kernel);
    CHECK(student.summary.at("params").get<Index>() == student.parameters().count());
  }
}

TEST_CASE("the distillation loss is the mean over layers and heads, whose table has a row for each layer") {
  const TemporaryFolder home;
  SmallStudent student(home.path() / "run");
  const Evaluation result = student.distillation.evaluate({});
  const HeadLosses& losses = student.distillation.validation();
  double sum = 0;
  for (Index layer = 0; layer < 2; ++layer)
    for (Index head = 0; head < 2; ++head) sum += losses.at(layer, head);
  CHECK(result.loss == doctest::Approx(sum / 4).epsilon(1e-9));
  CHECK(result.summary.at("head_losses")[1][0].get<double>() == losses.at(1, 0));
  const std::string table = losses.table();
  CHECK(std::count(table.begin(), table.end(), '\n') == 3);
  CHECK(table.find(fixed(losses.at(1, 1), 3)) != std::string::npos);
}

TEST_CASE("while it is watched a model attends by softmax, as its teacher does") {
  const TemporaryFolder home;
  SmallStudent student(home.path() / "student");
  SmallLanguageRun teacher(home.path() / "teacher", small_text(), {"--model.attention=softmax"});
  const SmallStudent& s = student;
  NamedTensors rest;
  for (const Parameter& p : s.parameters())
    if (!p.kernel) rest.push_back({p.name, p.var.value()});
  load_tensors(teacher.parameters().tensors(), rest, "student");
  const double own = teacher.task->evaluate({}).loss;
  CHECK(student.distillation.evaluate({}).log.at("teacher_loss").get<double>() == own);
  CHECK(student.task->evaluate({}).loss != own);
}

TEST_CASE("the fitted start brings each head's frequencies and tau nearer, and leaves those that are near") {
  for (const float size : {8.0f, 0.01f}) {
    CAPTURE(size);
    const TemporaryFolder home;
    SmallStudent student(home.path() / "run", {"--model.attention=flexformer_n", "--model.omega_scale=1"});
    const MultiHeadAttention& layer = student.model->transformer().blocks[1].attention;
    for (const Block& block : student.model->transformer().blocks) {
      Tensor weight = block.attention.qkv.weight.value();  // the same memory
      for (Index i = 0; i < weight.numel(); ++i) weight.data()[i] *= size;
    }
    const double before = student.distillation.evaluate({}).loss;
    const std::vector<float> w1 = layer.w1.value().to_vector(), w2 = layer.w2.value().to_vector();
    const std::vector<float> tau = layer.tau.value().to_vector();
    fit_kernels(*student.task);
    const std::vector<float> now1 = layer.w1.value().to_vector(), now2 = layer.w2.value().to_vector();
    const bool far = size > 1;
    const std::size_t per_head = w1.size() / std::size_t(layer.heads);
    CHECK((now1 != w1) == far);
    CHECK((layer.tau.value().to_vector() != tau) == far);
    for (std::size_t i = 0; i < w1.size(); ++i) {
      const std::size_t first = i / per_head * per_head;  // of the same head
      const float factor = now1[i] / w1[i], of_head = now1[first] / w1[first];
      CHECK(factor <= 1);
      CHECK(factor == doctest::Approx(of_head).epsilon(1e-5));
      CHECK(now2[i] == doctest::Approx(factor * w2[i]).epsilon(1e-5));
    }
    for (std::size_t h = 0; h < tau.size(); ++h) CHECK(layer.tau.value().data()[h] >= tau[h]);
    const double after = student.distillation.evaluate({}).loss;
    if (far)
      CHECK(after < before);
    else
      CHECK(after == before);
  }
}

TEST_CASE("a distillation cut off and resumed equals an unbroken one bit for bit") {
  const TemporaryFolder home;
  SmallStudent whole(home.path() / "whole");
  CHECK(whole.train() == 0);
  SmallStudent(home.path() / "cut", {"--train.save_every=5"}).train(13);
  SmallStudent rest(home.path() / "cut");
  CHECK(rest.train() == 0);
  CHECK(rest.checkpoint() == whole.checkpoint());
}

TEST_CASE("a language model learns the teacher's outputs beside the text, each with its share") {
  const TemporaryFolder home;
  SmallLanguageRun teacher(home.path() / "teacher", small_text(), {"--model.attention=softmax", "--seed=2"});
  for (const Parameter& p : teacher.parameters()) Var(p.var).set_requires_grad(false);
  const auto loss_at = [&](SmallLanguageRun& run) {
    return double(run.task->loss_sum(run.task->batch(0), {}).value().item());
  };
  SmallLanguageRun student(home.path() / "student", small_text());
  student.task->begin_step(3);
  const double own = loss_at(student);
  student.task->learn_from(*teacher.model, 1);
  const double apart = loss_at(student);
  CHECK(apart > 0);
  student.task->learn_from(*teacher.model, 0.25f);
  CHECK(loss_at(student) == doctest::Approx(0.75 * own + 0.25 * apart).epsilon(1e-5));
  // A model is at no distance from itself.
  SmallLanguageRun twin(home.path() / "twin", small_text(), {"--model.attention=softmax", "--seed=2"});
  twin.task->learn_from(*teacher.model, 1);
  twin.task->begin_step(3);
  CHECK(std::abs(loss_at(twin)) < 1e-3 * apart);
}

TEST_CASE("with its outputs to learn from a student comes closer to the teacher, which stays as it is") {
  const TemporaryFolder home;
  SmallLanguageRun teacher(home.path() / "teacher", small_text(), {"--model.attention=softmax", "--seed=2"});
  for (const Parameter& p : teacher.parameters()) Var(p.var).set_requires_grad(false);
  const std::uint64_t hash = hash_without_kernels(teacher.parameters());
  SmallLanguageRun student(home.path() / "student", small_text());
  student.task->learn_from(*teacher.model, 1);
  REQUIRE(student.train() == 0);
  const std::vector<double> losses = student.column("loss");
  CHECK(losses.back() < 0.5 * losses.front());
  CHECK(hash_without_kernels(teacher.parameters()) == hash);
}

TEST_CASE("classifiers learn logits, and regressions outputs, of their teachers") {
  const TemporaryFolder home;
  for (const bool scores : {false, true}) {
    CAPTURE(scores);
    std::string table = "label\ttext\n";
    for (int i = 0; i < 12; ++i) table += text(scores ? text(0.25 * i) : i % 2 ? "up" : "down", "\tword ", i, "\n");
    const std::string file = home.file("table.tsv", table);
    const auto at = [&](const char* name) { return home.path() / text(name, scores); };
    SmallClassifierRun teacher(at("teacher"), file, {"--model.attention=softmax", "--seed=2", "--train.batch=12"});
    for (const Parameter& p : teacher.parameters()) Var(p.var).set_requires_grad(false);
    SmallClassifierRun student(at("student"), file, {"--train.batch=12"});
    student.task->begin_step(0);  // all rows
    const auto loss = [&] { return double(student.task->loss_sum(student.task->batch(0), {}).value().item()); };
    const double own = loss();
    student.task->learn_from(*teacher.model, 1);
    const double apart = loss();
    student.task->learn_from(*teacher.model, 0.5f);
    CHECK(loss() == doctest::Approx(0.5 * (own + apart)).epsilon(1e-5));
    const EncodedTexts& texts = student.data.train_texts;
    std::vector<Index> all(texts.rows.size());
    std::iota(all.begin(), all.end(), Index(0));
    const Var wanted = classify(*teacher.model, texts, all, {}), made = classify(*student.model, texts, all, {});
    const Var distance = scores ? sum(square(made - wanted)) : softmax_divergence(wanted.value(), made);
    CHECK(apart == doctest::Approx(double(distance.value().item())).epsilon(1e-4));
  }
}
