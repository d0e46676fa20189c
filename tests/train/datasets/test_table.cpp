// Tables: what users put into files, read exactly or refused with the line.
#include <doctest/doctest.h>

#include <cmath>

#include "tensor/error.h"
#include "tests/train/datasets/shown_rows.h"
#include "tests/train/util/temporary_folder.h"
#include "train/datasets/labels.h"
#include "train/datasets/table.h"

using namespace flexformer;
using doctest::Contains;
using tests::Rows, tests::shown;

namespace {

Table tsv(std::string_view bytes, const TableOptions& options = {}) { return parse_table(bytes, "t.tsv", options); }
Table csv(std::string_view bytes, const TableOptions& options = {}) { return parse_table(bytes, "t.csv", options); }

}  // namespace

TEST_CASE("quoted csv fields hold commas, line breaks and doubled quotes; records are counted, not lines") {
  const Table table = csv(
      "label,text\npos,\"good, really good\"\nneg,\"bad\nover two lines\"\npos,\"he said \"\"yes\"\"\"\nneg,plain\n");
  CHECK(shown(table) ==
        Rows{"pos: good, really good", "neg: bad\nover two lines", "pos: he said \"yes\"", "neg: plain"});
  CHECK(table.rows[3].line == 6);
  CHECK(table.columns == Rows{"label", "text"});
  CHECK(shown(csv("a,\"x\"\r\nb,5\" disk\r\n")) == Rows{"a: x", "b: 5\" disk"});
  CHECK(shown(csv("a,\"\"\nb,\nc,x", {.label = "1"})) == Rows{"a: ", "b: ", "c: x"});
}

TEST_CASE("damaged quoting is named with its line") {
  CHECK_THROWS_WITH_AS(csv("a,b\nc,\"d\ne,f\n"), Contains("t.csv:2: the quote that opens here is never closed"), Error);
  CHECK_THROWS_WITH_AS(
      csv("a,b\nc,\"d\"e\n"),
      Contains("t.csv:2: after the closing quote a comma or the end of the line must follow, found 'e'"), Error);
}

TEST_CASE("tsv has no quoting, takes CR LF, and skips and counts empty lines") {
  const Table table = tsv("pos\tsay \"hi\r\n\r\n   \nneg\t\"bad\"\r\n");
  CHECK(shown(table) == Rows{"pos: say \"hi", "neg: \"bad\""});
  CHECK(table.empty_lines == 2);
  CHECK(table.rows[1].line == 4);
}

TEST_CASE("empty and blank texts are kept and counted") {
  const Table table = tsv("label\ttext\npos\t\nneg\t   \npos\tgood\n\nneg\tbad\n");
  CHECK(table.rows.size() == 4);
  CHECK(table.empty_texts == 2);
  CHECK(
      table.description() ==
      "tsv, 4 rows; line 1 is a header: it names label and text; text: column 2 'text'; label: column 1 'label'; empty "
      "lines skipped: 1; empty texts kept: 2");
}

TEST_CASE("a byte order mark is no part of the first column's name") {
  const TemporaryFolder folder;
  const Table table = read_table(folder.file("a b.tsv", "\xEF\xBB\xBFlabel\ttext\npos\tgood\n"), {.label = "label"});
  CHECK(table.columns[0] == "label");
  CHECK(shown(table) == Rows{"pos: good"});
}

TEST_CASE("a ragged row is named with its line and both counts") {
  CHECK_THROWS_WITH_AS(csv("label,text\npos,fine\nneg\n"),
                       Contains("t.csv:3: 1 field, expected 2 as in line 1; quote a text that contains commas"), Error);
  CHECK_THROWS_WITH_AS(csv("label,text\npos,too,many,fields\n"), Contains("t.csv:2: 4 fields, expected 2"), Error);
  CHECK_THROWS_WITH_AS(tsv("a\tb\n\nc\td\te\n"), Contains("t.tsv:3: 3 fields, expected 2 as in line 1; replace tabs"),
                       Error);
}

