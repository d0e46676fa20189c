#!/usr/bin/env bash
# Run folders as users and batch systems come to them: many starts at once, two programs for one folder, resuming what is
# not there, starts that are refused, unusual names. Takes about ten seconds.
#   usage: BUILD=build/release bash tests/train/programs/test_run_folders.sh
models=$(cd "$(dirname "${BASH_SOURCE[0]}")/../models/pretrained" && pwd)
. "$(dirname "${BASH_SOURCE[0]}")/program_checks.sh"
few=(--train.steps=3 --train.eval_every=2)

# ---- One folder, one writer ------------------------------------------------------------------------------------------
together() { # NUMBER ARGUMENTS...: starts so many runs at once; their outputs are in out1, err1, ..
  local pids=() i number=$1
  shift
  for i in $(seq "$number"); do "$bin/train_lm" "${lm[@]}" "${few[@]}" "$@" >"out$i" 2>"err$i" </dev/null & pids+=($!); done
  ended=
  for i in "${pids[@]}"; do wait "$i"; ended+=" $?"; done
}
own_folders() {
  for _ in 1 2 3; do
    rm -rf runs
    together 6
    [ "$ended" = ' 0 0 0 0 0 0' ] && [ "$(echo runs/*)" = 'runs/lm-1 runs/lm-2 runs/lm-3 runs/lm-4 runs/lm-5 runs/lm-6' ] ||
      return 1
  done
  [ "$(cat runs/*/metrics.jsonl | grep -c '"loss"')" = 18 ]
}
ok "runs that are started together have a folder each" own_folders
one_folder() {
  together 4 --out=shared --train.steps=60
  [ "$(echo "$ended" | tr ' ' '\n' | sort | tr -d '\n')" = 0111 ] &&
    [ "$(cat err? | grep -c "^error: .*shared.* \(is in use by process [0-9]* on .* since \|already holds\)")" = 3 ] &&
    [ "$(column shared loss | wc -l)" = 60 ]
}
ok "of those for one folder one runs, and the others are told who has it" one_folder

"$bin/train_lm" "${lm[@]}" --train.batch=64 --train.steps=3000 --train.save_every=2 --out=busy >busy.out 2>&1 </dev/null &
pid=$!
later busy 3
in_use() { run 1 "$@" && complained "'busy.* is in use by process $pid on $(hostname) since 20.*kill -TERM"; }
ok "a run in progress is not resumed, imported into, distilled into or given another report" \
  "in_use train_lm --out=busy --resume && in_use train_lm \"\${lm[@]}\" --out=busy/ && in_use kernels --run=busy &&
   in_use import_model --from='$models/llama' --out=busy && in_use distill --run=busy --out=busy"
ok "its kernels can be looked at in another file" "run 0 kernels --run=busy --out=look.html && whole look.html"
kill -KILL "$pid"
wait "$pid" 2>/dev/null
ok "a lock ends with its process" \
  "[ -e busy/lock ] && run 0 train_lm --out=busy --resume --train.steps=\$((\$(column busy step | tail -n 1) + 1)) &&
   [ ! -e busy/lock ]"
printf '#include <errno.h>\nint flock(int f, int o) { (void)f, (void)o; errno = ENOLCK; return -1; }\n' >no_locks.c
if [ -z "${SAN:-}" ] && ${CXX:-g++} -x c -shared -fPIC no_locks.c -o no_locks.so 2>/dev/null; then
  ok "a file system without locks is no hindrance, but is named" \
    "LD_PRELOAD=$tmp/no_locks.so run 0 train_lm \"\${lm[@]}\" ${few[*]} --out=unlocked &&
     grep -q '^warning: nothing keeps other programs out of unlocked' err && [ ! -e unlocked/lock ]"
else
  echo "skip a file system without locks (sanitizers, or no compiler)"
fi

