// Dashes grow on a grid. A mask says how near to a dash each pixel is (1: within its margin); a new one is put where it
// fits. Lines are drawn twice as large and shrunk with Lanczos' filter, which makes the greys; as there are only some
// thirty ways a dash can point, each is drawn once and stamped from then on.
#include "train/synthetic/pathfinder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "tensor/error.h"

namespace flexformer {
namespace {

constexpr int kSize = int(kPathfinderSize);
constexpr int kLength = 2, kMargin = 1;  // of a dash, in pixels
constexpr int kSeedDistance = 7;         // between the first ends of the two contours
constexpr double kDiscRadius = 1.5;
constexpr double kContourContrast = 1.5, kDistractorContrast = 2;  // a disc has 1; the brightest pixel becomes 255
constexpr int kDistractorDashes = 12;                              // tried; about half find a place
constexpr double kFree = 0.3;                                      // a pixel with less mask may be covered
constexpr double kTouch = 1.8;                                     // two masks together must stay below it

struct Spot {
  int y = 0, x = 0;
  bool inside() const { return y >= 0 && y < kSize && x >= 0 && x < kSize; }
  bool operator==(const Spot&) const = default;
};
// The grid's rounding is the original generator's: places are rounded up and heads down, which keeps the gaps short;
// only the ways a dash can point are rounded to the nearest. `hair` keeps an error in sin()'s last bit from deciding.
constexpr double hair = 1e-9;
// `distance` away in a direction (radians from the x axis towards y).
Spot moved(Spot from, double direction, double distance) {
  return {int(std::ceil(from.y + distance * std::sin(direction) - hair)),
          int(std::ceil(from.x + distance * std::cos(direction) - hair))};
}
Spot head_at(Spot pivot, double direction, double distance) {
  return {int(std::floor(pivot.y + distance * std::sin(direction) + hair)),
          int(std::floor(pivot.x + distance * std::cos(direction) + hair))};
}
// The far end of a dash, in half pixels from the near one.
Spot tip_offset(double direction) {
  return {int(std::floor(2 * kLength * std::sin(direction) + 0.5 + hair)),
          int(std::floor(2 * kLength * std::cos(direction) + 0.5 + hair))};
}
double opposite(double direction) { return direction + (direction < 0 ? std::numbers::pi : -std::numbers::pi); }

using Grid = std::array<float, kSize * kSize>;
float& at(Grid& grid, Spot spot) { return grid[std::size_t(spot.y * kSize + spot.x)]; }
using Bits = std::array<std::uint32_t, kSize>;  // a bit a pixel, x from the lowest

// A square picture, drawn large and shrunk.
struct Canvas {
  explicit Canvas(int size) : size(size), values(std::size_t(size * size)) {}
  float& operator()(int y, int x) { return values[std::size_t(y * size + x)]; }
  float operator()(int y, int x) const { return values[std::size_t(y * size + x)]; }