TEST_CASE("a first line that alone has another number of fields is taken for a title or a broken header") {
  CHECK_THROWS_WITH_AS(csv("An export,2023\na,b,c\nd,e,f\ng,h,i\n"),
                       Contains("t.csv:1: 2 fields, but all lines below have 3; mend the header, or delete this line"),
                       Error);
  CHECK_THROWS_WITH_AS(csv("a;b\nc;d\ne;f;g\n"),
                       Contains("t.csv:3: 3 fields, expected 2 as in line 1; quote a text that "
                                "contains semicolons"),
                       Error);
}

TEST_CASE("the separator is the one that stands equally often in every row") {
  struct Case {
    std::string name, bytes;
    Rows rows;
    std::string note;
  };
  const Case cases[] = {
      {"t.csv",
       "label\ttext\npos\tgood\n",
       {"pos: good"},
       "separated by tabs, which stand equally often in every row (line 1"},
      {"t.csv", "pos\tgood, really\nneg\tbad, too\n", {"pos: good, really", "neg: bad, too"}, "tabs"},
      {"t.tsv", "label,text\npos,good\n", {"pos: good"}, "commas"},
      {"t.csv", "label;text\npos;good, yes\nneg;bad\n", {"pos: good, yes", "neg: bad"}, "semicolons"},
      {"t.csv", "label|text\npos|\"a | b\"\n", {"pos: a | b"}, "bars"},
      {"t.csv",
       "good, he said;pos\nbad, he said;neg\n",
       {"pos: good, he said", "neg: bad, he said"},
       "commas do too (--data.separator=comma)"},
      {"t.csv", "a film;3,5\nb film;2,5\n", {"3,5: a film", "2,5: b film"}, "semicolons"},
      {"t.csv", "a film,pos\nb; c,neg\n", {"pos: a film", "neg: b; c"}, ""},
      {"t.csv",
       "sep=;\r\npos;a film\r\nneg;b film\r\n",
       {"pos: a film", "neg: b film"},
       "line 1, 'sep=;', is no row: it names the separator"},
      {"t.csv", "\"sep=|\"\npos|a;b\nneg|c;d\n", {"pos: a;b", "neg: c;d"}, "names the separator"},
      {"t.csv", "label,text\rpos,a\rneg,b", {"pos: a", "neg: b"}, ""},
      {"t.txt", "pos\tgood\nneg\tbad\n", {"pos: good", "neg: bad"}, ""},
  };
  for (const Case& c : cases) {
    CAPTURE(c.bytes);
    const Table table = parse_table(c.bytes, c.name, {});
    CHECK(shown(table) == c.rows);
    const std::string notes = table.notes.empty() ? "" : table.notes.front();
    CHECK(notes.find(c.note) != std::string::npos);
  }
  CHECK(shown(csv("a, b|pos\nc film|neg\n", {.separator = "bar"})) == Rows{"pos: a, b", "neg: c film"});
  CHECK(shown(csv("label\ttext\npos\tgood\n", {.format = "tsv"})) == Rows{"pos: good"});
  CHECK(parse_table("pos,good\nneg,bad\n", "data.txt", {}).format == "csv");
  CHECK_THROWS_WITH_AS(csv("pos good\n"), Contains("t.csv:1: only one column, read as csv: 'pos good'; a table of"),
                       Error);
  CHECK_THROWS_WITH_AS(csv("pos;good\n", {.separator = "comma"}),
                       Contains("separated by semicolons; give --data.format=csv --data.separator=semicolon"), Error);
  CHECK_THROWS_WITH_AS(csv("a,b\n", {.format = "tsv", .separator = "comma"}), Contains("contradicts data.format=tsv"),
                       Error);
  CHECK_THROWS_WITH_AS(csv("a,b\n", {.format = "xls"}), Contains("unknown table format 'xls'; there are auto, tsv"),
                       Error);
}

TEST_CASE("quotes of a tsv file are its writing where they cannot be text") {
  CHECK(shown(tsv("text\tlabel\n\"a\tb\"\tpos\nc\tneg\n")) == Rows{"pos: a\tb", "neg: c"});
  CHECK(shown(tsv("text\tlabel\n\"a\nb\"\tpos\nc\tneg\n")) == Rows{"pos: a\nb", "neg: c"});
  CHECK(shown(tsv("text\tlabel\n\"say \"\"a\"\"\"\tpos\nc\tneg\n")) == Rows{"pos: say \"a\"", "neg: c"});
  CHECK(shown(tsv("\"text\"\t\"label\"\n\"a\" he said\tpos\n\"c\"\tneg\n")) ==
        Rows{"pos: \"a\" he said", "neg: \"c\""});
}

