// Published models that do not fit: every mistake is named with both sides.
#include <doctest/doctest.h>

#include "tests/train/models/small_pretrained.h"
#include "train/models/language_run.h"
#include "train/models/model_options.h"

using namespace flexformer;
using namespace flexformer::tests;

TEST_CASE("tensors that do not fit are all listed, with both shapes") {
  const Copy gpt2("gpt2");
  gpt2.change_tensors([](NamedTensors& tensors) {
    named(tensors, "transformer.ln_f.bias").name = "transformer.ln_g.bias";
    named(tensors, "transformer.h.1.mlp.c_fc.weight").tensor = Tensor::zeros({32, 8});
  });
  gpt2.refused("model.safetensors does not fit this model; missing in the file: transformer.ln_f.bias");
  gpt2.refused("of another shape or type: transformer.h.1.mlp.c_fc.weight (file f32 [32,8], needed f32 [8,32])");
  gpt2.refused("in the file only: transformer.ln_g.bias [8]");
  const Copy tied("gpt2");
  tied.change_tensors([](NamedTensors& tensors) { tensors.push_back({"lm_head.weight", Tensor::zeros({261, 8})}); });
  tied.refused("tie_word_embeddings is true, but lm_head.weight is not transformer.wte.weight");
}

TEST_CASE("configurations that these models cannot follow are refused by key and value") {
  const auto refused = [](const std::string& format, const char* key, const Json& value, const std::string& message) {
    const Copy copy(format);
    copy.set(key, value);
    copy.refused(message);
  };
  refused("llama", "rope_scaling", {{"rope_type", "llama3"}, {"factor", 8.0}},
          R"(rope_scaling = {"rope_type":"llama3","factor":8.0} is not supported; there are the type "default")");
  refused("llama", "sliding_window", 32, "sliding_window = 32 is not supported; these models know none");
  refused("gpt2", "quantization_config", {{"bits", 4}}, "quantization_config = '{\"bits\":4}' is not supported");
  refused("bert", "auto_map", {{"AutoModel", "x.y"}}, "auto_map = ");
  refused("bert", "problem_type", "ranking", "problem_type = \"ranking\" is not supported");
  refused("bert", "num_labels", 2, "num_labels is 2, but id2label has 3");
  refused("llama", "attention_bias", true, "attention_bias = true is not supported; these models know false");
  refused("llama", "head_dim", 8, "head_dim = 8 is not supported; these models know 4");
  refused("llama", "hidden_act", "gelu", "hidden_act = \"gelu\" is not supported; these models know \"silu\"");
  refused("llama", "model_type", "bloom", "model_type 'bloom' are not supported; there are gpt2, llama, mistral, bert");
  refused("bert", "position_embedding_type", "relative_key", "position_embedding_type = \"relative_key\" is not");
  refused("bert", "hidden_act", "mish",
          "hidden_act = \"mish\" is not supported; there are gelu_new, gelu_pytorch_tanh");
  refused("gpt2", "scale_attn_by_inverse_layer_idx", true, "these models know false");
  refused("gpt2", "n_head", nullptr, "n_head");
  refused("gpt2", "vocab_size", 200, "has 261 tokens, but the model's token table only 200 rows");
  refused("bert", "id2label", Json::array(), "id2label must be an object of ids and labels");
  refused("bert", "id2label", {{"0", "a"}, {"1", "a"}, {"2", "b"}}, "two classes have the same name");
}

TEST_CASE("folders that hold no model are refused in words") {
  const TemporaryFolder home;
  CHECK_THROWS_WITH_AS(read_pretrained(home.path() / "none"), doctest::Contains("there is no such folder or file"),
                       Error);
  CHECK_THROWS_WITH_AS(read_pretrained(home.file("a.gguf", "x")), doctest::Contains("or a .bin file of llama2.c"),
                       Error);
  const Copy gpt2("gpt2");
  fs::rename(gpt2.path / "model.safetensors", gpt2.path / "pytorch_model.bin");
  gpt2.refused("holds no model.safetensors; pytorch_model.bin cannot be read: in Python, model.save_pretrained(DIR");
  const Copy silent("llama");
  fs::remove(silent.path / "tokenizer.model");
  silent.refused("holds no tokenizer (tokenizer.json, vocab.json with merges.txt");
  CHECK_THROWS_WITH_AS(imported(kModels / "gpt2", home.path() / "run", {.labels = {"a"}}),
                       doctest::Contains("labels are of classifiers"), Error);
}

TEST_CASE("a run that a format has no place for is not exported") {
  const TemporaryFolder home;
  const RunFolder run = imported(kModels / "llama", home.path() / "run");
  CHECK_THROWS_WITH_AS(export_model(run, home.path() / "out", "gpt2"),
                       doctest::Contains("the format gpt2 needs model.position=learned, but this run has rope"), Error);
  CHECK_THROWS_WITH_AS(export_model(run, home.path() / "out", "gguf"), doctest::Contains("no format 'gguf'"), Error);
  Options options("train_lm", "");
  add_language_options(options);
  CHECK_THROWS_WITH_AS(config_for_pretrained("gpt2", options, {}, *make_tokenizer("byte", "", {}), {}, nullptr),
                       doctest::Contains("needs model.attention=softmax, but this run has flexformer_n"), Error);
  Random random(1);
  const LanguageModel model(language_model_options(options, 10), random);
  CHECK_THROWS_WITH_AS(pretrained_places("gpt2", model.parameters(), model.options().transformer, {}),
                       doctest::Contains("has no name for the parameter blocks.0.attn.w1 of this model"), Error);
}
