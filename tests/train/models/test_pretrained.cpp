// Published models: what PyTorch computes with them, their way into a run folder and back.
#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>
#include <map>

#include "nn/decoder.h"
#include "tests/train/models/small_pretrained.h"
#include "train/models/classifier_run.h"
#include "train/models/language_run.h"
#include "train/models/model_options.h"

using namespace flexformer;
using namespace flexformer::tests;

TEST_CASE("imported language models give PyTorch's logits, at once and token by token") {
  for (const char* format : {"gpt2", "llama", "gpt2_today", "llama_today"}) {
    CAPTURE(format);
    const TemporaryFolder home;
    const SavedLanguageModel saved(imported(kModels / format, home.path() / "run"));
    const Expected expected(format);
    const Index T = Index(expected.ids.size()), V = Index(expected.logits.size());
    const Tensor logits = saved.model->forward(expected.batch()).value();
    CHECK(worst(logits.data() + (T - 1) * V, expected.logits) < 1e-5);
    Decoder decoder(*saved.model);
    DecodeState state, at_once;
    // The decoder adds up in another order, and these logits are as large as 4.
    CHECK(worst(decoder.feed(expected.ids, at_once).data(), expected.logits) < 2e-5);
    const float* last = nullptr;
    for (const std::int32_t& id : expected.ids) last = decoder.feed(std::span(&id, 1), state).data();
    CHECK(worst(last, expected.logits) < 2e-5);
  }
}

// A folder with the published stories260K: model.safetensors, config.json, stories260K.bin, tok512.bin, and
// reference.json with "prompt", "ids", "logits_last" and "nll_mean" of an independent implementation.
TEST_CASE("stories260K has its published logits" * doctest::skip(std::getenv("FLEXFORMER_STORIES260K") == nullptr)) {
  const fs::path home = std::getenv("FLEXFORMER_STORIES260K");
  const Json reference = read_json(home / "reference.json");
  const auto ids = reference.at("ids").get<std::vector<std::int32_t>>();
  for (const fs::path& from : {home, home / "stories260K.bin"}) {
    const TemporaryFolder folder;
    const SavedLanguageModel saved(imported(from, folder.path() / "run"));
    CHECK(saved.tokenizer->encode(reference.at("prompt").get<std::string>()) == ids);
    const Index T = Index(ids.size());
    const Tensor batch = Tensor::from_ints({1, T}, ids), logits = saved.model->forward(batch).value();
    const double error = worst(logits.data() + (T - 1) * 512, reference.at("logits_last").get<std::vector<double>>());
    CHECK(error < 1e-4);
    const double loss = saved.model
                            ->loss(Tensor::from_ints({1, T - 1}, std::span(ids).first(ids.size() - 1)),
                                   Tensor::from_ints({1, T - 1}, std::span(ids).subspan(1)), {})
                            .value()
                            .item();
    MESSAGE("largest error of a logit ", error, ", loss ", loss);
    CHECK(std::abs(loss - reference.at("nll_mean").get<double>()) < 1e-4);
  }
}

TEST_CASE("imported encoders give PyTorch's logits, alone and padded in a batch") {
  const std::map<std::string, LabelMap::Kind> kinds = {{"bert_today", LabelMap::tags},
                                                       {"roberta_today", LabelMap::values}};
  for (const char* format : {"bert", "roberta", "distilbert", "bert_today", "roberta_today"}) {
    CAPTURE(format);
    const TemporaryFolder home;
    const SavedClassifier saved(imported(kModels / format, home.path() / "run"));
    const Expected expected(format);
    CHECK(saved.labels.kind() == (kinds.count(format) ? kinds.at(format) : LabelMap::classes));
    const Index T = Index(expected.ids.size()), longer = T + 3, K = saved.labels.size();
    const std::vector<std::string> labels = labels_from_config(read_json(kModels / format / "config.json"), format);
    std::vector<double> sorted(expected.logits.size());
    for (std::size_t i = 0; i < labels.size(); ++i)
      sorted[std::size_t(saved.labels.id(labels[i]))] = expected.logits[i];
    CHECK(worst(saved.model->forward(expected.batch()).value().data(), sorted) < 1e-5);
    Tensor batch = Tensor::empty({2, longer}, DType::i32);
    std::fill_n(batch.ints(), 2 * longer, saved.model->options().padding);
    std::copy(expected.ids.begin(), expected.ids.end(), batch.ints() + longer);
    std::copy_n(batch.ints() + longer, 2, batch.ints());
    CHECK(worst(saved.model->forward(batch).value().data() + K, sorted) < 1e-5);
  }
}

