// Pathfinder: labels found again by following the dashes, pictures that show what is said to be drawn, statistics that
// give nothing away, and folders in the Long Range Arena's layout. Also the ListOps files written beside them.
#include <algorithm>
#include <cmath>
#include <optional>

#include <doctest/doctest.h>

#include "tensor/error.h"
#include "tensor/parallel.h"
#include "tests/train/util/temporary_folder.h"
#include "train/datasets/data_set.h"
#include "train/datasets/pictures.h"
#include "train/synthetic/generated_data.h"
#include "train/util/files.h"

using namespace flexformer;
using doctest::Contains;

namespace {

double distance(Point a, Point b) { return std::hypot(a.y - b.y, a.x - b.x); }

Point operator+(Point a, Point b) { return {a.y + b.y, a.x + b.x}; }
Point direction(const Dash& d) {
  const double length = distance(d.from, d.to);
  return {(d.to.y - d.from.y) / length, (d.to.x - d.from.x) / length};
}

// Follows a dashed line from `start` through a heap of dashes, not knowing which belong together. The next is the one
// that best begins where the line, going on for a pixel and then turning, has gone another pixel. Returns the end that
// is reached, at most `most` dashes away; nothing where another dash would have done nearly as well.
std::optional<Point> follow(Point start, std::vector<Dash> heap, Index most) {
  const std::vector<Dash> one_way = heap;
  for (const Dash& d : one_way) heap.push_back({d.to, d.from});
  Point at = start, towards{};
  for (Index i = 0; i < most; ++i) {
    const auto gap = [&](const Dash& d) {
      if (i == 0) return distance(start, d.from);
      return distance(at + towards + direction(d) + Point{0.5, 0.5}, d.from);  // the grid's rounding
    };
    std::ranges::sort(heap, {}, gap);
    if (heap.empty() || gap(heap[0]) > 2) break;
    const Dash found = heap[0];
    if (i > 0 && heap.size() > 1 && gap(heap[1]) < gap(found) + 1) return {};
    at = found.to;
    towards = direction(found);
    std::erase_if(heap, [&](const Dash& d) {  // both ways
      return (distance(d.from, found.from) < 0.1 && distance(d.to, found.to) < 0.1) ||
             (distance(d.from, found.to) < 0.1 && distance(d.to, found.from) < 0.1);
    });
  }
  return at;
}

double distance_to(const Dash& dash, Point p) {
  const double dy = dash.to.y - dash.from.y, dx = dash.to.x - dash.from.x;
  const double along = ((p.y - dash.from.y) * dy + (p.x - dash.from.x) * dx) / (dy * dy + dx * dx);
  const double t = std::clamp(along, 0.0, 1.0);
  return distance(p, {dash.from.y + t * dy, dash.from.x + t * dx});
}

int grey(const PathfinderPicture& picture, Index y, Index x) {
  return static_cast<unsigned char>(picture.pixels[std::size_t(y * kPathfinderSize + x)]);
}

// How well a number tells the labels apart: the chance that it is larger for a connected picture, 0.5 for not at all.
struct Separation {
  std::vector<double> apart, connected;
  void add(bool label, double value) { (label ? connected : apart).push_back(value); }
  double chance() const {
    double wins = 0;
    for (double c : connected)
      for (double a : apart) wins += c > a ? 1 : c == a ? 0.5 : 0;
    return wins / double(connected.size() * apart.size());
  }
};

}  // namespace