TEST_CASE("objects of JSON are rows, whose keys are the columns") {
  const Rows rows = {"pos: a", "2: b"};
  for (const std::string bytes :
       {"{\"text\": \"a\", \"label\": \"pos\"}\n\n{\"label\": 2, \"text\": \"b\"}\n",
        "[{\"text\": \"a\", \"label\": \"pos\"},\n {\"text\": \"b\", \"label\": 2}]",
        "{\"data\": [{\"text\": \"a\", \"label\": \"pos\"}, {\"text\": \"b\", \"label\": 2}]}",
        "{\"text\": [\"a\", \"b\"], \"label\": [\"pos\", 2]}",
        "{\"text\": {\"0\": \"a\", \"1\": \"b\"}, \"label\": {\"0\": \"pos\", \"1\": 2}}"}) {
    CAPTURE(bytes);
    CHECK(shown(parse_table(bytes, "t.txt", {})) == rows);
  }
  const auto refused = [](const std::string& bytes, const char* reason) {
    CHECK_THROWS_WITH_AS(parse_table(bytes, "t.jsonl", {}), Contains(reason), Error);
  };
  const std::string row = "{\"text\": \"a\", \"label\": \"pos\"}\n";
  refused(row + "{\"text\": \"b\", \"label\": null}", "t.jsonl:2: the label is empty");
  refused(row + "{\"text\": \"b\"}", "t.jsonl:2: the label is empty");
  refused(row + "{\"text\": [\"b\"], \"label\": 1}",
          "t.jsonl:2: the text is '[\"b\"]', but must be one string or number");
  refused(row + "{\"text\": \"b\", \"label\": NaN}", "t.jsonl:2:");
  refused(row + "{\"text\": \"b\"", "t.jsonl:2: the object that starts here is not closed");
  refused("[" + row, "t.jsonl:1: the array that opens here is not closed");
  refused(row + "text", "t.jsonl:2: expected an object {\"text\": ..., \"label\": ...}, found 'text'");
  refused("[\"a\", \"pos\"]\n", "t.jsonl:1: expected an object");
}

TEST_CASE("fastText's lines have their label in front, or anywhere") {
  CHECK(shown(parse_table("__label__pos a b\n__label__neg\tc\n", "t.txt", {})) == Rows{"pos: a b", "neg: c"});
  CHECK(shown(parse_table("a __label__pos b\n", "t.txt", {.format = "fasttext"})) == Rows{"pos: a b"});
  CHECK_THROWS_WITH_AS(parse_table("__label__a b\n__label__b __label__c d\n", "t.txt", {}),
                       Contains("t.txt:2: two labels, 'b' and 'c', but a text has one label here"), Error);
  CHECK_THROWS_WITH_AS(parse_table("no label\n", "t.txt", {.format = "fasttext"}),
                       Contains("t.txt:1: the label is empty"), Error);
}

TEST_CASE("line 1 is a header if its label occurs nowhere else, and the same header again is left out") {
  const Table table = csv("verdict,words\nyes,aa\nno,bb\nverdict,words\nyes,cc\nno,dd\n");
  CHECK(shown(table) == Rows{"yes: aa", "no: bb", "yes: cc", "no: dd"});
  const Table named = csv("label,text\nyes,aa\nno,bb\nlabel,text\nyes,cc\nlabel,text\n");
  CHECK(shown(named) == Rows{"yes: aa", "no: bb", "yes: cc"});
  CHECK(named.notes.front() == "the same header again, left out: 2 (the first in line 4)");
  const std::string rows = "yes,aa\nno,bb\nyes,cc\nno,dd\n";
  CHECK(csv("verdict,words\n" + rows).header_reason.starts_with("line 1 is a header: 'verdict' occurs nowhere else"));
  CHECK(csv("maybe,zz\n" + rows, {.known_labels = {"maybe", "no"}}).header_reason ==
        "no header: line 1 holds a label of the training data");
  CHECK(csv("verdict,words\n" + rows + "so,ee\nso,ff\nwell,gg\n").header_reason.find("so it may be a header") !=
        std::string::npos);
  CHECK(shown(csv("v1,v2,,\nyes,aa,,\nno,bb,,\nyes,cc,,\nno,dd,,\n")).size() == 4);
  CHECK(shown(csv(",utterance,y\n0,aa,1\n1,bb,2\n2,cc,1\n")) == Rows{"1: aa", "2: bb", "1: cc"});
}