TEST_CASE("texts become the ids that the encoders were given") {
  const TemporaryFolder home;
  const SavedClassifier bert(imported(kModels / "bert", home.path() / "bert", {.pairs = true}));
  const EncodedText pair =
      encode_row({"The góod FILMS!", "bad film", {}, 0}, *bert.tokenizer, encoding_options(bert.options));
  CHECK(pair.ids == Expected("bert").ids);
  const SavedClassifier roberta(imported(kModels / "roberta", home.path() / "roberta"));
  EncodingOptions encoding = encoding_options(roberta.options);
  CHECK(encode_row({" the!a", {}, {}, 0}, *roberta.tokenizer, encoding).ids == Expected("roberta").ids);
  encoding.pair = true;
  CHECK(encode_row({"!", "a", {}, 0}, *roberta.tokenizer, encoding).ids ==
        std::vector<std::int32_t>{0, 4, 2, 2, 68, 2});
}

TEST_CASE("what was imported is exported under the same names, with the same shapes and bits") {
  std::vector<std::string> all = kFormats;
  all.insert(all.end(), kToday.begin(), kToday.end());
  for (const std::string& format : all) {
    CAPTURE(format);
    const TemporaryFolder home;
    const RunFolder run = imported(kModels / format, home.path() / "run");
    export_model(run, home.path() / "out", "");
    NamedTensors before = read_pretrained(kModels / format).tensors, after = weights_in(home.path() / "out").tensors;
    for (NamedTensors* tensors : {&before, &after}) std::ranges::sort(*tensors, {}, &NamedTensor::name);
    check_same_weights(after, before);
    CHECK(read_json(home.path() / "out" / "config.json") == read_json(kModels / format / "config.json"));
    const RunFolder again = imported(home.path() / "out", home.path() / "again");
    for (const char* file : {"checkpoint/best.safetensors", "tokenizer.json"})
      CHECK(read_file(again.file(file)) == read_file(run.file(file)));
  }
}

TEST_CASE("a run without an original is exported with a config that imports it again") {
  for (const std::string format : {"gpt2", "llama", "bert", "roberta", "distilbert", "bert_today", "roberta_today"}) {
    CAPTURE(format);
    const TemporaryFolder home;
    const RunFolder run = imported(kModels / format, home.path() / "run");
    fs::remove(run.file("pretrained.json"));
    export_model(run, home.path() / "out", "");
    const Json config = read_json(home.path() / "out" / "config.json");
    CHECK(format.starts_with(config.at("model_type").get<std::string>()));
    CHECK(config.at("architectures").size() == 1);
    CHECK(config.at("torch_dtype") == "float32");
    if (format == "gpt2") CHECK((config.at("n_ctx") == 12 && config.at("eos_token_id") == 260));
    if (format == "llama") CHECK((config.at("bos_token_id") == 1 && config.at("eos_token_id") == 2));
    const RunFolder again = imported(home.path() / "out", home.path() / "again");
    CHECK(read_file(again.file("checkpoint/best.safetensors")) == read_file(run.file("checkpoint/best.safetensors")));
    Json before = read_json(run.file("config.json")), after = read_json(again.file("config.json"));
    for (Json* config_json : {&before, &after}) (*config_json)["data"].erase("tokenizer");
    CHECK(before == after);
  }
}

