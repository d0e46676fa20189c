// Embedding and cross-entropy. Ids and targets are checked, on the host, before a kernel sees them: a kernel could only
// read foreign memory.
#include "autograd/op_util.h"

namespace flexformer {

Var embedding(const Var& table, const Tensor& given, std::int32_t padding) {
  check_input("embedding", "the table", table);
  check_ints("embedding", "ids", given);
  check("embedding", table.shape().rank() == 2, "the table is ", table.shape(), ", not [V,C]");
  const Index R = given.numel(), V = table.size(0), C = table.size(1);
  check("embedding", padding >= -1 && padding < V, "padding row ", padding, " is not in a table of ", V, " rows");
  const Tensor on_host = given.to(Device::cpu), ids = given.to(table.device());
  for (Index r = 0; r < R; ++r) {
    const std::int32_t id = on_host.ints()[r];
    check("embedding", id >= 0 && id < V, "id ", id, " at position ", r, " is outside the table of ", V, " rows");
  }
  Shape shape = ids.shape();
  shape.append(C);
  const DType dtype = table.dtype() == DType::bf16 ? DType::bf16 : activation_dtype(table.device());
  Tensor y = Tensor::empty(shape, dtype, table.device());
  launch(table.device(),
         EmbeddingFwd{.y = y.values(), .table = table.value().values(), .ids = ids.ints(), .R = R, .C = C, .V = V});
  return record("embedding", y, {&table}, [dtable = table.gradient(), ids, R, C, V, padding](const Tensor& dy) {
    launch(
        dy.device(),
        EmbeddingBwd{
            .dtable = dtable.out(), .dy = dy.values(), .ids = ids.ints(), .R = R, .C = C, .V = V, .padding = padding});
  });
}

namespace {

// The weight of each row's loss: 1, or for a mean one over the number of targets that count. Throws Error for a target
// that is neither a class nor ignored.
float row_weight(CheckedOp op, const Tensor& targets, Index V, const CrossEntropyOptions& options) {
  check(op, options.label_smoothing >= 0 && options.label_smoothing <= 1, "label smoothing ", options.label_smoothing,
        " is not in [0, 1]");
  const std::int32_t ignore = options.ignore_index;
  Index count = 0;
  const Tensor on_host = targets.to(Device::cpu);
  for (Index r = 0; r < targets.numel(); ++r) {
    const std::int32_t target = on_host.ints()[r];
    if (target == ignore) continue;
    check(op, target >= 0 && target < V, "target ", target, " at position ", r, " is outside the ", V,
          " classes and is not the ignore index ", ignore);
    ++count;
  }
  return count == 0 ? 0.0f : options.mean ? 1.0f / float(count) : 1.0f;
}

// The scalar weight * sum of the rows' losses.
Tensor weighted_sum(const Tensor& rows, float weight) {
  Tensor loss = Tensor::empty({}, DType::f32, rows.device());
  launch(rows.device(),
         SumFwd{.y = {loss.data()}, .x = rows.data(), .outer = 1, .n = rows.numel(), .inner = 1, .scale = weight});
  return loss;
}

}  // namespace

Var cross_entropy(const Var& logits, const Tensor& given, const CrossEntropyOptions& options) {
  check_input("cross_entropy", "logits", logits);
  check_ints("cross_entropy", "targets", given);
  const int rank = logits.shape().rank();
  check("cross_entropy", rank >= 1 && reduced(logits.shape(), rank - 1, false) == given.shape(), "logits are ",
        logits.shape(), ", targets ", given.shape(), "; targets need the logits' shape without the last axis");
  const Index R = given.numel(), V = logits.shape().last();
  const float weight = row_weight("cross_entropy", given, V, options);
  const Tensor targets = given.to(logits.device());
  Tensor rows = Tensor::empty({R}, DType::f32, logits.device()), lse = Tensor::empty({R}, DType::f32, logits.device());
  launch(logits.device(), CrossEntropyFwd{.loss = rows.data(),
                                          .lse = lse.data(),
                                          .logits = logits.value().values(),
                                          .targets = targets.ints(),
                                          .R = R,
                                          .V = V,
                                          .ignore = options.ignore_index,
                                          .smoothing = options.label_smoothing});
  return record("cross_entropy", weighted_sum(rows, weight), {&logits},
                [logits, targets, lse, R, V, options, weight](const Tensor& dy) {
                  Tensor drows = Tensor::empty({R}, DType::f32, dy.device());
                  launch(
                      dy.device(),
                      SumBwd{.dx = {drows.data()}, .dy = dy.values(), .outer = 1, .n = R, .inner = 1, .scale = weight});
                  launch(dy.device(), CrossEntropyBwd{.dlogits = logits.gradient().out(),
                                                      .dloss = drows.data(),
                                                      .logits = logits.value().values(),
                                                      .lse = lse.data(),
                                                      .targets = targets.ints(),
                                                      .R = R,
                                                      .V = V,
                                                      .ignore = options.ignore_index,
                                                      .smoothing = options.label_smoothing});
                });
}

Var softmax_divergence(const Tensor& teacher, const Var& logits) {
  check_input("softmax_divergence", "logits", logits);
  check_input("softmax_divergence", "teacher", Var(teacher));
  check("softmax_divergence", teacher.shape() == logits.shape(), "logits are ", logits.shape(), ", the teacher's ",
        teacher.shape(), "; both models need the same inputs and classes");
  const Var log_p = log_softmax(Var(teacher), -1);
  return sum(exp(log_p) * (log_p - log_softmax(logits, -1)));
}

namespace {

// Gradients of a scalar that was computed together with them: for a loss gradient of 1, kept until it is known.
struct Kept {
  Gradient to;
  Tensor grad;  // undefined where nobody wants it
  Kept(const Var& x, bool recording) : to(x.gradient()) {
    if (recording && x.requires_grad()) grad = Tensor::empty(x.shape(), x.dtype(), x.device());
  }
  // Where the part of rows from `row` on goes; `add`: what is there is kept.
  GradOut at(Index row, bool add) {
    return grad.defined() ? GradOut{grad.values().from(row * grad.shape().last()), add} : GradOut{};
  }
  void release(const Tensor& dy) const {
    if (grad.defined()) pass_scaled(to, grad, dy, 1);
  }
};

}  // namespace

Var linear_cross_entropy(const Var& x, const Var& W, const Var& b, const Tensor& given,
                         const CrossEntropyOptions& options) {
  const char* op = "linear_cross_entropy";
  const auto [R, V, I] = linear_sizes(op, x, W, b);
  check_ints(op, "targets", given);
  check(op, reduced(x.shape(), x.shape().rank() - 1, false) == given.shape(), "x is ", x.shape(), ", targets ",
        given.shape(), "; targets need x's shape without the last axis");
  const float weight = row_weight(op, given, V, options);
  const Tensor targets = given.to(x.device());

  // Logits at once: 16 MB on the CPU, whose caches they shall not leave; on a GPU, where each chunk reads and writes
  // all of dW, up to 512 MB. At least 64 rows, or products become slow.
  const Index chunk_size = x.device() == Device::cpu ? 1 << 22 : 1 << 27;
  const Index rows = std::clamp<Index>(R, 1, std::max<Index>(64, chunk_size / std::max<Index>(1, V)));
  const bool recording = Tape::current() != nullptr;
  const Device device = x.device();
  Kept dx(x, recording), dW(W, recording), db(b, recording);
  Tensor losses = Tensor::empty({R}, DType::f32, device), lse = Tensor::empty({rows}, DType::f32, device);
  Tensor logits = Tensor::empty({rows, V}, x.dtype(), device);
  const Tensor row_gradients = Tensor::full({rows}, weight, device);
  for (Index r = 0; r == 0 || r < R; r += rows) {  // once without rows: gradients of W are then 0
    const Index n = std::min(rows, R - r);
    Gemm g = product({logits.values()}, x.value().values().from(r * I), false, W.value().values(), true, n, V, I);
    g.bias = data_or_null(b);
    launch(device, g);
    launch(device, CrossEntropyFwd{.loss = losses.data() + r,
                                   .lse = lse.data(),
                                   .logits = logits.values(),
                                   .targets = targets.ints() + r,
                                   .R = n,
                                   .V = V,
                                   .ignore = options.ignore_index,
                                   .smoothing = options.label_smoothing});
    const GradOut to_x = dx.at(r, false), to_W = dW.at(0, r > 0), to_b = db.at(0, r > 0);
    if (!to_x && !to_W && !to_b) continue;
    launch(device, CrossEntropyBwd{.dlogits = {logits.values()},
                                   .dloss = row_gradients.data(),
                                   .logits = logits.values(),
                                   .lse = lse.data(),
                                   .targets = targets.ints() + r,
                                   .R = n,
                                   .V = V,
                                   .ignore = options.ignore_index,
                                   .smoothing = options.label_smoothing});
    if (to_x) launch(device, product(to_x, logits.values(), false, W.value().values(), false, n, I, V));
    if (to_W) launch(device, product(to_W, logits.values(), true, x.value().values().from(r * I), false, V, I, n));
    if (to_b) launch(device, SumFwd{.y = to_b, .x = logits.values(), .outer = 1, .n = n, .inner = V, .scale = 1});
  }
  return record("linear_cross_entropy", weighted_sum(losses, weight), {&x, &W, &b}, [dx, dW, db](const Tensor& dy) {
    for (const Kept* kept : {&dx, &dW, &db}) kept->release(dy);
  });
}

}  // namespace flexformer
