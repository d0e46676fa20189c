// The pages made of run folders: what is shown, that nothing in a label or a text can break a page, that a page needs
// nothing but itself, and what is said of damaged files.
#include <doctest/doctest.h>

#include "tests/train/training/small_runs.h"
#include "tests/train/util/html_check.h"
#include "train/reports/html.h"
#include "train/reports/report.h"
#include "train/reports/report_parts.h"

using namespace flexformer;
using namespace flexformer::tests;
using doctest::Contains;
namespace fs = std::filesystem;

namespace {

const std::string kLanguageConfig =
    R"({"format_version":1,"program":"train_lm","out":"","train":{"steps":100,"lr":0.001},"model":{"dim":64}})";

// A run folder, made by hand.
fs::path run_folder(const TemporaryFolder& home, const std::string& name, const std::string& metrics,
                    const std::string& config = kLanguageConfig, const std::string& summary = "") {
  fs::create_directories(home.path() / name);
  home.file(name + "/config.json", config);
  home.file(name + "/metrics.jsonl", metrics);
  if (!summary.empty()) home.file(name + "/summary.json", summary);
  return home.path() / name;
}

const std::string kNasty =
    std::string("<script>alert('x')</script> \"q\" & \xff") + '\0' + "\x1b[0m \xed\xa0\x80 é\r\n";

}  // namespace

TEST_CASE("the check of pages finds what it is there for") {
  const auto fault_of = [](const std::string& body) { return fault(html_page("t", body)); };
  CHECK(fault_of("<p class=\"a\">x<br/></p>\n") == "");
  CHECK(contains(fault_of("<p><b>x</p></b>"), "wrong end"));
  CHECK(contains(fault_of("<p>x"), "wrong end"));
  CHECK(contains(fault_of("1 < 2"), "a bare <"));
  CHECK(contains(fault_of("<p class=a>x</p>"), "bad attribute"));
  CHECK(contains(fault_of("<img src=\"x\"/>"), "not by itself"));
  CHECK(contains(fault_of("<p onclick=\"x\">x</p>"), "not by itself"));
  CHECK(contains(fault_of("<style>a { background: url(x) }</style>"), "style fetches something"));
  CHECK(contains(fault_of("\xff"), "a forbidden character"));
  CHECK(contains(fault_of(std::string(1, '\0')), "a forbidden character"));
}

TEST_CASE("figures read like those the programs print") {
  CHECK(figure_text("seconds", 79.4) == "1 min 19 s");
  CHECK(figure_text("peak_rss_bytes", 63500000) == "64 MB");
  CHECK(figure_text("valid_accuracy", 0.958) == "95.80 %");
  CHECK(figure_text("params", 116584) == "116,584");
  CHECK(figure_text("tokens_per_second", 112819.4) == "112,819");
  CHECK(figure_text("valid_loss", 0.5188214) == "0.51882");
  CHECK(figure_text("valid_loss", "nan") == "nan");
  CHECK(setting_text(0.05000000074505806) == "0.05");  // the shortest that is the same as float
  CHECK(setting_text(true) == "true");
  CHECK(setting_text("a b") == "a b");
}

TEST_CASE(
    "a report shows a language model's curves, samples, figures, settings and commands, whatever bytes are in them") {
  const TemporaryFolder home;
  std::string metrics = R"({"step":0,"valid_loss":4.5,"valid_ppl":90.0,"valid_bits_per_byte":1.5,"sample":"first"})"
                        "\n";
  for (int i = 1; i <= 100; ++i)
    metrics += text(R"({"step":)", i, R"(,"tokens":)", 10 * i, R"(,"loss":)", i == 50 ? "\"nan\"" : "1.5",
                    R"(,"lr":0.001,"grad_norm":1.0,"tokens_per_second":1e5,"my_key":)", i, "}\n");
  metrics += dump_json({{"step", 100}, {"valid_loss", 1.25}, {"sample", kNasty}}) + "\n";
  const fs::path folder =
      run_folder(home, "it's <b>", metrics, kLanguageConfig,
                 R"({"program":"train_lm","threads":1,"device":"cpu","valid_loss":1.25,"params":1234})");
  const RunRecord run = read_run(folder);
  const std::string html = report_html(run);
  CHECK(fault(html) == "");
  CHECK(contains(html, "<h1>it&#39;s &lt;b&gt;<span class=\"state finished\">finished</span></h1>"));
  for (const char* title : {"Loss", "Perplexity", "Bits per byte", "Learning rate", "Gradient norm", "Speed", "my_key"})
    CHECK_MESSAGE(contains(html, text("<strong>", title, "</strong>")), title);
  CHECK(count(html, "<figure") == 7);
  CHECK(contains(html, "1 value of training is not drawn: nan at step 50."));
  CHECK(contains(html, "<pre>\n&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &quot;q&quot; &amp; \uFFFD"));
  CHECK(contains(html, "<summary>How it came to this: earlier samples</summary>"));
  CHECK(contains(html, "<td>params</td><td>1,234</td>"));
  CHECK(contains(html, "<strong>train.steps</strong>"));  // 100 is not the default
  CHECK(contains(html, "<td>train.lr</td><td>0.001</td>"));
  CHECK(contains(html, "cpu, 1 thread<"));
  CHECK(contains(html, escape("build/release/generate --run='" + home.path().string() + "/it'\\''s <b>'")));
  CHECK(contains(html, "--resume --train.steps=200"));
}

