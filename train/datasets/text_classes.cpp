#include "train/datasets/text_classes.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "tensor/random.h"

namespace flexformer {
namespace {

// Cuts texts so that together they have at most `room` tokens: the longer one first, at its end.
void cut_to(std::vector<std::int32_t>& a, std::vector<std::int32_t>& b, std::size_t room) {
  const std::size_t half = room / 2;
  if (a.size() + b.size() <= room) return;
  if (a.size() <= half)
    b.resize(room - a.size());
  else if (b.size() <= room - half)
    a.resize(room - b.size());
  else
    a.resize(half), b.resize(room - half);
}

}  // namespace

EncodedText encode_row(const Row& row, const Tokenizer& tokenizer, const EncodingOptions& options,
                       EncodedTexts* counts) {
  const auto room = std::size_t(options.max_length - (options.start_token ? 1 : 0) - (options.end_token ? 1 : 0));
  const auto separators = std::size_t(options.separators);
  const std::int32_t unknown = tokenizer.unknown_id();
  const auto tokens_of = [&](const std::string& text) {
    std::vector<std::int32_t> ids = tokenizer.encode(text);
    if (counts) {
      counts->words += std::ssize(ids);
      counts->unknown += std::ranges::count(ids, unknown);
    }
    if (ids.empty()) {
      ids.push_back(unknown);
      if (counts) ++counts->empty;
    }
    return ids;
  };
  EncodedText out;
  out.ids = tokens_of(row.text);
  bool cut = false;
  std::size_t before = out.ids.size();
  if (options.pair) {
    out.ids2 = tokens_of(row.text2);
    before += out.ids2.size();
    if (options.two_tower) {
      cut = out.ids.size() > room || out.ids2.size() > room;
      out.ids2.resize(std::min(out.ids2.size(), room));
    } else {
      cut_to(out.ids, out.ids2, room - std::min(separators, room));
      cut = out.ids.size() + out.ids2.size() < before;
      out.ids.insert(out.ids.end(), separators, tokenizer.special_id("<sep>"));
      out.ids.insert(out.ids.end(), out.ids2.begin(), out.ids2.end());
      out.ids2.clear();
    }
  }
  cut = cut || out.ids.size() > room;
  out.ids.resize(std::min(out.ids.size(), room));
  if (options.end_token)
    for (auto* ids : {&out.ids, &out.ids2})
      if (!ids->empty()) ids->push_back(tokenizer.special_id("<sep>"));
  if (options.start_token)
    for (auto* ids : {&out.ids, &out.ids2})
      if (!ids->empty()) ids->insert(ids->begin(), tokenizer.special_id("<cls>"));
  if (counts) {
    counts->truncated += cut;
    counts->lengths.push_back(std::int64_t(before));
    counts->longest = std::max({counts->longest, std::int64_t(out.ids.size()), std::int64_t(out.ids2.size())});
    counts->tokens += std::int64_t(out.ids.size() + out.ids2.size());
  }
  return out;
}

EncodedTexts encode_table(const Table& table, const LabelMap& labels, const Tokenizer& tokenizer,
                          const EncodingOptions& options) {
  std::vector<std::int32_t> classes;
  std::vector<double> numbers;
  std::vector<std::vector<float>> values;
  if (labels.kind() == LabelMap::number) numbers = label_numbers(table);
  if (labels.kind() == LabelMap::classes) classes = label_ids(table, labels);
  if (labels.has_several()) values = label_values(table, labels);
  EncodedTexts out;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    EncodedText& row = out.rows.emplace_back(encode_row(table.rows[i], tokenizer, options, &out));
    if (!numbers.empty()) row.number = float((numbers[i] - labels.mean()) / labels.deviation());
    if (!classes.empty()) row.label = classes[i];
    if (!values.empty()) row.values = std::move(values[i]);
  }
  return out;
}

Table split_off(Table& table, double share, std::uint64_t seed, bool regression) {
  const auto class_of = [&](const Row& row) { return regression ? "" : row.label.value_or(""); };
  std::map<std::string, std::int64_t> wanted;
  for (const Row& row : table.rows) ++wanted[class_of(row)];
  for (auto& [label, count] : wanted)
    count = count < 2 ? 0 : std::max<std::int64_t>(1, std::int64_t(double(count) * share + 0.5));
  std::vector<char> moves(table.rows.size(), 0);
  for (std::int64_t i : shuffled(std::int64_t(table.rows.size()), seed, 0)) {
    std::int64_t& left = wanted[class_of(table.rows[std::size_t(i)])];
    if (left > 0) moves[std::size_t(i)] = 1, --left;
  }
  Table other = table;
  other.rows.clear();
  other.notes.clear();  // they are about all rows
  std::vector<Row> stay;
  for (std::size_t i = 0; i < table.rows.size(); ++i)
    (moves[i] ? other.rows : stay).push_back(std::move(table.rows[i]));
  table.rows = std::move(stay);
  return other;
}

std::vector<std::int64_t> shuffled(std::int64_t count, std::uint64_t seed, std::uint64_t stream) {
  std::vector<std::int64_t> order(std::size_t(count), 0);
  std::iota(order.begin(), order.end(), 0);
  for (std::int64_t i = count - 1; i > 0; --i) {
    const Philox x = Philox::at({seed, stream}, std::uint64_t(i));
    const std::uint64_t draw = (std::uint64_t(x.v[0]) << 32) | x.v[1];
    std::swap(order[std::size_t(i)], order[std::size_t(draw % std::uint64_t(i + 1))]);
  }
  return order;
}

}  // namespace flexformer
