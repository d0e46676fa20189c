#!/usr/bin/env bash
# The programs as processes: what they print and where, mistakes in options, memory, locale. Takes about a quarter of a
# minute.
#   usage: BUILD=build/release bash tests/train/programs/test_programs.sh
models=$(cd "$(dirname "${BASH_SOURCE[0]}")/../models/pretrained" && pwd)
. "$(dirname "${BASH_SOURCE[0]}")/program_checks.sh"

# ---- Options ---------------------------------------------------------------------------------------------------------
for program in train_lm train_classifier generate predict kernels import_model export_model bench figure_efficiency; do
  ok "$program --help lists its keys" "run 0 $program --help && said '^ *--*threads' && [ ! -s err ]"
  ok "$program --version" "run 0 $program --version && said '$program .*[0-9]\.[0-9]'"
  ok "$program names the nearest key" "run 2 $program --thread=1 && complained 'nearest key is threads'"
done
ok "a key of another section is found" "run 2 train_lm --train.layers=2 && complained 'model.layers'"
ok "a wrong value is named with what is allowed" "run 2 train_lm --train.batch=0 && complained 'train.batch.*1'"
ok "sizes that do not fit are refused" \
  "run 2 train_lm '${lm[2]}' --data.train='data files/a text.txt' --model.dim=30 --model.heads=4 --out=bad &&
   complained 'model.dim=30.*model.heads=4'"
ok "--print-config prints the effective config" "run 0 train_lm --seed=7 --print-config && said '\"seed\": 7'"
printf '{\n  // smaller\n  "model": {"layers": 2}, "train.lr": 1\n}\n' >config.json
ok "a config file may have comments" "run 0 train_lm --config=config.json --print-config && said '\"layers\": 2'"
printf '{"learning_rat": 0.5}' >typo.json
ok "a misspelt key in a config is an error" "run 2 train_lm --config=typo.json && complained 'typo.json.*learning_rat'"
printf '[]' >array.json
printf 'null' >null.json
: >empty.json
printf '{"seed": 1,' >cut.json
for file in array.json null.json empty.json cut.json . missing.json; do
  ok "--config=$file is one clear error" "run 2 train_lm --config=$file && complained '$file'"
done
printf '{"program": "train_classifier"}' >other.json
ok "a config of another program is an error" \
  "run 2 train_lm --config=other.json && complained 'a config of .*train_classifier.*, not of train_lm'"
ok "a missing data file is named" \
  "run 1 train_lm --data.train=none.txt --out=none && complained 'none.txt.*no such file'"
ok "a folder is no data file" "run 1 train_classifier --data.train='data files' --out=none && complained 'folder'"
ok "generate without a run says what to do" "run 1 generate && complained 'train one first'"
ok "predict without a run says what to do" "run 1 predict && complained 'train one first'"
printf abcdefghi >nine.txt
ok "a text of 9 tokens has a window of 8" \
  "run 0 train_lm ${tiny[*]} --data.train=nine.txt --train.block=8 --train.steps=1 --out=nine &&
   said 'too short to split'"
ok "and none of 9: the error gives both numbers" \
  "run 1 train_lm --data.train=nine.txt --train.block=9 --out=none && complained '9 tokens .*train.block=9.*at most 8'"

# ---- The benchmark ---------------------------------------------------------------------------------------------------
ok "bench measures one case and prints a line of JSON" \
  "run 0 bench --case=product:64x64x64:NN:1 --repeats=2 && [ \$(wc -l <out) = 1 ] && [ ! -s err ] &&
   said '^{\"case\":\"product:64x64x64:NN:1\",\"seconds\":\[[0-9.e-]*,[0-9.e-]*\],\"peak_rss_bytes\":[0-9]*}\$'"
for case in '' step product:64x64:NN:1 product:64x64x64:TT:1 product:64x64x0:NN:1 step:huge:softmax encoder:none:64 \
  decode:linear:1x attention:half:linear:64; do
  ok "case=$case is one error with the cases there are" "run 2 bench --case=$case && complained \
    \"no case '$case'; there are product:MxNxK:NN|NT|TN:BATCH, step:small|big|gpt2:KIND, .* KIND is softmax|\""