TEST_CASE("labels of training rows: equal numbers, missing values, decimal commas and look-alikes are told") {
  const auto settled = [](const std::string& labels, const std::string& task = "auto") {
    std::string bytes = "label;text\n";
    for (std::size_t at = 0; at < labels.size(); at = std::min(labels.find(' ', at), labels.size()) + 1)
      bytes += labels.substr(at, labels.find(' ', at) - at) + ";t\n";
    Table table = parse_table(bytes, "t.csv", {.header = "true"});
    settle_labels(table, task);
    return table;
  };
  const Table numbers = settled("0 1 1.0 +1 01");
  CHECK(LabelMap::of(numbers).list() == "'0', '1'");
  CHECK(numbers.notes.back().find("'1.0' (1 row, the first in line 4) is '1'") != std::string::npos);
  CHECK(LabelMap::of(settled("0.0 1.0")).list() == "'0.0', '1.0'");
  CHECK(label_ids(settled("0 1 1"), LabelMap::of(settled("0.0 1.0"))) == std::vector<std::int32_t>{0, 1, 1});
  const auto refused = [&](const std::string& labels, const char* reason, const std::string& task = "auto") {
    CAPTURE(labels);
    CHECK_THROWS_WITH_AS(settled(labels, task), Contains(reason), Error);
  };
  refused("1.5 2.5 NA 3.5 4.5", "t.csv:4: the label 'NA' is a missing value, but 4 of 5 labels are numbers");
  refused("1.5 2.5 3.5 4.5 null", "t.csv:6: the label 'null' is a missing value");
  refused("1.5 2.5 3.5 4.5 bad", "t.csv:6: the label 'bad' is not a number");
  refused("1 2 NaN 3 4", "t.csv:4: the label 'NaN' is a missing value");
  refused("4,91 2,5 3,5", "t.csv:2: the label '4,91' has a decimal comma; write 4.91");
  refused("1.5 2,5 3.5 4.5", "t.csv:3: the label '2,5' has a decimal comma");
  refused("1 2 3 4 five", "'five' is not a number", "regression");
  CHECK(settled("1 2 3 4 five").warnings.empty());
  CHECK(settled("1.5 2.5 NA 3.5 4.5", "classification").warnings.size() == 1);
  CHECK(settled("good bad NaN good").warnings.front().starts_with("t.csv:4: the label 'NaN' of 1 row is a class"));
  for (const std::string twin : {"Ham",
                                 "h\xC2\xAD"
                                 "am",
                                 "\xC2\xA0ham", "ham\xE2\x80\x8B",
                                 "\xEF\xBD\x88"
                                 "am"}) {
    const Table alike = settled("ham spam ham " + twin);
    REQUIRE(alike.warnings.size() == 1);
    CHECK(alike.warnings[0].find("'ham' (2 rows, the first in line 2)") != std::string::npos);
  }
}

TEST_CASE("the header is recognised by names, by the options, or by numbers below a word") {
  CHECK(shown(csv("label,text\n0,aaa\n1,bbb\n")) == Rows{"0: aaa", "1: bbb"});
  CHECK(shown(csv("Text,Label\naaa,0\nbbb,1\n")) == Rows{"0: aaa", "1: bbb"});
  CHECK(shown(csv("0,aaa\n1,bbb\n0,aab\n1,bba\n")).size() == 4);
  CHECK(shown(csv("aaa,0\nbbb,1\naab,0\nbba,1\n")) == Rows{"0: aaa", "1: bbb", "0: aab", "1: bba"});
  const Table named = csv("verdict,words\nyes,aaa\nno,bbb\n", {.label = "verdict"});
  CHECK(shown(named) == Rows{"yes: aaa", "no: bbb"});
  CHECK(named.header_reason == "line 1 is a header: it holds the asked name 'verdict'");
  const Table numbers = csv("what,is_good\naaa,0\nbbb,1\nccc,1\n", {.label = "2"});
  CHECK(numbers.header_reason == "line 1 is a header: column 2 holds numbers in every row but this one");
  CHECK(shown(numbers).size() == 3);
  CHECK(csv("yes,aaa\nno,bbb\n").header_reason ==
        "no header: line 1 looks like data (--data.header=true makes it one)");
}

