// Embedding and cross-entropy. Ids and targets are checked before a kernel sees them: a kernel could only read foreign
// memory.
#include "autograd/op_util.h"

namespace flexformer {

Var embedding(const Var& table, const Tensor& ids, std::int32_t padding) {
  check_input("embedding", "the table", table);
  check_ints("embedding", "ids", ids);
  check("embedding", table.shape().rank() == 2, "the table is ", table.shape(), ", not [V,C]");
  check_same_device("embedding", table.device(), ids.device());
  const Index R = ids.numel(), V = table.size(0), C = table.size(1);
  check("embedding", padding >= -1 && padding < V, "padding row ", padding, " is not in a table of ", V, " rows");
  for (Index r = 0; r < R; ++r) {
    const std::int32_t id = ids.ints()[r];
    check("embedding", id >= 0 && id < V, "id ", id, " at position ", r, " is outside the table of ", V, " rows");
  }
  Shape shape = ids.shape();
  shape.append(C);
  Tensor y = Tensor::empty(shape, DType::f32, table.device());
  launch(table.device(),
         EmbeddingFwd{.y = y.data(), .table = table.value().data(), .ids = ids.ints(), .R = R, .C = C, .V = V});
  return record("embedding", y, {&table}, [dtable = table.gradient(), ids, R, C, V, padding](const Tensor& dy) {
    launch(dy.device(),
           EmbeddingBwd{
               .dtable = dtable.out(), .dy = dy.data(), .ids = ids.ints(), .R = R, .C = C, .V = V, .padding = padding});
  });
}

namespace {

// How many targets count. Throws Error for one that is neither a class nor ignored.
Index count_targets(const Tensor& targets, Index V, std::int32_t ignore) {
  Index count = 0;
  for (Index r = 0; r < targets.numel(); ++r) {
    const std::int32_t target = targets.ints()[r];
    if (target == ignore) continue;
    check("cross_entropy", target >= 0 && target < V, "target ", target, " at position ", r, " is outside the ", V,
          " classes and is not the ignore index ", ignore);
    ++count;
  }
  return count;
}

}  // namespace

Var cross_entropy(const Var& logits, const Tensor& targets, const CrossEntropyOptions& options) {
  check_input("cross_entropy", "logits", logits);
  check_ints("cross_entropy", "targets", targets);
  check_same_device("cross_entropy", logits.device(), targets.device());
  const int rank = logits.shape().rank();
  check("cross_entropy", rank >= 1 && reduced(logits.shape(), rank - 1, false) == targets.shape(), "logits are ",
        logits.shape(), ", targets ", targets.shape(), "; targets need the logits' shape without the last axis");
  check("cross_entropy", options.label_smoothing >= 0 && options.label_smoothing <= 1, "label smoothing ",
        options.label_smoothing, " is not in [0, 1]");
  const Index R = targets.numel(), V = logits.shape().last();
  const Index count = count_targets(targets, V, options.ignore_index);
  const float weight = count == 0 ? 0.0f : options.mean ? 1.0f / float(count) : 1.0f;
  Tensor rows = Tensor::empty({R}, DType::f32, logits.device()), lse = Tensor::empty({R}, DType::f32, logits.device());
  launch(logits.device(), CrossEntropyFwd{.loss = rows.data(),
                                          .lse = lse.data(),
                                          .logits = logits.value().data(),
                                          .targets = targets.ints(),
                                          .R = R,
                                          .V = V,
                                          .ignore = options.ignore_index,
                                          .smoothing = options.label_smoothing});
  Tensor loss = Tensor::empty({}, DType::f32, logits.device());
  launch(logits.device(),
         SumFwd{.y = {loss.data()}, .x = rows.data(), .outer = 1, .n = R, .inner = 1, .scale = weight});
  return record("cross_entropy", loss, {&logits}, [logits, targets, lse, R, V, options, weight](const Tensor& dy) {
    Tensor drows = Tensor::empty({R}, DType::f32, dy.device());
    launch(dy.device(), SumBwd{.dx = {drows.data()}, .dy = dy.data(), .outer = 1, .n = R, .inner = 1, .scale = weight});
    launch(dy.device(), CrossEntropyBwd{.dlogits = logits.gradient().out(),
                                        .dloss = drows.data(),
                                        .logits = logits.value().data(),
                                        .lse = lse.data(),
                                        .targets = targets.ints(),
                                        .R = R,
                                        .V = V,
                                        .ignore = options.ignore_index,
                                        .smoothing = options.label_smoothing});
  });
}

}  // namespace flexformer