TEST_CASE("only a tensor that is used stops an import by its type") {
  const auto with = [](const char* name, const char* type, const char* shape, std::size_t bytes) {
    const Copy copy("roberta");
    const fs::path path = copy.path / "model.safetensors";
    std::string file = read_file(path);
    std::uint64_t length;
    std::memcpy(&length, file.data(), 8);
    Json header = Json::parse(file.substr(8, length));
    const std::size_t end = file.size() - 8 - length;
    header[name] = {{"dtype", type}, {"shape", Json::parse(shape)}, {"data_offsets", {end, end + bytes}}};
    const std::string text = header.dump();
    const std::uint64_t size = text.size();
    write_file_atomic(path, std::string(reinterpret_cast<const char*>(&size), 8) + text + file.substr(8 + length) +
                                std::string(bytes, '\0'));
    const RunFolder folder = RunFolder::for_training((copy.home.path() / "run").string(), "", false);
    std::string lines;
    for (const std::string& line : import_model(copy.path, folder, {})) lines += line + "\n";
    return lines;
  };
  CHECK(with("roberta.embeddings.position_ids", "I64", "[1,18]", 144)
            .find("tensors left out: roberta.embeddings.position_ids\n") != std::string::npos);
  CHECK_NOTHROW(with("roberta.embeddings.token_type_ids", "NEW", "[3]", 7));
  CHECK_NOTHROW(with("roberta.anything.mask", "BOOL", "[1,1,1,2,3]", 6));
  CHECK_THROWS_WITH_AS(with("roberta.extra.weight", "F8_E4M3", "[2]", 2),
                       doctest::Contains("tensor 'roberta.extra.weight' cannot be used: it is of type"), Error);
  CHECK_THROWS_WITH_AS(with("roberta.extra.weight", "F32", "[1]", 4),
                       doctest::Contains("in the file only: roberta.extra.weight"), Error);
}

TEST_CASE("an output layer that is for tokens or choices is left out") {
  const Copy bert("bert");
  bert.set("architectures", {"BertForTokenClassification"});
  const RunFolder folder = RunFolder::for_training((bert.home.path() / "run").string(), "", false);
  std::string lines;
  for (const std::string& line : import_model(bert.path, folder, {})) lines += line + "\n";
  CHECK(lines.find("the output layer was not published (head.bias, head.weight)") != std::string::npos);
  CHECK(lines.find("tensors left out: classifier.weight, classifier.bias") != std::string::npos);
}

TEST_CASE("problem_type decides what outputs stand for") {
  const auto kind = [](const Json& type, std::size_t labels) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < labels; ++i) names.push_back(text("L", i));
    return outputs_from_config({{"problem_type", type}}, names, "c").kind();
  };
  CHECK(kind(nullptr, 3) == LabelMap::classes);
  CHECK(kind(nullptr, 1) == LabelMap::number);
  CHECK(kind("regression", 1) == LabelMap::number);
  CHECK(kind("regression", 3) == LabelMap::values);
  CHECK(kind("multi_label_classification", 1) == LabelMap::tags);
  CHECK(kind("single_label_classification", 2) == LabelMap::classes);
  CHECK_THROWS_WITH_AS(kind("ranking", 2), doctest::Contains("problem_type = \"ranking\" is not supported"), Error);
}

TEST_CASE("a Llama is written under llama2.c's names, and llama2.c's file of floats is read") {
  const TemporaryFolder home;
  const RunFolder run = imported(kModels / "llama", home.path() / "run");
  export_model(run, home.path() / "out", "llama2c");
  const SafetensorsFile file = weights_in(home.path() / "out");
  const auto write_bin = [&](bool tied) {
    const std::int32_t header[] = {16, 24, 2, 4, 2, tied ? 267 : -267, 64};
    std::string bytes(reinterpret_cast<const char*>(header), sizeof header);
    const auto add = [&](const std::string& ending) {
      for (const NamedTensor& item : file.tensors)
        if (item.name.ends_with(ending))
          bytes.append(reinterpret_cast<const char*>(item.tensor.data()), std::size_t(item.tensor.numel()) * 4);
    };
    for (const char* part : {"tok_embeddings.weight", "attention_norm.weight", "wq.weight", "wk.weight", "wv.weight",
                             "wo.weight", "ffn_norm.weight", "w1.weight", "w2.weight", "w3.weight"})
      add(part);
    for (const NamedTensor& item : file.tensors)
      if (item.name == "norm.weight") bytes.append(reinterpret_cast<const char*>(item.tensor.data()), 64);
    bytes.append(2 * 64 * 2 * 4, '\0');
    if (!tied) add("output.weight");
    return bytes;
  };
  const std::string bytes = write_bin(false);
  const std::string path = (home.path() / "out" / "model.bin").string();
  write_file_atomic(path, bytes);
  const RunFolder again = imported(path, home.path() / "again");
  // llama2.c's file leaves out what it takes for granted, so only the weights can be compared.
  const std::string best = "checkpoint/best.safetensors";
  check_same_weights(read_safetensors(read_file(again.file(best.c_str())), "again").tensors,
                     read_safetensors(read_file(run.file(best.c_str())), "run").tensors);
  CHECK(read_pretrained(path).config.at("tie_word_embeddings") == false);
  write_file_atomic(path, write_bin(true));
  CHECK(read_pretrained(path).config.at("tie_word_embeddings") == true);

  const auto refused = [&](const std::string& damaged, const char* message) {
    write_file_atomic(path, damaged);
    CHECK_THROWS_WITH_AS(read_pretrained(path), doctest::Contains(message), Error);
  };
  refused(bytes.substr(0, 20), "it has 20 bytes, too few for llama2.c's header");
  refused(bytes.substr(0, 20000), "the file ends within layers.");
  refused(bytes + "more", "4 bytes are left behind the last matrix");
  std::string header = bytes;
  header[4] = header[5] = 0;
  refused(header, "its header holds the size 0");
  header = bytes;
  header[12] = 3;
  refused(header, "dim 16, 3 heads and 2 heads of keys do not fit each other");
}

