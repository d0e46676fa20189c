#!/usr/bin/env bash
# A whole sweep over the Long Range Arena on a few rows: table, interruption, going on, and what it refuses. Takes a few
# seconds.
#   usage: BUILD=build/release bash tests/train/programs/test_lra.sh
configs=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../../train/configs" && pwd)
. "$(dirname "${BASH_SOURCE[0]}")/program_checks.sh"

ok "without data the sweep says what to type" "run 1 lra --configs=$configs && said 'listops.*make data-listops' &&
  said 'retrieval.*new_aan_pairs' && complained 'no task has its data'"
ok "so it does for a task asked for by name" \
  "run 1 lra --configs=$configs --tasks=image && complained 'image: data/cifar-10-batches-bin .*make data-cifar10'"
ok "a task, a kind and a seed that do not exist are errors" \
  "run 2 lra --tasks=listop && complained 'nearest is listops' && run 2 lra --kinds=flexformer && complained flexformer_ &&
   run 2 lra --seeds=1,x && complained 'seeds'"

run 0 make_data --kind=listops --rows=40 --held_out=10 --threads=1
run 0 make_data --kind=pathfinder --rows=40 --threads=1
small='--train.steps=3 --train.batch=4 --train.warmup=0 --train.eval_every=0 --model.layers=1 --model.dim=16
  --model.heads=1 --model.ffn=16 --data.max_length=64 --log_every=1 --threads=1'
sweep=(lra --configs="$configs" --kinds=softmax,flexformer_s --seeds=1,2 --scale=small)
ok "a sweep of two tasks, kinds and seeds gives one table and the same as JSON" \
  "run 0 '${sweep[0]}' ${sweep[*]:1} --args='$small' && said 'left out, text' && said '^softmax .* ± .*(37.23)' &&
   said '^flexformer_s .* ± .*(76.15)' && grep -q '^flexformer_s' runs/lra-small/results.txt &&
   [ \$(grep -c '\"kind\"' runs/lra-small/results.json) -ge 1 ] && [ \$(ls -d runs/lra-small/*-*-*/ | wc -l) = 8 ]"
cp runs/lra-small/results.json whole.json
ok "run again, every run is there already" \
  "run 0 ${sweep[*]} --args='$small' && [ \$(grep -c 'is there already' out) = 8 ] && cmp whole.json runs/lra-small/results.json"
ok "other settings need another folder" \
  "run 1 ${sweep[*]} --args=--threads=1 && complained 'begun with the settings.*another out'"

# Stopped by a signal to the sweep alone, which passes it on; the same command then ends where the whole one did.
long="${small/steps=3/steps=2000}"
"$bin/lra" --configs="$configs" --tasks=listops --kinds=softmax --seeds=1 --scale=small --args="$long" --out=cut \
  >out 2>err & sweeping=$!
later cut/listops-softmax-1 3
kill -TERM $sweeping
wait $sweeping
stopped=$?
ok "a signal stops the running trainer, which saves" \
  "[ $stopped = 143 ] && said 'the same command goes on' && [ -e cut/listops-softmax-1/checkpoint/last.json ] &&
   [ ! -e cut/listops-softmax-1/summary.json ]"
once="lra --configs=$configs --tasks=listops --kinds=softmax --seeds=1 --scale=small --args='$long'"
ok "the same command resumes it" "run 0 $once --out=cut && said 'resum' && [ -e cut/listops-softmax-1/summary.json ]"
ok "and ends as an unbroken run" "run 0 $once --out=unbroken && cmp cut/results.json unbroken/results.json &&
  cmp cut/listops-softmax-1/checkpoint/last.safetensors unbroken/listops-softmax-1/checkpoint/last.safetensors"
exit $status