  int size;
  std::vector<float> values;
};

double lanczos(double x) {
  if (x == 0) return 1;
  if (std::abs(x) >= 3) return 0;
  const double t = std::numbers::pi * x;
  return 3 * std::sin(t) * std::sin(t / 3) / (t * t);
}

// Rows first, then columns, by the same pass over the transposed picture.
Canvas shrink(Canvas large, int size) {
  const double scale = double(large.size) / size;
  for (int pass = 0; pass < 2; ++pass) {
    Canvas turned(large.size);
    for (int i = 0; i < size; ++i) {
      const double centre = (i + 0.5) * scale;
      double total = 0;
      std::vector<double> weights;
      for (int x = 0; x < large.size; ++x) total += weights.emplace_back(lanczos((x + 0.5 - centre) / scale));
      for (int y = 0; y < large.size; ++y) {
        double sum = 0;
        for (int x = 0; x < large.size; ++x) sum += weights[std::size_t(x)] * large(y, x);
        turned(i, y) = float(sum / total);
      }
    }
    large = turned;
  }
  Canvas small(size);
  for (int y = 0; y < size; ++y)
    for (int x = 0; x < size; ++x) small(y, x) = large(y, x);
  return small;
}

// One way a dash can point, as seen from its first end.
constexpr int kReach = kLength + 1 + kMargin, kStampSize = 2 * kReach + 1;
struct Stamp {
  Canvas line{kStampSize}, mask{kStampSize};
  std::vector<Spot> body;  // where the mask is full
};

Stamp draw_stamp(int dy, int dx) {
  Canvas line(4 * kReach + 1), mask(4 * kReach + 1);
  const int centre = 2 * kReach, steps = std::max({std::abs(dy), std::abs(dx), 1});
  for (int i = 0; i <= steps; ++i) {
    const int y = centre + int(std::lround(double(dy * i) / steps));
    const int x = centre + int(std::lround(double(dx * i) / steps));
    line(y, x) = 1;
    for (int v = -2 * kMargin; v <= 2 * kMargin; ++v)
      for (int u = -2 * kMargin; u <= 2 * kMargin; ++u)
        if (v * v + u * u <= 4 * kMargin * kMargin) mask(y + v, x + u) = 1;
  }
  Stamp stamp;
  stamp.line = shrink(line, kStampSize);
  stamp.mask = shrink(mask, kStampSize);
  for (int y = 0; y < kStampSize; ++y)
    for (int x = 0; x < kStampSize; ++x) {
      float& value = stamp.mask(y, x) = std::clamp(stamp.mask(y, x), 0.0f, 1.0f);
      if (value > 0.997f) stamp.body.push_back({y - kReach, x - kReach});
    }
  return stamp;
}

const Stamp& stamp_for(double direction) {
  constexpr int most = 2 * kLength;
  static const std::vector<Stamp> stamps = [] {
    std::vector<Stamp> all;
    for (int dy = -most; dy <= most; ++dy)
      for (int dx = -most; dx <= most; ++dx) all.push_back(draw_stamp(dy, dx));
    return all;
  }();
  const Spot tip = tip_offset(direction);
  return stamps[std::size_t((tip.y + most) * (2 * most + 1) + tip.x + most)];
}

// The other end of a dash as it is drawn.
Point tip_of(Spot start, double direction) {
  const Spot tip = tip_offset(direction);
  return {start.y + tip.y / 2.0, start.x + tip.x / 2.0};
}

// Calls body(pixel of the grid, pixel of the canvas) where a canvas, with its middle at `centre`, covers the picture.
template <class Body> void overlay(const Canvas& canvas, Spot centre, const Body& body) {
  for (int y = 0; y < canvas.size; ++y)
    for (int x = 0; x < canvas.size; ++x) {
      const Spot spot{centre.y + y - canvas.size / 2, centre.x + x - canvas.size / 2};
      if (spot.inside()) body(spot, canvas(y, x));
    }
}

void brighten(Grid& grid, const Canvas& canvas, Spot centre, double contrast) {
  overlay(canvas, centre,
          [&](Spot spot, float value) { at(grid, spot) = std::max(at(grid, spot), value * float(contrast)); });
}

// A contour being drawn. The next dash starts kMargin behind the point that lies kMargin beyond the last one's tip.
struct Chain {
  Spot pivot;                    // kMargin before the last dash
  double direction = 0;          // of the last dash
  const Stamp* stamp = nullptr;  // the last dash, not in the mask yet, for the next one comes near it
  Spot stamp_at;
  std::vector<Dash> dashes;
};

// A pixel where the next dash may end, with the direction that leads there.
struct Head {
  Spot spot;
  double direction, weight;
};

class Artist {
 public:
  Artist(const PathfinderOptions& options, RandomKey key) : options_(options), key_(key) {}
  PathfinderPicture picture();

 private:
  double uniform() { return uniform_at(key_, position_++); }
  int below(int n) { return int(uniform() * n); }
  double any_direction() { return (below(360) - 180) * std::numbers::pi / 180; }

  bool two_contours();
  bool seed(Chain& chain, const Bits& blocked, double contrast);
  bool second_seed(Chain& chain, Spot first);
  std::vector<Head> heads(Spot pivot, double direction);
  bool extend(Chain& chain, double contrast);
  void short_contour(int dashes);
  void draw(Chain& chain, Spot spot, double direction, double contrast);
  void finish(Chain& chain) { brighten(mask_, chain.stamp->mask, chain.stamp_at, 1); }

  bool start(Chain& chain, Spot tail, double direction, double contrast);
  Bits blocked_by_mask(Spot low, Spot high) const;