# ---- Starts that are refused -----------------------------------------------------------------------------------------
rm -rf runs
refused() { run "$@" && [ ! -e runs ]; }
ok "a start that is refused leaves no folder" \
  "refused 1 train_lm --data.train=none.txt && refused 2 train_lm --model.dim=30 --model.heads=4 &&
   refused 1 train_lm \"\${lm[@]}\" --init=none && refused 1 train_classifier --data.train=none.tsv &&
   refused 2 train_classifier \"\${cls[@]}\" --data.test=table.tsv --data.test_share=0.1 &&
   refused 1 import_model --from=none && refused 1 distill --run=none && refused 1 distill --run=busy &&
   refused 1 train_lm --data.train=none.txt --out=runs/deep/er"
mkdir given
ok "nor does it take one away that was there" "run 1 train_lm --data.train=none.txt --out=given && [ -z \"\$(ls given)\" ]"

# ---- Resume ----------------------------------------------------------------------------------------------------------
run 0 train_lm "${lm[@]}" "${few[@]}" --out=run-a
ok "resuming a folder that is not there is an error that names the nearest" \
  "run 1 train_lm --resume --out=run_a && complained 'no folder run_a; the run nearest by name is run-a; .*leave out resume' &&
   [ ! -e run_a ]"
ok "so is a folder in which no run has begun, unless it is empty: then the data are named" \
  "run 1 train_lm --resume --out='data files' && complained 'no run has begun in data files' &&
   run 0 train_lm \"\${lm[@]}\" ${few[*]} --resume --out=given && said 'starting at step 0 on data files/a text.txt'"
mkdir -p cut-lm cut-cls
cp run-a/{config,tokenizer}.json cut-lm
ok "a run that was killed before its first save begins again with its own settings and data" \
  "run 0 train_lm --resume --out=cut-lm && cmp cut-lm/checkpoint/last.safetensors run-a/checkpoint/last.safetensors &&
   run 0 train_classifier \"\${cls[@]}\" --train.epochs=2 --out=cls && cp cls/{config,tokenizer,labels}.json cut-cls &&
   run 0 train_classifier --resume --out=cut-cls &&
   cmp cut-cls/checkpoint/last.safetensors cls/checkpoint/last.safetensors"
steps=$(figure cls steps %d)
ok "more epochs are taken where more steps are, fewer than are done are refused" \
  "run 0 train_classifier --resume --out=cls --train.epochs=4 && [ \$(figure cls steps %d) = \$((2 * steps)) ] &&
   run 1 train_classifier --resume --out=cls --train.epochs=1 &&
   complained \"train.epochs=1, that is train.steps=\$((steps / 2)) is less than the \$((2 * steps)) steps\" &&
   run 0 train_classifier --resume --out=cls && said \"finished: \$((2 * steps)) of \$((2 * steps))\" &&
   run 0 train_classifier --resume --out=cls --train.steps=\$((2 * steps + 1)) && [ \$(figure cls steps %d) = \$((2 * steps + 1)) ]"
ok "a classifier's config makes the same run again, and epochs and steps that contradict are refused" \
  "run 0 train_classifier --config=cut-cls/config.json --out=again && cmp {again,cut-cls}/checkpoint/last.safetensors &&
   run 2 train_classifier --config=cut-cls/config.json --train.epochs=3 --out=no && complained 'not both'"
ok "fewer steps of fine-tuning than are done are refused, and the command stays" \
  "run 0 train_lm \"\${lm[@]}\" ${few[*]} --model.attention=softmax --out=teacher &&
   run 0 distill --run=teacher --out=student --train.steps=2 --finetune.steps=3 && cp student/distill.json before.json &&
   run 1 distill --resume --out=student --finetune.steps=2 && complained 'finetune.steps=2 is less than the 3 steps' &&
   run 1 distill --resume --out=student --train.steps=1 && complained 'train.steps=1 is less than the 2 steps' &&
   cmp before.json student/distill.json"

# ---- Imported models have no data ------------------------------------------------------------------------------------
run 0 import_model --from="$models/llama" --out=llama
run 0 import_model --from="$models/bert" --out=bert
missing() { run 1 "$@" && complained "holds an imported model, which brings no data with it; give ${wanted}="; }
ok "what needs the data of an imported model asks for them" \
  "for model in llama bert; do
     wanted=data.train missing distill --run=\$model || break
     wanted='a text: text' missing kernels --run=\$model || break
   done && wanted=data.train missing train_lm --init=llama && wanted=data.train missing train_classifier --init=bert &&
   wanted=data.valid missing train_lm --eval --out=llama && wanted=data.valid missing train_classifier --eval --out=bert"
