// Token and position embedding.
#include "nn/input_embedding.h"

#include <cmath>

namespace flexformer {
namespace {
// Of sinusoids: as large as the token embeddings' start, so that neither drowns the other.
constexpr float position_rms = 0.02f;
}  // namespace

Position position_from(const std::string& name) {
  if (name == "learned") return Position::learned;
  if (name == "sinusoidal") return Position::sinusoidal;
  if (name == "rope") return Position::rope;
  if (name == "none") return Position::none;
  fail("there are no positions called '", name, "'; there are learned, sinusoidal, rope, none");
}

Tensor sinusoids(Index first, Index count, Index dim, float rms) {
  Tensor table = Tensor::empty({count, dim});
  const Index half = (dim + 1) / 2;
  const double amplitude = rms * std::sqrt(2.0);
  for (Index t = 0; t < count; ++t)
    for (Index c = 0; c < dim; ++c) {
      const double angle = double(first + t) * std::pow(10000.0, -double(c % half) / double(half));
      table.data()[t * dim + c] = float(amplitude * (c < half ? std::sin(angle) : std::cos(angle)));
    }
  return table;
}

InputEmbedding::InputEmbedding(const Scope& scope, Index dim, const InputOptions& options, const Initialisation& init)
    : options_(options), dim_(dim) {
  if (options.adaptive.cutoffs.empty())
    token = scope.sub("token").parameter("weight", {options.vocabulary, dim}, init.embedding, {.decay = true});
  else
    adaptive.emplace(scope.sub("token"), options.vocabulary, dim, options.adaptive, init.embedding);
  const Shape shape = {options.position_offset + options.block, dim};  // of a table of positions
  if (options.position == Position::learned) {
    Tensor start = scope.sub("position").draw(shape, init.embedding);
    if (options.sinusoidal_start) start = sinusoids(-options.position_offset, shape[0], dim, position_rms);
    position = scope.sub("position").parameter("weight", start, {.decay = true});
  }
  if (options.position == Position::sinusoidal) {
    const Device device = adaptive ? adaptive->table[0].device() : token.device();
    position = Var(sinusoids(-options.position_offset, shape[0], dim, position_rms).to(device));
  }
  if (options.token_types > 0)
    type = scope.sub("type").parameter("weight", {options.token_types, dim}, init.embedding, {.decay = true});
  if (options.norm_embeddings) norm.emplace(scope.sub("embedding_norm"), dim, options.norm);
}

Var InputEmbedding::positions(Index first, Index count) const {
  const Index offset = options_.position_offset, rows = position.size(0) - offset;
  if (options_.position == Position::sinusoidal && first + count > rows)  // they have no end
    return Var(sinusoids(first, count, dim_, position_rms).to(position.device()));
  check("positions", first + count <= rows, "a sequence of ", first + count, " tokens, but the position table has ",
        rows,
        " rows; shorten it, or train with a longer context (train.block, data.max_length) or another "
        "model.position (rope, sinusoidal, none)");
  return slice(position, 0, offset + first, offset + first + count);
}

Var InputEmbedding::forward(const Tensor& ids, Index first, const Pass& pass, const Tensor& types) const {
  check("model", ids.rank() == 2, "token numbers must be [batch, time], got ", ids.shape());
  Var h = adaptive ? adaptive->forward(ids) : embedding(token, ids, options_.padding);
  if (options_.position == Position::learned || options_.position == Position::sinusoidal)
    h = h + positions(first, ids.size(1));
  if (type.defined()) h = h + (types.defined() ? embedding(type, types) : slice(type, 0, 0, 1));
  if (norm) h = norm->forward(h);
  return dropout(h, options_.dropout, pass);
}

}  // namespace flexformer
