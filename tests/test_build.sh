#!/usr/bin/env bash
# How the Makefile behaves, tried on a copy with tiny sources in a folder with a space and a letter that is not ASCII.
# Prints a line "ok NAME" or "FAIL NAME" for each fact. Takes about half a minute.
set -u
if [ -n "${SAN:-}" ]; then
  echo "skip the Makefile's behaviour (it does not depend on SAN)"
  exit 0
fi
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES BUILD CUDA ARCH DEBUG SAN OMP V ARGS GOLDEN MIRROR
unset CXX CXXFLAGS CPPFLAGS LDFLAGS LDLIBS
root=$(cd "$(dirname "$0")/.." && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
work="$tmp/a b/é"
status=0

# ok NAME COMMAND...: the fact NAME holds when the command succeeds; otherwise the last output of make is shown.
ok() {
  local name=$1
  shift
  if "$@"; then
    echo "ok $name"
  else
    echo "FAIL $name"
    sed 's/^/    /' "$tmp/log" | tail -n 15
    status=1
  fi
}
# make with all its output in the log.
mk() { make "$@" >"$tmp/log" 2>&1 </dev/null; }
fails() { ! "$@"; }
said() { grep -q -e "$1" "$tmp/log"; }
# says TEXT ARGUMENTS...: make fails, and with this text on one line of complaint.
says() { fails mk "${@:2}" && said "$1" && [ "$(grep -c '\*\*\*' "$tmp/log")" = 1 ]; }
compiled() { sed -n 's/^  CXX \([^ ]*\).*/\1/p' "$tmp/log" | sort | tr '\n' ' '; }
compiles() { mk "${@:2}" && [ "$(compiled)" = "$1" ]; }
later() { sleep 0.02; touch "$@"; }

# What this checkout was built from: an object whose sources include a header of a package waits for the rule that
# provides it, or the first build of a machine without the package fails.
build=${BUILD:-build/release}
unprovided() { # HEADER RULE
  (cd "$root" && make -pqn all "$build/tests" 2>/dev/null | sed -n "s,^\($build/obj/.*\.o\):.*|.*$2.*,\1,p" | sort >"$tmp/wait"
    grep -rl --include='*.cpp' --include='*.h' --include='*.cu' "#include <$1>" autograd cuda nn tensor train tests >"$tmp/users"
    find "$build/obj" -name '*.d' -exec grep -lwFf "$tmp/users" {} + | sed 's/\.d$/.o/' | sort >"$tmp/using"
    [ -s "$tmp/using" ] || echo "nothing uses $1"
    comm -23 "$tmp/using" "$tmp/wait")
}
if [ "$build" = build/release ]; then
  ok "whatever includes doctest waits for its package" eval '[ -z "$(unprovided doctest/doctest.h has_doctest)" ]'
  ok "whatever includes JSON waits for its package" eval '[ -z "$(unprovided nlohmann/json.hpp has_json)" ]'
fi

mkdir -p "$work"
cd "$work" || exit 1
mkdir -p tensor autograd nn train/programs train/datasets tests docs cuda
cp "$root/Makefile" .
cp "$root/tests/run_all.sh" tests/
cp "$root/train/datasets/fetch_data.sh" "$root/train/datasets/data_sets.txt" train/datasets/
echo 'int answer();' >tensor/answer.h
printf '#include "tensor/answer.h"\nint answer() { return 42; }\n' >tensor/answer.cpp
echo 'int layer() { return 1; }' >nn/layer.cpp
cat >train/programs/train_lm.cpp <<'CPP'
#include <csignal>
#include <cstdio>
#include <cstring>
#include "tensor/answer.h"
volatile std::sig_atomic_t stop = 0;
int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) std::printf("[%s]\n", argv[i]);
  if (argc == 1 || std::strcmp(argv[1], "--wait") != 0) return answer() != 42;
  std::signal(SIGINT, [](int) { stop = 1; });
  std::fclose(std::fopen("runs/checkpoint", "w"));
  while (!stop) {}
  std::fclose(std::fopen("runs/saved", "w"));
  return 130;
}
CPP
cat >tests/test_main.cpp <<'CPP'
#include <cstdio>
#include <cstdlib>
int main() {
  if (std::getenv("CRASH")) std::abort();
  const bool bad = std::getenv("BAD");
  std::printf("[doctest] test cases: 3 | %d passed | %d failed | 0 skipped\n", bad ? 2 : 3, bad ? 1 : 0);
  return bad;
}
CPP
export CXXFLAGS=-O0 LC_ALL=C