TEST_CASE("the header can be forced on and off") {
  CHECK(shown(csv("yes,aaa\nno,bbb\n", {.header = "true", .label = "1"})) == Rows{"no: bbb"});
  CHECK(shown(csv("label,text\nno,bbb\n", {.header = "false", .label = "1"})) == Rows{"label: text", "no: bbb"});
  CHECK_THROWS_WITH_AS(csv("a,b\n", {.header = "maybe"}),
                       Contains("data.header = 'maybe' is not allowed; it takes auto"), Error);
  CHECK_THROWS_WITH_AS(csv("label,text\n"), Contains("no rows below the header (line 1 is a header"), Error);
  CHECK_THROWS_WITH_AS(csv("\n\n"), Contains("t.csv: no rows in this file"), Error);
}

TEST_CASE("columns are found by name or number, and a wrong one lists what there is") {
  const char* cola = "gj04\t1\tok\tThe sailors rode.\ngj04\t0\t*\tThe sailors rides.\n";
  CHECK(shown(tsv(cola, {.text = "4", .label = "2"})) == Rows{"1: The sailors rode.", "0: The sailors rides."});
  CHECK_THROWS_WITH_AS(tsv(cola),
                       Contains("which column is the text? Give its name or number, --data.text=N; the columns are 1 "
                                "'gj04', 2 '1', 3 'ok', 4 'The sailors rode.' in line 1"),
                       Error);
  CHECK_THROWS_WITH_AS(tsv(cola, {.text = "4"}), Contains("which column is the label?"), Error);
  CHECK_THROWS_WITH_AS(tsv(cola, {.text = "5", .label = "2"}), Contains("there is no column '5' for --data.text"),
                       Error);
  CHECK_THROWS_WITH_AS(tsv("label\ttext\na\tb\n", {.label = "class"}),
                       Contains("there is no column 'class' for --data.label; the columns are 1 'label', 2 'text'"),
                       Error);
  CHECK_THROWS_WITH_AS(tsv(cola, {.text = "2", .label = "2"}), Contains("column 2 cannot be two things at once"),
                       Error);
  std::string wide = "x";
  for (int i = 0; i < 1000; ++i) wide += "\tx";
  CHECK_THROWS_WITH_AS(tsv(wide.c_str(), {.text = "a"}), Contains(", 30 'x' and 971 more in line 1"), Error);
  CHECK(shown(tsv("id\tlabel\ttext\n7_1\t0\tbad film\n")) == Rows{"0: bad film"});
  CHECK(shown(tsv("Source\tTarget\n( [MAX 2 9 ] )\t9\n")) == Rows{"9: ( [MAX 2 9 ] )"});
}

TEST_CASE("pairs of texts are found by their names or numbers") {
  const char* rte = "index\tsentence1\tsentence2\tlabel\n0\tIt \"rains.\tIt is wet.\tentailment\n";
  CHECK(shown(tsv(rte)) == Rows{"entailment: It \"rains. + It is wet."});
  CHECK(shown(tsv(rte, {.text = "sentence2"})) == Rows{"entailment: It is wet."});
  CHECK(shown(tsv("yes\ta\tb\nno\tc\td\n", {.text = "2", .text2 = "3", .label = "1"})) ==
        Rows{"yes: a + b", "no: c + d"});
}