TEST_CASE("a report of a run that goes on says so and how far it is; one without any curve is a page too") {
  const TemporaryFolder home;
  const fs::path folder = run_folder(home, "run",
                                     R"({"step":40,"loss":1.0})"
                                     "\n"
                                     R"({"step":50,"lo)");
  const std::string html = report_html(read_run(folder), "running");
  CHECK(fault(html) == "");
  CHECK(contains(html, "<span class=\"state\">running</span>"));
  CHECK(contains(html, "<b>40</b><small>steps<br/>of 100 planned</small>"));
  CHECK_FALSE(contains(html, "<h2>Figures</h2>"));
  CHECK(contains(report_html(read_run(folder)), "not finished"));
  CHECK(fault(report_html(read_run(run_folder(home, "empty", "")))) == "");
}

TEST_CASE("a classifier's report has its confusion matrix and its figures per class") {
  const TemporaryFolder home;
  const std::string config = R"({"format_version":1,"program":"train_classifier"})";
  const fs::path folder = run_folder(home, "run",
                                     R"({"step":5,"valid_loss":0.5,"valid_accuracy":0.75,"confusion":[[8,2],[1,4]]})"
                                     "\n",
                                     config);
  home.file("run/labels.json", dump_json(Json::array({"<up>", Json::array({100, 255, 0})})));
  const std::string html = report_html(read_run(folder));
  CHECK(fault(html) == "");
  CHECK(contains(html, "<td>&lt;up&gt;</td><td>0.889</td><td>0.800</td><td>0.842</td><td>10</td>"));
  CHECK(contains(html, "<td>d\uFFFD\uFFFD</td><td>0.667</td><td>0.800</td><td>0.727</td><td>5</td>"));
  CHECK(contains(html,
                 "<td class=\"right\" style=\"--share:0.72\">8</td><td class=\"wrong\" style=\"--share:0.18\">2</td>"));
  CHECK(contains(html, "<b>75.00 %</b>"));
  CHECK(contains(html, "build/release/predict --run="));
  const std::string summary =
      R"({"program":"train_classifier","per_class":{"a<b":{"precision":0.5,"recall":1.0,"support":7}}})";
  const std::string many = report_html(read_run(run_folder(home, "many", "", config, summary)));
  CHECK(fault(many) == "");
  CHECK(contains(many, "<td>a&lt;b</td><td>0.500</td><td>1.000</td><td>0.667</td><td>7</td>"));
}

TEST_CASE("runs with different keys stand side by side; what one lacks is a dash, what all share is left out") {
  const TemporaryFolder home;
  const fs::path a = run_folder(home, "a",
                                R"({"step":1,"loss":2.0})"
                                "\n"
                                R"({"step":1,"valid_loss":2.5})"
                                "\n",
                                kLanguageConfig, R"({"program":"train_lm","valid_loss":2.5,"mine":1})");
  const fs::path b = run_folder(
      home, "b<i>",
      R"({"step":1,"loss":1.0})"
      "\n",
      R"({"format_version":1,"program":"train_lm","train":{"steps":200,"lr":0.001},"model":{"dim":64},"new":"<x>"})",
      R"({"program":"train_lm","valid_loss":1.5})");
  const std::string html = comparison_html({read_run(a), read_run(b)});
  CHECK(fault(html) == "");
  CHECK(contains(html, "<h1>Comparison of 2 runs</h1>"));
  CHECK(count(between(html, "<strong>Training loss</strong>", "</p>"), "<i class=") == 2);
  CHECK(count(between(html, "<strong>Validation loss</strong>", "</p>"), "<i class=") == 1);
  CHECK(contains(html, "<td>valid_loss</td><td>2.5</td><td><strong>1.5</strong></td>"));
  CHECK(contains(html, "<td>mine</td><td>1</td><td><span class=\"soft\">–</span></td>"));
  const std::string differences = html.substr(html.find("<h2>Settings that differ</h2>"));
  CHECK(contains(differences, "<td>train.steps</td><td><strong>100</strong></td><td><strong>200</strong></td>"));
  CHECK(contains(differences, "<td>new</td><td><span class=\"soft\">–</span></td><td>&lt;x&gt;</td>"));
  CHECK_FALSE(contains(differences, "train.lr"));
  const fs::path c = run_folder(home, "c",
                                R"({"step":7,"loss":2.0})"
                                "\n");
  const std::string equal = comparison_html({read_run(a), read_run(c)});
  CHECK(contains(equal, "None: all runs have the same settings."));
  CHECK(contains(equal, "/c has not finished: it stands at step 7"));
}

