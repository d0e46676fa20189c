// The story grammar: its probabilities against sampled stories, and its recall against a reader of the plain text.
#include <cmath>
#include <map>
#include <set>

#include <doctest/doctest.h>

#include "tests/train/util/messages.h"
#include "train/synthetic/story_grammar.h"

using namespace flexformer;
using tests::message_of;

namespace {

// Mean and standard error of the mean of one figure per story.
struct Mean {
  double sum = 0, squares = 0;
  Index count = 0;
  void add(double x) { sum += x, squares += x * x, ++count; }
  double value() const { return sum / double(count); }
  double error() const { return std::sqrt((squares / double(count) - value() * value()) / double(count)); }
};

// What a person who reads the stories would know, gathered from the words alone.
struct Listener {
  std::map<std::string, std::string> owner, colour, place;  // of a thing, a thing, a person
  std::string setting;

  void hear(const std::vector<std::string>& sentence) {
    const auto word = [&](std::size_t i) { return i < sentence.size() ? sentence[i] : std::string(); };
    if (word(1) == "tells") setting = word(sentence.size() - 2);
    if (word(1) == "has") owner[word(4)] = word(0), colour[word(4)] = word(3);
    if (word(1) == "takes") owner[word(4)] = word(0);
    if (word(1) == "goes") place[word(0)] = word(4);
  }
  // The answer to the question that ends a sentence, empty where there is none.
  std::string answer(const std::vector<std::string>& sentence) const {
    if (sentence.back() != "?") return "";  // else "grandma asks who has the ball ?"
    const std::string& subject = sentence[sentence.size() - 2];
    if (sentence[2] == "who") return owner.at(subject);
    if (sentence[2] == "what") return colour.at(subject);
    const auto moved = place.find(subject);
    return moved == place.end() ? setting : moved->second;
  }
};

}  // namespace

TEST_CASE("story grammar: the probabilities of the next words sum to 1 and each word has one derivation") {
  StoryReader reader;
  const std::string corpus = StoryGrammar::corpus(3, 400);
  for (std::string_view word : story_tokens(corpus)) {
    double probability = 0, guess = 0;
    std::set<std::string_view> words;
    for (const StoryOption& option : reader.options()) {
      probability += option.probability;
      guess += option.guess;
      words.insert(option.word);
    }
    REQUIRE(probability == doctest::Approx(1).epsilon(1e-12));
    REQUIRE(guess <= 1 + 1e-12);
    REQUIRE(words.size() == reader.options().size());
    reader.read(word);
  }
}

TEST_CASE("story grammar: exact expectations agree with 20,000 sampled stories") {
  const StoryGrammar grammar;
  Mean entropy, guess, tokens, recalled;
  StoryReader reader;
  for (std::uint64_t i = 0; i < 20000; ++i) {
    double log_p = 0, log_guess = 0, recalls = 0;
    const std::string story = StoryGrammar::story(11, i);
    const auto words = story_tokens(story);
    for (std::string_view word : words) {
      for (const StoryOption& option : reader.options()) {
        if (option.word != word) continue;
        log_guess += std::log(option.guess);
        recalls += option.recalled;
      }
      log_p += reader.read(word);
    }
    entropy.add(-log_p), guess.add(-log_guess), tokens.add(double(words.size())), recalled.add(recalls);
  }
  CHECK(std::fabs(entropy.value() - grammar.entropy_per_story()) < 3 * entropy.error());
  CHECK(std::fabs(tokens.value() - grammar.mean_tokens()) < 3 * tokens.error());
  CHECK(std::fabs(guess.value() - grammar.entropy_without_recall() * grammar.mean_tokens()) < 3 * guess.error());
  CHECK(std::fabs(recalled.value() - grammar.recall_share() * grammar.mean_tokens()) < 3 * recalled.error());
  CHECK(entropy.error() < 0.01 * grammar.entropy_per_story());
  CHECK(grammar.entropy_per_token() == doctest::Approx(grammar.entropy_per_story() / grammar.mean_tokens()));
}