TEST_CASE("Pathfinder's label says whether the marked ends belong to one line of dashes") {
  int followed = 0, right = 0;
  for (Index index = 0; index < 400; ++index) {
    const PathfinderPicture p = make_pathfinder({}, 3, index);
    std::vector<Dash> heap = p.contours[1];
    heap.insert(heap.begin(), p.contours[0].begin(), p.contours[0].end());
    std::ranges::sort(heap, {}, [](const Dash& d) { return d.from.y * 100 + d.from.x; });
    const std::optional<Point> end = follow(p.discs[0], heap, 14);
    const auto is = [](Point a, Point b) { return distance(a, b) < 0.1; };
    const bool second_begins = is(p.discs[0], p.contours[1].front().from);
    CHECK((second_begins || is(p.discs[0], p.contours[0].front().from)));
    const bool same = is(p.discs[1], p.contours[second_begins].back().to);
    const bool other = is(p.discs[1], p.contours[!second_begins].back().to);
    CHECK((p.connected ? same : other));
    // What arrives at neither end does not count.
    if (!end || (!is(*end, p.contours[0].back().to) && !is(*end, p.contours[1].back().to))) continue;
    ++followed;
    right += is(*end, p.discs[1]) == p.connected;
  }
  CHECK(followed >= 60);  // the rest of the lines come too near each other
  CHECK(right == followed);
}

TEST_CASE("a Pathfinder picture shows its two contours and discs, and nothing else without distractors") {
  for (const Index contour : {6, 9, 14}) {
    for (Index index = 0; index < 40; ++index) {
      const PathfinderPicture p = make_pathfinder({.contour = contour, .distractors = false}, 5, index);
      for (const std::vector<Dash>& dashes : p.contours) {
        REQUIRE(Index(dashes.size()) == contour);
        for (std::size_t i = 0; i < dashes.size(); ++i) {
          if (i > 0) CHECK(distance(dashes[i - 1].to, dashes[i].from) < 5);
          CHECK(grey(p, std::lround((dashes[i].from.y + dashes[i].to.y) / 2),
                     std::lround((dashes[i].from.x + dashes[i].to.x) / 2)) > 40);
        }
      }
      for (const Point& disc : p.discs) CHECK(grey(p, Index(disc.y), Index(disc.x)) > 200);
      for (Index y = 0; y < kPathfinderSize; ++y)
        for (Index x = 0; x < kPathfinderSize; ++x) {
          double nearest =
              std::min(distance(p.discs[0], {double(y), double(x)}), distance(p.discs[1], {double(y), double(x)})) -
              1.5;
          for (const std::vector<Dash>& dashes : p.contours)
            for (const Dash& dash : dashes) nearest = std::min(nearest, distance_to(dash, {double(y), double(x)}));
          if (nearest > 1.5) CHECK(grey(p, y, x) < 32);
        }
    }
  }
}

TEST_CASE("nothing but its contours tells a Pathfinder picture's label") {
  Separation brightness, lit, disc_distance;
  double mean = 0, lit_share = 0;
  const Index count = 600;
  for (Index index = 0; index < count; ++index) {
    const PathfinderPicture p = make_pathfinder({}, 1, index);
    double sum = 0, above = 0;
    for (char c : p.pixels) sum += static_cast<unsigned char>(c), above += static_cast<unsigned char>(c) > 64;
    mean += sum / 1024 / count;
    lit_share += above / 1024 / count;
    brightness.add(p.connected, sum);
    lit.add(p.connected, above);
    disc_distance.add(p.connected, distance(p.discs[0], p.discs[1]));
  }
  CHECK(std::abs(double(brightness.connected.size()) / count - 0.5) < 0.06);
  for (const Separation* s : {&brightness, &lit, &disc_distance}) CHECK(std::abs(s->chance() - 0.5) < 0.06);
  // As in the pictures of the original generator, where the mean is about 19 and 12 % are brighter than 64.
  CHECK(mean == doctest::Approx(20).epsilon(0.08));
  CHECK(lit_share == doctest::Approx(0.13).epsilon(0.08));
}

