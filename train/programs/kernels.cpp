// kernels: shows what the attention of a trained model has learned, as a section of its run's report.
#include <algorithm>
#include <iostream>
#include <optional>

#include "train/models/classifier_run.h"
#include "train/models/language_run.h"
#include "train/models/model_options.h"
#include "train/reports/kernel_pictures.h"
#include "train/reports/report.h"
#include "train/synthetic/story_grammar.h"
#include "train/util/files.h"
#include "train/util/log.h"
#include "train/util/program.h"

namespace flexformer {
namespace {

constexpr Index kTexts = 8;  // that shares and spreads are taken over, at most; maps are of the first

// Texts of at most `tokens` tokens each, padded at the end, as the model reads them.
struct Batch {
  Tensor ids;         // i32 [texts, tokens]
  std::string first;  // the first one, for people
};

Batch make_batch(std::vector<std::vector<std::int32_t>> texts, Index tokens, const Tokenizer& tokenizer) {
  if (texts.empty() || texts.front().empty()) fail("the text has no tokens; give another one by text=...");
  std::size_t longest = 0;
  for (auto& text : texts) {
    text.resize(std::min(text.size(), std::size_t(tokens)));
    longest = std::max(longest, text.size());
  }
  Batch batch{Tensor::empty({Index(texts.size()), Index(longest)}, DType::i32), tokenizer.decode(texts.front())};
  std::fill_n(batch.ids.ints(), batch.ids.numel(), std::max(tokenizer.pad_id(), 0));
  for (std::size_t i = 0; i < texts.size(); ++i) std::ranges::copy(texts[i], batch.ids.ints() + Index(i * longest));
  return batch;
}

// Pieces of `tokens` tokens from the start of the given text or of the validation data. Only whole pieces follow the
// first one: padding would be a token like any other to a language model.
Batch language_batch(const Options& options, const SavedLanguageModel& saved, const RunFolder& folder) {
  if (options.text("text").empty()) check_data_given(saved.options, folder, "a text: text");
  const Index tokens = std::min(options.integer("tokens"), saved.options.integer("train.block"));
  std::vector<std::int32_t> ids;
  if (!options.text("text").empty()) {
    ids = saved.tokenizer->encode(options.text("text"));
  } else if (saved.options.text("data.train").empty()) {
    ids = saved.tokenizer->encode(StoryGrammar::corpus(2, 100));
  } else {
    Console console;
    const LanguageData data =
        load_language_data(saved.options, load_tokenizer(folder), cache_options(saved.options, folder, console));
    ids = data.text.valid.part(0, std::min(data.text.valid.size(), std::size_t(kTexts * tokens))).ids();
  }
  std::vector<std::vector<std::int32_t>> pieces;
  for (std::size_t at = 0; at < ids.size() && Index(pieces.size()) < kTexts; at += std::size_t(tokens)) {
    if (at > 0 && at + std::size_t(tokens) > ids.size()) break;
    pieces.emplace_back(ids.begin() + Index(at), ids.begin() + std::min(Index(ids.size()), Index(at) + tokens));
  }
  return make_batch(std::move(pieces), tokens, *saved.tokenizer);
}

// The given text, whose two parts a tab separates in a pair, or the first validation rows.
Batch classifier_batch(const Options& options, SavedClassifier& saved, const RunFolder& folder) {
  const EncodingOptions encoding = encoding_options(saved.options);
  std::vector<std::vector<std::int32_t>> texts;
  if (const std::string& given = options.text("text"); !given.empty()) {
    const std::size_t tab = encoding.pair ? given.find('\t') : std::string::npos;
    Row row;
    row.text = given.substr(0, tab);
    if (tab != std::string::npos) row.text2 = given.substr(tab + 1);
    texts.push_back(encode_row(row, *saved.tokenizer, encoding).ids);
  } else {
    check_data_given(saved.options, folder, "a text: text");
    const ClassifierData data = load_classifier_data(saved.options, load_tokenizer(folder), saved.labels, true);
    for (const EncodedText& row : data.valid_texts.rows)
      if (Index(texts.size()) < kTexts) texts.push_back(row.ids);
  }
  return make_batch(std::move(texts), options.integer("tokens"), *saved.tokenizer);
}

// What a reader must know of the start that is shown, which is the seed's.
std::string start_note(const RunFolder& folder, const Options& trained, const AttentionKind& kind) {
  if (!kind.learns_map) return "";
  if (const std::string& init = trained.text("init"); !init.empty())
    return text("This run began with the weights of ", init,
                ". The start shown here is the one of its seed, which it did not have.");
  // Also for the run folder inside of it, in which the kernels alone have learned.
  const std::filesystem::path home = std::filesystem::absolute(folder.path()).lexically_normal();
  const std::filesystem::path path = (home.filename() == "kernels" ? home.parent_path() : home) / "distill.json";
  if (!std::filesystem::exists(path)) return "";
  const Json command = read_json(path);
  const std::string where = path.string();
  if (const auto from = json_get<std::string>(command, "kernels", where); !from.empty())
    return text("This model was distilled, with kernels from ", from,
                ". The start shown here is the one of its seed, which it did not have.");
  if (json_get<std::string>(command, "start", where) != "fitted") return "";
  return "This model was distilled, and its start fitted to the teacher: each head's frequencies times one factor of "
         "at most 1, and a tau of its own. The start shown here is the one before that: directions compare as they "
         "are, norms up to this factor.";
}

// The start is the same model made again: its random numbers follow from the seed.
template <class Model, class Forward>
std::string section(const Model& model, const Model& start, const Batch& batch, const std::string& note,
                    const Forward& forward) {
  const std::vector<LayerSight> sights = watch_layers(forward);
  return kernels_html({model.transformer(), start.transformer(), sights, batch.first, note});
}

std::string language_section(const Options& options, const RunFolder& folder) {
  const SavedLanguageModel saved(folder);
  Random random(std::uint64_t(saved.options.integer("seed")));
  const LanguageModel start(language_model_options(saved.options, saved.tokenizer->vocab_size()), random);
  const Batch batch = language_batch(options, saved, folder);
  const std::string note = start_note(folder, saved.options, *start.transformer().blocks.front().attention.kind);
  return section(*saved.model, start, batch, note, [&](const Pass& pass) { saved.model->forward(batch.ids, pass); });
}

std::string classifier_section(const Options& options, const RunFolder& folder) {
  SavedClassifier saved(folder);
  Random random(std::uint64_t(saved.options.integer("seed")));
  const Classifier start(classifier_options(saved.options, *saved.tokenizer, saved.labels.outputs()), random);
  const Batch batch = classifier_batch(options, saved, folder);
  const std::string note = start_note(folder, saved.options, *start.transformer().blocks.front().attention.kind);
  return section(*saved.model, start, batch, note, [&](const Pass& pass) { saved.model->encode(batch.ids, pass); });
}

int kernels(Options& options) {
  use_machine_options(options);
  if (options.text("run").empty()) throw UsageError("which model shall be shown? Give run=DIR, the folder of a run");
  RunFolder folder = RunFolder::for_use(options.text("run"), "");
  const std::string& out = options.text("out");
  if (out.empty()) folder.claim();  // a run that goes on rewrites its report
  const RunRecord run = read_run(folder.path());
  const std::string shown =
      run.program == "train_lm" ? language_section(options, folder) : classifier_section(options, folder);
  const std::filesystem::path page = out.empty() ? folder.file("report.html") : std::filesystem::path(out);
  write_file_atomic(page, report_html(run, run.trained ? "not finished" : "imported", shown));
  std::cout << text("the attention of ", folder.path().string(), " is in ", page.string(), ", section Kernels",
                    out.empty() ? "; training that goes on writes the report without it" : "")
            << "\n";
  return 0;
}

}  // namespace
}  // namespace flexformer

int main(int argc, char** argv) {
  flexformer::Options options("kernels", "Adds what a trained model's attention has learned to its run's report.html.");
  options.add_path("run", "", "run folder of train_lm, train_classifier, distill or import_model");
  options.add_path("out", "", "file to write; empty: report.html of the run, which must not be training just now");
  options.add_text("text", "",
                   "text to attend to, a tab between the two of a pair; empty: the beginning of the validation data");
  options.add_integer("tokens", 64,
                      {.min = 1, .max = 512, .unit = "tokens", .help = "as much of a text is read and drawn"});
  flexformer::add_machine_options(options);
  return flexformer::run_program(options, argc, argv, flexformer::kernels);
}