  const PathfinderOptions& options_;
  RandomKey key_;
  std::uint64_t position_ = 0;
  Grid image_{}, mask_{};
  std::array<Chain, 2> contours_;
};

void Artist::draw(Chain& chain, Spot spot, double direction, double contrast) {
  chain.stamp = &stamp_for(direction);
  chain.stamp_at = spot;
  brighten(image_, chain.stamp->line, spot, contrast);
}

// The first dash from `tail`; false if it or the point before it would lie outside.
bool Artist::start(Chain& chain, Spot tail, double direction, double contrast) {
  const Spot head = moved(tail, direction, kLength);
  chain.pivot = moved(head, opposite(direction), kLength + kMargin);
  chain.direction = direction;
  if (!head.inside() || !chain.pivot.inside()) return false;
  draw(chain, tail, direction, contrast);
  chain.dashes.push_back({{double(tail.y), double(tail.x)}, tip_of(tail, direction)});
  return true;
}

// What may not be covered: masked pixels and those outside low ... high.
Bits Artist::blocked_by_mask(Spot low, Spot high) const {
  Bits blocked;
  for (int y = 0; y < kSize; ++y) {
    blocked[std::size_t(y)] = 0;
    for (int x = 0; x < kSize; ++x) {
      const bool out = y < low.y || y > high.y || x < low.x || x > high.x;
      if (out || mask_[std::size_t(y * kSize + x)] > kFree) blocked[std::size_t(y)] |= 1u << x;
    }
  }
  return blocked;
}

// Starts a contour at a random place where its first dash covers nothing that is blocked.
bool Artist::seed(Chain& chain, const Bits& blocked, double contrast) {
  for (int attempt = 0; attempt < 3; ++attempt) {
    const double direction = any_direction();
    Bits taken = blocked;
    for (const Spot offset : stamp_for(direction).body)
      for (int y = 0; y < kSize; ++y) {
        if (!Spot{y + offset.y, 0}.inside()) continue;
        const std::uint32_t row = blocked[std::size_t(y + offset.y)];
        taken[std::size_t(y)] |= offset.x >= 0 ? row >> offset.x : row << -offset.x;
      }
    int places = 0;
    for (std::uint32_t row : taken) places += std::popcount(~row);
    if (places == 0) return false;
    int place = below(places);
    for (int y = 0; y < kSize; ++y)
      for (int x = 0; x < kSize; ++x)
        if (!(taken[std::size_t(y)] >> x & 1) && place-- == 0 && start(chain, {y, x}, direction, contrast)) return true;
  }
  return false;
}

bool Artist::second_seed(Chain& chain, Spot first) {
  for (int attempt = 0; attempt < 3; ++attempt) {
    const double direction = any_direction(), around = any_direction();
    if (start(chain, moved(first, around, kSeedDistance), direction, kContourContrast)) return true;
  }
  return false;
}

// Where the next dash may end, `pivot` being the point beyond the last tip: the pixels around it, the likelier the
// straighter the contour goes on (cos^2 of the turn, none beyond 90 degrees), as far as the mask leaves room.
std::vector<Head> Artist::heads(Spot pivot, double direction) {
  constexpr int reach = kLength + kMargin;
  std::vector<Head> found;
  for (double angle = 0; angle < 2 * std::numbers::pi; angle += 1.0 / reach) {  // a pixel of arc
    const Spot spot = head_at(pivot, angle, reach);
    if (!spot.inside() || std::ranges::find(found, spot, &Head::spot) != found.end()) continue;
    const double towards = std::atan2(spot.y - pivot.y, spot.x - pivot.x), difference = std::abs(towards - direction);
    const double turn = std::min({difference, 2 * std::numbers::pi - difference, std::numbers::pi / 2});
    float masked = 0;
    for (const Spot by : {Spot{0, 0}, Spot{1, 0}, Spot{-1, 0}, Spot{0, 1}, Spot{0, -1}})
      if (const Spot beside{spot.y + by.y, spot.x + by.x}; beside.inside())
        masked = std::max(masked, at(mask_, beside));
    found.push_back({spot, towards, (1 - masked) * std::cos(turn) * std::cos(turn)});
  }
  return found;
}

bool Artist::extend(Chain& chain, double contrast) {
  const Spot pivot = moved(chain.pivot, chain.direction, kLength + 2 * kMargin);
  const std::vector<Head> possible = heads(pivot, chain.direction);
  double total = 0;
  for (const Head& head : possible) total += head.weight;
  if (total < 1e-4) return false;
  for (int attempt = 0; attempt < 3; ++attempt) {
    double rest = uniform() * total;
    const auto head = std::ranges::find_if(possible, [&](const Head& h) { return (rest -= h.weight) < 0; });
    if (head == possible.end()) continue;
    const double back = opposite(head->direction);
    bool touches = false;
    overlay(stamp_for(back).mask, head->spot,
            [&](Spot spot, float value) { touches |= at(mask_, spot) + value >= kTouch; });
    if (touches) continue;
    finish(chain);
    draw(chain, head->spot, back, contrast);
    chain.pivot = pivot;
    chain.direction = head->direction;
    chain.dashes.push_back({tip_of(head->spot, back), {double(head->spot.y), double(head->spot.x)}});
    return true;
  }
  return false;
}

// Both long contours, a dash in turns. False when one cannot go on.
bool Artist::two_contours() {
  image_ = {};
  for (int y = 0; y < kSize; ++y)
    for (int x = 0; x < kSize; ++x) at(mask_, {y, x}) = y == 0 || y == kSize - 1 || x == 0 || x == kSize - 1;
  contours_ = {};
  auto& [first, second] = contours_;
  const int low = 2 * kSeedDistance, high = kSize - 1 - low;  // the first begins in the middle
  if (!seed(first, blocked_by_mask({low, low}, {high, high}), kContourContrast)) return false;
  if (!second_seed(second, first.stamp_at)) return false;
  for (Index i = 1; i < options_.contour; ++i)
    for (Chain& chain : contours_)
      if (!extend(chain, kContourContrast)) return false;
  finish(first);
  finish(second);
  return true;
}

// A distractor; nothing where it finds no place.
void Artist::short_contour(int dashes) {
  const Grid image = image_, mask = mask_;
  Chain chain;
  bool done = seed(chain, blocked_by_mask({1, 1}, {kSize - 2, kSize - 2}), kDistractorContrast);
  for (int i = 1; done && i < dashes; ++i) done = extend(chain, kDistractorContrast);
  if (done) return finish(chain);
  image_ = image;
  mask_ = mask;
}

const Canvas& disc() {
  static const Canvas drawn = [] {
    constexpr int reach = 5;
    Canvas large(4 * reach);
    for (int y = 0; y < large.size; ++y)
      for (int x = 0; x < large.size; ++x) {
        const int dy = y - 2 * reach, dx = x - 2 * reach;
        large(y, x) = dy * dy + dx * dx <= 4 * kDiscRadius * kDiscRadius;
      }
    return shrink(large, 2 * reach);
  }();
  return drawn;
}

PathfinderPicture Artist::picture() {
  PathfinderPicture picture;
  picture.connected = uniform() < 0.5;
  const std::size_t origin = uniform() < 0.5;
  while (!two_contours()) {
  }
  const int length = int(options_.contour) / 3;
  for (int i = 0; options_.distractors && i < kDistractorDashes / length; ++i) short_contour(length);
  for (std::size_t i = 0; i < 2; ++i) picture.contours[i] = std::move(contours_[i].dashes);
  picture.discs = {picture.contours[origin].front().from,
                   picture.contours[picture.connected ? origin : 1 - origin].back().to};
  for (const Point& p : picture.discs) brighten(image_, disc(), {int(p.y), int(p.x)}, 1);
  const auto [darkest, brightest] = std::ranges::minmax(image_);
  for (float value : image_)
    picture.pixels += char(static_cast<unsigned char>((value - darkest) / (brightest - darkest) * 255 + 0.001f));
  return picture;
}

}  // namespace

PathfinderPicture make_pathfinder(const PathfinderOptions& options, std::uint64_t seed, Index index) {
  if (options.contour < 3 || options.contour > 14)
    fail("pathfinder: contours of ", options.contour, " dashes; 3 to 14 fit a picture");
  if (index < 0) fail("pathfinder: there is no picture ", index);
  return Artist(options, {seed ^ 0x7061746866696e64ull, std::uint64_t(index)}).picture();  // "pathfind"
}

}  // namespace flexformer
