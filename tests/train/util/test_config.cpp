// Options: one declaration a key, strict values, and messages that name key, value, what is allowed and what was meant.
#include <doctest/doctest.h>
#include <stdlib.h>

#include <locale>
#include <stdexcept>

#include "tests/train/util/temporary_folder.h"
#include "train/util/config.h"

using namespace flexformer;
using doctest::Contains;
using Arguments = std::vector<std::string>;

namespace {

Options make_options() {
  Options options("train_lm", "trains a language model");
  options.add_text("out", "runs/lm", "folder of the run");
  options.add_flag("resume", false, "go on from the last checkpoint");
  options.add_integer("seed", 1, {.max = 9007199254740992.0, .help = "of all random numbers"});
  options.add_choice("model.attention", "flexformer_s", {"softmax", "flexformer_s", "linear"}, "kind of attention");
  options.add_integer("model.layers", 4, {.min = 1, .max = 1000, .help = "Transformer blocks"});
  options.add_real("model.dropout", 0.1, {.max = 1, .below = true, .help = "probability"});
  options.add_integer("train.steps", 1000, {.max = 1e9, .unit = "steps", .help = "optimiser steps"});
  options.add_integer("train.batch", 32, {.min = 1, .max = 1e6, .unit = "windows", .help = "per step"});
  options.add_real("train.lr", 3e-4, {.max = 10, .above = true, .help = "peak learning rate"});
  options.add_real("train.min_lr", 0, {.max = 10, .help = "learning rate at the end"});
  return options;
}

Options parsed(const Arguments& arguments) {
  Options options = make_options();
  REQUIRE(options.parse(arguments) == Request::run);
  return options;
}

Options loaded(const std::string& config) {
  Options options = make_options();
  options.load_config(parse_json(config, "c.json"), "c.json");
  return options;
}

struct CommaPoint : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

}  // namespace

TEST_CASE("without arguments every key has its default") {
  const Options options = parsed({});
  CHECK(options.text("out") == "runs/lm");
  CHECK(options.flag("resume") == false);
  CHECK(options.integer("train.steps") == 1000);
  CHECK(options.real("train.lr") == 3e-4);
  CHECK(options.text("model.attention") == "flexformer_s");
  CHECK_FALSE(options.given("train.steps"));
}

TEST_CASE("options are written --key=value, --key value, or bare for flags") {
  const Options options = parsed({"--train.steps=5", "--train.lr", "0.5", "--resume", "--out", "a b/é", "--seed", "7"});
  CHECK(options.integer("train.steps") == 5);
  CHECK(options.real("train.lr") == 0.5);
  CHECK(options.flag("resume"));
  CHECK(options.text("out") == "a b/é");
  CHECK(options.given("train.steps"));
  CHECK_FALSE(parsed({"--resume", "false"}).flag("resume"));
  CHECK(parsed({"--resume=true"}).flag("resume"));
  CHECK(parsed({"--resume", "--train.steps=3"}).integer("train.steps") == 3);
  CHECK(parsed({"--out=a=b"}).text("out") == "a=b");
  CHECK(parsed({"--out="}).text("out").empty());
  CHECK(parsed({"--train.steps=5", "--train.steps=6"}).integer("train.steps") == 6);
}

TEST_CASE("whole numbers serve as reals, and 0 and 1 are within closed limits") {
  CHECK(parsed({"--model.dropout=0"}).real("model.dropout") == 0);
  CHECK(parsed({"--train.lr=1"}).real("train.lr") == 1);
  CHECK(parsed({"--train.lr=1e-3"}).real("train.lr") == 1e-3);
  CHECK(loaded(R"({"model": {"dropout": 0}, "train": {"lr": 1}})").real("train.lr") == 1);
}

TEST_CASE("a wrong value on the command line is named with what is allowed") {
  const auto parse = [](const char* argument) { make_options().parse(Arguments{argument}); };
  const char* steps = "it takes a whole number from 0 to 1000000000 (steps)";
  for (const char* bad :
       {"--train.steps=abc", "--train.steps=2.7", "--train.steps=", "--train.steps=5x", "--train.steps=-1",
        "--train.steps=1e3", "--train.steps=1000000000000", "--train.steps=99999999999999999999", "--train.steps= 5"})
    CHECK_THROWS_WITH_AS(parse(bad), Contains(steps), UsageError);
  CHECK_THROWS_WITH_AS(parse("--train.steps=abc"), Contains("command line: train.steps = 'abc' is not allowed"),
                       UsageError);
  CHECK_THROWS_WITH_AS(parse("--train.batch=0"), Contains("from 1 to 1000000 (windows)"), UsageError);
  for (const char* bad : {"--train.lr=0", "--train.lr=nan", "--train.lr=inf", "--train.lr=1e999", "--train.lr=0,5",
                          "--train.lr=-1", "--train.lr=11", "--train.lr=0x1"})
    CHECK_THROWS_WITH_AS(parse(bad), Contains("it takes a number above 0 to 10"), UsageError);
  CHECK_THROWS_WITH_AS(parse("--model.dropout=1"), Contains("a number from 0 to below 1"), UsageError);
  CHECK_THROWS_WITH_AS(parse("--resume=yes"), Contains("it takes true or false"), UsageError);
  CHECK_THROWS_WITH_AS(parse("--model.attention=Softmx"),
                       Contains("one of softmax, flexformer_s, linear; the nearest is softmax"), UsageError);
}

