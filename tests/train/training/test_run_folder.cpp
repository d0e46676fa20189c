// What a run leaves behind, and what it refuses to go on with.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/train/training/small_runs.h"

using namespace flexformer;
using namespace flexformer::tests;
namespace fs = std::filesystem;

namespace {

using Runs = SmallLanguageRun;

// A task of one weight whose losses are given; what to do with figures that no real data would give.
class ScriptedTask : public Task {
 public:
  ScriptedTask(Parameters& parameters, std::vector<double> valid_losses) : losses_(std::move(valid_losses)) {
    weight_ = parameters.add({"weight", Var(Tensor::full({1}, 1), true), true, false});
  }
  Index begin_step(Index) override { return 1; }
  Index step_tokens() const override { return 1; }
  Index micro_batches() const override { return 1; }
  Batch batch(Index) const override { return {}; }
  Var loss_sum(const Batch&, const Pass&) override { return sum(mul(weight_, weight_)); }
  bool has_validation() const override { return true; }
  Evaluation evaluate(const Pass&) override {
    Evaluation result;
    result.targets = 1;
    result.loss = losses_.at(calls++);
    result.log["valid_ppl"] = json_number(std::exp(result.loss));
    return result;
  }
  std::size_t calls = 0;

 private:
  Var weight_;
  std::vector<double> losses_;
};

struct ScriptedRun {
  // One evaluation a step, the first before step 1.
  ScriptedRun(const fs::path& out, std::vector<double> valid_losses, const Arguments& arguments = {})
      : options("train_lm", ""), folder(out), task(parameters, std::move(valid_losses)) {
    add_language_options(options);
    options.parse(Arguments{"--train.eval_every=1", "--log_every=1", "--train.steps=4"} + arguments);
    begin_again(out);
    const Captured captured;
    Console console;
    Trainer trainer(options, folder, parameters, task, console);
    status = trainer.run("data", "vocabulary");
    state = trainer.state();
    summary = trainer.summary();
    if (!summary.is_null()) folder.write_summary(summary);
    said = captured.text();
  }
  Options options;
  RunFolder folder;
  Parameters parameters;
  ScriptedTask task;
  int status;
  TrainingState state;
  Json summary;
  std::string said;
};

}  // namespace

TEST_CASE("the last and the best model are there after a run of 0, of 1 and of any number of steps, and load") {
  for (int steps : {0, 1, 7}) {
    CAPTURE(steps);
    const TemporaryFolder home;
    const Arguments arguments = {text("--train.steps=", steps), "--train.save_every=5", "--train.eval_every=100"};
    Runs run(home.path(), small_text(), arguments);
    REQUIRE(run.train() == 0);
    CHECK(run.summary.at("steps") == steps);
    CHECK(run.summary.at("best_step").get<int>() <= steps);
    CHECK(run.column("valid_loss").size() == (steps == 0 ? 1 : 2));  // before the first step, and at the end
    CHECK(run.summary.at("train_loss").is_number() == (steps > 0));
    const SavedLanguageModel saved(RunFolder::for_use(home.path().string(), "train_lm"));
    CHECK(saved.step == run.summary.at("best_step"));
    Runs again(home.path(), small_text(), arguments);
    const std::string before = again.checkpoint();
    REQUIRE(again.train() == 0);
    CHECK(contains(again.said, text("this run has finished: ", steps, " of ", steps, " steps are done")));
    CHECK(again.checkpoint() == before);
    CHECK(again.watched->evaluations == 0);
  }
}

TEST_CASE("metrics have one line a step, also when a run is cut off before and after its first save") {
  const TemporaryFolder home;
  const Arguments arguments = {"--train.steps=8", "--train.save_every=4", "--train.eval_every=2"};
  for (Index cut : {3, 7, -1}) {
    Runs run(home.path(), small_text(), arguments);
    run.train(cut);
    if (cut > 0) std::ofstream(run.folder.file("metrics.jsonl"), std::ios::app) << R"({"step":9,"lo)";  // half a line
  }
  Runs unbroken(home.path() / "unbroken", small_text(), arguments);
  unbroken.train();
  Runs run(home.path(), small_text(), arguments);
  CHECK(run.metrics() == unbroken.metrics());
  CHECK(run.column("loss").size() == 8);
  CHECK(run.column("valid_loss").size() == 5);
}

