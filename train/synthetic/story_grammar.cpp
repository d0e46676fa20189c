// The grammar is a table of segments. A slot of a segment is a plain word or an @action that reads or writes the
// story's memory. Segments that may follow each other differ in their first word, so a text has exactly one derivation
// and the probability of the next word is the product of two table look-ups.
//
// The entropy is a recursion over states. Its trick: words are drawn evenly within their lists, so renaming the people,
// things, colours and places of a story maps its futures one to one. States that differ only in such names share one
// expectation, and a few thousand of them cover all stories.
#include "train/synthetic/story_grammar.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>

#include "tensor/random.h"

namespace flexformer {
namespace {

using std::string_view;

constexpr string_view tellers[] = {"grandma", "grandpa", "mother", "father", "auntie", "uncle", "teacher", "captain"};
// The first half of the names are the girl's, the second the boy's; so with the colours and things they bring. A word
// thus tells its role, which is what a small model learns first; whose thing it is by now it must remember.
constexpr string_view names[] = {"anna", "mia",  "zoe",  "ida",  "eva",  "lea",  "amy",  "ruth",
                                 "lily", "rosa", "nina", "emma", "tom",  "leo",  "ben",  "sam",
                                 "tim",  "jon",  "max",  "noah", "jack", "paul", "carl", "hugo"};
constexpr string_view colours[] = {"red",  "yellow", "pink",  "white", "golden", "silver",
                                   "blue", "green",  "black", "brown", "grey",   "purple"};
constexpr string_view things[] = {"ball", "cup",  "kite", "lamp", "ring", "doll", "bell", "shell",
                                  "hat",  "book", "drum", "boat", "coat", "box",  "key",  "flag"};
constexpr string_view places[] = {"park", "garden", "kitchen", "barn", "shop", "forest", "tower", "library"};

enum SegmentName { opening, event, go, take, ask, ask_who, ask_what, ask_where, thank, bid, praise };
constexpr int questions[] = {ask_who, ask_what, ask_where};
constexpr int closings[] = {thank, bid, praise};

// The whole grammar but for the choice of the next segment, which is in followers().
constexpr string_view grammar_text[] = {
    "@teller tells of @girl and @boy in the @setting . "
    "@same_girl has a @her_colour @her_thing . @same_boy has a @his_colour @his_thing .",  // opening
    "@actor",                                                                              // event
    "goes to the @goal .",                                                                 // go
    "takes the @prize_colour @its_name from @giver .",                                     // take
    "@same_teller asks",                                                                   // ask
    "who has the @asked_object ? @holder has the @its_colour @its_name .",                 // ask_who
    "what colour is the @asked_object ? @its_colour .",                                    // ask_what
    "where is @actor ? in the @whereabouts .",                                             // ask_where
    "thank you , @same_teller . \n",                                                       // thank
    "good night , @same_teller . \n",                                                      // bid
    "well told , @same_teller . \n",                                                       // praise
};

using M = StoryMemory;

template <std::size_t n> constexpr std::span<const string_view> first_half(const string_view (&list)[n]) {
  return {list, n / 2};
}
template <std::size_t n> constexpr std::span<const string_view> second_half(const string_view (&list)[n]) {
  return {list + n / 2, n / 2};
}
constexpr int first_boy = std::size(names) / 2;

// Word i of the boy's half of a list; remembered by its number in the whole list.
int his(int i, std::size_t list_size, int& remembered) {
  remembered = int(list_size / 2) + i;
  return i;
}

bool always(const M&, int) { return true; }
bool only(const M&, int i) { return i == 0; }
bool either(const M&, int i) { return i < 2; }

// What a slot may say: one word for each i with allowed(memory, i), i below the size of the list, all equally likely.
// say() notes the choice in the memory and returns the word's number.
struct Action {
  string_view name;
  std::span<const string_view> words;
  bool (*allowed)(const M&, int i);
  int (*say)(M&, int i);
};

const Action actions[] = {
    // New: any word of the list.
    {"@teller", tellers, always, [](M& m, int i) { return m.teller = i; }},
    {"@girl", first_half(names), always, [](M& m, int i) { return m.name[0] = i; }},
    {"@boy", second_half(names), always, [](M& m, int i) { return his(i, std::size(names), m.name[1]); }},
    {"@her_colour", first_half(colours), always, [](M& m, int i) { return m.colour[0] = i; }},
    {"@his_colour", second_half(colours), always, [](M& m, int i) { return his(i, std::size(colours), m.colour[1]); }},
    {"@her_thing", first_half(things), always, [](M& m, int i) { return m.thing[0] = i; }},
    {"@his_thing", second_half(things), always, [](M& m, int i) { return his(i, std::size(things), m.thing[1]); }},
    {"@setting", places, always,
     [](M& m, int i) {
       m.place.fill(i);
       return i;
     }},
    // New, and not where the walker is already.
    {"@goal", places, [](const M& m, int i) { return i != m.place[m.hero]; },
     [](M& m, int i) { return m.place[m.hero] = i; }},
    // Among what the story has introduced: i is a hero or a thing, 0 or 1. A thing's colour tells which it is.
    {"@actor", names, either, [](M& m, int i) { return m.name[m.hero = i]; }},
    {"@asked_object", things, either, [](M& m, int i) { return m.thing[m.object = i]; }},
    {"@prize_colour", colours, [](const M& m, int i) { return i < 2 && m.owner[i] != m.hero; },
     [](M& m, int i) { return m.colour[m.object = i]; }},
    // Certain, for those who remember.
    {"@same_girl", first_half(names), only, [](M& m, int) { return m.name[0]; }},
    {"@same_boy", second_half(names), only, [](M& m, int) { return m.name[1] - first_boy; }},
    {"@giver", names, only, [](M& m, int) { return m.name[std::exchange(m.owner[m.object], m.hero)]; }},
    {"@holder", names, only, [](M& m, int) { return m.name[m.owner[m.object]]; }},
    {"@its_colour", colours, only, [](M& m, int) { return m.colour[m.object]; }},
    {"@its_name", things, only, [](M& m, int) { return m.thing[m.object]; }},
    {"@whereabouts", places, only, [](M& m, int) { return m.place[m.hero]; }},
    {"@same_teller", tellers, only, [](M& m, int) { return m.teller; }},
};

struct Slot {
  string_view word;
  const Action* action = nullptr;  // null: the plain word
};
using Segment = std::vector<Slot>;

const std::vector<Segment>& grammar() {
  static const std::vector<Segment> parsed = [] {
    std::vector<Segment> segments;
    for (string_view line : grammar_text) {
      segments.emplace_back();
      for (string_view word : story_tokens(line)) {
        const auto action = std::ranges::find(actions, word, &Action::name);
        segments.back().push_back({word, action == std::end(actions) ? nullptr : &*action});
        assert(word[0] != '@' || segments.back().back().action);
      }
    }
    return segments;
  }();
  return parsed;
}

struct Follower {
  int segment;
  double probability;
};

std::vector<Follower> shared(double probability, std::span<const int> segments) {
  std::vector<Follower> next;
  for (int s : segments) next.push_back({s, probability / double(segments.size())});
  return next;
}

// After the opening and each event.
std::vector<Follower> event_or_question(const StoryMemory& m) {
  constexpr double another[] = {0.6, 0.2, 0};  // after 0, 1, 2 events
  return {{event, another[m.events]}, {ask, 1 - another[m.events]}};
}

// The kinds of question not yet asked.
std::vector<Follower> open_questions(const StoryMemory& m) {
  std::vector<int> open;
  for (int q : questions)
    if (!(m.asked >> q & 1)) open.push_back(q);
  return shared(1, open);
}

// After each question.
std::vector<Follower> question_or_closing(const StoryMemory& m) {
  constexpr double another[] = {1, 0.6, 0.25, 0};  // after 0, 1, 2, 3 questions
  const double p = another[std::popcount(m.asked)];
  std::vector<Follower> next = shared(1 - p, closings);
  next.push_back({ask, p});
  return next;
}

// The segments that may follow a finished one. Those of one list differ in their first words.
std::vector<Follower> followers(int segment, const StoryMemory& m) {
  switch (segment) {
    case event: {
      const bool has_both = m.owner[0] == m.hero && m.owner[1] == m.hero;
      return has_both ? std::vector<Follower>{{go, 1}} : std::vector<Follower>{{go, 0.3}, {take, 0.7}};
    }
    case opening:
    case go:
    case take:
      return event_or_question(m);
    case ask:
      return open_questions(m);
    case ask_who:
    case ask_what:
    case ask_where:
      return question_or_closing(m);
    default:
      return {{opening, 1}};
  }
}

StoryState enter(int segment, StoryMemory m) {
  if (segment == opening) m = {};
  if (segment == event) ++m.events;
  if (std::ranges::find(questions, segment) != std::end(questions)) m.asked |= 1u << segment;
  return {segment, 0, m};
}

// Appends what the slot at `state` may say, altogether with probability p.
void append_options(std::vector<StoryOption>& options, const StoryState& state, double p) {
  const Slot& slot = grammar()[state.segment][state.slot];
  StoryState next{state.segment, state.slot + 1, state.memory};
  if (!slot.action) {
    options.push_back({slot.word, p, p, false, next});
    return;
  }
  const Action& action = *slot.action;
  const std::size_t first = options.size();
  const double guess = p / double(action.words.size());
  for (int i = 0; i < int(action.words.size()); ++i) {
    if (!action.allowed(state.memory, i)) continue;
    next.memory = state.memory;
    const int word = action.say(next.memory, i);
    options.push_back({action.words[word], 0, guess, false, next});
  }
  const std::size_t count = options.size() - first;
  for (StoryOption& option : std::span(options).subspan(first)) {
    option.probability = p / double(count);
    option.recalled = count == 1;
  }
}

// All that the future of a state depends on but for the names of things: see the top of this file.
std::uint64_t shape(const StoryState& state) {
  const StoryMemory& m = state.memory;
  std::uint64_t key = 0;
  const auto pack = [&](unsigned value, int bits) { key = key << bits | value; };
  pack(state.segment, 4), pack(state.slot, 8), pack(m.hero, 2), pack(m.object, 2);
  for (int owner : m.owner) pack(owner, 2);
  pack(m.events, 2), pack(m.asked, 16);
  return key;
}

StoryExpectation expect(const StoryState& state, std::unordered_map<std::uint64_t, StoryExpectation>& known) {
  const std::uint64_t key = shape(state);
  if (const auto found = known.find(key); found != known.end()) return found->second;
  StoryExpectation sum;
  for (const StoryOption& option : StoryGrammar::options(state)) {
    const double p = option.probability;
    const StoryExpectation rest = option.word == "\n" ? StoryExpectation{} : expect(option.next, known);
    sum.tokens += p * (1 + rest.tokens);
    sum.entropy += p * (rest.entropy - std::log(p));
    sum.guess_entropy += p * (rest.guess_entropy - std::log(option.guess));
    sum.recalled += p * (option.recalled + rest.recalled);
  }
  return known[key] = sum;
}

}  // namespace

StoryGrammar::StoryGrammar() {
  std::unordered_map<std::uint64_t, StoryExpectation> known;
  whole_ = expect(StoryState{}, known);
}

std::vector<StoryOption> StoryGrammar::options(const StoryState& state) {
  std::vector<StoryOption> options;
  if (state.slot < int(grammar()[state.segment].size())) {
    append_options(options, state, 1);
  } else {
    for (const Follower& f : followers(state.segment, state.memory))
      if (f.probability > 0) append_options(options, enter(f.segment, state.memory), f.probability);
  }
  return options;
}

std::string StoryGrammar::story(std::uint64_t seed, std::uint64_t index) {
  const RandomKey key{seed ^ 0x73746f7279ull, index};  // "story": other uses of the seed draw other numbers
  std::string story;
  StoryState state;
  for (std::uint64_t i = 0;; ++i) {
    const std::vector<StoryOption> all = options(state);
    double left = uniform_at(key, i);
    auto option = all.begin();
    for (; option + 1 != all.end() && left >= option->probability; ++option) left -= option->probability;
    if (option->word == "\n") return story + "\n";
    if (!story.empty()) story += ' ';
    story += option->word;
    state = option->next;
  }
}

std::string StoryGrammar::corpus(std::uint64_t seed, Index stories) {
  std::string corpus;
  for (Index i = 0; i < stories; ++i) corpus += story(seed, std::uint64_t(i));
  return corpus;
}

std::vector<std::string> StoryGrammar::vocabulary() {
  std::set<string_view> words;
  for (const Segment& segment : grammar())
    for (const Slot& slot : segment) {
      if (slot.action)
        words.insert(slot.action->words.begin(), slot.action->words.end());
      else
        words.insert(slot.word);
    }
  return {words.begin(), words.end()};
}

double StoryGrammar::entropy_in_blocks(Index block) const {
  check("story entropy", block >= 1, "a block holds ", block, " tokens; at least 1 is needed");
  constexpr Index sample = 20000;
  const std::string text = corpus(0, sample);
  std::unordered_map<string_view, Index> last_seen;  // in this story
  StoryState state;
  double cost = 0;
  Index i = 0;
  for (string_view word : story_tokens(text)) {
    const std::vector<StoryOption> all = options(state);
    const StoryOption& option = *std::ranges::find(all, word, &StoryOption::word);
    const auto seen = last_seen.find(word);
    const Index distance = seen == last_seen.end() ? 0 : i - seen->second;
    const double cut_off = double(std::min(distance, block)) / double(block);
    cost -= (1 - cut_off) * std::log(option.probability) + cut_off * std::log(option.guess);
    last_seen[word] = i++;
    if (word == "\n") last_seen.clear();
    state = option.next;
  }
  return cost / double(i);
}

double StoryReader::read(string_view word) {
  const std::vector<StoryOption> all = options();
  const auto option = std::ranges::find(all, word, &StoryOption::word);
  if (option == all.end()) {
    std::string allowed;
    for (const StoryOption& o : all) allowed += text(allowed.empty() ? "" : ", ", o.word == "\n" ? "\\n" : o.word);
    fail("story: token ", tokens_ + 1, " is '", word == "\n" ? "\\n" : word, "' where the grammar allows: ", allowed);
  }
  ++tokens_;
  state_ = option->next;
  return std::log(option->probability);
}

std::vector<double> story_log_probabilities(string_view corpus) {
  StoryReader reader;
  std::vector<double> result;
  for (string_view word : story_tokens(corpus)) result.push_back(reader.read(word));
  return result;
}

std::vector<string_view> story_tokens(string_view text) {
  std::vector<string_view> tokens;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = begin + 1;
    if (text[begin] != '\n' && text[begin] != ' ') end = std::min(text.find_first_of(" \n", begin), text.size());
    if (text[begin] != ' ') tokens.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return tokens;
}

}  // namespace flexformer