TEST_CASE("a wrong type in a config is named with file, key and value") {
  CHECK_THROWS_WITH_AS(loaded(R"({"model": {"layers": 2.7}})"),
                       Contains("c.json: model.layers = '2.7' is not allowed; it "
                                "takes a whole number from 1 to 1000"),
                       UsageError);
  CHECK_THROWS_WITH_AS(loaded(R"({"model.layers": "2"})"), Contains("model.layers = '\"2\"' is not allowed"),
                       UsageError);
  CHECK_THROWS_WITH_AS(loaded(R"({"train": {"batch": -1}})"), Contains("train.batch = '-1'"), UsageError);
  CHECK_THROWS_WITH_AS(loaded(R"({"train": {"batch": 0}})"), Contains("train.batch = '0'"), UsageError);
  CHECK_THROWS_WITH_AS(loaded(R"({"train": {"batch": 1e12}})"), Contains("from 1 to 1000000"), UsageError);
  CHECK_THROWS_WITH_AS(loaded(R"({"train": {"steps": 18446744073709551615}})"), Contains("train.steps"), UsageError);
  CHECK_THROWS_WITH_AS(loaded(R"({"model": {"dropout": 1.5}})"), Contains("model.dropout = '1.5'"), UsageError);
  CHECK_THROWS_WITH_AS(loaded(R"({"train": {"lr": null}})"), Contains("train.lr = 'null'"), UsageError);
  CHECK_THROWS_WITH_AS(loaded(R"({"resume": 1})"), Contains("it takes true or false"), UsageError);
  CHECK_THROWS_WITH_AS(loaded(R"({"out": 3})"), Contains("it takes text in quotes"), UsageError);
  CHECK_THROWS_WITH_AS(loaded(R"({"model": 3})"), Contains("model is a section, it needs an object"), UsageError);
  CHECK_THROWS_WITH_AS(loaded(R"({"train": {"lr": {"x": 1}}})"), Contains("train.lr = '{\"x\":1}'"), UsageError);
  CHECK_THROWS_WITH_AS(loaded(R"({"train": {"lr": 1}, "train.lr": 1})"), Contains("train.lr is given twice"),
                       UsageError);
  CHECK_THROWS_WITH_AS(loaded(R"({"format_version": 99})"), Contains("format_version '99' is not known"), UsageError);
}

TEST_CASE("an unknown key is named with the nearest one") {
  const auto hint = [](const char* config, const char* part) {
    CHECK_THROWS_WITH_AS(loaded(config), Contains(part), UsageError);
  };
  hint(R"({"train": {"step": 0.5}})", "c.json: unknown key 'train.step' (value '0.5'); the nearest key is train.steps");
  hint(R"({"train": {"layers": 2}})", "the nearest key is model.layers");
  hint(R"({"layers": 2})", "the nearest key is model.layers");
  hint(R"({"modle": {"layers": 2}})", "unknown key 'modle.layers' (value '2'); the nearest key is model.layers");
  hint(R"({"Train": {"Steps": 2}})", "unknown key 'Train.Steps' (value '2'); the nearest key is train.steps");
  hint(R"({"nothing": {}})", "unknown key 'nothing'");
  const auto parse = [](const char* argument) { make_options().parse(Arguments{argument, "5"}); };
  CHECK_THROWS_WITH_AS(parse("--train.stesp"), Contains("command line: unknown key 'train.stesp'"), UsageError);
  CHECK_THROWS_WITH_AS(parse("--TRAIN.STEPS"), Contains("the nearest key is train.steps"), UsageError);
  CHECK_THROWS_WITH_AS(parse("-resume"), Contains("unknown key '-resume'; the nearest key is resume"), UsageError);
}