ok "builds in a folder with spaces" mk
ok "says what it found" eval "said '^compiler ' && said '^threads  *on' && said '^CUDA  *off'"
ok "a second make does nothing" eval "mk && said 'Nothing to be done'"
later tensor/answer.h
ok "an edited header rebuilds what includes it, and only that" compiles "tensor/answer.cpp train/programs/train_lm.cpp "
mv tensor/answer.h tensor/reply.h
sed -i.old 's/answer\.h/reply.h/' tensor/answer.cpp train/programs/train_lm.cpp
ok "a renamed header builds" compiles "tensor/answer.cpp train/programs/train_lm.cpp "
echo 'int extra() { return 1; }' >nn/extra.cpp
ok "a new source is found" compiles "nn/*.cpp "
rm nn/extra.cpp
mk
ok "a source taken away leaves the library" eval "! nm build/release/libflexformer.a | grep -q extra"
arch=$(case $(uname -m) in x86_64) echo x86-64 ;; *) echo armv8-a ;; esac)
ok "a changed flag rebuilds" compiles "nn/*.cpp tensor/answer.cpp train/programs/train_lm.cpp " ARCH="$arch"
ok "options reach the program" \
  eval "mk train-lm ARGS='\"--prompt=two words\" --seed=1' && said '^\[--prompt=two words\]' && said '^\[--seed=1\]'"
ok "V=1 shows the commands" eval "touch nn/layer.cpp && mk V=1 && said 'std=c++20.*-c build/release/obj/nn.cpp'"
touch -d '+1 hour' nn/layer.cpp
ok "a source from the future is compiled once" \
  eval "mk && [ \"\$(compiled)\" = 'nn/*.cpp ' ] && mk && said 'Nothing to be done'"

ok "a misspelt setting is an error with the nearest one" says "no setting CUAD; did you mean CUDA?" CUAD=1
ok "a setting of another case is an error" says "did you mean ARCH?" arch=native
ok "an unknown setting is an error for other targets too" says "no setting THREADS" clean THREADS=2
ok "a wrong value is an error with the allowed ones" says "SAN=asn: must be one of asan tsan" SAN=asn
ok "-ffast-math is refused" says "-ffast-math breaks" CXXFLAGS="-g -ffast-math"
ok "-Ofast is refused" says "-Ofast breaks" CXX="g++ -Ofast"
ok "-ffast-math in the environment is refused" eval "CXXFLAGS=-ffast-math says '-ffast-math breaks'"
ok "an unknown processor is an error" says "ARCH=pentium9" ARCH=pentium9
ok "a missing compiler is an error" says "CXX=no-such-compiler" CXX=no-such-compiler
ok "CUDA=1 without kernels is an error" says "CUDA=1: .*CUDA=0" CUDA=1
ok "CUDA=emu without kernels is an error" says "CUDA=emu: " CUDA=emu

ok "a wrong number of threads is an error" says "OMP=2: must be one of auto 0 1" OMP=2
ok "OMP=0 builds for one thread and says so" eval "mk OMP=0 V=1 && said '^threads  *off' && said FLEXFORMER_THREADS=0"
ok "OMP=1 builds as ever" eval "mk OMP=1 V=1 && said '^threads  *on' && ! said 'FLEXFORMER_THREADS\\|fopenmp'"

ok "passing tests give status 0" eval "mk test && [ \"\$(tail -n 1 '$tmp/log')\" = '3 passed, 0 failed' ]"
ok "a failing test gives a status" eval "fails env BAD=1 make test >'$tmp/log' 2>&1 && said '^2 passed, 1 failed\$'"
ok "also through a pipe" \
  eval "fails bash -o pipefail -c \"BAD=1 make test 2>&1 | tee '$tmp/log' >/dev/null\""
ok "a crash counts as a failure" eval "fails env CRASH=1 make test >'$tmp/log' 2>&1 && said '^0 passed, 1 failed\$'"
printf 'echo ok one\necho FAIL two\necho skip three\n' >tests/test_three.sh
ok "shell tests are counted" eval "fails mk test && said '^4 passed, 1 failed, 1 skipped\$'"
echo 'exit 3' >tests/test_three.sh
ok "a shell test that breaks counts as a failure" \
  eval "fails mk test && said 'FAIL tests/test_three.sh ended with status 3'"
rm tests/test_three.sh
echo 'int main() { return 1; }' >docs/example.cpp
ok "an example that fails counts as a failure" eval "fails mk test && said '^3 passed, 1 failed\$'"
rm docs/example.cpp

touch test clean help all golden format
mkdir data train-lm
named() {
  mk test && said '^3 passed' && mk train-lm && mk clean && [ ! -e build ] &&
    mk help && said 'train-text'
}
ok "files named like targets do not matter" named
rm -r test clean help all golden format data train-lm

