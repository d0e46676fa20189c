// peer_llama2c: decoding beside the plain loop that llama2.c is known for, in one process, in turns, on the same
// weights: one thread of control, a dot product for each output, nothing kept but the keys and values. It is written
// here from its description (one token at a time: norm, q k v, rotation, scores, weighed values, swiglu, head) and
// built as that is, with -O3 -march=native -ffast-math. One line of JSON for each shape, after one for the memory.
#include <cmath>
#include <iostream>

#include "nn/decoder.h"
#include "tensor/parallel.h"
#include "tests/bench/bench_machine.h"
#include "tests/bench/bench_measure.h"
#include "train/util/program.h"

namespace flexformer::bench {
namespace {

struct Shape {
  const char* name;
  Index dim, layers, heads, kv_heads, ffn, vocabulary, context;
};
constexpr Shape shapes[] = {{"260k", 64, 5, 8, 4, 172, 512, 256}, {"110m", 768, 12, 12, 12, 2048, 32000, 64}};

LanguageModelOptions options_of(const Shape& s, const char* kind) {
  LanguageModelOptions options{.vocabulary = s.vocabulary, .block = 1024, .position = Position::rope, .tie = true};
  options.head_bias = false;
  options.transformer = {.dim = s.dim, .layers = s.layers, .ffn = s.ffn, .norm = {NormKind::rms, 1e-5f}};
  options.transformer.activation = Activation::swiglu;
  options.transformer.biases = false;
  options.transformer.attention = {.kind = kind, .heads = s.heads, .kv_heads = s.kv_heads};
  return options;
}

#pragma GCC push_options
#pragma GCC optimize("fast-math")

void multiply(float* y, const float* x, const float* W, Index rows, Index columns) {
  for (Index o = 0; o < rows; ++o) {
    float sum = 0;
    for (Index i = 0; i < columns; ++i) sum += W[o * columns + i] * x[i];
    y[o] = sum;
  }
}

void norm(float* y, const float* x, const float* weight, Index n) {
  float squares = 0;
  for (Index i = 0; i < n; ++i) squares += x[i] * x[i];
  const float scale = 1 / std::sqrt(squares / float(n) + 1e-5f);
  for (Index i = 0; i < n; ++i) y[i] = weight[i] * (scale * x[i]);
}

void softmax(float* x, Index n) {
  float most = x[0], sum = 0;
  for (Index i = 1; i < n; ++i) most = x[i] > most ? x[i] : most;
  for (Index i = 0; i < n; ++i) sum += x[i] = std::exp(x[i] - most);
  for (Index i = 0; i < n; ++i) x[i] /= sum;
}

// The plain loop, on the weights of one of our models.
class Plain {
 public:
  Plain(const LanguageModel& model, const Shape& shape)
      : model_(model),
        s_(shape),
        d_(shape.dim / shape.heads),
        kv_(shape.kv_heads * d_),
        logits_(std::size_t(shape.vocabulary)),
        keys_(std::size_t(shape.layers * model.options().block * kv_)),
        values_(keys_.size()) {
    for (std::vector<float>* x : {&h_, &n_, &y_}) x->resize(std::size_t(s_.dim));
    qkv_.resize(std::size_t(s_.dim + 2 * kv_));
    up_.resize(std::size_t(s_.ffn)), gate_.resize(std::size_t(s_.ffn));
    scores_.resize(std::size_t(model.options().block));
  }

  const float* step(std::int32_t id, Index position) {
    const Index C = s_.dim;
    std::copy_n(model_.input().token.value().data() + id * C, C, h_.begin());
    for (Index l = 0; l < s_.layers; ++l) {
      const Block& block = model_.transformer().blocks[std::size_t(l)];
      const auto data = [](const Var& x) { return x.value().data(); };
      norm(n_.data(), h_.data(), data(block.norm1.weight), C);
      multiply(qkv_.data(), n_.data(), data(block.attention.qkv.weight), C + 2 * kv_, C);
      for (Index i = 0; i < C + kv_; i += 2) {
        const float angle = float(position) / std::pow(10000.0f, float(i % d_) / float(d_));
        const float c = std::cos(angle), s = std::sin(angle), even = qkv_[std::size_t(i)],
                    odd = qkv_[std::size_t(i + 1)];
        qkv_[std::size_t(i)] = even * c - odd * s;
        qkv_[std::size_t(i + 1)] = even * s + odd * c;
      }
      float *keys = keys_.data() + l * model_.options().block * kv_, *values = values_.data() + (keys - keys_.data());
      std::copy_n(qkv_.data() + C, kv_, keys + position * kv_);
      std::copy_n(qkv_.data() + C + kv_, kv_, values + position * kv_);
      for (Index head = 0; head < s_.heads; ++head) {
        const float *q = qkv_.data() + head * d_, *k = keys + head / (s_.heads / s_.kv_heads) * d_,
                    *v = values + (k - keys);
        for (Index t = 0; t <= position; ++t) {
          float score = 0;
          for (Index i = 0; i < d_; ++i) score += q[i] * k[t * kv_ + i];
          scores_[std::size_t(t)] = score / std::sqrt(float(d_));
        }
        softmax(scores_.data(), position + 1);
        float* y = y_.data() + head * d_;
        std::fill_n(y, d_, 0.0f);
        for (Index t = 0; t <= position; ++t)
          for (Index i = 0; i < d_; ++i) y[i] += scores_[std::size_t(t)] * v[t * kv_ + i];
      }
      add(data(block.attention.out.weight), y_, C);
      norm(n_.data(), h_.data(), data(block.norm2.weight), C);
      multiply(up_.data(), n_.data(), data(block.mlp.up.weight), s_.ffn, C);
      multiply(gate_.data(), n_.data(), data(block.mlp.gate.weight), s_.ffn, C);
      for (Index i = 0; i < s_.ffn; ++i)
        up_[std::size_t(i)] *= gate_[std::size_t(i)] / (1 + std::exp(-gate_[std::size_t(i)]));
      add(data(block.mlp.down.weight), up_, s_.ffn);
    }
    norm(h_.data(), h_.data(), model_.transformer().norm->weight.value().data(), C);
    multiply(logits_.data(), h_.data(), model_.head().weight.value().data(), s_.vocabulary, C);
    return logits_.data();
  }

