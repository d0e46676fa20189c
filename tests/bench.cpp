// bench: how fast the parts are on this machine, as tables and as JSON. Times are medians of CPU time on one thread
// (the steadiest figure on a shared machine) unless another number of threads is asked for, then of wall-clock time.
#include <algorithm>
#include <ctime>
#include <functional>
#include <iostream>

#include "autograd/ops.h"
#include "nn/language_model.h"
#include "nn/optim.h"
#include "tensor/parallel.h"
#include "train/log.h"
#include "train/program.h"

namespace flexformer {
namespace {

double now() {
  timespec time{};
  clock_gettime(threads() == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

// Median seconds of a call, after one that warms the caches up.
double seconds_of(int repeats, const std::function<void()>& call) {
  call();
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    const double start = now();
    call();
    times.push_back(now() - start);
  }
  std::nth_element(times.begin(), times.begin() + repeats / 2, times.end());
  return times[std::size_t(repeats / 2)];
}

Tensor random_tensor(const Shape& shape, std::uint64_t stream, float scale = 1) {
  Tensor x = Tensor::empty(shape);
  launch(Device::cpu, FillNormal{.y = x.data(), .n = x.numel(), .scale = scale, .key = {1, stream}});
  return x;
}

std::string cell(const std::string& value, std::size_t width) {
  return std::string(width > value.size() ? width - value.size() : 0, ' ') + value;
}

Json products(Console& console) {
  struct Size {
    Index M, N, K;
  };
  console.say("\nmatrix products      M      N      K   GFLOP/s");
  Json rows = Json::array();
  for (const auto [M, N, K] : {Size{2048, 512, 512},
                               {2048, 2048, 512},
                               {2048, 512, 2048},
                               {1024, 1024, 1024},
                               {4096, 128, 128},
                               {4096, 512, 128},
                               {4096, 128, 512}}) {
    const Tensor a = random_tensor({M, K}, 1), b = random_tensor({K, N}, 2);
    Tensor c = Tensor::empty({M, N});
    Gemm g{.c = {c.data(), false},
           .a = a.data(),
           .b = b.data(),
           .bias = nullptr,
           .M = M,
           .N = N,
           .K = K,
           .a_row = K,
           .a_col = 1,
           .b_row = N,
           .b_col = 1,
           .c_row = N};
    const double rate = 2e-9 * double(M * N * K) / seconds_of(15, [&] { launch(Device::cpu, g); });
    console.say(cell(grouped(M), 22) + cell(grouped(N), 7) + cell(grouped(K), 7) + cell(fixed(rate, 1), 10));
    rows.push_back({{"M", M}, {"N", N}, {"K", K}, {"gflops", rate}});
  }
  return rows;
}

// The shape that docs and comparisons quote: 4 layers of width 128, 4 heads, vocabulary 256, 16 rows of 256 tokens.
Json training_steps(Console& console) {
  console.say("\ntraining step, small language model (4 layers, dim 128, ffn 512, vocabulary 256, 16 x 256 tokens)");
  console.say("       attention   ms/step   tokens/s   peak memory");
  Json rows = Json::array();
  for (const AttentionKind& kind : attention_kinds()) {
    LanguageModelOptions options;
    options.transformer.attention.kind = kind.name;
    options.block = 256;
    options.tie = true;
    Random random(1);
    const LanguageModel model(options, random);
    Optimizer optimizer(model.parameters(), {});
    Tensor ids = Tensor::empty({16, 256}, DType::i32), targets = Tensor::empty({16, 256}, DType::i32);
    for (Tensor* t : {&ids, &targets})
      for (Index i = 0; i < t->numel(); ++i) t->ints()[i] = std::int32_t(random.below(256));
    memory::reset_peak(Device::cpu);
    const double seconds = seconds_of(7, [&] {
      model.parameters().clear_grads();
      Tape tape;
      tape.backward(model.loss(ids, targets, {}));
      optimizer.step(1e-4, 1);
    });
    const Index peak = memory::stats(Device::cpu).peak_bytes;
    console.say(cell(kind.name, 16) + cell(fixed(1e3 * seconds, 1), 10) + cell(grouped(Index(4096 / seconds)), 11) +
                cell(megabytes(peak), 14));
    rows.push_back({{"attention", kind.name}, {"ms", 1e3 * seconds}, {"peak_bytes", peak}});
  }
  return rows;
}

// One attention layer of 4 heads of 32, forward and backward.
double attention_seconds(const AttentionKind& kind, Index B, Index N, bool causal, Index& peak) {
  const Index H = 4, d = 32;
  const Var qkv(random_tensor({B, N, 3 * H * d}, 3), true);
  const Var w1(random_tensor({H, d, d}, 4, 0.2f), true), w2(random_tensor({H, d, d}, 5, 0.2f), true);
  const Var tau(Tensor::full({H}, 2.4f), true);
  const FeatureMapVars map{kind.features, kind.frequency_sets > 0 ? w1 : Var(), kind.frequency_sets > 1 ? w2 : Var(),
                           kind.has_tau ? tau : Var()};
  const Tensor dy = random_tensor({B, N, H * d}, 6);
  memory::reset_peak(Device::cpu);
  const double seconds = seconds_of(N > 4096 ? 1 : 3, [&] {
    qkv.clear_grad();
    Tape tape;
    const AttentionMask mask{.causal = causal, .key_mask = {}};
    const Var y = kind.is_linear ? linear_self_attention(qkv, H, map, mask, kind.language_floor)
                                 : softmax_self_attention(qkv, H, mask);
    tape.backward(y, dy);
  });
  peak = memory::stats(Device::cpu).peak_bytes;
  return seconds;
}

// Time and memory against the length N at a constant 8,192 tokens, and where a linear kind overtakes softmax.
Json attention(Console& console, bool causal) {
  console.say(text("\nattention forward + backward, ", causal ? "causal" : "full",
                   ", 8,192 tokens in sequences of N (4 heads of 32): ms, and peak memory"));
  std::string head = cell("N", 8);
  for (const AttentionKind& kind : attention_kinds()) head += cell(kind.name, 24);
  console.say(head);
  Json rows = Json::array();
  std::vector<Index> overtakes(attention_kinds().size(), 0);
  for (Index N = 128; N <= 8192; N *= 2) {
    std::string line = cell(grouped(N), 8);
    double softmax = 0;
    for (std::size_t i = 0; i < attention_kinds().size(); ++i) {
      const AttentionKind& kind = attention_kinds()[i];
      Index peak = 0;
      const double seconds = attention_seconds(kind, 8192 / N, N, causal, peak);
      if (!kind.is_linear) softmax = seconds;
      if (kind.is_linear && seconds < softmax && overtakes[i] == 0) overtakes[i] = N;
      line += cell(fixed(1e3 * seconds, 1), 13) + cell(megabytes(peak), 11);
      rows.push_back(
          {{"attention", kind.name}, {"N", N}, {"causal", causal}, {"ms", 1e3 * seconds}, {"peak_bytes", peak}});
    }
    console.say(line);
  }
  for (std::size_t i = 0; i < overtakes.size(); ++i)
    if (overtakes[i])
      console.say(text(attention_kinds()[i].name, " is faster than softmax from N = ", overtakes[i], " on"));
  return rows;
}

int bench(Options& options) {
  use_machine_options(options);
  Console console;
  console.say(text("threads: ", threads(), threads() == 1 ? " (CPU time)" : " (wall-clock time)"));
  Json result;
  result["threads"] = threads();
  result["products"] = products(console);
  result["training_steps"] = training_steps(console);
  result["attention_full"] = attention(console, false);
  result["attention_causal"] = attention(console, true);
  write_json_atomic(options.text("out"), result);
  console.say(text("\nwritten to ", options.text("out")));
  return 0;
}

}  // namespace
}  // namespace flexformer

int main(int argc, char** argv) {
  flexformer::Options options("bench", "Measures the speed of products, training steps and attention.");
  options.add_text("out", "bench.json", "file for the figures as JSON");
  flexformer::add_machine_options(options);
  options.set("threads", std::int64_t(1));
  return flexformer::run_program(options, argc, argv, flexformer::bench);
}