parallel() {
  for _ in 1 2 3; do
    mkdir -p build
    touch build/stale
    mk -j8 clean all && [ -x build/release/train_lm ] && [ ! -e build/stale ] || return 1
  done
}
ok "make -j8 clean all builds" parallel
mkdir -p runs data
touch runs/model data/text
ok "clean leaves runs and data" eval "mk clean && [ -e runs/model ] && [ -e data/text ]"
mk
interrupted() {
  set -m
  make train-lm ARGS=--wait >"$tmp/log" 2>&1 &
  local pid=$!
  set +m
  for _ in $(seq 100); do [ -e runs/checkpoint ] && break; sleep 0.05; done
  kill -INT -- "-$pid"
  wait "$pid"
  [ $? != 0 ] && [ -e runs/checkpoint ] && [ -e runs/saved ]
}
ok "Ctrl-C lets the program save and deletes nothing" interrupted

# A compiler that does not see the packages' headers until apt-get (ours, not the system's) has installed them.
mkdir "$tmp/bin"
cat >"$tmp/cxx" <<SH
#!/bin/sh
case " \$* " in *" -E "*) [ -e '$tmp/installed' ] || { echo "no header" >&2; exit 1; }; exit 0 ;; esac
exec g++ "\$@"
SH
chmod +x "$tmp/cxx"
printf '#!/bin/sh\ncase "$*" in *install*) touch "%s" ;; esac\n' "$tmp/installed" >"$tmp/bin/apt-get"
printf '#!/bin/sh\n[ "$1" = -n ] && shift\nexec "$@"\n' >"$tmp/bin/sudo"
chmod +x "$tmp/bin/apt-get" "$tmp/bin/sudo"
ok "a missing package is installed, in one line" \
  eval "PATH='$tmp/bin':\$PATH mk CXX='$tmp/cxx' && said 'is missing: installing nlohmann-json3-dev'"
rm -rf build "$tmp/installed"
printf '#!/bin/sh\necho "E: no network" >&2\nexit 100\n' >"$tmp/bin/apt-get"
ok "a package that cannot be installed is an error with the command to run" \
  eval "PATH='$tmp/bin':\$PATH says 'error: <nlohmann/json.hpp> is missing. Run: ' CXX='$tmp/cxx'"

# Data sets, from a folder instead of the net: sizes and checksums are those of files made here.
mkdir "$tmp/mirror"
seq 20000 >"$tmp/mirror/input.txt"
mkdir -p "$tmp/pack/aclImdb/train/pos" "$tmp/pack/aclImdb/train/neg" "$tmp/pack/CoLA"
cp -R "$tmp/pack/aclImdb/train" "$tmp/pack/aclImdb/test"
touch "$tmp/pack/CoLA/train.tsv" "$tmp/pack/CoLA/dev.tsv"
tar -czf "$tmp/mirror/aclImdb_v1.tar.gz" -C "$tmp/pack" aclImdb
# expect FILE: the table's size and checksum for the URL that ends in it become those of the file in the mirror.
expect() {
  local file=$tmp/mirror/$1 sum
  sum=$( (sha256sum "$file" || shasum -a 256 "$file") 2>/dev/null | cut -d ' ' -f 1)
  awk -v url="/$1" -v bytes="$(wc -c <"$file" | tr -d ' ')" -v sum="$sum" '
    $1 == "url" { ours = substr($2, length($2) - length(url) + 1) == url }
    ours && $1 == "bytes" { $2 = bytes }
    ours && $1 == "sha256" { $2 = sum; ours = 0 }
    { print }' train/datasets/data_sets.txt >table && mv table train/datasets/data_sets.txt
}
expect input.txt
expect aclImdb_v1.tar.gz
fetch() { mk "data-${2:-shakespeare}" MIRROR="file://$tmp/$1"; }
complete() { cmp -s "$tmp/mirror/input.txt" data/shakespeare.txt && [ ! -e data/shakespeare.txt.part ]; }
unpacked() { [ -d data/aclImdb/test/neg ] && [ "$(echo data/acl*)" = data/aclImdb ]; }
ok "an unknown data set is an error with the nearest one" says "no data set imbd; did you mean data-imdb?" data-imbd
ok "the help lists the data sets" eval "mk help && said '^ *data-imdb .*reviews' && said '^ *data-pathfinder '"
ok "every data set is described completely" awk '
  function bad(what) { print FILENAME ":" FNR ": " what; failed = 1 }
  /^#/ || NF == 0 { next }
  NF < 2 { bad("no value") }
  $1 == "bytes" && $2 !~ /^[0-9]+$/ { bad("bytes") }
  $1 == "sha256" && ($2 !~ /^[0-9a-f]+$/ || length($2) != 64) { bad("sha256") }
  $1 == "url" && $2 !~ /^https:/ { bad("url") }
  !index(" " allowed[last] " ", " " $1 " ") { bad($1 " after " last) }
  { last = $1 }
  END { if (last != "next") bad("the end"); exit failed }
  BEGIN {
    allowed[""] = allowed["next"] = "name"; allowed["name"] = "what"; allowed["what"] = "licence"
    allowed["licence"] = "file archive"; allowed["archive"] = "folder"; allowed["folder"] = "holds"
    allowed["file"] = allowed["holds"] = "url"; allowed["url"] = "bytes"; allowed["bytes"] = "sha256"
    allowed["sha256"] = "file archive next"
  }' train/datasets/data_sets.txt