ok "training does not write over an imported model" \
  "run 1 train_lm \"\${lm[@]}\" --out=llama && complained 'a model that was imported.*init=DIR' &&
   run 0 generate --run=llama --tokens=2"

# ---- Names -----------------------------------------------------------------------------------------------------------
ok "~ is the home folder" \
  "mkdir home && HOME=$tmp/home run 0 train_lm \"\${lm[@]}\" ${few[*]} '--out=~/runs/x' && [ -e home/runs/x/summary.json ] &&
   HOME=$tmp/home run 0 generate '--run=~/runs/x' --tokens=2 && [ ! -e '~' ]"
printf 'generate predict:\n\t@exec %s/$@ $(ARGS)\n' "$bin" >Makefile
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES
pasted() { # what stands in the last brackets, as a command
  local command
  command=$(sed -n 's/.*run folder: .*  (\(make .*\))$/\1/p' out)
  [ -n "$command" ] && eval "$command" >out 2>err
}
odd="it's \"a\" \$run & more!"
ok "the command that a run ends with works for a name with blanks, quotes and dollars" \
  "run 0 train_lm \"\${lm[@]}\" ${few[*]} --out=\"\$odd\" && pasted && [ ! -s err ] && [ \$(wc -c <out) -gt 100 ] &&
   run 0 train_classifier \"\${cls[@]}\" ${few[*]} --out=\"c\$odd\" && cp table.tsv texts.txt && pasted && [ \$(wc -l <out) = 40 ]"

# ---- Words that a model does not know --------------------------------------------------------------------------------
ok "a prompt and texts of unknown words are answered with a warning" \
  "run 0 train_lm \"\${lm[@]}\" ${few[*]} --data.tokenizer=word --out=words &&
   run 0 generate --run=words --prompt='once upon a time' --tokens=3 && grep -q '^warning: most words of the prompt' err &&
   run 0 generate --run=words --prompt='a cab' --tokens=3 && [ ! -s err ] &&
   printf 'rise 3 rise\n\nonce upon\nfall fall\nwhat is it\n' >mixed.txt && run 0 predict --run=cls --file=mixed.txt &&
   grep -q '^warning: 2 of 5 texts (the first: mixed.txt:3) are mostly words unknown' err && [ \$(wc -l <out) = 5 ]"
ok "so is training on texts whose words the vocabulary lacks" \
  "printf 'label\ttext\nup\tthe one and two\ndown\tthe three or four\nup\tthe red\ndown\tthe large blue\n' >rare.tsv &&
   run 0 train_classifier \"\${tiny[@]}\" --data.train=rare.tsv --train.steps=1 --out=rare && said 'warning: .* of the training tokens, .* are <unk>' &&
   run 0 train_lm --init=words --data.train=rare.tsv --train.steps=1 --train.block=4 --out=strange && said 'warning: 100.0 % of the training tokens'"
ok "characters that a model does not know are named with those that it does" \
  "run 1 generate --run=run-a --prompt='Once' && complained \"prompt: .*'O' (U+004F).*this model knows ' abcdef'\""
if script -qec true /dev/null >/dev/null 2>&1; then
  ok "predict says that it waits for the keyboard" \
    "printf 'rise\n\004' | script -qec \"'$bin/predict' --run=cls\" /dev/null >out 2>&1; said 'reading texts from the keyboard.*Ctrl-D'"
else
  echo "skip predict at the keyboard (no script)"
fi
[ -e /proc/driver/nvidia/version ] || [ -e /dev/nvidiactl ] ||
  ok "a machine without a GPU is not asked for another build" "run 0 train_lm \"\${lm[@]}\" ${few[*]} --out=cpu && ! said CUDA"
ok "compare writes beside the runs" "mkdir many && cp -r run-a many/a && cp -r words many/b &&
  run 0 compare many/a many/b/ && said '^many/compare.html: 2 runs' && [ -e many/compare.html ] && [ ! -e compare.html ]"
exit $status
