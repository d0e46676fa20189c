// Refusals of the elementwise, shape, reduction, norm and loss ops beyond one row per check (op_cases_bad.cpp): what
// must hold for every op of a family, ids and targets that are far off, and that nothing is left behind.
#include <doctest/doctest.h>

#include <functional>

#include "autograd/ops.h"

namespace flexformer {
namespace {

void check_error(const std::function<void()>& call, const std::string& part) {
  try {
    call();
  } catch (const Error& error) {
    CHECK_MESSAGE(std::string(error.what()).find(part) != std::string::npos, error.what(), " lacks: ", part);
    return;
  }
  FAIL_CHECK("nothing was thrown, expected: ", part);
}

Var var(const Shape& shape) { return Var(Tensor::zeros(shape), true); }
Tensor ints(const Shape& shape, std::initializer_list<std::int32_t> values) {
  return Tensor::from_ints(shape, std::vector(values));
}

}  // namespace

TEST_CASE("every op refuses an undefined input and one of another element type by name") {
  const Var none, whole(ints({2}, {1, 2})), x = var({2});
  struct Row {
    const char* name;
    std::function<Var(const Var&)> op;
  };
  const Row rows[] = {
      {"gelu", [](const Var& v) { return gelu(v); }},
      {"pow", [](const Var& v) { return pow(v, 2); }},
      {"scale", [](const Var& v) { return scale(v, 2); }},
      {"maximum", [&](const Var& v) { return maximum(x, v); }},
      {"div", [&](const Var& v) { return v / x; }},
      {"where",
       [&](const Var& v) {
         return where(ints({2}, {1, 0}), x, v);
       }},
      {"masked_fill",
       [&](const Var& v) {
         return masked_fill(v, ints({2}, {1, 0}), 0);
       }},
      {"dropout", [](const Var& v) { return dropout(v, 0.5f, {}); }},
      {"reshape",
       [](const Var& v) {
         return reshape(v, {2, 1});
       }},
      {"permute", [](const Var& v) { return permute(v, {0}); }},
      {"transpose", [](const Var& v) { return transpose(v, 0, 0); }},
      {"slice", [](const Var& v) { return slice(v, 0, 0, 1); }},
      {"concat",
       [&](const Var& v) {
         return concat({x, v}, 0);
       }},
      {"expand",
       [](const Var& v) {
         return expand(v, {3, 2});
       }},
      {"sum", [](const Var& v) { return sum(v); }},
      {"mean", [](const Var& v) { return mean(v); }},
      {"variance", [](const Var& v) { return variance(v); }},
      {"max", [](const Var& v) { return max(v, 0); }},
      {"cumsum", [](const Var& v) { return cumsum(v, 0); }},
      {"softmax", [](const Var& v) { return softmax(v, 0); }},
      {"log_softmax", [](const Var& v) { return log_softmax(v, 0); }},
      {"logsumexp", [](const Var& v) { return logsumexp(v, 0); }},
      {"layer_norm", [&](const Var& v) { return layer_norm(x, x, v); }},
      {"rms_norm", [&](const Var& v) { return rms_norm(v, x); }},
      {"l2_normalize", [](const Var& v) { return l2_normalize(v); }},
      {"embedding", [&](const Var& v) { return embedding(v, ints({1}, {0})); }},
      {"cross_entropy", [&](const Var& v) { return cross_entropy(v, ints({}, {0})); }},
      {"softmax_divergence", [&](const Var& v) { return softmax_divergence(x.value(), v); }},
  };
  for (const Row& row : rows) {
    CAPTURE(row.name);
    check_error([&] { row.op(none); }, std::string(row.name) + ": ");
    check_error([&] { row.op(none); }, "undefined");
    check_error([&] { row.op(whole); }, "holds i32, this op needs f32");
  }
}

TEST_CASE("an axis outside the shape is refused, whichever op is asked") {
  const Var x = var({2, 3});
  for (int axis : {2, 999, -3}) {
    const std::string part = text("there is no axis ", axis, " in shape [2,3]");
    check_error([&] { sum(x, {axis}); }, part);
    check_error([&] { mean(x, {0, axis}); }, part);
    check_error([&] { max(x, axis); }, part);
    check_error([&] { softmax(x, axis); }, part);
    check_error([&] { slice(x, axis, 0, 1); }, part);
    check_error([&] { concat({x, x}, axis); }, part);
    check_error([&] { permute(x, {0, axis}); }, part);
    check_error([&] { transpose(x, axis, 0); }, part);
  }
  check_error([&] { permute(x, {0, 0}); }, "axis 0 is repeated");
  check_error([&] { permute(x, {-1, 1}); }, "axis 1 is repeated");
}

TEST_CASE("parts that do not fit cannot be joined") {
  check_error([] { concat({var({0}), var({2, 3})}, 0); }, "part 1 is [2,3], which does not fit to part 0, [0]");
  check_error([] { concat({var({2, 3}), var({2, 4})}, 0); }, "along axis 0");
  CHECK_EQ(concat({var({2, 0}), var({2, 3})}, 1).shape(), Shape{2, 3});
}

TEST_CASE("an id outside the table is refused with and without a padding row, before any memory is read") {
  const Var table = var({16, 4});
  for (std::int32_t id : {-1, 16, 40, 1000000000})
    for (std::int32_t padding : {-1, 0}) {
      const Tensor ids = ints({2, 2}, {0, 15, id, 3});
      check_error([&] { embedding(table, ids, padding); },
                  text("id ", id, " at position 2 is outside the table of 16 rows"));
    }
  check_error([&] { embedding(table, ints({1}, {0}), -2); }, "padding row -2 is not in a table of 16 rows");
}

TEST_CASE("a target that is no class is refused unless it is the ignore index") {
  const Var logits = var({3, 3});
  check_error([&] { cross_entropy(logits, ints({3}, {0, 1, 3})); }, "target 3 at position 2 is outside the 3 classes");
  check_error(
      [&] {
        cross_entropy(logits, ints({3}, {0, -4, 1}), {.ignore_index = -1});
      },
      "target -4 at position 1 is outside the 3 classes and is not the ignore index -1");
  CHECK_EQ(cross_entropy(logits, ints({3}, {0, -1, 1}), {.ignore_index = -1}).shape(), Shape{});
}

TEST_CASE("a refused op leaves nothing on the tape and no memory behind") {
  const Var x = var({2, 3}), table = var({4, 2});
  const Index before = memory::stats(Device::cpu).live_bytes;
  Tape tape;
  check_error([&] { x + var({2}); }, "do not broadcast");
  check_error([&] { embedding(table, ints({1}, {9})); }, "id 9 at position 0");
  CHECK_EQ(tape.entries(), 0);
  CHECK_EQ(memory::stats(Device::cpu).live_bytes, before);
}

}  // namespace flexformer
