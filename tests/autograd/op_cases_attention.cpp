// Rows of attention: every kind of it against its definition with all Nq x Nk weights.
#include <cmath>

#include "tests/autograd/op_cases.h"

namespace flexformer::testing {
namespace {

struct Size {
  Index B, H, Nq, Nk, d, dv;
};
std::ostream& operator<<(std::ostream& out, const Size& s) {
  return out << s.B << "x" << s.H << "x" << s.Nq << "x" << s.Nk << "x" << s.d << "x" << s.dv;
}

struct Mode {
  const char* name;
  bool causal, masked;
};
const Mode modes[] = {
    {"full", false, false}, {"masked", false, true}, {"causal", true, false}, {"causal masked", true, true}};

// The same mask for the engine and for the reference. The first key is visible, so that no row is empty.
std::pair<AttentionMask, naive::Mask> mask_of(const Mode& mode, Index B, Index Nk) {
  AttentionMask ours{mode.causal, {}};
  naive::Mask reference{mode.causal, {}};
  if (mode.masked) {
    reference.keys = coin_flips(B * Nk, 0.7, 4);
    for (Index b = 0; b < B; ++b) reference.keys[std::size_t(b * Nk)] = 1;
    ours.key_mask = Tensor::from_ints({B, Nk}, reference.keys);
  }
  return {ours, reference};
}

void add_softmax(OpCases& cases, const Size& s, const Mode& mode, float deviation = 1, float scale = 0) {
  const auto [mask, reference] = mask_of(mode, s.B, s.Nk);
  const double factor = scale != 0 ? double(scale) : 1 / std::sqrt(double(s.d));
  cases.push_back(
      {text("softmax_attention ", mode.name, " ", s, " x", deviation, scale != 0 ? " scaled" : ""),
       {normal({s.B, s.H, s.Nq, s.d}, deviation), normal({s.B, s.H, s.Nk, s.d}, deviation),
        normal({s.B, s.H, s.Nk, s.dv})},
       [mask = mask, scale](const Vars& x) { return softmax_attention(x[0], x[1], x[2], beside(x[0], mask), scale); },
       [reference = reference, factor](const Arrays& x) {
         return naive::softmax_attention(x[0], x[1], x[2], reference, factor);
       },
       1e-5,
       deviation > 1 ? 3e-4 : 5e-5});  // scores of 100 are known to 1e-5, and so are their exponentials
}

// Gradients of weights are differences of values and outputs, and outputs have been rounded.
constexpr double kLinearInBf16 = 5e-2;

// A row of linear attention. The inputs are chosen so that denominators stay well away from 0, or from the floor.
struct LinearRow {
  FeatureKind kind;
  const char* name;
  bool tau;
  float spread;
  float floor;
};
const LinearRow linear_rows[] = {
    {FeatureKind::identity, "identity", false, 0.5f, 0},
    {FeatureKind::identity, "identity tau", true, 0.5f, 0.01f},
    {FeatureKind::elu1, "elu1", false, 1, 0},
    {FeatureKind::elu1, "elu1 tau", true, 0.7f, 0.01f},
    {FeatureKind::trig_s, "trig_s", false, 0.3f, 0},
    {FeatureKind::trig_s, "trig_s tau", true, 0.3f, 0},
    {FeatureKind::trig_s, "trig_s tau floor", true, 1, 0.1f},
    {FeatureKind::trig_n, "trig_n", false, 0.3f, 0},
    {FeatureKind::trig_n, "trig_n tau", true, 0.3f, 0},
    {FeatureKind::trig_n, "trig_n tau floor", true, 1, 0.1f},
    {FeatureKind::rfa, "rfa", false, 0.3f, 0},
    {FeatureKind::rfa, "rfa floor", false, 1, 0.7f},
    {FeatureKind::performer, "performer", false, 1, 0},
    {FeatureKind::hedgehog, "hedgehog", false, 1, 0},
    {FeatureKind::cosformer, "cosformer", false, 1, 0},
    {FeatureKind::polaformer, "polaformer", false, 0.2f, 1e-6f},
};
constexpr int first_baseline = 10;  // from here on rows bring nothing but another feature map
const LinearRow &elu1_row = linear_rows[2], &trig_s_row = linear_rows[5], &trig_n_row = linear_rows[8],
                &trig_n_floor_row = linear_rows[9], &performer_row = linear_rows[12], &hedgehog_row = linear_rows[13],
                &polaformer_row = linear_rows[15];
constexpr Index max_length = 150;  // of cosformer's rows

// The map's inputs follow the first `before` ones of a row: w1, w2, tau, as far as the map has them.
std::vector<Input> map_inputs(const LinearRow& row, Index H, Index n, Index d) {
  std::vector<Input> inputs;
  const float deviation = 1 / std::sqrt(std::sqrt(float(d)));
  for (int set = 0; set < weight_sets(row.kind); ++set)
    inputs.push_back(parameter(normal({H, row.kind == FeatureKind::polaformer ? 1 : n, d}, deviation)));
  if (row.tau) inputs.push_back(parameter(normal({H}, 0.25f, std::log(2 * std::sqrt(float(d))))));
  return inputs;
}
// Map is FeatureMapVars or naive::Map.
template <class Map, class Inputs> Map map_of(const LinearRow& row, const Inputs& x, std::size_t before) {
  Map map{.kind = row.kind};
  if (weight_sets(row.kind) >= 1) map.w1 = x[before++];
  if (weight_sets(row.kind) >= 2) map.w2 = x[before++];
  if (row.tau) map.tau = x[before];
  map.max_length = max_length;
  return map;
}
FeatureMapVars map_vars(const LinearRow& row, const Vars& x, std::size_t before) {
  return map_of<FeatureMapVars>(row, x, before);
}
naive::Map map_arrays(const LinearRow& row, const Arrays& x, std::size_t before) {
  return map_of<naive::Map>(row, x, before);
}
// Queries and keys, such that denominators are not just anything: positive for the identity and cosformer, near each
// other for rfa, away from 0 for the powers of polaformer.
Input vectors(const LinearRow& row, const Shape& shape) {
  if (row.kind == FeatureKind::identity || row.kind == FeatureKind::cosformer) return uniform(shape, 0.2f, 1);
  if (row.kind == FeatureKind::rfa) return normal(shape, row.spread, 1);
  if (row.kind != FeatureKind::polaformer) return normal(shape, row.spread);
  std::vector<float> x = normal_numbers(shape.numel(), 8);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = row.spread * x[i] + (i % 3 ? 1.0f : -1.0f);
  return given(shape, x);
}

void add_linear(OpCases& cases, const LinearRow& row, const Size& s, Index n, const Mode& mode) {
  const auto [mask, reference] = mask_of(mode, s.B, s.Nk);
  std::vector<Input> inputs{vectors(row, {s.B, s.H, s.Nq, s.d}), vectors(row, {s.B, s.H, s.Nk, s.d}),
                            normal({s.B, s.H, s.Nk, s.dv})};
  for (const Input& input : map_inputs(row, s.H, n, s.d)) inputs.push_back(input);
  cases.push_back({text("linear_attention ", row.name, " ", mode.name, " ", s, " n", n), inputs,
                   [=, mask = mask](const Vars& x) {
                     return linear_attention(x[0], x[1], x[2], map_vars(row, x, 3), beside(x[0], mask), row.floor);
                   },
                   [=, reference = reference](const Arrays& x) {
                     return naive::linear_attention(x[0], x[1], x[2], map_arrays(row, x, 3), reference,
                                                    double(row.floor));
                   },
                   2e-5, 1e-4, kLinearInBf16});
}

void add_packed(OpCases& cases, const Size& s, const Mode& mode) {
  const auto [mask, reference] = mask_of(mode, s.B, s.Nq);
  const Index H = s.H, C = s.H * s.d;
  cases.push_back({text("softmax_self_attention ", mode.name, " ", s),
                   {normal({s.B, s.Nq, 3 * C})},
                   [mask = mask, H](const Vars& x) { return softmax_self_attention(x[0], H, beside(x[0], mask)); },
                   [=, reference = reference, d = s.d](const Arrays& x) {
                     return naive::merge_heads(
                         naive::softmax_attention(naive::head_part(x[0], H, 0), naive::head_part(x[0], H, 1),
                                                  naive::head_part(x[0], H, 2), reference, 1 / std::sqrt(double(d))));
                   },
                   1e-5,
                   5e-5});
  for (const LinearRow& row : {elu1_row, trig_s_row, trig_n_row, trig_n_floor_row, hedgehog_row, polaformer_row}) {
    std::vector<Input> inputs{vectors(row, {s.B, s.Nq, 3 * C})};
    for (const Input& input : map_inputs(row, H, 5, s.d)) inputs.push_back(input);
    cases.push_back({text("linear_self_attention ", row.name, " ", mode.name, " ", s), inputs,
                     [=, mask = mask](const Vars& x) {
                       return linear_self_attention(x[0], H, map_vars(row, x, 1), beside(x[0], mask), row.floor);
                     },
                     [=, reference = reference](const Arrays& x) {
                       return naive::merge_heads(naive::linear_attention(
                           naive::head_part(x[0], H, 0), naive::head_part(x[0], H, 1), naive::head_part(x[0], H, 2),
                           map_arrays(row, x, 1), reference, double(row.floor)));
                     },
                     2e-5, 1e-4, kLinearInBf16});
  }
}

void add_feature_maps(OpCases& cases) {
  for (const LinearRow& row : linear_rows) {
    if (row.tau || (row.kind == FeatureKind::rfa && row.floor > 0)) continue;
    for (const auto& [shape, n] : {std::pair{Shape{1, 1, 1, 1}, Index(1)},
                                   {{2, 3, 17, 8}, 8},
                                   {{1, 2, 65, 3}, 13},
                                   {{2, 1, 130, 33}, 31},
                                   {{1, 2, 0, 3}, 2}}) {
      const bool keys = n % 2 == 1;
      std::vector<Input> inputs{normal(shape)};
      for (const Input& input : map_inputs(row, shape[1], n, shape[3])) inputs.push_back(input);
      cases.push_back({text("feature_map ", row.name, " ", shape, " n", n), inputs,
                       [=](const Vars& x) { return feature_map(x[0], map_vars(row, x, 1), keys); },
                       [=](const Arrays& x) { return naive::features(x[0], map_arrays(row, x, 1), keys); }});
    }
  }
}

void add_ropes(OpCases& cases) {
  struct Row {
    Index B, T, H, d, position;
    float base;
  };
  for (const Row& row : {Row{1, 1, 1, 2, 0, 10000},
                         {2, 17, 3, 8, 0, 10000},
                         {1, 65, 2, 6, 100, 500},
                         {2, 0, 1, 2, 0, 10},
                         {3, 130, 4, 32, 1000, 10000}})
    cases.push_back({text("rope ", row.B, "x", row.T, " heads ", row.H, "x", row.d, " from ", row.position),
                     {normal({row.B, row.T, 3 * row.H * row.d})},
                     [=](const Vars& x) { return rope(x[0], row.H, row.position, row.base); },
                     [=](const Arrays& x) { return naive::rope(x[0], row.H, row.position, double(row.base)); },
                     1e-5});
}

// A batch whose every key is masked, and causal rows whose first keys are: such a query gets 0 and gives nothing.
void add_blind_rows(OpCases& cases) {
  const Ints keys{1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1};
  const Tensor key_mask = Tensor::from_ints({3, 4}, keys);
  const std::vector<Input> qkv{normal({3, 2, 4, 5}, 0.3f), normal({3, 2, 4, 5}, 0.3f), normal({3, 2, 4, 3})};
  const std::vector<Input> wide(3, normal({3, 2, 4, 32}, 0.5f));
  for (bool causal : {false, true}) {
    const AttentionMask mask{causal, key_mask};
    const naive::Mask reference{causal, keys};
    for (const std::vector<Input>& inputs : {qkv, wide})
      cases.push_back({text("softmax_attention blind rows ", causal ? "causal " : "full ", inputs[0].shape), inputs,
                       [=](const Vars& x) { return softmax_attention(x[0], x[1], x[2], beside(x[0], mask)); },
                       [=, d = double(inputs[0].shape.last())](const Arrays& x) {
                         return naive::softmax_attention(x[0], x[1], x[2], reference, 1 / std::sqrt(d));
                       }});
    for (const LinearRow& row : {elu1_row, trig_s_row, trig_n_floor_row, performer_row, polaformer_row}) {
      std::vector<Input> inputs = qkv;
      for (const Input& input : map_inputs(row, 2, 4, 5)) inputs.push_back(input);
      cases.push_back({text("linear_attention blind rows ", row.name, causal ? " causal" : " full"), inputs,
                       [=](const Vars& x) {
                         return linear_attention(x[0], x[1], x[2], map_vars(row, x, 3), beside(x[0], mask), row.floor);
                       },
                       [=](const Arrays& x) {
                         return naive::linear_attention(x[0], x[1], x[2], map_arrays(row, x, 3), reference,
                                                        double(row.floor));
                       },
                       2e-5, 1e-4, kLinearInBf16});
    }
  }
}

// Log-weights far beyond the range of exp: the last key of a causal row must not spoil the earlier ones.
void add_heavy_keys(OpCases& cases) {
  std::vector<float> keys = normal_numbers(20 * 4, 6), queries = normal_numbers(20 * 4, 7);
  for (float& x : keys) x *= 0.3f;
  for (float& x : queries) x *= 0.3f;
  for (std::size_t c = 0; c < 4; ++c) keys[11 * 4 + c] = c == 0 ? 12.0f : 0.1f;  // |k|^2 = 144 with tau = 0
  const LinearRow row{FeatureKind::elu1, "elu1", true, 1, 0};
  for (bool causal : {false, true})
    cases.push_back(
        {text("linear_attention heavy key ", causal ? "causal" : "full"),
         {given({1, 1, 20, 4}, queries), given({1, 1, 20, 4}, keys), normal({1, 1, 20, 3}), parameter(given({1}, {0}))},
         [=](const Vars& x) {
           return linear_attention(x[0], x[1], x[2], map_vars(row, x, 3), {causal, {}}, 0);
         },
         [=](const Arrays& x) {
           return naive::linear_attention(x[0], x[1], x[2], map_arrays(row, x, 3), {causal, {}}, 0);
         },
         2e-5,
         1e-4,
         1});  // the output is all but the heavy key's value: what is left of their difference is rounding
}

// Keys in float beside queries and values in bfloat16.
void add_two_formats(OpCases& cases) {
  cases.push_back({"softmax_attention of two formats",
                   {normal({1, 2, 9, 4}), parameter(normal({1, 2, 9, 4})), normal({1, 2, 9, 4})},
                   [](const Vars& x) { return softmax_attention(x[0], x[1], x[2], {}); },
                   [](const Arrays& x) { return naive::softmax_attention(x[0], x[1], x[2], {}, 0.5); },
                   1e-5,
                   5e-5});
}

// Heads that tensor cores take, in bfloat16 on a GPU.
void add_heads_of_32_and_64(OpCases& cases) {
  for (const Mode& mode : modes) add_softmax(cases, {1, 1, 66, 66, 32, 32}, mode);
  for (const Mode& mode : {modes[1], modes[2]}) add_softmax(cases, {1, 1, 130, 130, 64, 64}, mode);
  add_softmax(cases, {2, 1, 63, 129, 64, 64}, modes[0], 2);
  add_packed(cases, {1, 2, 67, 67, 32, 32}, modes[3]);
}

// Heads, features and sequences that kernels cut in pieces along every axis.
void add_many_pieces(OpCases& cases) {
  const Size wide{1, 1, 9, 9, 70, 90}, long_and_thin{1, 1, 600, 600, 2, 1};
  for (const Mode& mode : modes) add_softmax(cases, wide, mode);
  for (const Mode& mode : {modes[0], modes[3]}) {
    add_linear(cases, trig_s_row, wide, 35, mode);
    add_linear(cases, hedgehog_row, wide, 66, mode);
    add_linear(cases, polaformer_row, wide, 1, mode);
    add_linear(cases, trig_n_row, long_and_thin, 3, mode);
  }
}

// The full product of rows and modes at N = 17, a diagonal of it at the others; half of that for the baselines, and not
// at the largest size.
bool is_tried(Index row, Index N, Index mode) {
  const bool diagonal = (row + N) % 4 == mode;
  if (row < first_baseline) return N == 17 || diagonal;
  return N == 17 ? (row + mode) % 2 == 0 : N < 100 && diagonal;
}

}  // namespace

void add_attention_cases(OpCases& cases) {
  const Size square[] = {{1, 1, 1, 1, 1, 1}, {2, 2, 17, 17, 3, 5}, {1, 2, 65, 65, 8, 8}, {2, 1, 130, 130, 33, 17}};
  const Size cross[] = {{2, 2, 7, 17, 8, 3}, {1, 1, 65, 1, 3, 8}, {1, 3, 1, 130, 8, 8}};
  const Size none[] = {{1, 1, 0, 5, 3, 2}, {1, 2, 3, 0, 3, 2}};
  for (const Size& s : square)
    for (const Mode& mode : modes) {
      add_softmax(cases, s, mode);
      for (int i = 0; i < int(std::size(linear_rows)); ++i)
        if (is_tried(i, s.Nq, &mode - modes)) add_linear(cases, linear_rows[i], s, s.d == 33 ? 9 : s.d + 2, mode);
    }
  for (const Size& s : cross)
    for (const Mode& mode : {modes[0], modes[1]}) {
      add_softmax(cases, s, mode);
      add_linear(cases, mode.masked ? polaformer_row : performer_row, s, 5, mode);
      for (int i : {0, 2, 5, 8, 9}) add_linear(cases, linear_rows[i], s, 5, mode);
    }
  for (const Size& s : none) {
    add_softmax(cases, s, modes[0]);
    for (const LinearRow& row : {elu1_row, trig_n_row, performer_row, polaformer_row})
      add_linear(cases, row, s, 4, modes[0]);
  }
  add_softmax(cases, square[1], modes[2], 8);
  add_softmax(cases, square[1], modes[0], 1, 0.7f);
  for (const Mode& mode : modes) add_packed(cases, {2, 3, 19, 19, 4, 4}, mode);
  add_packed(cases, {2, 2, 130, 130, 16, 16}, modes[2]);
  add_feature_maps(cases);
  add_ropes(cases);
  add_blind_rows(cases);
  add_heavy_keys(cases);
  add_many_pieces(cases);
  add_heads_of_32_and_64(cases);
  add_two_formats(cases);
}

}  // namespace flexformer::testing
