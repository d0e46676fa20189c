#include "train/training/tags_task.h"

#include <algorithm>

#include "train/util/program.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

Tensor row_values(const EncodedTexts& texts, std::span<const Index> rows, Index labels, float smoothing) {
  Tensor out = Tensor::empty({Index(rows.size()), labels});
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (Index k = 0; k < labels; ++k)
      out.data()[Index(i) * labels + k] =
          texts.rows[std::size_t(rows[i])].values[std::size_t(k)] * (1 - smoothing) + smoothing / 2;
  return out;
}

Var binary_cross_entropy(const Tensor& wanted, const Var& outputs) {
  return scale(sum(softplus(outputs) - outputs * Var(wanted)), 1 / float(wanted.size(1)));
}

// From what the teacher gives, before its sigmoid.
Var binary_divergence(const Tensor& teacher, const Var& outputs) {
  return binary_cross_entropy(sigmoid(Var(teacher)).value(), outputs);
}

struct Counts {
  double right = 0, given = 0, wanted = 0;  // both, given by the model, standing in the data
  double f1() const { return given + wanted > 0 ? 2 * right / (given + wanted) : 0; }
};

}  // namespace

Tensor TagsTask::labels(std::span<const Index> rows) const {
  return row_values(train_, rows, labels_.size(), options_.label_smoothing);
}

Var TagsTask::loss_sum(const Batch& batch, const Pass& pass) {
  const Var given = outputs(batch, pass);
  const Tensor wanted = batch.back().to(given.device());
  return with_teacher(binary_cross_entropy(wanted, given), given, batch, binary_divergence);
}

Figures TagsTask::figures(const EncodedTexts& texts, const Pass& pass) const {
  const Index labels = labels_.size();
  std::vector<Counts> counts(std::size_t(labels), Counts{});
  double loss = 0, exact = 0;
  for (const std::vector<Index>& rows : length_groups(texts, kEvaluationTokens)) {
    if (stop_signal()) throw Stopped{};
    const Var given = classify(model_, texts, rows, pass);
    const Tensor wanted = row_values(texts, rows, labels, 0), on_host = given.value().to(Device::cpu);
    loss += double(binary_cross_entropy(wanted.to(given.device()), given).value().item());
    for (Index i = 0; i < Index(rows.size()); ++i) {
      bool all = true;
      for (Index k = 0; k < labels; ++k) {
        const bool says = on_host.data()[i * labels + k] >= 0, is = wanted.data()[i * labels + k] > 0.5f;
        Counts& count = counts[std::size_t(k)];
        count.right += says && is;
        count.given += says;
        count.wanted += is;
        all = all && says == is;
      }
      exact += all;
    }
  }
  const double n = double(texts.rows.size());
  Counts together;
  double macro = 0;
  std::string table;
  for (Index k = 0; k < labels; ++k) {
    const Counts& count = counts[std::size_t(k)];
    together.right += count.right, together.given += count.given, together.wanted += count.wanted;
    macro += count.f1() / double(labels);
    table += text(printable(labels_.name(k)), ": F1 ", fixed(count.f1(), 3), ", in ", grouped(Index(count.wanted)),
                  " rows, given to ", grouped(Index(count.given)), "\n");
  }
  return {loss / n,
          {{"accuracy", exact / n}, {"f1_micro", together.f1()}, {"f1_macro", macro}},
          text("all labels right in ", fixed(100 * exact / n, 2), " % of ", grouped(Index(n)), " rows, F1 micro ",
               fixed(together.f1(), 4), ", macro ", fixed(macro, 4), ", loss ", fixed(loss / n, 4)),
          table};
}

Evaluation TagsTask::evaluate(const Pass& pass) {
  const Figures found = figures(valid_, pass);
  Evaluation out;
  out.loss = found.loss;
  out.targets = Index(valid_.rows.size());
  for (const auto& [name, value] : found.scores.items())
    out.log["valid_" + name] = out.summary["valid_" + name] = json_number(value.get<double>());
  out.words = text("F1 micro ", fixed(found.scores["f1_micro"].get<double>(), 4));
  return out;
}

}  // namespace flexformer
