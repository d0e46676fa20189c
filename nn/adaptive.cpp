// Tokens are sorted into bands on the host. embedding() then does the rest: it picks rows of tables, of the batch, and
// puts the bands' results back in place. A band without a token is a table with no rows picked, so its gradient is 0
// rather than missing, and the optimiser treats it as any other.
#include "nn/adaptive.h"

#include <cmath>

namespace flexformer {
namespace {

// Of each band: where in the batch its tokens stand, and their ids counted from the band's first.
struct Sorted {
  std::vector<std::vector<std::int32_t>> places, ids;
};

Sorted sort_into(CheckedOp op, const std::vector<Band>& bands, const Tensor& ids, const std::int32_t* ignore) {
  Sorted sorted{std::vector<std::vector<std::int32_t>>(bands.size()), {}};
  sorted.ids = sorted.places;
  const Tensor on_host = ids.to(Device::cpu);
  const Index V = bands.back().first + bands.back().size;
  for (Index i = 0; i < ids.numel(); ++i) {
    const std::int32_t id = on_host.ints()[i];
    if (ignore && id == *ignore) continue;
    check(op, id >= 0 && id < V, "id ", id, " at position ", i, " is outside the vocabulary of ", V);
    std::size_t b = bands.size() - 1;
    while (id < bands[b].first) --b;
    sorted.places[b].push_back(std::int32_t(i));
    sorted.ids[b].push_back(std::int32_t(id - bands[b].first));
  }
  return sorted;
}

Tensor on_device(const std::vector<std::int32_t>& values, Device device) {
  return Tensor::from_ints({Index(values.size())}, values).to(device);
}

// N(0, 1/width): a vector mapped by it has as large numbers as before.
Var make_projection(const Scope& scope, Index dim, const Band& band) {
  return scope.parameter("projection", {dim, band.width}, Init::normal(1 / std::sqrt(float(band.width))),
                         {.decay = true});
}

Var make_table(const Scope& scope, const Band& band, Init init) {
  return scope.parameter("weight", {band.size, band.width}, init, {.decay = true});
}

Scope scope_of(const Scope& scope, std::size_t band) { return scope.sub(text("band", band)); }

}  // namespace

std::vector<Band> adaptive_bands(Index vocabulary, Index dim, const AdaptiveOptions& options) {
  std::vector<Band> bands;
  Index first = 0, width = dim;
  for (const Index cutoff : options.cutoffs) {
    check("adaptive", cutoff > first && cutoff < vocabulary, "cut-off ", cutoff, " does not lie between ", first,
          " and the vocabulary's size ", vocabulary, "; model.adaptive needs rising numbers below that size");
    bands.push_back({first, cutoff - first, width});
    first = cutoff;
    width /= options.factor;
  }
  check("adaptive", width > 0, dim, " channels cannot be divided ", options.cutoffs.size(), " times by ",
        options.factor, "; give model.adaptive fewer cut-offs, or lower model.adaptive_factor");
  bands.push_back({first, vocabulary - first, width});
  return bands;
}

AdaptiveInput::AdaptiveInput(const Scope& scope, Index vocabulary, Index dim, const AdaptiveOptions& options, Init init)
    : bands(adaptive_bands(vocabulary, dim, options)) {
  for (std::size_t b = 0; b < bands.size(); ++b) {
    table.push_back(make_table(scope_of(scope, b), bands[b], init));
    projection.push_back(make_projection(scope_of(scope, b), dim, bands[b]));
  }
}

Var AdaptiveInput::forward(const Tensor& ids) const {
  const Device device = table[0].device();
  const Sorted sorted = sort_into("adaptive_input", bands, ids, nullptr);
  std::vector<Var> parts;  // the batch in the order of bands
  std::vector<std::int32_t> row_at(std::size_t(ids.numel()));
  std::int32_t row = 0;
  for (std::size_t b = 0; b < bands.size(); ++b) {
    parts.push_back(linear(embedding(table[b], on_device(sorted.ids[b], device)), projection[b], Var()));
    for (const std::int32_t place : sorted.places[b]) row_at[std::size_t(place)] = row++;
  }
  return embedding(concat(parts, 0), Tensor::from_ints(ids.shape(), row_at).to(device));
}

AdaptiveSoftmax::AdaptiveSoftmax(const Scope& scope, Index vocabulary, Index dim, const AdaptiveOptions& options,
                                 Init init, const AdaptiveInput* tied)
    : bands(adaptive_bands(vocabulary, dim, options)) {
  for (std::size_t b = 0; b < bands.size(); ++b) {
    table.push_back(tied ? tied->table[b] : make_table(scope_of(scope, b), bands[b], init));
    projection.push_back(b == 0 ? Var()
                         : tied ? tied->projection[b]
                                : make_projection(scope_of(scope, b), dim, bands[b]));
  }
  tails = scope.parameter("tails", {Index(bands.size()) - 1, dim}, init, {.decay = true});
}

Var AdaptiveSoftmax::loss(const Var& h, const Tensor& targets, const CrossEntropyOptions& options) const {
  const CheckedOp op = "adaptive_softmax";
  const Shape shape = h.shape();
  const Index R = targets.numel(), dim = shape.last();
  check(op, shape.numel() == R * dim && shape.rank() == targets.rank() + 1, "h is ", shape, ", targets ",
        targets.shape(), "; targets need h's shape without the last axis");
  check(op, options.label_smoothing == 0, "label smoothing ", options.label_smoothing,
        " would need the logits of every band for every token; leave out train.label_smoothing or model.adaptive");
  const Sorted sorted = sort_into(op, bands, targets, &options.ignore_index);
  const CrossEntropyOptions summed{.mean = false};
  const Var rows = reshape(h, {R, dim});
  // For the head a word of a later band is that band's class.
  std::vector<std::int32_t> classes(std::size_t(R), summed.ignore_index);
  Index count = 0;
  for (std::size_t b = 0; b < bands.size(); ++b) {
    const auto tail = std::int32_t(bands[0].size + Index(b) - 1);
    for (std::size_t i = 0; i < sorted.places[b].size(); ++i)
      classes[std::size_t(sorted.places[b][i])] = b == 0 ? sorted.ids[b][i] : tail;
    count += Index(sorted.places[b].size());
  }
  Var sum = linear_cross_entropy(rows, concat({table[0], tails}, 0), Var(), on_device(classes, h.device()), summed);
  for (std::size_t b = 1; b < bands.size(); ++b) {
    const Var theirs = matmul(embedding(rows, on_device(sorted.places[b], h.device())), projection[b]);
    sum = sum + linear_cross_entropy(theirs, table[b], Var(), on_device(sorted.ids[b], h.device()), summed);
  }
  return options.mean && count > 0 ? scale(sum, 1 / float(count)) : sum;
}

Var AdaptiveSoftmax::log_probabilities(const Var& h) const {
  const Index words = bands[0].size;
  const Var head = log_softmax(concat({linear(h, table[0], Var()), linear(h, tails, Var())}, -1), -1);
  std::vector<Var> parts = {slice(head, -1, 0, words)};
  for (std::size_t b = 1; b < bands.size(); ++b) {
    const Index of_band = words + Index(b) - 1;
    parts.push_back(slice(head, -1, of_band, of_band + 1) +
                    log_softmax(linear(matmul(h, projection[b]), table[b], Var()), -1));
  }
  return concat(parts, -1);
}

}  // namespace flexformer