done
ok "a section that bench does not have is one error with those it has" \
  "run 2 bench --only=machine,speed && complained \"no section 'speed'; there are machine, products, steps\""
ok "bench refuses repeats without a case, and a case with only" \
  "run 2 bench --repeats=2 && complained 'repeats belongs to case' &&
   run 2 bench --case=step:small:linear --only=steps && complained 'exclude each other'"

ok "the figure of efficiency is drawn from two kinds and two lengths, as JSON, a table and a picture" \
  "run 0 figure_efficiency --kinds=softmax_plain,flexformer_n --lengths=32,8 --repeats=1 --out='a figure' &&
   said 'At N = 32 flexformer_n is .* times as fast in training as softmax from plain ops, in .* % .* memory' &&
   [ \$(grep -c '\"training_peak_bytes\": [1-9]' 'a figure.json') = 4 ] && grep -q '^ *flexformer_n  *[0-9.]*  *[0-9.]*\$' 'a figure.txt' &&
   [ \$(grep -c '<path class=\"line c[02]' 'a figure.svg') = 8 ] && tail -n 1 'a figure.svg' | grep -q '^</svg>\$'"
ok "it refuses kinds and lengths that there are not" \
  "run 2 figure_efficiency --kinds=plain && complained 'nearest is ' && run 2 figure_efficiency --lengths=0 && complained lengths"

# ---- A run, and what is done with it ---------------------------------------------------------------------------------
more=(--train.lr=2e-3 --train.steps=12 --train.eval_every=5 --train.save_every=4)
ok "a path with spaces, and a run of any number of steps" "run 0 train_lm \"\${lm[@]}\" ${more[*]} --out='a run'"
ok "progress in a file has no control characters and nothing is on stderr" \
  "! LC_ALL=C grep -q \$'[\\r\\033]' out && [ ! -s err ] && [ \$(grep -c '^step .*loss .*tokens/s' out) = 12 ]"
ok "the metrics are JSON with a line a step" \
  "[ \$(column 'a run' loss | wc -l) = 12 ] && [ \$(column 'a run' valid_loss | wc -l) = 4 ]"
ok "without a GPU a run is on the CPU and says why" \
  "CUDA_VISIBLE_DEVICES= run 0 train_lm \"\${lm[@]}\" --train.steps=1 --out=auto && said '^on the CPU: ..*' &&
   grep -q '\"device\": \"cpu\"' auto/summary.json"
ok "a profile is on stderr and in the summary" \
  "run 0 train_lm \"\${lm[@]}\" --train.steps=2 --out=profiled --profile && grep -q '^linear backward  *[1-9]' err &&
   grep -q '^Gemm  *[1-9]' err && grep -q '\"op\": \"optimizer\"' profiled/summary.json &&
   run 0 generate --run=profiled --tokens=3 --profile && grep -q '^attention_step  *[1-9]' err && ! said 'calls'"
for program in train_lm train_classifier generate predict distill import_model export_model bench; do
  ok "$program --device=cuda without a GPU is one error" \
    "CUDA_VISIBLE_DEVICES= run 1 $program --device=cuda && complained 'device=cuda: .*device=cpu always works'"
done
ok "--eval gives the best validation loss" \
  "run 0 train_lm --eval --out='a run' && said \"validation loss \$(figure 'a run' best_valid_loss %.6f)\""
ok "a run's config makes the same run again" \
  "run 0 train_lm --config='a run/config.json' --out=again &&
   cmp again/checkpoint/last.safetensors 'a run/checkpoint/last.safetensors'"
ok "a folder with a checkpoint is not overwritten" \
  "run 1 train_lm \"\${lm[@]}\" --out='a run' && complained 'already holds a checkpoint.*resume=true'"
ok "a finished run says so" "run 0 train_lm --out='a run' --resume && said 'this run has finished: 12 of 12'"
ok "generate continues a prompt, the same for the same seed" \
  "run 0 generate --run='a run' --prompt='a ba' --tokens=40 --seed=3 && cp out first && said '^a ba' &&
   run 0 generate --run='a run' --prompt='a ba' --tokens=40 --seed=3 && cmp -s out first &&
   run 0 generate --run='a run' --prompt='a ba' --tokens=40 --seed=4 && ! cmp -s out first"
