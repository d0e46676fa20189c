// Story grammar: endless small stories whose exact entropy is known, so that a language model's loss can be read as a
// distance from the best possible one. Many words can only be told by remembering the story: who took which thing,
// where somebody went, who tells it.
//   "grandma tells of anna and tom in the park . anna has a red ball . tom has a blue hat . tom takes the red ball
//    from anna . grandma asks who has the ball ? tom has the red ball . thank you , grandma ."
// One function, options(), lists every word that may come next and its probability. It drives the generator, the exact
// entropy and the ideal model alike, so they cannot disagree.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/shape.h"

namespace flexformer {

// Everything a story has established so far. Words are numbered within their lists. Hero 0 is the girl, hero 1 the boy;
// thing 0 is the one that she brings, thing 1 his.
struct StoryMemory {
  int teller = -1;
  std::array<int, 2> name{}, place{};    // of each hero
  std::array<int, 2> thing{}, colour{};  // of each thing
  std::array<int, 2> owner = {0, 1};     // of each thing, a hero
  int hero = 0, object = 0;              // the hero and the thing that the sentence is about
  int events = 0;
  unsigned asked = 0;  // one bit for each kind of question
};

// Where a story stands: the next slot of a segment of the grammar, and the memory.
struct StoryState {
  int segment = 0, slot = 0;  // the default is the start of a story
  StoryMemory memory;
};

// One way to go on.
struct StoryOption {
  std::string_view word;
  double probability = 1;  // given the whole story so far
  double guess = 1;        // for a reader who knows the grammar but guesses names, things, colours and places evenly
  bool recalled = false;   // such a word, and the story leaves no other choice
  StoryState next;
};

// Exact sums expected from one state to the end of the story.
struct StoryExpectation {
  double tokens = 0;         // words, punctuation marks and the closing "\n"
  double entropy = 0;        // nats
  double guess_entropy = 0;  // nats, cross-entropy of the reader of StoryOption::guess
  double recalled = 0;       // tokens that are certain, but only for those who remember the story
};

class StoryGrammar {
 public:
  StoryGrammar();

  // The words that may come next, each once; their probabilities sum to 1. After "\n" a new story begins.
  static std::vector<StoryOption> options(const StoryState& state);
  // Story number `index` of a seed: words separated by spaces, then "\n". Equal on every machine.
  static std::string story(std::uint64_t seed, std::uint64_t index);
  // Stories 0 .. stories-1 of a seed, one a line.
  static std::string corpus(std::uint64_t seed, Index stories);
  // All words of the grammar, "\n" included, each once.
  static std::vector<std::string> vocabulary();

  double mean_tokens() const { return whole_.tokens; }         // tokens per story
  double entropy_per_story() const { return whole_.entropy; }  // nats per story
  // The limits that a model's loss on a long corpus is compared with, in nats per token: the least any model can reach,
  // and the least without remembering the story.
  double entropy_per_token() const { return whole_.entropy / whole_.tokens; }
  double entropy_without_recall() const { return whole_.guess_entropy / whole_.tokens; }
  // Fraction of the tokens that are certain, but only for those who remember the story.
  double recall_share() const { return whole_.recalled / whole_.tokens; }
  // What a model can hope for that sees the corpus cut into blocks of `block` tokens and so has forgotten the story's
  // earlier part at the start of each, in nats per token. Not exact: averaged over 20,000 stories (standard error
  // 0.001), and a word last mentioned before the block is taken for guessed.
  double entropy_in_blocks(Index block) const;

 private:
  StoryExpectation whole_;  // of a whole story
};

// The ideal model: reads a corpus word by word and knows the true probability of each.
class StoryReader {
 public:
  std::vector<StoryOption> options() const { return StoryGrammar::options(state_); }
  // Log-probability (nats) of the next word, which is then part of the story. Throws Error for a word that the grammar
  // does not allow here; the message lists those it does.
  double read(std::string_view word);

 private:
  StoryState state_;
  Index tokens_ = 0;
};

// Log-probability (nats) of each token of a corpus under the ideal model. Throws Error as StoryReader::read() does.
std::vector<double> story_log_probabilities(std::string_view corpus);

// Splits a corpus into its tokens: whatever stands between spaces, and each line end as "\n".
std::vector<std::string_view> story_tokens(std::string_view text);

}  // namespace flexformer
