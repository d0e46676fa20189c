// Pathfinder: pictures of 32 x 32 pixels with two long dashed contours among shorter ones; two discs mark ends, and the
// label says whether both are ends of one contour (Linsley et al., "Learning long-range spatial dependencies with
// horizontal gated recurrent units", 2018; sizes and brightness as in the Long Range Arena).
//
// The label is drawn before anything else and decides only which of four known ends get the discs, so nothing but the
// contours themselves can tell it. A picture depends on (contour, seed, index) alone, in whatever order they are made.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tensor/random.h"
#include "tensor/shape.h"

namespace flexformer {

struct PathfinderOptions {
  Index contour = 14;  // dashes of each long contour, 3 to 14; the Long Range Arena has 6 (easy), 9 and 14 (hard)
  bool distractors = true;
};

struct Point {
  double y = 0, x = 0;  // pixel centres are whole numbers, y downwards
};
struct Dash {
  Point from, to;
};

struct PathfinderPicture {
  std::string pixels;  // [32, 32] grey values, row by row
  bool connected = false;
  // What is drawn: the long contours dash by dash, the first end of each being contours[i][0].from and the other
  // contours[i].back().to; and the two points that are marked.
  std::array<std::vector<Dash>, 2> contours;
  std::array<Point, 2> discs;
};

inline constexpr Index kPathfinderSize = 32;  // pixels, both ways

// The index-th picture of a seed. Throws Error for options out of range.
PathfinderPicture make_pathfinder(const PathfinderOptions& options, std::uint64_t seed, Index index);

}  // namespace flexformer