TEST_CASE("a finished run goes on with a larger number of steps, and its settings are those that count from then on") {
  const TemporaryFolder home;
  {
    Runs run(home.path(), small_text(), {"--train.steps=6"});
    REQUIRE(run.train() == 0);
  }
  const auto without_steps = [&](const Arguments& more) {
    Options options("train_lm", "");
    add_language_options(options);
    options.parse(more);
    RunFolder(home.path()).resume_options(options);
    return options.integer("train.steps");
  };
  CHECK(without_steps({}) == 6);
  Runs longer(home.path(), small_text(), {"--train.steps=12", "--train.save_every=4"});
  REQUIRE(longer.train(10) == -1);
  CHECK_FALSE(fs::exists(longer.folder.file("summary.json")));  // nothing looks finished
  CHECK(without_steps({}) == 12);
  Runs rest(home.path(), small_text(), {"--train.steps=12", "--train.save_every=4"});
  REQUIRE(rest.train() == 0);
  CHECK(contains(rest.said, "resuming at step 8 of 12"));
  CHECK(rest.column("loss").size() == 12);
}

TEST_CASE("a run that stops for want of a better validation loss has finished") {
  const TemporaryFolder home;
  const ScriptedRun run(home.path(), {5, 4, 4.5, 4.2, 1, 1}, {"--train.patience=2", "--train.steps=9"});
  CHECK(run.state.step == 3);
  CHECK(run.state.best_step == 1);
  CHECK(contains(run.said, "stopping early: no better validation loss in 2 evaluations"));
  const ScriptedRun again(home.path(), {0}, {"--train.patience=2", "--train.steps=9"});
  CHECK(contains(again.said, "this run has finished: 3 of 9 steps are done; for more, change train.patience"));
  CHECK(again.task.calls == 0);
}

TEST_CASE("a run cut off after its last save but before its summary only evaluates again, without a second line") {
  const TemporaryFolder home;
  const ScriptedRun run(home.path(), {5, 4, 3, 2, 1});
  fs::remove(run.folder.file("summary.json"));
  const std::string metrics = read_file(run.folder.file("metrics.jsonl"));
  const ScriptedRun again(home.path(), {1});
  CHECK(read_file(run.folder.file("metrics.jsonl")) == metrics);
  CHECK(again.summary.at("valid_loss") == run.summary.at("valid_loss"));
  CHECK(again.state.to_json() == run.state.to_json());
}

TEST_CASE("validation losses that are not numbers are never the best, and all files stay JSON") {
  const TemporaryFolder home;
  const double nan = std::nan(""), infinity = HUGE_VAL;
  const ScriptedRun run(home.path(), {nan, infinity, 800, 3, nan});
  CHECK(run.status == 0);
  CHECK(run.state.best_step == 3);
  CHECK(run.state.best_loss == 3);
  std::vector<std::string> perplexities;
  std::istringstream lines(read_file(run.folder.file("metrics.jsonl")));
  for (std::string line; std::getline(lines, line);)
    if (const Json json = parse_json(line, "metrics"); json.contains("valid_ppl"))
      perplexities.push_back(json["valid_ppl"].dump());
  CHECK(perplexities == std::vector<std::string>{R"("nan")", R"("inf")", R"("inf")", "20.085536923187668", R"("nan")"});
  CHECK(read_json(run.folder.file("summary.json")).at("valid_loss") == "nan");
  const ScriptedRun hopeless(home.path() / "hopeless", {nan, nan, nan, nan, nan});
  CHECK(read_json(hopeless.folder.file("summary.json")).at("best_valid_loss") == "nan");
  CHECK_FALSE(hopeless.folder.has_best());
  CHECK(ScriptedRun(home.path() / "hopeless", {nan, 1}, {"--train.steps=6"}).state.best_step == 6);
}

TEST_CASE("a weight that is not a number stops the run; step, rate and tensor are named and the last save stays") {
  const TemporaryFolder home;
  Runs run(home.path(), small_text(), {"--train.save_every=1", "--train.lr=0.01", "--train.warmup=0"});
  std::string before;
  run.watched->before_step = [&](Index step) {
    if (step != 5) return;
    before = run.checkpoint();
    Tensor weight = run.model->parameters()["blocks.1.mlp.up.weight"].var.value();
    weight.data()[3] = std::nanf("");
  };
  const std::string said = message_of([&] { run.train(); });
  CHECK(contains(said, "training broke down at step 6: loss nan, learning rate 0.00"));
  CHECK(contains(said, "first bad tensor: blocks.1.mlp.up.weight; the checkpoint of the last save is untouched"));
  CHECK(run.checkpoint() == before);
  CHECK_FALSE(fs::exists(run.folder.file("summary.json")));
  Runs again(home.path(), small_text(), {"--train.save_every=1", "--train.lr=0.01", "--train.warmup=0"});
  CHECK(again.train() == 0);
}