TEST_CASE("the best of several runs is bold only where the figures are of the same data and the same tokens") {
  const TemporaryFolder home;
  const char* const summary = R"({"program":"%","valid_loss":1.5,"valid_bits_per_byte":2.5})";
  int made = 0;
  const auto best = [&](const char* program, const std::string& tokenizer, const std::string& data) {
    std::string config = text(R"({"format_version":1,"program":")", program, R"(","data":{"train":")", data, R"("}})"),
                figures = summary;
    figures.replace(figures.find('%'), 1, program);
    if (made)
      figures[figures.find("1.5")] = '3', figures[figures.find("2.5")] = '4';  // the first run is the better one
    const std::string name = text("run", made++);
    const fs::path folder = run_folder(home, name, "{\"step\":1,\"loss\":1.0}\n", config, figures);
    home.file(name + "/tokenizer.json", tokenizer);
    return read_run(folder);
  };
  struct {
    const char *program, *tokenizer, *data;
    bool loss, bits;
  } const others[] = {{"train_lm", "a", "./x", true, true},
                      {"train_lm", "b", "x", false, true},
                      {"train_lm", "a", "y", false, false},
                      {"train_classifier", "b", "x", false, false}};
  const RunRecord first = best("train_lm", "a", "x");
  for (const auto& other : others) {
    const std::string html = comparison_html({first, best(other.program, other.tokenizer, other.data)});
    CAPTURE(html);
    CHECK(fault(html) == "");
    CHECK(contains(html, "<td><strong>1.5</strong></td>") == other.loss);
    CHECK(contains(html, "<td><strong>2.5</strong></td>") == other.bits);
  }
  CHECK(contains(comparison_html({best("train_classifier", "a", "x"), best("train_classifier", "b", "x")}),
                 "<td><strong>3.5</strong></td>"));  // per row, whatever its tokens
}

TEST_CASE("words in tables stay whole on a narrow page, and long paths break behind slashes") {
  CHECK_FALSE(contains(between(html_page("", ""), "th, td {", "}"), "anywhere"));
  CHECK(escape_path("a/b<c") == "a/<wbr/>b&lt;c");
}