TEST_CASE("a missing value and a stray argument are errors") {
  const auto parse = [](const Arguments& arguments) { make_options().parse(arguments); };
  CHECK_THROWS_WITH_AS(parse({"--train.steps"}), Contains("--train.steps needs a value: --train.steps=a whole number"),
                       UsageError);
  CHECK_THROWS_WITH_AS(parse({"--out", "--resume"}), Contains("--out needs a value"), UsageError);
  CHECK_THROWS_WITH_AS(parse({"--config"}), Contains("--config needs a value: --config=FILE"), UsageError);
  CHECK_THROWS_WITH_AS(parse({"data.txt"}), Contains("'data.txt' is no option; options are written --key=value"),
                       UsageError);
  Options options = make_options();
  options.allow_positional("TEXT");
  CHECK(options.parse(Arguments{"one", "--seed=2", "-"}) == Request::run);
  CHECK(options.positional() == Arguments{"one", "-"});
}

TEST_CASE("the command line wins over the config file, wherever it stands") {
  const TemporaryFolder folder;
  const std::string file = folder.file(
      "my config.json", "\xEF\xBB\xBF{\n // comment\n \"train\": {\"steps\": 7, \"lr\": 0.5}, \"seed\": 3}");
  for (const Arguments& arguments :
       {Arguments{"--config=" + file, "--train.steps=9"}, Arguments{"--train.steps=9", "--config", file}}) {
    const Options options = parsed(arguments);
    CHECK(options.integer("train.steps") == 9);
    CHECK(options.real("train.lr") == 0.5);
    CHECK(options.integer("seed") == 3);
    CHECK(options.given("train.lr"));
  }
  const std::string second = folder.file("second.json", R"({"seed": 4})");
  CHECK(parsed({"--config=" + file, "--config=" + second}).integer("seed") == 4);
}

TEST_CASE("a config that is no config is one clear error") {
  const TemporaryFolder folder;
  const auto parse = [&](const std::string& path) { make_options().parse(Arguments{"--config=" + path}); };
  const auto config = [&](const char* bytes) { return folder.file("c.json", bytes); };
  CHECK_THROWS_WITH_AS(parse(config("[]")), Contains("a config is an object {\"key\": value, ...}, this is an array"),
                       UsageError);
  CHECK_THROWS_WITH_AS(parse(config("null")), Contains("this is null"), UsageError);
  CHECK_THROWS_WITH_AS(parse(config("")), Contains("c.json: the file is empty"), UsageError);
  CHECK_THROWS_WITH_AS(parse(config("{\"seed\": ")), Contains("c.json:1:9: "), UsageError);
  CHECK_THROWS_WITH_AS(parse(config("{\"train.lr\": 1e999}")), Contains("number overflow"), UsageError);
  CHECK_THROWS_WITH_AS(parse(config(R"({"program": "a\nb"})")), Contains(R"(a config of '"a\nb"', not of)"),
                       UsageError);
  CHECK_THROWS_WITH_AS(parse(config(R"({"format_version": "\n"})")), Contains(R"(format_version '"\n"' is not known)"),
                       UsageError);
  CHECK_THROWS_WITH_AS(parse(config("{\"seed\": 1,}")), Contains("remove it"), UsageError);
  CHECK_THROWS_WITH_AS(parse(folder.path().string()), Contains("it is a folder, not a file"), UsageError);
  CHECK_THROWS_WITH_AS(parse("missing.json"), Contains("--config: cannot read 'missing.json': no such file"),
                       UsageError);
}

TEST_CASE("help, version and print-config are requests") {
  Options options = make_options();
  CHECK(options.parse(Arguments{"--no.such.key", "--help"}) == Request::help);
  CHECK(options.parse(Arguments{"-h"}) == Request::help);
  CHECK(options.parse(Arguments{"--version"}) == Request::version);
  CHECK(options.parse(Arguments{"--print-config", "--seed=5"}) == Request::print_config);
  CHECK(options.integer("seed") == 5);
  CHECK(options.version() == std::string("train_lm (flexformer) ") + program_version);
  const char* arguments[] = {"train_lm", "--seed=6"};
  CHECK(options.parse(2, arguments) == Request::run);
  CHECK(options.integer("seed") == 6);
}

TEST_CASE("help lists every key with default, unit, range and meaning, by section") {
  const std::string help = make_options().help();
  for (const char* part :
       {"\ngeneral\n", "\nmodel\n", "\ntrain\n", "--config=FILE",
        "--train.steps=N\n      optimiser steps [default 1000 steps; 0..1000000000]",
        "--train.lr=X\n      peak learning rate [default 3e-04; >0..10]", "probability [default 0.1; 0..<1]",
        "--resume=true|false",
        "--model.attention=softmax|flexformer_s|linear\n      kind of attention [default flexformer_s]"})
    CHECK_MESSAGE(help.find(part) != std::string::npos, part, " is missing in:\n", help);
  const Options options = make_options();
  for (const Key& key : options.keys()) CHECK(help.find("--" + key.name + "=") != std::string::npos);
}