TEST_CASE("names without a prefix, old names of norms and buffers are understood, and come back") {
  const Copy bert("bert"), gpt2("gpt2");
  bert.change_tensors([](NamedTensors& tensors) {
    for (NamedTensor& item : tensors) {
      if (item.name.starts_with("bert.")) item.name.erase(0, 5);
      if (item.name.ends_with("LayerNorm.weight")) item.name.replace(item.name.size() - 6, 6, "gamma");
      if (item.name.ends_with("LayerNorm.bias")) item.name.replace(item.name.size() - 4, 4, "beta");
    }
    std::ranges::reverse(tensors);
  });
  const RunFolder run = imported(bert.path, bert.home.path() / "run");
  const RunFolder usual = imported(kModels / "bert", bert.home.path() / "usual");
  CHECK(read_file(run.file("checkpoint/best.safetensors")) == read_file(usual.file("checkpoint/best.safetensors")));
  export_model(run, bert.home.path() / "out", "");
  check_same_weights(weights_in(bert.home.path() / "out").tensors, weights_in(bert.path).tensors);

  gpt2.change_tensors([](NamedTensors& tensors) {
    tensors.push_back({"transformer.h.0.attn.bias", Tensor::full({1, 1, 12, 12}, 1)});
    tensors.push_back({"lm_head.weight", named(tensors, "transformer.wte.weight").tensor});
  });
  CHECK_NOTHROW(gpt2.import());
}

TEST_CASE("a model in parts is read like one in a single file") {
  const Copy llama("llama");
  const NamedTensors tensors = weights_in(llama.path).tensors;
  fs::remove(llama.path / "model.safetensors");
  Json map = Json::object();
  for (int part : {0, 1}) {
    const std::string name = text("model-0000", part + 1, "-of-00002.safetensors");
    NamedTensors some;
    for (std::size_t i = std::size_t(part); i < tensors.size(); i += 2) {
      some.push_back(tensors[i]);
      map[tensors[i].name] = name;
    }
    write_file_atomic(llama.path / name, write_safetensors({some, {}}));
  }
  write_json_atomic(llama.path / "model.safetensors.index.json", {{"weight_map", map}});
  const RunFolder run = imported(llama.path, llama.home.path() / "run");
  const RunFolder whole = imported(kModels / "llama", llama.home.path() / "whole");
  CHECK(read_file(run.file("checkpoint/best.safetensors")) == read_file(whole.file("checkpoint/best.safetensors")));
  write_json_atomic(llama.path / "model.safetensors.index.json", {{"weight_map", {{"a", "../x.safetensors"}}}});
  llama.refused("weight_map must name a file of this folder for 'a', found \"../x.safetensors\"");
}

