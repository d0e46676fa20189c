#!/usr/bin/env bash
# Fuzzes the targets one after the other and says of each how much was tried. Inputs that reach new code are kept beside
# the fuzzer and used again by the next run; those in tests/fuzz/corpus are where it starts from. An input that breaks a
# promise is kept in findings/ and ends with status 1: reduce it (the fuzzer's -minimize_crash=1), mend the reader, and
# add it to the corpus, which `make test` reads.
#   usage: bash tests/fuzz/run.sh FUZZER [--target=NAME] [--seconds=N of each target, default 20]
set -u
fuzzer=$1
shift
only='' seconds=20
for option in "$@"; do
  case $option in
    --target=*) only=${option#*=} ;;
    --seconds=*) seconds=${option#*=} ;;
    *) echo "error: unknown option '$option'; there are --target=NAME and --seconds=N" >&2; exit 2 ;;
  esac
done
corpus=tests/fuzz/corpus
home=$(dirname "$fuzzer")
if [ -n "$only" ] && [ ! -d "$corpus/$only" ]; then
  echo "error: no target '$only'; there are" $(ls $corpus) >&2
  exit 2
fi
status=0
mkdir -p "$home/findings"
for target in ${only:-$(ls $corpus)}; do
  mkdir -p "$home/kept/$target"
  log=$home/$target.log
  FUZZ_TARGET=$target "$fuzzer" "$home/kept/$target" "$corpus/$target" -max_total_time="$seconds" -timeout=10 \
    -malloc_limit_mb=1024 -rss_limit_mb=3000 -max_len=8192 -print_final_stats=1 \
    -artifact_prefix="$home/findings/$target-" >"$log" 2>&1
  code=$?
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  covered=$(sed -n 's/.* cov: \([0-9]*\) ft: \([0-9]*\) .*/\1 edges, \2 features/p' "$log" | tail -n 1)
  if [ $code = 0 ]; then
    echo "ok $target: ${runs:-0} inputs, $covered"
  else
    status=1
    echo "FAIL $target after ${runs:-0} inputs, see $log:"
    grep -m 4 -E 'ERROR|runtime error|broken promise|what\(\)|Test unit written' "$log" | sed 's/^/    /'
  fi
done
exit $status
