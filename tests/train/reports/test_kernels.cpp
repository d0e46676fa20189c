// What is drawn of a model's attention: that it is what the model computes, for every kind, and the section in the
// report.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/autograd/reference.h"
#include "tests/train/training/small_runs.h"
#include "tests/train/util/html_check.h"
#include "train/reports/html.h"
#include "train/reports/kernel_pictures.h"
#include "train/util/png.h"

using namespace flexformer;
using namespace flexformer::tests;
using doctest::Approx;

namespace {

naive::Array array_of(const Tensor& x) {
  const std::vector<float> values = x.to_vector();
  return {x.shape(), naive::Numbers(values.begin(), values.end())};
}
naive::Array array_of(const Var& x) { return x.defined() ? array_of(x.value()) : naive::Array(); }

naive::Map map_of(const MultiHeadAttention& layer) {
  return {layer.kind->features, array_of(layer.w1), array_of(layer.w2), array_of(layer.tau), layer.max_length};
}

// A classifier of any kind, with its own floor unless one is given, that reads two texts, the second one padded.
struct SmallSight {
  explicit SmallSight(const std::string& kind, float floor = -1)
      : model({.transformer = {.dim = 12,
                               .layers = 2,
                               .attention = {.kind = kind, .heads = 2, .features = 5, .floor = floor}},
               .vocabulary = 20,
               .max_length = 9},
              random) {
    // Sizes at which kernels are far from 1; the reference's performer, which divides nothing, would then underflow.
    const float factor = kind == "performer" ? 1 : 3;
    for (const Parameter& p : model.parameters()) {
      Tensor value = p.var.value();
      for (Index i = 0; i < value.numel(); ++i) value.data()[i] *= factor;
    }
    const std::vector<std::int32_t> ids = {3, 4, 5, 6, 7, 8, 9, 3, 5, 4, 9, 3, 12, 0, 0, 0};
    sights = watch_layers([&](const Pass& pass) {
      seen = model.encode(Tensor::from_ints({2, 8}, ids), pass).value().to_vector();
    });
    plain = model.encode(Tensor::from_ints({2, 8}, ids)).value().to_vector();
  }
  Random random{3};
  Classifier model;
  std::vector<LayerSight> sights;
  std::vector<float> seen, plain;  // what the model says, watched and by itself
};

}  // namespace

TEST_CASE("a model that is looked at does what it always does") {
  for (const std::string& kind : attention_kind_names()) {
    CAPTURE(kind);
    const SmallSight small(kind);
    CHECK(small.seen == small.plain);
    REQUIRE(small.sights.size() == 2);
    CHECK(small.sights[1].layer == &small.model.transformer().blocks[1].attention);
    CHECK(small.sights[0].q.shape() == Shape({2, 2, 8, 6}));
  }
}

TEST_CASE("the kernel that is drawn is phi(x).phi(y)") {
  for (const char* kind : {"flexformer_s", "flexformer_n", "hedgehog"}) {
    CAPTURE(kind);
    const SmallSight small(kind);
    const MultiHeadAttention& layer = *small.sights[1].layer;
    const Tensor x = small.sights[1].q, one = Var(x).value().reshape({1, 4, 8, 6});  // [B,H,..] as more rows of heads
    const Tensor q = slice(Var(one), 1, 0, 2).value(), k = slice(Var(one), 1, 2, 4).value();
    const Tensor drawn = kernel_values(layer, q, k);
    REQUIRE(drawn.shape() == Shape({2, 8, 8}));
    const naive::Array fq = naive::features(array_of(q), map_of(layer)),
                       fk = naive::features(array_of(k), map_of(layer), true);
    const naive::Array expected = naive::matmul(fq, naive::transpose(fk));
    for (Index i = 0; i < drawn.numel(); ++i) CHECK(double(drawn.data()[i]) == Approx(expected[i]).epsilon(1e-4));
  }
}