TEST_CASE("story grammar: every answer is true, and certain to the ideal model") {
  Index questions = 0, names_recalled = 0;
  StoryReader reader;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    Listener listener;
    std::vector<std::string> sentence;
    std::string expected, teller, before;
    const std::string story = StoryGrammar::story(5, i);
    for (std::string_view token : story_tokens(story)) {
      const std::string word(token);
      const double log_p = reader.read(word);
      if (teller.empty()) teller = word;
      if (!expected.empty() && word != "in" && word != "the") {
        REQUIRE(word == expected);
        REQUIRE(log_p == 0);
        expected.clear();
        ++questions;
      }
      if ((sentence.size() == 3 && sentence[2] == ",") || before == "from") {  // "thank you , grandma", "... from anna"
        if (before == ",") REQUIRE(word == teller);
        REQUIRE(log_p == 0);
        ++names_recalled;
      }
      before = word;
      sentence.push_back(word);
      if (word == "?") expected = listener.answer(sentence);
      if (word == "." || word == "?") {
        listener.hear(sentence);
        sentence.clear();
      }
    }
  }
  CHECK(questions > 2000);
  CHECK(names_recalled > 2000);
}

TEST_CASE("story grammar: a reader without memory is clearly worse") {
  const StoryGrammar grammar;
  CHECK(grammar.recall_share() > 0.15);
  CHECK(grammar.recall_share() < 0.25);
  CHECK(grammar.entropy_without_recall() > grammar.entropy_per_token() + 0.4);
  CHECK(grammar.mean_tokens() > 40);
  CHECK(grammar.mean_tokens() < 55);
}

TEST_CASE("story grammar: cutting the corpus into longer blocks loses less") {
  const StoryGrammar grammar;
  const double short_blocks = grammar.entropy_in_blocks(32), long_blocks = grammar.entropy_in_blocks(256);
  CHECK(grammar.entropy_in_blocks(1) < grammar.entropy_without_recall() + 0.003);
  CHECK(short_blocks < grammar.entropy_in_blocks(1));
  CHECK(long_blocks < short_blocks);
  CHECK(long_blocks > grammar.entropy_per_token());
  CHECK(grammar.entropy_in_blocks(Index(1) << 40) == doctest::Approx(grammar.entropy_per_token()).epsilon(0.005));
  CHECK(message_of([&] { grammar.entropy_in_blocks(0); }).find("at least 1 is needed") != std::string::npos);
}

TEST_CASE("story grammar: a seed gives the same stories everywhere, another seed others") {
  CHECK(StoryGrammar::story(1, 0) ==
        "grandpa tells of zoe and hugo in the kitchen . zoe has a yellow ball . hugo has a brown boat . "
        "zoe takes the brown boat from hugo . grandpa asks who has the ball ? zoe has the yellow ball . well told , "
        "grandpa .\n");
  CHECK(StoryGrammar::corpus(1, 3) ==
        StoryGrammar::story(1, 0) + StoryGrammar::story(1, 1) + StoryGrammar::story(1, 2));
  CHECK(StoryGrammar::corpus(1, 3) != StoryGrammar::corpus(2, 3));
  CHECK(StoryGrammar::corpus(1, 0).empty());
}

TEST_CASE("story grammar: the vocabulary is what stories are made of") {
  const std::vector<std::string> vocabulary = StoryGrammar::vocabulary();
  CHECK(vocabulary.size() >= 60);
  CHECK(vocabulary.size() <= 120);
  std::set<std::string> used;
  const std::string corpus = StoryGrammar::corpus(4, 2000);
  for (std::string_view word : story_tokens(corpus)) used.emplace(word);
  CHECK(used == std::set<std::string>(vocabulary.begin(), vocabulary.end()));
  CHECK(used.size() == vocabulary.size());
}

TEST_CASE("story grammar: a word out of place is named with those allowed") {
  const auto read = [](std::string text) { return message_of([&] { story_log_probabilities(text); }); };
  CHECK(read("uncle tells of anna or tom").find("token 5 is 'or' where the grammar allows: and") != std::string::npos);
  CHECK(read("uncle tells of anna and mia").find("token 6 is 'mia' where the grammar allows: tom, leo") !=
        std::string::npos);
  CHECK(read("uncle tells\n").find("token 3 is '\\n' where the grammar allows: of") != std::string::npos);
  const std::vector<double> log_p = story_log_probabilities("uncle tells of anna");
  REQUIRE(log_p.size() == 4);
  CHECK(log_p[0] == doctest::Approx(-std::log(8)));
  CHECK(log_p[1] == 0);
  CHECK(log_p[3] == doctest::Approx(-std::log(12)));
}