TEST_CASE("what is missing or damaged in a run folder is one error with file and line") {
  const TemporaryFolder home;
  const auto check = [&](const std::string& metrics, const std::string& said) {
    const fs::path folder = run_folder(home, "bad", metrics);
    CHECK_THROWS_WITH_AS(read_run(folder), Contains(said.c_str()), Error);
  };
  const std::string good = R"({"step":3,"loss":1.0})"
                           "\n";
  check(good + "{\"step\":4,\"loss\":}\n", "/bad/metrics.jsonl:2:18: ");
  check(good + "\n" + good, "/bad/metrics.jsonl:2: the file is empty");
  check(good + "[]\n", "metrics.jsonl:2: expected an object");
  check("{\"loss\":1.0}\n", "metrics.jsonl:1: the key 'step' is missing");
  check("{\"step\":1.5}\n", "metrics.jsonl:1: the key 'step' has a value of the wrong type");
  check("{\"step\":1,\"loss\":\"low\"}\n", "metrics.jsonl:1: loss: expected a number");
  check("{\"step\":1,\"sample\":7}\n", "metrics.jsonl:1: the key 'sample' has a value of the wrong type");
  check(good + "{\"step\":2,\"loss\":1.0}\n", "metrics.jsonl:2: step 2 comes after step 3");
  for (const char* confusion : {"[]", "7", "[[1]", "[[1,2]]", "[[1,2],[3]]", "[[1,-2],[3,4]]", "[[1,0.5],[3,4]]",
                                "[[1,18446744073709551615],[3,4]]"})
    if (std::string(confusion) != "[[1]")
      check(text("{\"step\":1,\"confusion\":", confusion, "}\n"), "metrics.jsonl:1: \"confusion\" is no square table");
  check("{\"step\":1,\"confusion\":[[1]\n", "metrics.jsonl:1:");
  std::string zeros = "0";  // a table of as many rows as these would take 8 TB
  for (int i = 0; i < 20; ++i) zeros += "," + zeros;
  check("{\"step\":1,\"confusion\":[" + zeros + "]}\n", "metrics.jsonl:1: \"confusion\" is no square table");
  std::string many = "\"a\":1";
  for (int i = 0; i < 1000; ++i) many += text(",\"a", i, "\":1");
  check("{\"step\":1," + many + "}\n", "metrics.jsonl:1: more than 1000 different keys");
  CHECK_THROWS_WITH_AS(read_run(run_folder(home, "many", "", "{\"program\":\"train_lm\",\"x\":{" + many + "}}")),
                       Contains("config.json: more than 1000 different keys"), Error);
  CHECK_THROWS_WITH_AS(
      read_run(run_folder(home, "many", "", kLanguageConfig, "{\"program\":\"train_lm\"," + many + "}")),
      Contains("summary.json: more than 1000 different keys"), Error);
  check("{\"step\":9223372036854775807}\n", "metrics.jsonl:1: step 9223372036854775807 is more than any run has");

  CHECK_THROWS_WITH_AS(read_run(home.path() / "none"), Contains("/none: there is no such folder"), Error);
  const fs::path folder = run_folder(home, "run", "");
  fs::remove(folder / "metrics.jsonl");
  CHECK_THROWS_WITH_AS(read_run(folder), Contains("/run: there is no metrics.jsonl in it; is this the out=DIR"), Error);
  fs::remove(folder / "config.json");
  CHECK_THROWS_WITH_AS(read_run(folder), Contains("there is no config.json in it"), Error);
  CHECK_THROWS_WITH_AS(read_run(run_folder(home, "run", "", "{}")), Contains("config.json: the key 'program'"), Error);
  CHECK_THROWS_WITH_AS(read_run(run_folder(home, "run", "", kLanguageConfig, "{")), Contains("summary.json:1:1"),
                       Error);
  run_folder(home, "two", "{\"step\":1,\"confusion\":[[1,2],[3,4]]}\n");
  home.file("two/labels.json", R"(["a","b","c"])");
  CHECK_THROWS_WITH_AS(read_run(home.path() / "two"), Contains("labels.json has 3 classes, the last \"confusion\""),
                       Error);
}

TEST_CASE("a training writes its report at its validations, takes an old one away, and does not end for want of one") {
  const TemporaryFolder home;
  const Arguments arguments = {"--train.steps=6", "--train.eval_every=2"};
  SmallLanguageRun run(home.path() / "run", small_text(), arguments);
  REQUIRE(run.train(5) == -1);
  const fs::path report = run.folder.file("report.html");
  const std::string running = read_file(report);
  CHECK(fault(running) == "");
  CHECK(contains(running, "<span class=\"state\">running</span>"));
  REQUIRE(run.train() == 0);
  const Captured captured;
  Console console;
  write_report(run.folder, console);
  CHECK(contains(read_file(report), "<span class=\"state finished\">finished</span>"));
  run.folder.rewind(2);
  CHECK_FALSE(fs::exists(report));

  SmallLanguageRun blocked(home.path() / "blocked", small_text(), arguments);
  fs::create_directories(blocked.folder.file("report.html") / "in the way");
  blocked.folder.write_config(blocked.options);
  blocked.folder.log({{"step", 0}});
  write_report(blocked.folder, console);
  CHECK(contains(captured.text(), "warning: report.html was not written: cannot replace "));
}

TEST_CASE("a classifier logs its confusion matrix, a language model its samples if it is given a way to draw them") {
  const TemporaryFolder home;
  SmallClassifierRun classifier(home.path() / "cls", home.file("table.tsv", small_table()), {"--train.steps=3"});
  REQUIRE(classifier.train() == 0);
  const RunRecord run = read_run(classifier.folder.path());
  REQUIRE(run.confusion);
  CHECK(run.confusion->total() == Index(classifier.data.valid_texts.rows.size()));
  CHECK(run.confusion->accuracy() == classifier.summary.at("valid_accuracy").get<double>());
  CHECK(fault(report_html(run)) == "");

  SmallLanguageRun language(home.path() / "lm", small_text());
  LanguageTask task(*language.model, language.data, window_options(language.options, false),
                    [] { return std::string("drawn"); });
  CHECK(task.evaluate({}).log.at("sample") == "drawn");
  CHECK_FALSE(language.task->evaluate({}).log.contains("sample"));
}