TEST_CASE("an encoder without an output layer gets a new one, of the labels that are asked for") {
  const Copy roberta("roberta");
  roberta.change_tensors([](NamedTensors& tensors) {
    std::erase_if(tensors, [](const NamedTensor& item) { return item.name.starts_with("classifier."); });
    tensors.push_back({"lm_head.bias", Tensor::zeros({265})});
  });
  const RunFolder folder = RunFolder::for_training((roberta.home.path() / "run").string(), "", false);
  const std::vector<std::string> lines = import_model(roberta.path, folder, {.labels = {"c", "a", "b"}});
  REQUIRE(lines.size() >= 3);
  CHECK(lines[1] == "classes: 'a', 'b', 'c'");
  CHECK(lines[2] ==
        "the output layer was not published (head.bias, head.weight, pooler.bias, pooler.weight): it starts "
        "at random and must be trained");
  CHECK(SavedClassifier(folder).model->options().classes == 3);
  export_model(folder, roberta.home.path() / "out", "");
  const SafetensorsFile out = weights_in(roberta.home.path() / "out");
  CHECK(std::ranges::count(out.tensors, "classifier.out_proj.weight", &NamedTensor::name) == 1);
  CHECK(read_json(roberta.home.path() / "out" / "config.json").at("id2label").at("0") == "c");
}

TEST_CASE("an encoder with one output is a regression") {
  const Copy bert("bert");
  bert.set("id2label", {{"0", "LABEL_0"}});
  bert.change_tensors([](NamedTensors& tensors) {
    named(tensors, "classifier.weight").tensor = Tensor::zeros({1, 8});
    named(tensors, "classifier.bias").tensor = Tensor::full({1}, 2.5f);
  });
  const SavedClassifier saved(imported(bert.path, bert.home.path() / "run"));
  CHECK(saved.labels.is_regression());
  CHECK(saved.model->forward(Expected("bert").batch()).value().item() == 2.5f);
}

TEST_CASE("newer configurations keep the base of rotary positions elsewhere") {
  const Copy llama("llama");
  llama.set("rope_parameters", {{"rope_type", "default"}, {"rope_theta", 123.0}});
  CHECK(options_from_pretrained(read_pretrained(llama.path)).real("model.rope_theta") == 123);
}

TEST_CASE("a token table of a round size gets unused tokens") {
  const Copy llama("llama");
  llama.set("vocab_size", 300);
  llama.change_tensors([](NamedTensors& tensors) {
    for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"})
      named(tensors, name).tensor = Tensor::zeros({300, 16});
  });
  const RunFolder folder = RunFolder::for_training((llama.home.path() / "run").string(), "", false);
  const std::vector<std::string> lines = import_model(llama.path, folder, {});
  CHECK(lines.back() == "tokenizer: rows of the token table without a name: 33, ids 267 to 299");
  const SavedLanguageModel saved(folder);
  CHECK(saved.tokenizer->vocab_size() == 300);
  CHECK(saved.tokenizer->token(299) == "<unused_299>");
  CHECK(saved.tokenizer->is_special(299));
}

TEST_CASE("a run that starts from another takes its shape unless told otherwise") {
  const TemporaryFolder home;
  const RunFolder run = imported(kModels / "llama", home.path() / "run");
  Options options("train_lm", "");
  add_language_options(options);
  options.parse(std::vector<std::string>{"--model.dropout=0.25"});
  inherit_model_options(options, run);
  CHECK(options.text("model.norm") == "rms");
  CHECK(options.integer("model.kv_heads") == 2);
  CHECK(options.integer("train.block") == 64);
  CHECK(options.real("model.dropout") == 0.25);
  CHECK(options.real("train.lr") == 1e-3);
  options.set("train.block", Index(5));
  Random random(1);
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(run);
  const LanguageModel model(language_model_options(options, tokenizer->vocab_size()), random);
  CHECK(run.load_best(model.parameters(), tokenizer->fingerprint()) == 0);
}

TEST_CASE("a position table keeps its size when a run that starts from it has a shorter context") {
  const TemporaryFolder home;
  const RunFolder run = imported(kModels / "gpt2", home.path() / "run");
  Json config = read_json(run.file("config.json"));
  CHECK(config.at("model").at("position_rows") == 12);
  config["model"]["position_rows"] = 0;  // as in a run that was trained here
  write_json_atomic(run.file("config.json"), config);
  const auto inherited = [&](const char* block) {
    Options options("train_lm", "");
    add_language_options(options);
    options.parse(std::vector<std::string>{block});
    inherit_model_options(options, run);
    return language_model_options(options, 261);
  };
  CHECK(inherited("--train.block=7").block == 12);
  CHECK_THROWS_WITH_AS(inherited("--train.block=13"),
                       doctest::Contains("train.block=13 is longer than model.position_rows=12"), UsageError);
}
