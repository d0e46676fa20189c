#!/usr/bin/env bash
# Runs that are stopped at any moment, killed, or that the disk refuses: nothing saved is lost, and the resumed run is
# the unbroken one bit for bit. Takes about half a minute.
#   usage: BUILD=build/release [KILLS=15] bash tests/train/programs/test_interruptions.sh
. "$(dirname "${BASH_SOURCE[0]}")/program_checks.sh"

kills=${KILLS:-15}
long=(--train.steps=$((40 * kills)) --train.eval_every=140 --model.dropout=0.1 --train.warmup=200)
run 0 train_lm "${lm[@]}" "${long[@]}" --out=unbroken
start() { # FOLDER ARGUMENTS...: in the background, with its signals as in a terminal
  local folder=$1
  shift
  set -m
  "$bin/train_lm" "${lm[@]}" "${long[@]}" --out="$folder" "$@" >out 2>err </dev/null &
  pid=$!
  set +m
}
stop() { # SIGNAL STATUS: the run in the background must end with this status
  kill "-$1" "$pid" 2>/dev/null
  wait "$pid"
  [ $? = "$2" ]
}
same_run() {
  cmp "$1/checkpoint/last.safetensors" unbroken/checkpoint/last.safetensors &&
    cmp "$1/checkpoint/best.safetensors" unbroken/checkpoint/best.safetensors &&
    [ "$(figures "$1")" = "$(figures unbroken)" ]
}
start int
later int $((RANDOM % 150 + 1))
ok "Ctrl-C saves, says how to go on and leaves with 130" \
  "stop INT 130 && said 'stopped at step .*, saved; go on with --out=int --resume' && [ ! -s err ]"
ok "the report of a stopped run says so" "whole int/report.html && grep -q 'state.>stopped<' int/report.html"
start int --resume
for _ in $(seq 400); do grep -q '^step ' out && break; sleep 0.01; done
ok "SIGTERM leaves with 143" "stop TERM 143 && said 'stopped at step'"
ok "a run stopped twice and resumed equals an unbroken one" \
  "run 0 train_lm \"\${lm[@]}\" ${long[*]} --out=int --resume && same_run int"

for each in HUP:129 USR1:138 USR2:140 XCPU:152; do
  start ${each%:*}
  later ${each%:*} 3
  kill "-${each%:*}" "$pid" 2>/dev/null  # they come more than once
  ok "SIG${each%:*} saves too and leaves with ${each#*:}" \
    "stop ${each%:*} ${each#*:} && said 'stopped at step .*, saved' && [ -e ${each%:*}/checkpoint/last.safetensors ]"
done
trap '' HUP
start nohup
trap - HUP
later nohup 3
kill -HUP "$pid"
sleep 0.1
ok "under nohup a run goes on" "stop TERM 143"
"$bin/train_lm" "${lm[@]}" "${long[@]}" --out=pipe 2>err </dev/null | head -n 6 >out
ended=${PIPESTATUS[0]}
ok "a run whose output nobody reads any more is saved" "[ $ended = 141 ] && [ -e pipe/checkpoint/last.safetensors ]"

start twice --train.batch=4096 --train.save_every=1
later twice 2
kill -INT "$pid"
sleep 0.05
ok "a second Ctrl-C leaves at once; the last save is whole" \
  "stop INT 130 && run 0 train_lm --train.steps=\$((\$(column twice step | tail -n 1) + 1)) --out=twice --resume"

start log
later log 20
kill -KILL "$pid"
wait "$pid" 2>/dev/null
ok "the log of a killed run is there line by line" "[ \$(grep -c '^step .*loss' out) -ge 19 ]"

killed() {
  local i hits=0
  mkdir kill
  for i in $(seq "$kills"); do
    start kill --train.save_every=1 --resume
    sleep "0.$((RANDOM % 3))$((RANDOM % 10))"
    kill -KILL "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
    [ $? = 137 ] && hits=$((hits + 1))
    [ ! -s err ] || return 1
  done
  run 0 train_lm "${lm[@]}" "${long[@]}" --train.save_every=1 --out=kill --resume && same_run kill &&
    [ -z "$(find kill -name '*tmp*')" ] && [ "$hits" -gt $((kills / 2)) ]
}
ok "killed $kills times at any moment, a run resumes and equals an unbroken one" killed

# ---- The disk --------------------------------------------------------------------------------------------------------
mkdir disk
if ! mount -t tmpfs -o size=4m tmpfs disk 2>/dev/null; then
  echo "skip a full disk and a read-only one (only root may mount one to try)"
  exit $status
fi
trap 'umount "$tmp/disk"; rm -rf "$tmp"' EXIT
start disk/run --train.save_every=1
later disk/run 150
cat /dev/zero >disk/filler 2>/dev/null
wait "$pid"
ended=$?
cp -r disk/run/checkpoint kept
ok "a disk that is full stops a run with one error" "[ $ended = 1 ] && complained 'disk/run/.*No space left on device'"
ok "its last save can be used while the disk is full" \
  "run 0 train_lm --eval --out=disk/run && run 0 generate --run=disk/run --tokens=5"
ok "no run starts on a full disk, and nothing looks finished" \
  "run 1 train_lm \"\${lm[@]}\" ${long[*]} --out=disk/new && complained 'disk/new.*No space left on device' &&
   [ ! -e disk/new/checkpoint/last.safetensors ] && [ ! -e disk/new/summary.json ]"
rm disk/filler
mount -o remount,ro disk
ok "a read-only disk is named, and the checkpoint stays as it is" \
  "run 1 train_lm \"\${lm[@]}\" ${long[*]} --out=disk/run --resume && complained 'disk/run.*Read-only file system' &&
   run 1 train_lm \"\${lm[@]}\" --out=disk/other && complained 'disk/other.*Read-only file system' &&
   diff -r kept disk/run/checkpoint && run 0 generate --run=disk/run --tokens=5"
mount -o remount,rw disk
ok "with room again the run goes on and equals an unbroken one" \
  "run 0 train_lm \"\${lm[@]}\" ${long[*]} --train.save_every=1 --out=disk/run --resume && same_run disk/run"
exit $status
