// What the tests of published models share: the small models of tests/train/models/make_pretrained.py, and copies of
// them to change.
#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tests/train/util/temporary_folder.h"
#include "train/models/pretrained.h"
#include "train/util/files.h"

namespace flexformer::tests {

namespace fs = std::filesystem;
inline const fs::path kModels = "tests/train/models/pretrained";
inline const std::vector<std::string> kFormats = {"gpt2", "llama", "bert", "roberta", "distilbert"};
// The same as they are published now: in parts, in bfloat16, with tokenizer.json alone.
inline const std::vector<std::string> kToday = {"gpt2_today", "llama_today", "bert_today", "roberta_today"};

inline RunFolder imported(const fs::path& from, const fs::path& to, const ImportOptions& options = {}) {
  const RunFolder folder = RunFolder::for_training(to.string(), "", false);
  import_model(from, folder, options);
  folder.keep();
  return RunFolder(to);
}

inline SafetensorsFile weights_in(const fs::path& folder) {
  const fs::path path = folder / "model.safetensors";
  return read_safetensors(read_file(path), path.string());
}

struct Expected {
  explicit Expected(const std::string& format) {
    const Json json = read_json(kModels / format / "expected.json");
    ids = json.at("ids").get<std::vector<std::int32_t>>();
    logits = json.at("logits").get<std::vector<double>>();
  }
  Tensor batch() const { return Tensor::from_ints({1, Index(ids.size())}, ids); }
  std::vector<std::int32_t> ids;
  std::vector<double> logits;
};

inline double worst(const float* got, const std::vector<double>& expected) {
  double most = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double error = std::abs(double(got[i]) - expected[i]);
    most = error <= most ? most : error;
  }
  return most;
}

// A copy of a model's folder that a test may damage.
struct Copy {
  explicit Copy(const std::string& format) : path(home.path() / "model") { fs::copy(kModels / format, path); }
  Json config() const { return read_json(path / "config.json"); }
  void set(const char* key, const Json& value) const {
    Json changed = config();
    changed[key] = value;
    write_json_atomic(path / "config.json", changed);
  }
  template <class Change> void change_tensors(const Change& change) const {
    SafetensorsFile file = weights_in(path);
    change(file.tensors);
    write_file_atomic(path / "model.safetensors", write_safetensors(file));
  }
  void import() const {
    fs::remove_all(home.path() / "run");
    imported(path, home.path() / "run");
  }
  void refused(const std::string& message) const {
    CAPTURE(message);
    CHECK_THROWS_WITH_AS(import(), doctest::Contains(message.c_str()), Error);
    CHECK_FALSE(fs::exists(home.path() / "run"));
  }
  TemporaryFolder home;
  fs::path path;
};

inline NamedTensor& named(NamedTensors& tensors, const std::string& name) {
  return *std::ranges::find(tensors, name, &NamedTensor::name);
}

inline void check_same_weights(const NamedTensors& a, const NamedTensors& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CHECK(a[i].name == b[i].name);
    CHECK(a[i].tensor.shape() == b[i].tensor.shape());
    CHECK(a[i].tensor.to_vector() == b[i].tensor.to_vector());
  }
}

}  // namespace flexformer::tests