TEST_CASE("the columns of GLUE's tables are found without being named") {
  const auto columns = [](const std::string& bytes) {
    const Table table = tsv(bytes);
    return std::vector<int>{table.text_column, table.text2_column, table.label_column};
  };
  using Columns = std::vector<int>;
  CHECK(columns("sentence\tlabel\nfine film \t1\n") == Columns{1, 0, 2});
  CHECK(columns("gj04\t1\t\tThe ship sank.\ns_97\t0\t ?*\tShip the sank.\nx\t1\t \tHe ran.\n") == Columns{4, 0, 2});
  CHECK(columns("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tHe said.\tSaid he.\n") == Columns{4, 5, 1});
  CHECK(columns("index\tquestion\tsentence\tlabel\n0\tWhy?\tSo.\tentailment\n") == Columns{2, 3, 4});
  CHECK(columns("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n0\t1\t2\tWhy?\tHow?\t0\n") == Columns{4, 5, 6});
  CHECK(columns("index\tpromptID\tpairID\tgenre\tsentence1_parse\tsentence2_parse\tsentence1\tsentence2\tlabel1\t"
                "gold_label\n0\t1\t1n\tfiction\t(a)\t(b)\ta\tb\tneutral\tneutral\n") == Columns{7, 8, 10});
  CHECK(columns("index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
                "0\tnews\tf\t2012\t1\tnone\tnone\ta\tb\t5.000\n") == Columns{8, 9, 10});
}

TEST_CASE("ragged rows are skipped and counted where that is asked for") {
  const Table table = tsv("label\ttext\na\tfirst\nb\nc\td\te\nb\tlast\n", {.skip_ragged = true});
  CHECK(shown(table) == Rows{"a: first", "b: last"});
  CHECK(table.description().ends_with("rows skipped for their number of fields: 2 (the first in line 3)"));
  CHECK_THROWS_WITH_AS(tsv("label\ttext\na\n"), Contains("or leave such rows out: --data.ragged=skip"), Error);
}

TEST_CASE("labels that are numbers have a mean and a deviation; one that is none is named with its line") {
  const Table scores = tsv("score\ttext\n1.5\ta\n 2.5 \tb\n-1\tc\n");
  const LabelMap labels = LabelMap::of_numbers(scores);
  CHECK(labels.is_regression());
  CHECK(labels.outputs() == 1);
  CHECK(labels.mean() == doctest::Approx(1.0));
  CHECK(labels.deviation() == doctest::Approx(std::sqrt((0.25 + 2.25 + 4) / 3)));
  CHECK(label_numbers(scores) == std::vector<double>{1.5, 2.5, -1});
  CHECK(LabelMap::from_json(parse_json(dump_json(labels.to_json()), "x"), "x") == labels);
  CHECK(has_fractional_labels(scores));
  CHECK_FALSE(has_fractional_labels(tsv("label\ttext\n1.0\ta\n2\tb\n")));
  CHECK_FALSE(has_fractional_labels(tsv("label\ttext\n1.5\ta\nhigh\tb\n")));
  CHECK_THROWS_WITH_AS(
      label_numbers(tsv("score\ttext\n1.5\ta\nnan\tb\n")),
      Contains("t.tsv:3: the label 'nan' is not a number; for classes give --data.task=classification"), Error);
  CHECK_THROWS_WITH_AS(LabelMap::of_numbers(tsv("score\ttext\n2.5\ta\n2.5\tb\n")),
                       Contains("t.tsv: the labels' variance is 0; is data.label the right column?"), Error);
  CHECK_THROWS_WITH_AS(LabelMap::from_json(Json{{"mean", 1.0}, {"deviation", 0.0}}, "labels.json"),
                       Contains("labels.json: mean 1 and deviation 0 cannot be"), Error);
}

TEST_CASE("of two columns without header the label is the one with fewer distinct values, then bytes") {
  CHECK(shown(tsv("good film\tpos\ngood plot\tpos\nbad\tneg\n")) ==
        Rows{"pos: good film", "pos: good plot", "neg: bad"});
  CHECK(shown(tsv("pos\tgood\nneg\tbad\n")) == Rows{"pos: good", "neg: bad"});
  CHECK(shown(tsv("a\tb\nc\td\n")) == Rows{"a: b", "c: d"});
}

