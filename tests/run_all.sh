#!/usr/bin/env bash
# Runs everything that `make test` has built and adds it up: the doctest program, the shell tests, the golden files and
# the examples of the documentation. The last line is "N passed, M failed" (", K skipped" where there are any) and the
# exit status says the same. A part that crashes, or that ends without having tested anything, counts as a failure.
#   usage: BUILD=build/release [UNIT=tests] bash tests/run_all.sh [options for the doctest program]
# UNIT=tests or engine_tests runs that doctest program alone.
set -u
BUILD=${BUILD:-build/release}
# Shell tests may run make themselves, which is no part of the make that runs this.
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES
export BUILD SAN=${SAN:-} CXX=${CXX:-g++}
tests=$BUILD/${UNIT:-tests}
# What cannot be allocated is null under the sanitizer as it is without: a test asks for too much on purpose.
export ASAN_OPTIONS=${ASAN_OPTIONS:-allocator_may_return_null=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-allocator_may_return_null=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}

passed=0 failed=0 skipped=0
log=$(mktemp)
trap 'rm -f "$log"*' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

heading() { printf '\n== %s\n' "$1"; }
fail() { echo "FAIL $1"; failed=$((failed + 1)); }

# Runs a command, showing its output as it comes and keeping it in $log; returns the command's own status. logged_as FILE
# keeps it in a file of its own.
# The thread sanitizer needs the addresses of programs not to be randomised.
logged() { logged_as "$log" "$@"; }
logged_as() {
  local file=$1 runner=()
  shift
  if [ "$SAN" = tsan ] && setarch "$(uname -m)" -R true 2>/dev/null; then runner=(setarch "$(uname -m)" -R); fi
  ${runner[@]+"${runner[@]}"} "$@" </dev/null 2>&1 | tee "$file"
  return "${PIPESTATUS[0]}"
}

# Adds numbers to the totals.
add() { passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3)); }
# The number of lines of the log that start with a word.
lines() { grep -c "^$1\( \|\$\)" "$log"; }

# count_doctest STATUS LOG: adds up what the doctest program has said. With a third word, what it skipped
# does not count.
count_doctest() {
  local status=$1 counts
  # [doctest] test cases:  3 | 2 passed | 1 failed | 0 skipped
  counts=$(grep '^\[doctest\] test cases:' "$2" | tail -n 1 | tr -cd '0-9|' | cut -d '|' -f 2- | tr '|' ' ')
  if [ -n "$counts" ] && [ $# -gt 2 ]; then counts="$(echo "$counts" | cut -d ' ' -f 1,2) 0"; fi
  # shellcheck disable=SC2086
  [ -z "$counts" ] || add $counts
  if [ -z "$counts" ]; then
    fail "$tests ended with status $status before its summary"
  elif [ "$status" != 0 ] && [ "$(echo "$counts" | cut -d ' ' -f 2)" = 0 ]; then
    fail "$tests ended with status $status though no test case failed"
  elif [ "$(echo "$counts" | cut -d ' ' -f 1,2)" = "0 0" ]; then
    fail "$tests ran no test case"
  fi
}

run_doctest() {
  heading "$tests"
  logged "$tests" "$@"
  count_doctest $? "$log"
}

# run_doctest_in_parts PATTERN...: the test cases of each pattern and all others at the same time, in processes of their
# own. Cases that a part leaves out are not counted as skipped.
run_doctest_in_parts() {
  local part status all parts=("$@") processes=()
  all=$(IFS=,; echo "$*")
  for part in "${!parts[@]}"; do
    logged_as "$log.$part" "$tests" -tc="${parts[part]}" >/dev/null &
    processes[part]=$!
  done
  heading "$tests, all but $all"
  logged "$tests" -tce="$all"
  count_doctest $? "$log" part
  for part in "${!parts[@]}"; do
    wait "${processes[part]}"
    status=$?
    heading "$tests, ${parts[part]}"
    cat "$log.$part"
    count_doctest "$status" "$log.$part" part
    rm -f "$log.$part"
  done
}

# A script prints a line "ok NAME", "FAIL NAME" or "skip NAME" for each of its tests.
run_script() {
  heading "$1"
  logged bash "$1"
  local status=$? bad
  bad=$(lines FAIL)
  add "$(lines ok)" "$bad" "$(lines skip)"
  if [ "$status" != 0 ] && [ "$bad" = 0 ]; then fail "$1 ended with status $status"; fi
  if [ "$(($(lines ok) + bad + $(lines skip)))" = 0 ]; then fail "$1 ran no test"; fi
}

# One line per case; only those that are not ok are shown.
run_golden() {
  heading "golden files in tests/golden"
  "$BUILD/golden" tests/golden </dev/null >"$log" 2>&1
  local status=$? bad
  bad=$(lines FAIL)
  grep -v -e '^ok ' -e '^[0-9]* passed, ' "$log"
  echo "$(lines ok) cases ok, $bad failed, $(lines skip) skipped"
  add "$(lines ok)" "$bad" "$(lines skip)"
  if [ "$status" != 0 ] && [ "$bad" = 0 ]; then fail "$BUILD/golden ended with status $status"; fi
  if [ "$(($(lines ok) + bad))" = 0 ]; then fail "$BUILD/golden compared nothing"; fi
}

# An example must end with status 0; what it prints is shown only when it does not.
run_example() {
  if "$BUILD/${1%.cpp}" </dev/null >"$log" 2>&1; then
    echo "ok $1"
    passed=$((passed + 1))
  else
    local status=$?
    cat "$log"
    fail "$1 ended with status $status"
  fi
}

shopt -s nullglob
if [ ! -x "$tests" ]; then
  fail "there is no $tests"
elif [[ $BUILD = */emu* ]] && [ $# = 0 ]; then
  run_doctest_in_parts '*op table*' '*captured*'
elif [ "$SAN" = asan ] && [ $# = 0 ]; then
  run_doctest_in_parts '*op table*'  # which takes about as long as everything else
else
  run_doctest "$@"
fi
if [ -z "${UNIT:-}" ]; then
  for script in tests/test_*.sh tests/*/test_*.sh tests/*/*/test_*.sh; do run_script "$script"; done
  if [ -x "$BUILD/golden" ] && [ -d tests/golden ]; then run_golden; fi
  examples=(docs/example*.cpp)
  if [ ${#examples[@]} -gt 0 ]; then
    heading "examples of the documentation"
    for example in "${examples[@]}"; do run_example "$example"; done
  fi
fi

echo
summary="$passed passed, $failed failed"
[ "$skipped" = 0 ] || summary="$summary, $skipped skipped"
echo "$summary"
[ "$failed" = 0 ]