TEST_CASE("a Pathfinder picture depends on its settings, seed and number alone") {
  const PathfinderPicture p = make_pathfinder({}, 7, 41);
  CHECK(make_pathfinder({}, 7, 40).pixels != p.pixels);
  CHECK(make_pathfinder({}, 8, 41).pixels != p.pixels);
  CHECK(make_pathfinder({.contour = 9}, 7, 41).pixels != p.pixels);
  CHECK(make_pathfinder({}, 7, 41).pixels == p.pixels);
  CHECK_THROWS_WITH_AS(make_pathfinder({.contour = 2}, 1, 0), Contains("contours of 2 dashes; 3 to 14 fit"), Error);
  CHECK_THROWS_WITH_AS(make_pathfinder({.contour = 15}, 1, 0), Contains("contours of 15 dashes"), Error);
  CHECK_THROWS_WITH_AS(make_pathfinder({}, 1, -1), Contains("there is no picture -1"), Error);
}

TEST_CASE("a Pathfinder folder is read back, and one that was stopped is gone on with") {
  const TemporaryFolder folder;
  const std::filesystem::path out = folder.path() / pathfinder_folder_name(6), part = out.string() + ".part";
  CHECK(out.filename() == "curv_baseline");
  CHECK(pathfinder_folder_name(14) == "curv_contour_length_14");
  const auto write = [&](Index rows, bool go_on) {
    return write_pathfinder(out, {.contour = 6}, 2, rows, [go_on](Index) { return go_on; });
  };
  CHECK(!write(1003, false));
  CHECK(!std::filesystem::exists(out));
  CHECK(std::filesystem::exists(part / "metadata" / "0.npy"));
  CHECK(!std::filesystem::exists(part / "metadata" / "1.npy"));
  CHECK_THROWS_WITH_AS(write(1004, true), Contains("curv_baseline.part was made with other settings"), Error);
  CHECK(write(1003, true));
  CHECK(!std::filesystem::exists(part));
  CHECK(write(1003, false));  // there and complete
  CHECK_THROWS_WITH_AS(write(1004, true), Contains("was made with other settings; remove it"), Error);
  CHECK_THROWS_WITH_AS(write(0, true), Contains("0 pictures; at least 1 is needed"), Error);
  const std::string second = read_file(out / "metadata" / "1.npy"),
                    label = text(int(make_pathfinder({.contour = 6}, 2, 1000).connected));
  CHECK(second.starts_with("imgs/1 sample_0.png 0 " + label + " 1.0 6 2 2 0.5 1 1\n"));

  const Table table = read_data_set(out, {});
  CHECK(table.description() == "pathfinder, 1003 rows; pictures of 32 x 32 pixels");
  for (const Index i : {0, 1, 2, 999, 1000, 1002}) {
    const PathfinderPicture p = make_pathfinder({.contour = 6}, 2, i);
    CHECK(table.rows[std::size_t(i)].text == p.pixels);
    CHECK(table.rows[std::size_t(i)].label == text(int(p.connected)));
  }
}

TEST_CASE("generated ListOps files are read back, and come whole or not at all") {
  const TemporaryFolder folder;
  const std::filesystem::path out = folder.path() / "listops";
  const auto write = [&](Index rows, Index held_out, bool go_on) {
    return write_listops(out, ListOpsOptions::lra(), 4, rows, held_out, [go_on](Index) { return go_on; });
  };
  CHECK(!write(100, 2, false));
  CHECK(!std::filesystem::exists(out));
  CHECK(!std::filesystem::exists(out.string() + ".part/basic_train.tsv"));
  CHECK(write(100, 2, true));
  CHECK_THROWS_WITH_AS(write(0, 2, true), Contains("0 rows and 2 held out; at least 1 and 0 are needed"), Error);
  const auto [train, valid, test] = make_listops(ListOpsOptions::lra(), 4, 100, 2, 2);
  CHECK(read_file(out / "basic_train.tsv") == lra_tsv(train));
  CHECK(read_file(out / "basic_val.tsv") == lra_tsv(valid));
  CHECK(read_file(out / "basic_test.tsv") == lra_tsv(test));
  const Table table = read_data_set(out / "basic_val.tsv", {});
  CHECK(table.format == "listops");
  CHECK(table.rows.at(1).text == valid[1].text);
}