TEST_CASE("the weights that are drawn are the model's: they give its outputs, and rows sum to 1 but on the floor") {
  for (const std::string& kind : attention_kind_names()) {
    CAPTURE(kind);
    const SmallSight small(kind);
    const LayerSight& sight = small.sights[1];
    const MultiHeadAttention& layer = *sight.layer;
    const Tensor own = attention_weights(sight, false), softmax = attention_weights(sight, true);
    const bool halves = kind == "polaformer";
    REQUIRE(own.shape() == Shape({2, 2, 8, halves ? 16 : 8}));
    const naive::Mask mask{false, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0}};
    naive::Array unit(Shape{2, 2, 8, own.size(3)});
    for (Index i = 0; i < unit.numel(); ++i) unit[i] = i % 8 == i / own.size(3) % 8;
    const naive::Array q = array_of(sight.q), k = array_of(sight.k);
    const naive::Array expected = layer.kind->is_linear
                                      ? naive::linear_attention(q, k, unit, map_of(layer), mask, double(layer.floor))
                                      : naive::softmax_attention(q, k, unit, mask, 1 / std::sqrt(6.0));
    double floored[2] = {}, rows = 0;
    for (Index row = 0; row < 2 * 2 * 8; ++row) {
      double sum = 0, of_softmax = 0, wanted = 0;
      for (Index j = 0; j < own.size(3); ++j) {
        const Index i = row * own.size(3) + j;
        CHECK(double(own.data()[i]) == Approx(expected[i]).epsilon(1e-3));
        sum += double(own.data()[i]), wanted += expected[i];
      }
      for (Index j = 0; j < 8; ++j) of_softmax += double(softmax.data()[row * 8 + j]);
      CHECK(of_softmax == Approx(1));
      CHECK(sum <= (halves ? 2 : 1) + 1e-4);
      const bool padding = row / 16 == 1 && row % 8 >= 5;
      if (!padding) floored[row / 8 % 2] += wanted < 1 - 1e-4;
      if (!padding && row / 8 % 2 == 0) ++rows;
    }
    if (!halves)
      for (Index head = 0; head < 2; ++head) CHECK(floored_share(sight, own, head) == Approx(floored[head] / rows));
  }
  const SmallSight small("flexformer_n", 0.9f);
  CHECK(floored_share(small.sights[0], attention_weights(small.sights[0], false), 0) > 0.5);
}

TEST_CASE("directions of spread are those of the data, the widest first, and padding does not count") {
  const SmallSight small("flexformer_s");
  LayerSight sight = small.sights[0];
  const Index d = 6;
  for (Tensor* tensor : {&sight.q, &sight.k}) {
    *tensor = Tensor::zeros({2, 2, 8, d});
    for (Index row = 0; row < 32; ++row) {
      const bool padding = row / 16 == 1 && row % 8 >= 5;
      tensor->data()[row * d + 2] = padding ? 100.0f : row % 2 ? 3.0f : -3.0f;
      tensor->data()[row * d + 4] = row % 3 ? 0.5f : -0.5f;
    }
  }
  const std::vector<Spread> found = spreads(sight, 1, 3);
  REQUIRE(found.size() == 3);
  CHECK(std::abs(found[0].direction[2]) == Approx(1).epsilon(1e-2));
  CHECK(std::abs(found[1].direction[4]) == Approx(1).epsilon(1e-2));
  CHECK(found[0].reach == Approx(3).epsilon(1e-2));
  CHECK(typical_distance(sight, 1) < 6);
}

TEST_CASE("turns have the norms before and now and the cosine between them") {
  const std::vector<Turn> all =
      turns(Tensor::from({2, 2, 2}, {9, 9, 9, 9, 3, 4, 0, 0}), Tensor::from({2, 2, 2}, {9, 9, 9, 9, -4, 3, 1, 1}), 1);
  REQUIRE(all.size() == 2);
  CHECK(all[0].norm_before == 5);
  CHECK(all[0].norm == 5);
  CHECK(all[0].cosine == Approx(0));
  CHECK(all[1].norm_before == 0);
  CHECK(all[1].cosine == 0);
}

TEST_CASE("every kind of attention has a section that stands by itself, with a map for each head") {
  for (const std::string& kind : attention_kind_names()) {
    CAPTURE(kind);
    const SmallSight small(kind), start(kind);
    const std::string html = html_page(
        "t", kernels_html({small.model.transformer(), start.model.transformer(), small.sights, "<a> & b", "a note"}));
    CHECK(fault(html) == "");
    CHECK(contains(html, "<h2>Kernels</h2>"));
    CHECK(contains(html, "&lt;a&gt; &amp; b"));
    CHECK(contains(html, "<p>a note</p>"));
    CHECK(count(html, "<h3>") == 4);
    const bool plane = kind == "flexformer_n" || kind == "hedgehog";
    const int maps = kind == "softmax" ? 1 : kind == "polaformer" ? 3 : plane ? 3 : 2;
    CHECK(count(html, "src=\"data:image/png;base64,iVBORw0KGgo") == 4 * maps);
    CHECK(count(html, "<strong>Norms</strong>") == (plane || kind == "flexformer_s" ? 4 : 0));
    CHECK(count(html, "Gaussian") >= (kind == "flexformer_s" ? 4 : 0));
    CHECK_FALSE(contains(html, ",nan"));
  }
}

TEST_CASE("a picture with a palette is read back in its colours, and stands in a page as base64") {
  const Picture read = decode_png(encode_png({2, 1, 1, std::string("\1\0", 2)}, "abcdef"), "p");
  CHECK(read.channels == 3);
  CHECK(read.samples == "defabc");
  CHECK(html_image("Man", "a \"b\"", "map") ==
        "<img class=\"map\" alt=\"a &quot;b&quot;\" title=\"a &quot;b&quot;\" src=\"data:image/png;base64,TWFu\"/>\n");
  CHECK(contains(html_image("Ma", "", "map"), "base64,TWE=\""));
  CHECK(contains(html_image("M", "", "map"), "base64,TQ==\""));
}