if command -v curl >/dev/null; then
  ok "a data set is fetched" eval "fetch mirror && complete"
  ok "a complete data set is not fetched again" eval "fetch nowhere && said 'there and complete'"
  head -c 1000 "$tmp/mirror/input.txt" >data/shakespeare.txt.part
  rm data/shakespeare.txt
  mkdir "$tmp/rest" # where only what comes after those bytes is right
  (seq 20000 | head -c 1000 | tr '0-9' 'x'; tail -c +1001 "$tmp/mirror/input.txt") >"$tmp/rest/input.txt"
  ok "a broken download is taken up again" eval "fetch rest && complete && ! said afresh"
  rm data/shakespeare.txt
  echo "something else" >data/shakespeare.txt.part
  ok "a part of another file is fetched afresh" eval "fetch mirror && complete && said afresh"
  echo "cut short" >data/shakespeare.txt
  ok "an incomplete file is replaced" eval "fetch mirror && complete"
  rm data/shakespeare.txt
  ok "without a connection it says what to put where" \
    eval "fails fetch nowhere && said 'put it at data/shakespeare.txt' && [ ! -e data/shakespeare.txt ]"
  mkdir "$tmp/other"
  echo "an error page" >"$tmp/other/input.txt"
  ok "a wrong file is not taken for the data set" \
    eval "fails fetch other && said 'not the expected file' && [ ! -e data/shakespeare.txt ]"

  ok "without a connection an archive may be put there by hand" \
    eval "fails fetch nowhere imdb && said 'put it at data/aclImdb_v1.tar.gz' &&
      cp '$tmp/mirror/aclImdb_v1.tar.gz' data/ && fetch nowhere imdb && unpacked"
  ok "an unpacked data set is not fetched again" \
    eval "fetch nowhere imdb && said 'there and complete' && said 'use it with: make train-text'"
  rm -r data/aclImdb/test
  ok "an unpacked data set that lost a part is an error" eval "fails fetch mirror imdb && said 'holds no test/pos'"
  rm -r data/aclImdb
  # tar ends the script that started it, when it has unpacked everything.
  mkdir "$tmp/killer"
  printf '#!/bin/sh\n"%s" "$@"\nkill -KILL $PPID\n' "$(command -v tar)" >"$tmp/killer/tar"
  chmod +x "$tmp/killer/tar"
  ok "an interrupted unpacking does not look finished" \
    eval "fails env PATH='$tmp/killer':\$PATH make data-imdb MIRROR='file://$tmp/mirror' >'$tmp/log' 2>&1 &&
      [ ! -e data/aclImdb ] && [ -d data/aclImdb.part/aclImdb/test ]"
  ok "and is done again" eval "fetch mirror imdb && unpacked"
  rm -r data/aclImdb
  mkdir "$tmp/few"
  for program in awk bash curl cut dirname grep make mkdir mv nproc rm sed sh sha256sum shasum tar wc; do
    if command -v $program >/dev/null; then ln -s "$(command -v $program)" "$tmp/few/"; fi
  done
  ok "a missing unpacker is named before anything is fetched" \
    eval "PATH='$tmp/few' fails mk data-cola && said 'error: unzip is needed' && [ ! -e data/CoLA.zip.part ]"
  if command -v zip >/dev/null && command -v unzip >/dev/null; then
    (cd "$tmp/pack" && zip -qr "$tmp/mirror/CoLA.zip" CoLA)
    expect CoLA.zip
    ok "an archive that lacks a file is an error" \
      eval "fails fetch mirror cola && said 'CoLA.zip holds no CoLA/test.tsv' && [ ! -e data/CoLA ]"
    touch "$tmp/pack/CoLA/test.tsv"
    rm -f data/CoLA.zip "$tmp/mirror/CoLA.zip"
    (cd "$tmp/pack" && zip -qr "$tmp/mirror/CoLA.zip" CoLA)
    expect CoLA.zip
    ok "a zip file is unpacked" eval "fetch mirror cola && [ -e data/CoLA/test.tsv ] && [ ! -e data/CoLA.part ]"
  else
    echo "skip unpacking a zip file (no zip or unzip)"
  fi
else
  echo "skip fetching data sets (no curl)"
fi
exit $status