TEST_CASE("a rate of a million stops the run before weights beyond all numbers are saved") {
  for (const char* kind : {"softmax", "flexformer_n"}) {
    const TemporaryFolder home;
    Runs run(home.path(), small_text(),
             {text("--model.attention=", kind), "--train.save_every=1", "--train.lr=1e6", "--train.warmup=0",
              "--train.schedule=constant", "--train.eval_every=1"});
    const std::string said = message_of([&] { run.train(); });
    CHECK(contains(said, "learning rate 1e+06, first bad tensor: "));
    Runs saved(home.path(), small_text(), {"--train.save_every=1"});
    const SafetensorsFile file = read_safetensors(saved.checkpoint(), "last");
    for (const NamedTensor& t : file.tensors)
      if (!t.name.starts_with("optimizer."))
        for (float value : t.tensor.to_vector()) REQUIRE(std::isfinite(value));
  }
}

TEST_CASE(
    "a run does not go on with another model, batch or seed: the message lists what is stored and what is given") {
  const TemporaryFolder home;
  Runs run(home.path(), small_text(), {"--train.steps=4", "--train.save_every=2"});
  REQUIRE(run.train(3) == -1);
  struct Row {
    const char *given, *said;
  };
  for (const Row& row :
       {Row{"--model.dim=64", "model.dim: stored 32, given 64"},
        Row{"--model.heads=4", "model.heads: stored 2, given 4"},
        Row{"--model.attention=softmax", "model.attention: stored flexformer_n, given softmax"},
        Row{"--train.batch=8", "train.batch: stored 4, given 8"},
        Row{"--train.block=32", "train.block: stored 16, given 32"}, Row{"--seed=7", "seed: stored 1, given 7"}}) {
    const std::string said = message_of([&] { Runs(home.path(), small_text(), {"--train.steps=4", row.given}); });
    CHECK_MESSAGE(contains(said, row.said), said);
    CHECK(contains(said, "cannot go on with other settings"));
    CHECK_FALSE(contains(said, "\n"));
  }
  const std::string both = message_of([&] { Runs(home.path(), small_text(), {"--model.dim=64", "--seed=7"}); });
  CHECK(contains(both, "(seed: stored 1, given 7; model.dim: stored 32, given 64)"));
}

TEST_CASE("another text is a warning, other characters are an error, and so is a damaged checkpoint") {
  const TemporaryFolder home;
  const Arguments arguments = {"--train.steps=4", "--train.save_every=2"};
  Runs run(home.path(), small_text(), arguments);
  REQUIRE(run.train(3) == -1);
  Runs other_text(home.path(), small_text(200, 2), arguments);
  REQUIRE(other_text.train(3) == -1);
  CHECK(contains(other_text.said, "warning: the training data is not what this run was trained on so far"));
  std::string same_size = small_text();
  std::replace(same_size.begin(), same_size.end(), 'f', 'z');
  Runs other_characters(home.path(), same_size, arguments);
  CHECK(other_characters.tokenizer->vocab_size() == run.tokenizer->vocab_size());
  const std::string said = message_of([&] { other_characters.train(); });
  CHECK(contains(said, "was trained with tokenizer and labels of fingerprint " + run.tokenizer->fingerprint()));
  CHECK(contains(said, "those in the run folder have " + other_characters.tokenizer->fingerprint()));

  const std::string last = run.folder.file("checkpoint/last.safetensors").string(), whole = read_file(last);
  std::string flipped = whole;
  flipped[flipped.size() - 100] ^= 1;
  for (const std::string& damaged : {std::string(), whole.substr(0, 9), whole.substr(0, whole.size() / 2), flipped}) {
    write_file_atomic(last, damaged);
    Runs resumed(home.path(), small_text(), arguments);
    CHECK(contains(message_of([&] { resumed.train(); }), last));
    CHECK(read_file(last) == damaged);
  }
}

TEST_CASE("a state that no run can have is refused") {
  TrainingState state;
  state.step = 5;
  const auto check = [&](const char* key, const char* value, const char* said) {
    Json json = state.to_json();
    json[key] = parse_json(value, "value");
    CHECK(contains(message_of([&] { TrainingState::from_json(json, "last"); }), said));
  };
  check("step", "-1", "last: a negative step or token count");
  check("step", "18446744073709551615", "last: the key 'step' has a value of the wrong type");
  for (const char* key : {"step", "tokens", "worse", "best_step", "evaluated_step"})
    check(key, "9223372036854775807", "cannot be those of one run");
  check("worse", "-1", "worse -1 cannot be those of one run");
  check("best_step", "6", "best_step 6");
  check("best_loss", "null", "expected a number");
}

TEST_CASE("a config of a larger model than the checkpoint holds is refused before the model is made") {
  const TemporaryFolder home;
  Runs run(home.path(), small_text(), {"--train.steps=1"});
  REQUIRE(run.train() == 0);
  SavedLanguageModel{run.folder};
  Json config = read_json(run.folder.file("config.json"));
  config["model"]["dim"] = 1 << 20;
  write_json_atomic(run.folder.file("config.json"), config);
  CHECK(contains(message_of([&] { SavedLanguageModel{run.folder}; }), "config.json describes a model of at least "));
}