ok "generate makes as many tokens as it is told, past the block, with figures on stderr" \
  "run 0 generate --run='a run' --tokens=100 --stats && [ \$(wc -c <out) = 101 ] &&
   grep -q '^100 tokens, .* tokens/s, state .* bytes' err"
printf 'a ba\na\n\nab' >prompts
ok "prompts of a file give the text that each gives alone, in order, weights of every format" \
  "for w in f32 bf16 int8; do
     run 0 generate --run='a run' --prompts=prompts --tokens=30 --weights=\$w --stop=b && cp out all &&
     n=0 && while IFS= read -r line || [ -n \"\$line\" ]; do
       n=\$((n + 1)) && run 0 generate --run='a run' --prompt=\"\$line\" --tokens=30 --weights=\$w --stop=b &&
       { echo \"=== prompt \$n\" && cat out; } >>each; done <prompts && cmp -s each all && rm each || break; done"
ok "prompt and prompts exclude each other, and a file without prompts is refused" \
  "run 2 generate --run='a run' --prompts=prompts --prompt=a && complained 'exclude each other' && : >none &&
   run 1 generate --run='a run' --prompts=none && complained 'holds no prompt'"
ok "evaluation shows what rounded weights cost; training has none" \
  "run 0 train_lm --out='a run' --eval --weights=int8 && said 'weights as int8: validation loss .* against f32' &&
   run 2 train_lm --out=other --weights=bf16 && complained 'weights=bf16 belongs to eval' && [ ! -e other ]"
ok "no tokens and no prompt are fine" "run 0 generate --run='a run' --tokens=0 && [ \$(wc -c <out) = 1 ]"
ok "generation ends before the stop text" "run 0 generate --run='a run' --tokens=500 --stop=a && ! said a"
ok "a character never seen is named" "run 1 generate --run='a run' --prompt='a ?' && complained \"'?' (U+003F)\""
for bad in temperature=-1 top_k=-1 top_p=0 top_p=1.5 tokens=-1 temperature=hot; do
  ok "$bad is refused" "run 2 generate --run='a run' --$bad && complained '${bad%=*}'"
done
ok "a model of another program is refused" \
  "run 1 predict --run='a run' && complained 'train_lm., not of train_classifier'"
if [ -w /dev/full ]; then
  ok "output that cannot be written is an error" \
    "! '$bin/generate' --run='a run' --tokens=5 >/dev/full 2>err && complained 'could not be written'"
else
  echo "skip output that cannot be written is an error (no /dev/full)"
fi
ok "a run starts from another's weights and characters" \
  "run 0 train_lm --data.train=nine.txt --train.block=4 ${tiny[*]} --train.steps=2 --out=small &&
   printf 'abcabcabcabc' >abc.txt &&
   run 0 train_lm --data.train=abc.txt --init=small --train.block=4 ${tiny[*]} --train.steps=2 --out=next &&
   cmp -s small/tokenizer.json next/tokenizer.json"
ok "a run takes another's vocabulary from its folder" \
  "run 0 train_lm --data.train=abc.txt --data.tokenizer=small --train.block=4 ${tiny[*]} --train.steps=2 --out=taken &&
   cmp -s small/tokenizer.json taken/tokenizer.json"
ok "a tokenizer that is neither a kind nor a file is refused" \
  "run 2 train_lm --data.train=abc.txt --data.tokenizer=bites --out=no && complained 'the nearest is byte'"

ok "a finished run has a report that stands by itself, with a sample in it" \
  "whole 'a run/report.html' && grep -q 'state finished' 'a run/report.html' && grep -q Samples 'a run/report.html'"
ok "compare puts runs side by side" \
  "run 0 compare 'a run' small --out=two.html && said 'two.html: 2 runs side by side' && whole two.html &&
   grep -q 'Settings that differ' two.html"
ok "compare makes the report of one run again" \
  "run 0 compare --out=one.html small && said 'one.html: the report of small' && whole one.html"
ok "make_data writes pictures that a classifier learns from" \
  "run 0 make_data --rows=40 --contour=6 --out='some pictures' && said 'complete: 40 pictures; train with: make train-text' &&
   run 0 train_classifier --data.train='some pictures' --train.steps=1 --out=seen && said 'pathfinder, 36 rows' &&
   run 1 make_data --rows=41 --contour=6 --out='some pictures' && complained 'some pictures was made with other settings'"
ok "make_data wants options of its kind" \
  "run 2 make_data --kind=listops --contour=6 && complained 'contour is given, but kind=listops has none' &&
   run 2 make_data --contour=15 && complained 'from 3 to 14'"
ok "compare wants runs, and names what is no run" \
  "run 2 compare && complained 'no run is given' &&
   run 1 compare 'a run' nowhere && complained 'nowhere.*no such folder' &&
   run 1 compare 'data files' && complained 'data files.*no config.json' && [ ! -e compare.html ]"
ok "kernels adds one section to the report, however often it runs" \
  "run 0 kernels --run='a run' --text='a ba cab dab' && cp 'a run/report.html' once.html &&
   run 0 kernels --run='a run' --text='a ba cab dab' && said 'section Kernels' && whole 'a run/report.html' &&
   [ \$(grep -c '<h2>Kernels</h2>' 'a run/report.html') = 1 ] && grep -q 'state finished' 'a run/report.html' &&
   [ \"\$(grep -v '^<footer>' once.html)\" = \"\$(grep -v '^<footer>' 'a run/report.html')\" ]"
ok "without a text it reads the validation data" "run 0 kernels --run=small && grep -q '<h3>Layer 2, head 2</h3>' small/report.html"
mkdir no-run
ok "kernels names what is missing" \
  "run 2 kernels && complained 'Give run=DIR' && run 1 kernels --run=nowhere && complained 'no such folder' &&
   run 1 kernels --run=no-run && complained 'no trained model here'"
cp -r small damaged
echo '{"step":' >>damaged/metrics.jsonl
ok "compare names the line of damaged metrics" \
  "run 1 compare small damaged && complained \"damaged/metrics.jsonl:\$(wc -l <damaged/metrics.jsonl):\""
ok "compare --help lists its keys" \
  "run 0 compare --help && said '--out' && run 2 compare --ot=x && complained 'key is out'"

ok "a classifier trains" \
  "run 0 train_classifier \"\${cls[@]}\" --train.epochs=4 --train.lr=0.01 --data.test=table.tsv --out=cls"
ok "its summary has the test's accuracy" "grep -q '\"test_accuracy\": 1.0' cls/summary.json"
ok "its report has the classes" "whole cls/report.html && grep -q 'class=.matrix' cls/report.html"
ok "its --eval gives the best validation loss" \
  "run 0 train_classifier --eval --out=cls && said \"loss \$(figure cls best_valid_loss %.4f)\""
printf 'rise 3 rise\n\nfall fall 7\n' >lines.txt
ok "predict labels each line, the empty one too" \
  "run 0 predict --run=cls --file=lines.txt && [ \$(wc -l <out) = 3 ] &&
   [ \"\$(cut -f 1 out | sed 2d | tr '\n' ' ')\" = 'up down ' ]"
ok "predict reads standard input and writes JSON lines" \
  "'$bin/predict' --run=cls --json <lines.txt >out 2>err &&
   [ \$(grep -c '^{\"task\":\"classification\",\"label\":\".*\"probability\":.*}\$' out) = 3 ]"
ok "a label never trained is an error with its line" \
  "printf 'label\ttext\nsideways\trise\n' >new.tsv && run 1 train_classifier --eval --out=cls --data.valid=new.tsv &&
   complained 'new.tsv:2.*sideways'"

{
  printf 'sentence1\tsentence2\tscore\n'
  for i in 0 1 2 3 4 5 6 7 8 9; do printf 'rise rise\trise\t4.%s\nfall fall\trise\t0.%s\n' $i $i; done
} >scores.tsv
ok "labels that are numbers make a regression" \
  "run 0 train_classifier \"\${cls[@]}\" --data.train=scores.tsv --data.test=scores.tsv --train.epochs=20 --train.lr=0.01 \
     --out=scores && said 'Pearson' && grep -q '\"test_spearman\"' scores/summary.json && whole scores/report.html"
ok "predict prints the number of a pair" \
  "printf 'rise rise\trise\n' >pair.txt && run 0 predict --run=scores --file=pair.txt && grep -Eq '^[345]\.' out"
ok "kernels shows classifiers, of single texts and of pairs" \
  "run 0 kernels --run=cls && whole cls/report.html && grep -q '<h2>Kernels</h2>' cls/report.html &&
   run 0 kernels --run=scores --text=\"\$(cat pair.txt)\" && grep -q 'rise rise' scores/report.html"
mkdir -p texts/pos texts/neg
for i in 1 2 3 4; do
  echo "good $i" >"texts/pos/$i.txt"
  echo "bad $i" >"texts/neg/$i.txt"
done
ok "a folder of texts for each class trains" \
  "run 0 train_classifier \"\${cls[@]}\" --data.train=texts --out=of-texts && said 'folder, '"

# ---- Published models ------------------------------------------------------------------------------------------------
ok "a published language model is imported, generates, and is exported again" \
  "run 0 import_model --from='$models/llama' --out='a llama' && said 'llama: 2 layers.*sentencepiece vocabulary of 267' &&
   run 0 generate --run='a llama' --prompt='the tho' --tokens=5 && said '^the tho' &&
   run 0 export_model --run='a llama' --to=out-llama && said '21 tensors' &&
   run 0 import_model --from=out-llama --out=llama-2 &&
   cmp 'a llama/checkpoint/best.safetensors' llama-2/checkpoint/best.safetensors"
ok "kernels shows an imported model" \
  "run 0 kernels --run='a llama' --text='the tho' && whole 'a llama/report.html' && grep -q '>imported<' 'a llama/report.html'"
ok "training goes on from an imported model without its shape being spelled out" \
  "run 0 train_lm --data.train='data files/a text.txt' --init='a llama' --train.steps=2 --train.block=16 --threads=1 \
     --out=tuned && grep -q '\"kv_heads\": 2' tuned/config.json &&
   run 0 export_model --run=tuned --to=out-tuned && said 'llama: 21 tensors'"
ok "a published classifier is imported and labels texts" \
  "run 0 import_model --from='$models/bert' --out=bert && said \"classes: 'better', 'same', 'worse'\" &&
   echo 'good film!' >film.txt && run 0 predict --run=bert --file=film.txt && grep -Eq '^(better|same|worse)	0' out"
ok "a published classifier is tuned on texts of its own labels" \
  "printf 'label\ttext\nbetter\tgood\nworse\tbad\nsame\ta film\nbetter\tgood film\nworse\tbad film\nsame\ta\n' >f.tsv &&
   run 0 train_classifier --data.train=f.tsv --init=bert --train.steps=2 --train.batch=2 --threads=1 --out=tuned-bert &&
   run 0 export_model --run=tuned-bert --to=out-bert && said 'bert: 41 tensors'"
ok "a folder with a model in it is not overwritten" \
  "run 1 import_model --from='$models/llama' --out='a llama' && complained 'already holds a model' &&
   run 1 export_model --run='a llama' --to=out-llama && complained 'already holds a model.safetensors'"
ok "what is missing from the command is named" \
  "run 2 import_model && complained 'from=DIR' && run 2 export_model --run=bert && complained 'to=DIR' &&
   run 2 import_model --from=x --labels=a,,b && complained 'a label is empty'"

# ---- Distillation ----------------------------------------------------------------------------------------------------
short=(--train.steps=12 --train.eval_every=6 --finetune.steps=6 --finetune.eval_every=3 --train.batch=4)
run 0 train_lm "${lm[@]}" "${more[@]}" --model.attention=softmax --out=teacher
ok "distill makes a run with linear attention of one with softmax" \
  "run 0 distill --run=teacher --out=distilled ${short[*]} && said 'teacher, softmax .*loss' &&
   said 'parameters are the teacher.s still' && said 'fine-tuned, best weights' && whole distilled/report.html &&
   grep -q '\"attention\": \"flexformer_n\"' distilled/summary.json &&
   run 0 kernels --run=distilled && grep -q 'its start fitted to the teacher' distilled/report.html &&
   run 0 generate --run=distilled --tokens=5 && run 0 train_lm --eval --out=distilled"
ok "kernels go from one run to another, and a finished distillation says so" \
  "run 0 distill --run=teacher --kernels=distilled --train.steps=0 --finetune.steps=0 --out=transferred &&
   said 'kernels from a run' && run 0 distill --out=transferred --resume && said 'this run has finished'"
ok "fine-tuning learns from the teacher's outputs where that is asked for" \
  "run 0 distill --run=teacher --kernels=distilled --train.steps=0 --finetune.teacher=1 --finetune.steps=6 --out=taught &&
   said 'outputs of teacher' && run 2 distill --run=teacher --finetune.teacher=2 --out=no &&
   complained 'finetune.teacher'"
head -c 2000 'data files/a text.txt' >'other text.txt'
ok "a distillation goes on with the data that it was given, not with the teacher's" \
  "run 0 distill --run=teacher --data.train='other text.txt' --out=other ${short[*]} &&
   run 0 distill --out=other --resume --finetune.steps=9 && said 'step 9/9' && ! said 'training data is not what'"
run 0 train_classifier "${cls[@]}" --train.epochs=2 --model.attention=softmax --out=cls-teacher
ok "a classifier is distilled too, and predicts" \
  "run 0 distill --run=cls-teacher --model.attention=hedgehog --finetune.teacher=0.5 --out=cls-student ${short[*]} &&
   run 0 predict --run=cls-student --file=lines.txt && [ \$(wc -l <out) = 3 ]"
ok "a teacher must be given, have softmax attention, and the student kernels that learn" \
  "run 2 distill --out=no && complained 'Give run=DIR' &&
   run 1 distill --run='a run' --out=no && complained 'must have softmax attention, but this model has flexformer_n' &&
   run 2 distill --run=teacher --model.attention=linear --out=no && complained 'model.attention.*flexformer_s'"

# ---- The machine -----------------------------------------------------------------------------------------------------
ok "a batch that cannot fit is refused with what is needed, what there is, and which keys to lower" \
  "run 1 train_lm \"\${lm[@]}\" --train.batch=1000000 --model.dim=512 --out=huge &&
   complained 'needs about .* MB .*only .* MB are available; lower train.batch.*train.block' &&
   [ ! -e huge/summary.json ]"
if [ -z "${SAN:-}" ]; then
  ok "so is one that passes a limit of 500 MB" \
    "(ulimit -v 500000 && run 1 train_lm \"\${lm[@]}\" --train.batch=10000 --out=huge) &&
   complained 'MB .*lower train.batch'"
else
  echo "skip a limit on memory (sanitizers need more)"
fi
mkdir locked
chmod a-w locked
if [ -w locked ]; then
  echo "skip a folder that cannot be written (this user can write anywhere)"
else
  ok "a folder that cannot be written is named" \
    "run 1 train_lm \"\${lm[@]}\" --out=locked/run && complained 'locked/run'"
fi
if ! locale -a 2>/dev/null | grep -Eqi '^de_DE.utf-?8$' &&
  localedef -i de_DE -f UTF-8 "$tmp/de_DE.UTF-8" >/dev/null 2>&1; then
  export LOCPATH=$tmp
fi
if [ "$(env LC_ALL=de_DE.UTF-8 locale decimal_point 2>/dev/null)" = , ]; then
  ok "a locale with a decimal comma changes no number" \
    "locale=de_DE.UTF-8 run 0 train_lm \"\${lm[@]}\" ${more[*]} --train.lr=0.002 --out=comma &&
   [ \"\$(figures comma)\" = \"\$(figures 'a run')\" ]"
else
  echo "skip a locale with a decimal comma (no de_DE.UTF-8 here)"
fi
exit $status
