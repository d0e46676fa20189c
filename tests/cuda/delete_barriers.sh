#!/usr/bin/env bash
# Deletes each barrier of the CUDA kernels in turn: the tests must fail every time, by a wrong number or by a race. A
# barrier that nothing misses is either not needed or not tested. Prints a line "ok", "FAIL" or "skip" for each.
#   usage: bash tests/cuda/delete_barriers.sh [cuda/FILE ...]      (about 10 s a barrier, in build/emu-tsan)
set -u
cd "$(dirname "$0")/../.." || exit 1
build=build/emu-tsan
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
make -s CUDA=emu SAN=tsan $build/tests || exit 1

# rows FILE: which rows of the op table use its kernels (everything, for a file not named here).
# cases FILE: the test cases.
# unit FILE: which .cu file is compiled with it; itself, or for a header one that uses all of it.
rows() {
  case $1 in
    cuda/attention.cu) echo 'SoftmaxAttentionStep*' ;;
    cuda/copy.cu) echo 'permute*,transpose*' ;;
    cuda/embedding.cu) echo 'embedding*' ;;
    cuda/fused_softmax.cu) echo 'softmax_attention*' ;;
    cuda/linear_attention.cu) echo 'LinearAttentionStep*' ;;
    cuda/rope.cu) echo 'rope*' ;;
    cuda/kernel.h | cuda/loss.cu) echo 'cross_entropy*' ;;
    cuda/tile.h) echo 'softmax_attention*' ;;
    cuda/sums.h | cuda/reduce.cu) echo 'sum*,mean*,bias*,linear*' ;;
    *) echo '*' ;;
  esac
}
cases() {
  case $1 in
    cuda/fused_softmax.cu) echo '*in bfloat16*' ;;
    cuda/fused_*) echo 'fused*' ;;
    *) echo '*table on the device*' ;;
  esac
}
unit() {
  case $1 in
    cuda/fused_*.h) echo cuda/fused_attention_bwd.cu ;;
    cuda/kernel.h) echo cuda/loss.cu ;;
    cuda/sums.h) echo cuda/reduce.cu ;;
    *.cu) echo "$1" ;;
    *) grep -l "\"$1\"" cuda/*.cu | head -n 1 ;;
  esac
}
# Barriers that no test can miss, with the reason: FILE:TEXT OF THE LINE.
exceptions='
'

# commands TARGET SOURCE: what make would run for the target if the source had changed.
commands() { make -n V=1 CUDA=emu SAN=tsan -W "$2" "$1" 2>/dev/null | grep -e "$3" | tail -n 1; }

status=0
for file in ${@:-cuda/*.cu cuda/*.h}; do
  for line in $(grep -n '__sync[a-z]*(' "$file" | grep -v '^[0-9]*: *//' | cut -d : -f 1); do
    what="$file:$line $(sed -n "${line}s/^ *//p" "$file")"
    if grep -qF "$file:$(sed -n "${line}s/^ *//p" "$file")" <<<"$exceptions"; then
      echo "skip $what"
      continue
    fi
    source=$(unit "$file") object=$build/obj/$(unit "$file")
    object=${object%.cu}.o
    mkdir -p "$tmp/cuda"
    sed -E "${line}s/__sync[a-z]*\([^;]*\);/{}/" "$file" >"$tmp/$file"
    [ "$source" = "$file" ] || cp "$source" "$tmp/$source"
    compile=$(commands "$object" "$source" ' -c ' |
      sed "s# -I\\. # -I$tmp -I. #; s#-c $source#-c $tmp/$source#; s#-o $object#-o $tmp/changed.o#")
    # In front, so that its templates are the ones that the linker takes.
    link=$(commands $build/tests "$source" " -o $build/tests" |
      sed "s# $object # #; s# # $tmp/changed.o #; s#-o $build/tests#-o $tmp/tests#")
    if ! eval "$compile" || ! eval "$link"; then
      echo "FAIL $what: does not build without it"
      status=1
    elif TSAN_OPTIONS="halt_on_error=1 report_bugs=1" setarch "$(uname -m)" -R \
      "$tmp/tests" -tc="$(cases "$file")" -sc="$(rows "$file")" >"$tmp/log" 2>&1; then
      echo "FAIL $what: no test misses it"
      status=1
    else
      echo "ok $what"
    fi
    rm -rf "$tmp/cuda" "$tmp/tests" "$tmp/changed.o"
  done
done
exit $status