 private:
  void add(const float* W, const std::vector<float>& x, Index columns) {
    multiply(n_.data(), x.data(), W, s_.dim, columns);
    for (Index i = 0; i < s_.dim; ++i) h_[std::size_t(i)] += n_[std::size_t(i)];
  }

  const LanguageModel& model_;
  const Shape& s_;
  Index d_, kv_;
  std::vector<float> h_, n_, y_, qkv_, up_, gate_, scores_, logits_, keys_, values_;
};

#pragma GCC pop_options

// One token after another from the context on, which is gone through again and again.
struct Ours {
  Ours(const LanguageModel& model, WeightFormat format, Index tokens) : decoder(model, format), context(tokens) {}
  void next() {
    if (state.length >= 2 * context) state = {};
    const std::int32_t id = std::int32_t(1 + state.length % 200);
    while (state.length < context) decoder.feed(std::span(&id, 1), state);
    decoder.feed(std::span(&id, 1), state);
  }
  Decoder decoder;
  DecodeState state;
  Index context;
};

Json compare(const Shape& shape, int rounds) {
  Random random(1);
  const LanguageModel model(options_of(shape, "softmax"), random),
      flexformer(options_of(shape, "flexformer_n"), random);
  Plain plain(model, shape);
  Decoder decoder(model);
  DecodeState check_state;
  double largest = 0;
  for (std::int32_t t = 0; t < 8; ++t) {
    const Tensor& ours = decoder.feed(std::span(&t, 1), check_state);
    const float* theirs = plain.step(t, t);
    for (Index v = 0; v < shape.vocabulary; ++v)
      largest = std::max(largest, std::fabs(double(ours.data()[v]) - double(theirs[v])));
  }
  if (!(largest < 1e-3)) fail("ours and the plain loop differ by ", largest);
  // Contexts come and go, so that each rival has the same on average.
  Index position = shape.context;
  Ours f32(model, WeightFormat::f32, shape.context), bf16(model, WeightFormat::bf16, shape.context),
      int8(model, WeightFormat::int8, shape.context), linear(flexformer, WeightFormat::f32, shape.context);
  for (Index t = 0; t < shape.context; ++t) plain.step(1, t);
  const std::vector<double> seconds = medians_in_turns(
      rounds, 0.1,
      {[&] {
         plain.step(1, position);
         if (++position == 2 * shape.context) position = shape.context;
       },
       [] { read_loop(); }, [&] { f32.next(); }, [&] { bf16.next(); }, [&] { int8.next(); }, [&] { linear.next(); }});
  const double rate = read_loop() / seconds[1];
  Json row = {{"case", text("decode:", shape.name)},
              {"threads", threads()},
              {"read_gb_per_second", 1e-9 * rate},
              {"plain_tokens_per_second", 1 / seconds[0]}};
  const char* names[] = {"f32", "bf16", "int8", "flexformer_n"};
  const Ours* ours[] = {&f32, &bf16, &int8, &linear};
  for (int i = 0; i < 4; ++i) {
    row[text(names[i], "_tokens_per_second")] = 1 / seconds[std::size_t(i + 2)];
    row[text(names[i], "_of_read_rate")] = double(ours[i]->decoder.weight_bytes()) / seconds[std::size_t(i + 2)] / rate;
  }
  row["largest_difference"] = largest;
  return row;
}

int run(Options& options) {
  use_machine_options(options);
  for (const Shape& shape : shapes) std::cout << dump_json(compare(shape, int(options.integer("rounds")))) << std::endl;
  return 0;
}

}  // namespace
}  // namespace flexformer::bench

int main(int argc, char** argv) {
  using namespace flexformer;
  Options options("peer_llama2c", "Compares decoding with a plain loop over the same weights.");
  options.add_integer("rounds", 9, {.min = 3, .max = 1000, .help = "of at least 0.1 s each, for each rival"});
  add_machine_options(options);
  options.set("threads", std::int64_t(1));
  return run_program(options, argc, argv, bench::run);
}