TEST_CASE("a damaged run beside others is passed over when the newest is looked for") {
  const TemporaryFolder home;
  const fs::path before = fs::current_path();
  struct Back {
    fs::path to;
    ~Back() { fs::current_path(to); }
  } back{before};
  fs::current_path(home.path());
  for (const char* name : {"runs/array", "runs/number", "runs/cut", "runs/good"}) {
    fs::create_directories(fs::path(name) / "checkpoint");
    home.file(std::string(name) + "/checkpoint/last.safetensors", "");
  }
  home.file("runs/array/config.json", "[1]");
  home.file("runs/number/config.json", "{\"program\":3}");
  home.file("runs/cut/config.json", "{");
  home.file("runs/good/config.json", "{\"program\":\"train_lm\"}");
  CHECK(RunFolder::for_use("", "train_lm").path() == "runs/good");
}

TEST_CASE("a folder with a checkpoint is not overwritten unasked, and one without is used as it is") {
  const TemporaryFolder home;
  const std::string path = home.path().string();
  home.file("checkpoint.txt", "mine");
  Runs run(home.path(), small_text(), {"--train.steps=2", "--resume"});
  const std::string stale = (home.path() / "checkpoint" / "last.safetensors.77.flexformer-tmp").string();
  std::ofstream(stale) << "half a file";
  REQUIRE(run.train() == 0);
  CHECK(contains(run.said, "no complete checkpoint to resume: starting at step 0 on the embedded data"));
  CHECK(contains(message_of([&] { RunFolder::for_training(path, "", false); }),
                 path + " already holds a checkpoint; go on with it by resume=true"));
  RunFolder::for_training(path, "", true);
  CHECK_FALSE(fs::exists(stale));
  CHECK(contains(message_of([&] { RunFolder::for_use(path + "/none", "train_lm"); }), "there is no such folder"));
  CHECK(contains(message_of([&] { RunFolder::for_use((home.path() / "checkpoint").string(), "train_lm"); }),
                 "no trained model here"));
  CHECK(contains(message_of([&] { RunFolder::for_use(path, "train_classifier"); }),
                 "this is a run of 'train_lm', not of train_classifier"));
}

TEST_CASE("a checkpoint holds nothing that depends on time, place or machine") {
  const TemporaryFolder home;
  Runs a(home.path() / "a", small_text(), {"--train.steps=3"}),
      b(home.path() / "b c", small_text(), {"--train.steps=3"});
  REQUIRE(a.train() == 0);
  REQUIRE(b.train() == 0);
  CHECK(a.checkpoint() == b.checkpoint());
  CHECK(read_json(a.folder.file("checkpoint/last.json")).at("seconds").get<double>() > 0);
}

TEST_CASE("a tied output layer is saved once and is still tied after loading") {
  const TemporaryFolder home;
  Runs tied(home.path() / "tied", small_text(), {"--model.tie", "--train.steps=5"}),
      untied(home.path() / "untied", small_text(), {"--train.steps=5"});
  REQUIRE(tied.train() == 0);
  REQUIRE(untied.train() == 0);
  CHECK_FALSE(contains(tied.checkpoint(), "head.weight"));
  CHECK(contains(untied.checkpoint(), "head.weight"));
  CHECK(untied.summary.at("params").get<Index>() - tied.summary.at("params").get<Index>() ==
        tied.tokenizer->vocab_size() * 32);
  const SavedLanguageModel saved(tied.folder);
  const Tensor ids = Tensor::from_ints({1, 3}, std::vector<std::int32_t>{1, 2, 3});
  const auto logits = [&] { return saved.model->forward(ids).value().to_vector(); };
  const std::vector<float> before = logits();
  Tensor table = saved.model->parameters()["token.weight"].var.value();
  std::fill_n(table.data(), 32, 0.0f);  // of token 0, which is not in the text: it only matters to the output layer
  const std::vector<float> after = logits();
  const std::size_t V = std::size_t(saved.tokenizer->vocab_size());
  for (std::size_t i = 0; i < after.size(); ++i)
    if (i % V != 0) CHECK(after[i] == before[i]);
  CHECK(after[0] != before[0]);
}

TEST_CASE("fewer steps than are done are refused, and nothing is stored of that") {
  const TemporaryFolder home;
  Runs run(home.path(), small_text(), {"--train.steps=8", "--train.save_every=4"});
  REQUIRE(run.train(7) == -1);
  const std::string before = read_file(run.folder.file("config.json"));
  Runs fewer(home.path(), small_text(), {"--train.steps=3"});
  CHECK(contains(message_of([&] { fewer.train(); }), "train.steps=3 is less than the 4 steps that this run has done"));
  CHECK(read_file(run.folder.file("config.json")) == before);
  Runs same(home.path(), small_text(), {"--train.steps=4"});
  CHECK(same.train() == 0);
}