TEST_CASE("labels may be missing only where none are needed") {
  const char* unlabelled = "index\tsentence\n0\tfirst\n1\tsecond\n";
  CHECK_THROWS_WITH_AS(tsv(unlabelled), Contains("which column is the label?"), Error);
  const Table table = tsv(unlabelled, {.label = "label", .need_label = false});
  CHECK(shown(table) == Rows{"-: first", "-: second"});
  CHECK_FALSE(table.has_labels());
  CHECK(shown(parse_table("one, two\n\nthree\n", "in.txt", {.format = "lines", .need_label = false})) ==
        Rows{"-: one, two", "-: three"});
  CHECK_THROWS_WITH_AS(parse_table("one\n", "in.txt", {.format = "lines"}),
                       Contains("in.txt: lines of plain text have no labels"), Error);
  CHECK_THROWS_WITH_AS(tsv("label\ttext\n \tx\n"), Contains("t.tsv:2: the label is empty"), Error);
  CHECK_THROWS_WITH_AS(LabelMap::of(table), Contains("t.tsv: no row has a label"), Error);
}

TEST_CASE("question files give the coarse label before the colon") {
  const Table table = parse_table("DESC:manner How did it: start ?\nNUM:dist How far is \xE9 ?\n", "train.label", {});
  CHECK(table.format == "trec");
  CHECK(shown(table) == Rows{"DESC: How did it: start ?", "NUM: How far is \xE9 ?"});
  CHECK_THROWS_WITH_AS(parse_table("DESC x\n", "q", {.format = "trec"}),
                       Contains("q:1: expected 'LABEL:fine text', found 'DESC x'"), Error);
}

TEST_CASE("labels are trimmed, sorted as numbers if all are numbers, and mapped by name") {
  CHECK(LabelMap::of(tsv("1\ta\n10\tb\n2\tc\n1\td\n")).list() == "'1', '2', '10'");
  CHECK(LabelMap::of(tsv("label\ttext\n0\ta\n19\tb\n2\tc\n")).list() == "'0', '2', '19'");
  CHECK(LabelMap::of(tsv("yes\ta\nno\tb\n yes \tc\n")).list() == "'no', 'yes'");
  const LabelMap labels = LabelMap::of(tsv("label\ttext\nneg\ta\npos\tb\n"));
  CHECK(labels.size() == 2);
  CHECK(labels.id("pos") == 1);
  CHECK(labels.id("meh") == -1);
  CHECK(labels.name(0) == "neg");
  CHECK(label_ids(tsv("label\ttext\npos\ta\n neg\tb\n"), labels) == std::vector<std::int32_t>{1, 0});
  CHECK_THROWS_WITH_AS(label_ids(tsv("label\ttext\npos\ta\nmeh\tb\n"), labels),
                       Contains("t.tsv:3: the label 'meh' is not one of those in the training data: 'neg', 'pos'"),
                       Error);
}

TEST_CASE("labels of any bytes survive labels.json, and their order is checked") {
  const LabelMap labels({"caf\xE9", "\xFF", "tea"});
  CHECK(LabelMap::from_json(parse_json(dump_json(labels.to_json()), "x"), "x") == labels);
  CHECK(labels.list() == "'caf\\xE9', 'tea', '\\xFF'");
  CHECK_THROWS_WITH_AS(LabelMap::from_json(Json{"pos", "neg"}, "labels.json"),
                       Contains("labels.json: the labels are not in order"), Error);
  CHECK_THROWS_WITH_AS(LabelMap::from_json(Json::array(), "labels.json"),
                       Contains("labels.json: expected a list of labels"), Error);
}

TEST_CASE("bytes that are not UTF-8 are kept") {
  const Table table = tsv("label\ttext\ncaf\xE9\tna\xEFve\npos\t\xFF\xFE raw \xC0\xAF\n");
  CHECK(shown(table) == Rows{"caf\xE9: na\xEFve", "pos: \xFF\xFE raw \xC0\xAF"});
}

TEST_CASE("rows shared by two tables are counted") {
  const Table train = tsv("pos\ta\nneg\tb\npos\tc\n"), test = tsv("pos\ta\nneg\tx\nneg\tc\n");
  CHECK(count_shared_rows(train, test) == 2);
  CHECK(count_shared_rows(train, tsv("pos\tz\nneg\ty\n")) == 0);
}

TEST_CASE("a very long line is one field") {
  const std::string row(5'000'000, 'x');
  CHECK(tsv("pos\t" + row + "\nneg\tbad\n").rows[0].text == row);
  CHECK(csv("pos,\"" + row + "\"\nneg,bad\n").rows[0].text == row);
}