TEST_CASE("the effective config says everything and rebuilds the same options") {
  const Options options = parsed({"--train.lr=0.1", "--model.attention=linear", "--out=caf\xE9"});
  const Json config = options.effective();
  CHECK(config.begin().key() == "format_version");
  CHECK(config["format_version"] == config_format_version);
  CHECK(config["train"]["lr"] == 0.1);
  CHECK(config["model"]["attention"] == "linear");
  CHECK(config["resume"] == false);
  Options rebuilt = parsed({"--seed=99"});
  rebuilt.load_effective(parse_json(dump_json(parsed({"--train.lr=0.1"}).effective()), "x"), "config.json");
  CHECK(rebuilt.effective() == parsed({"--train.lr=0.1"}).effective());
  CHECK_FALSE(rebuilt.given("seed"));
  CHECK_THROWS_WITH_AS(rebuilt.load_effective(Json::object(), "r/config.json"),
                       Contains("r/config.json: the key 'format_version' is missing"), Error);
  CHECK_THROWS_WITH_AS(rebuilt.load_effective(Json{{"format_version", 1}, {"new.key", 1}}, "r/config.json"),
                       Contains("r/config.json: unknown key 'new.key'"), UsageError);
}

TEST_CASE("a program may settle a value, within the limits") {
  Options options = make_options();
  options.set("model.layers", std::int64_t{8});
  CHECK(options.integer("model.layers") == 8);
  CHECK_FALSE(options.given("model.layers"));
  CHECK_THROWS_WITH_AS(options.set("model.layers", std::int64_t{0}), Contains("model.layers = '0' is not allowed"),
                       UsageError);
}

TEST_CASE("mistakes of the program itself are logic errors") {
  Options options = make_options();
  CHECK_THROWS_WITH_AS(options.integer("train.step"), Contains("option train.step is not declared"), std::logic_error);
  CHECK_THROWS_WITH_AS(options.integer("train.lr"), Contains("option train.lr has another type"), std::logic_error);
  CHECK_THROWS_WITH_AS(options.add_flag("resume", true, ""), Contains("resume is declared twice"), std::logic_error);
  CHECK(options.has("train.lr"));
  CHECK_FALSE(options.has("train.step"));
}

TEST_CASE("a locale with a decimal comma changes nothing") {
  const std::locale old = std::locale::global(std::locale(std::locale::classic(), new CommaPoint));
  const Options options = parsed({"--train.lr=0.5", "--train.steps=12345"});
  const std::string config = dump_json(options.effective());
  const std::string help = options.help();
  std::locale::global(old);
  CHECK(options.real("train.lr") == 0.5);
  CHECK(config.find("\"lr\":0.5") != std::string::npos);
  CHECK(config.find("\"steps\":12345") != std::string::npos);
  CHECK(help.find("0..1000000000") != std::string::npos);
}

TEST_CASE("the nearest candidate is found by edit distance") {
  CHECK(nearest("learning_rat", {"lr", "learning_rate", "rate"}) == "learning_rate");
  CHECK(nearest("DIM", {"model.dim", "model.ffn"}) == "model.dim");
  CHECK(nearest("b", {"a", "c"}) == "a");
  CHECK(nearest("x", {}).empty());
  CHECK(nearest("layers" + std::string(5'000'000, 's'), {"model.layers"}) == "model.layers");
}

TEST_CASE("a ~ at the beginning of a path is the home folder, in files and on the command line; elsewhere it stays") {
  const std::string home = std::getenv("HOME") ? std::getenv("HOME") : "";
  Options options("program", "");
  options.add_path("out", "", "a folder");
  options.add_text("prompt", "", "a text");
  const auto out = [&](const std::string& given) {
    options.parse({"--out=" + given, "--prompt=" + given});
    CHECK(options.text("prompt") == given);
    return options.text("out");
  };
  setenv("HOME", "/home/me", 1);
  CHECK(out("~/runs/x") == "/home/me/runs/x");
  CHECK(out("~") == "/home/me");
  CHECK(out("~root/x").find('~') == std::string::npos);
  for (const char* same : {"", "a/~/b", "./~", "~nobody-of-this-name/x"}) CHECK(out(same) == same);
  options.load_config(parse_json(R"({"out": "~/y"})", "c.json"), "c.json");
  CHECK(options.text("out") == "/home/me/y");
  home.empty() ? unsetenv("HOME") : setenv("HOME", home.c_str(), 1);
}
