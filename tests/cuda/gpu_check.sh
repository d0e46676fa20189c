#!/usr/bin/env bash
# Everything that needs a GPU, in under six minutes: kernels and whole models against the CPU, the golden files, the
# programs on both devices, NVIDIA's checkers on a small selection, and speed. At the end a table with a line for each
# check, then "N passed, M failed[, K skipped]". Leaves with 77 where there is no GPU.
#   usage: CUDA=1|emu MAKE=make bash tests/cuda/gpu_check.sh          (make gpu-check, make gpu-check CUDA=emu)
# With CUDA=emu the same checks run in the emulation of a GPU, where speed says nothing.
# A check is a function: it notes words for its line of the table, and leaves with 77 for what cannot be checked here.
# It runs as a process of its own, `gpu_check.sh FUNCTION WORDS...`, which can be stopped when its time is over.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
export CUDA=${CUDA:-1} MAKE=${MAKE:-make} LC_ALL=C PATH="$PATH:/usr/lib/wsl/lib:/usr/local/cuda/bin"
build=build/$([ "$CUDA" = emu ] && echo emu || echo cuda)

note() { echo "$*" >"$tmp/note"; }

# ---- Checks ----------------------------------------------------------------------------------------------------------

builds() {
  $MAKE --no-print-directory CUDA="$CUDA" \
    "$build"/{tests,golden,bench,train_lm,train_classifier,distill,generate,predict}
}

unit_tests() {
  "$build/tests" -tc='*device*' || return
  note "$(grep -c '^skip' "$tmp/log") notes on skipped rows"
}

golden_files() {
  "$build/golden" tests/golden --device=cuda | grep -v '^ok '
  local status=${PIPESTATUS[0]}
  note "$(tail -n 1 "$tmp/log")"
  return "$status"
}

# sanitized TOOL SECONDS: what was found until the time was over counts.
sanitized() {
  [ "$CUDA" != emu ] || { note "the emulation checks all of memory itself"; return 77; }
  command -v compute-sanitizer >/dev/null || { note "compute-sanitizer is not installed"; return 77; }
  timeout "$2" compute-sanitizer --tool "$1" --error-exitcode 1 \
    "$build/tests" -tc='the op table on the device*' -sc='layer_norm*,softmax_self_attention*,linear_self_attention*'
  local status=$?
  [ $status = 124 ] || return $status
  note "stopped after $2 s"
  ! grep -q '^========= .*\(Invalid\|Error\|hazard\)' "$tmp/log"
}

tiny=(--model.layers=2 --model.heads=2 --model.dim=32 --model.ffn=64 --model.dropout=0.1 --log_every=1 --threads=1
  --train.batch=4 --train.steps=12 --train.warmup=4 --train.eval_every=6 --train.lr=0.003)

# train DEVICE PROGRAM OUT OPTIONS...
train() {
  local device=$1 program=$2 out=$3
  shift 3
  "$build/$program" "${tiny[@]}" --device="$device" --out="$tmp/$out" "$@" >"$tmp/said" 2>&1 ||
    { cat "$tmp/said"; return 1; }
  grep -q "\"device\": \"$device\"" "$tmp/$out/summary.json" || { echo "$out: the summary names no $device"; return 1; }
}

# alike A B: two texts have the same words, and numbers that differ by a thousandth at most.
number='[0-9][0-9]*\(\.[0-9]*\)\{0,1\}\(e[-+]\{0,1\}[0-9]*\)\{0,1\}'
alike() {
  cmp <(sed "s/$number/N/g" "$1") <(sed "s/$number/N/g" "$2") || return
  paste <(grep -o "$number" "$1") <(grep -o "$number" "$2") | awk '
    { d = $1 - $2; if (d < 0) d = -d; if ($1 > 1) d /= $1; if (d > most) most = d }
    END { printf "%d numbers, largest difference %.1e\n", NR, most; exit most > 1e-3 || NR == 0 }'
}

# All that two runs logged but their speed, and samples, in which one token may change all others.
same_metrics() {
  local run
  for run in "$1" "$2"; do
    sed 's/,"tokens_per_second":[^}]*//; s/,"sample":.*//' "$tmp/$run/metrics.jsonl" >"$tmp/$run.figures"
  done
  alike "$tmp/$1.figures" "$tmp/$2.figures"
}

# same_training NAME PROGRAM OPTIONS...: on the GPU as on the CPU, twice to the same bits, and half and half.
same_training() {
  local name=$1 program=$2
  shift 2
  train cpu "$program" "$name-cpu" "$@" && train cuda "$program" "$name-gpu" "$@" &&
    train cuda "$program" "$name-again" "$@" && note "$(same_metrics "$name-cpu" "$name-gpu")" &&
    same_metrics "$name-cpu" "$name-gpu" &&
    cmp "$tmp/$name-gpu/checkpoint/last.safetensors" "$tmp/$name-again/checkpoint/last.safetensors" || return
  train cuda "$program" "$name-moved" "$@" --train.schedule=constant --train.steps=6 &&
    train cpu "$program" "$name-moved" "$@" --train.schedule=constant --resume &&
    train cpu "$program" "$name-stayed" "$@" --train.schedule=constant && same_metrics "$name-stayed" "$name-moved"
}

language_model() { same_training "lm-$1" train_lm --data.train="$tmp/text" --train.block=32 --model.attention="$1"; }
classifier() {
  same_training "text-$1" train_classifier --data.train="$tmp/table.tsv" --data.max_length=16 --model.attention="$1"
}

# Training by repeating a captured step, beside the same kernel after kernel: to the same bits, and what each took.
captured_steps() {
  local on size=(--model.dim=256 --model.heads=4 --model.ffn=0 --model.layers=4 --train.block=256 --train.batch=8
    --train.steps=300 --train.eval_every=0 --log_every=50)
  [ "$CUDA" != emu ] || size=(--train.block=32 --train.accumulate=2)
  for on in false true; do
    train cuda train_lm "graph-$on" --data.train="$tmp/text" "${size[@]}" --cuda_graph=$on || return
  done
  note "$(sed -n 's/^ *"seconds": \([0-9.e-]*\),*$/\1/p' "$tmp"/graph-{false,true}/summary.json | tr '\n' ' ' |
    awk '{ printf "%.2f s eager, %.2f s captured", $1, $2 }')"
  cmp "$tmp"/graph-{false,true}/checkpoint/last.safetensors && same_metrics graph-false graph-true
}

# Kernels learn softmax's weights, then the whole model its task.
distillation() {
  local on
  for on in cpu cuda; do
    "$build/distill" --run="$tmp/lm-softmax-gpu" --out="$tmp/distilled-$on" --device=$on --threads=1 --log_every=1 \
      --train.steps=4 --train.batch=4 --train.warmup=2 --finetune.steps=2 --finetune.warmup=1 || return
  done
  note "$(same_metrics distilled-cpu/kernels distilled-cuda/kernels)"
  same_metrics distilled-cpu/kernels distilled-cuda/kernels && same_metrics distilled-cpu distilled-cuda
}

# What a model made on the GPU says is the same on both devices.
models_in_use() {
  local on model=$tmp/lm-flexformer_n-gpu
  for on in cpu cuda; do
    {
      "$build/generate" --run="$model" --device=$on --prompt=a --temperature=0 --tokens=60 &&
        "$build/train_lm" --eval --out="$model" --device=$on &&
        "$build/predict" --run="$tmp/text-softmax-gpu" --device=$on --file="$tmp/lines" --json
    } >"$tmp/said-$on" || return
  done
  alike "$tmp/said-cpu" "$tmp/said-cuda"
}

# A GPU that cannot be used: auto goes on without it and says so, cuda does not.
without_gpu() {
  [ "$CUDA" != emu ] || { note "the emulation is always there"; return 77; }
  export CUDA_VISIBLE_DEVICES=
  local lm=("$build/train_lm" "${tiny[@]}" --data.train="$tmp/text" --train.block=32 --train.steps=1)
  ! "${lm[@]}" --out="$tmp/none" --device=cuda 2>"$tmp/err" && grep '^error: device=cuda: ' "$tmp/err" &&
    "${lm[@]}" --out="$tmp/auto" | grep '^on the CPU: ' && grep '"device": "cpu"' "$tmp/auto/summary.json"
}

# speed CASE PRECISION [REPEATS]: the median of some calls, after one to warm up. What is known of the case's size turns
# milliseconds into the figure that others quote: tokens/s and the share of an H200's 989 TFLOP/s (6 operations for each
# of 124 million parameters and 12 layers x 768 channels x 1,024 keys x 12 for attention), or ns per token and head.
speed() {
  local median repeats=${3:-5}
  "$build/bench" --case="$1" --device=cuda --precision="$2" --repeats="$repeats" || return
  median=$(sed -n 's/.*"seconds":\[\([^]]*\)\].*/\1/p' "$tmp/log" | tr ',' '\n' | sort -g |
    sed -n $(((repeats + 1) / 2))p)
  note "$(awk -v s="$median" -v name="$1" 'BEGIN {
    printf "%.3f ms", 1000 * s
    n = split(name, part, ":")
    if (name ~ /^step:gpt2:/) {
      rate = 16 * 1024 / s
      printf ", %.0f tokens/s, %.1f %%", rate, 100 * rate * (6 * 124.4e6 + 12 * 12 * 768 * 1024) / 989e12
    }
    if (part[1] == "gpt2_attention") printf ", %.2f ns per token and head", 1e9 * s / (8 * 12 * part[n])
  }')"
}

# flash N: the same sizes as gpt2_attention, by PyTorch.
flash() {
  python3 -c 'import torch; exit(not torch.cuda.is_available())' 2>/dev/null ||
    { note "no PyTorch with CUDA"; return 77; }
  note "$(python3 - "$1" <<'END'
import sys, time, torch
N = int(sys.argv[1])
qkv = [torch.randn(8, 12, N, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
dy = torch.randn(8, 12, N, 64, device="cuda", dtype=torch.bfloat16)
seconds = []
for _ in range(6):
    torch.cuda.synchronize()
    start = time.perf_counter()
    torch.nn.functional.scaled_dot_product_attention(*qkv, is_causal=True).backward(dy)
    torch.cuda.synchronize()
    seconds.append(time.perf_counter() - start)
s = sorted(seconds[1:])[2]
print(f"{1e3 * s:.3f} ms, {1e9 * s / (8 * 12 * N):.2f} ns per token and head")
END
)"
}

# ---- The table -------------------------------------------------------------------------------------------------------

if [ $# -gt 0 ]; then
  "$@"
  exit
fi
if [ "$CUDA" != emu ] && ! nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
  echo "gpu-check: no GPU here, nothing was checked"
  exit 77
fi
tmp=$(mktemp -d)
export tmp
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

limit=345 # seconds for all
[ "$CUDA" != emu ] || limit=7200
passed=0 failed=0 skipped=0 table=()

# check SECONDS NAME FUNCTION WORDS...: a line of the table. There is no time for what comes last where checks are slow.
check() {
  local seconds=$1 name=$2 result status=77 start=$SECONDS left=$((limit - SECONDS))
  shift 2
  [ "$CUDA" != emu ] || seconds=$limit
  printf '\n== %s\n' "$name"
  note "no time left"
  if [ $left -gt 3 ]; then
    note ""
    timeout -k 3 $((seconds < left ? seconds : left)) bash tests/cuda/gpu_check.sh "$@" >"$tmp/log" 2>&1
    status=$?
    tail -n 20 "$tmp/log"
    [ $status != 124 ] || note "stopped after $((SECONDS - start)) s"
  fi
  case $status in
    0) result=ok passed=$((passed + 1)) ;;
    77) result=skip skipped=$((skipped + 1)) ;;
    *) result=FAIL failed=$((failed + 1)) ;;
  esac
  table+=("$(printf '%-4s %5d s  %-44s  %s' $result $((SECONDS - start)) "$name" "$(cat "$tmp/note")")")
}

words=(a ba cab dab face bead fade)
for i in $(seq 1 600); do printf '%s ' "${words[$((i * i % 7))]}" "${words[$((i / 3 % 7))]}"; done >"$tmp/text"
printf 'label\ttext\n' >"$tmp/table.tsv"
for i in $(seq 1 30); do printf 'up\trise %s rise\ndown\tfall fall %s\n' "$i" "$i" >>"$tmp/table.tsv"; done
printf 'rise 3\nfall\n\nup and down and up\n' >"$tmp/lines"

check 240 "build" builds
if [ $failed = 0 ]; then
  check 90 "kernels and models against the CPU" unit_tests
  check 30 "golden files" golden_files
  for kind in softmax flexformer_n; do check 30 "train_lm on both devices, $kind" language_model $kind; done
  check 30 "train_classifier on both devices, softmax" classifier softmax
  check 40 "train_lm with captured steps" captured_steps
  check 20 "distill on both devices" distillation
  check 20 "generate, predict and --eval on both devices" models_in_use
  check 20 "without a GPU" without_gpu
  check 50 "compute-sanitizer memcheck" sanitized memcheck 40
  check 50 "compute-sanitizer racecheck" sanitized racecheck 40
  if [ "$CUDA" = emu ]; then
    for precision in f32 bf16; do check 20 "speed of a product, $precision" speed product:64x64x64:NN:1 $precision; done
  else
    for kind in softmax flexformer_n; do
      check 30 "training step of GPT-2 124M, $kind, bf16" speed step:gpt2:$kind bf16
    done
    for n in 1024 4096 16384 65536; do
      check 15 "flexformer_n attention, N = $n, bf16" speed gpt2_attention:flexformer_n:$n bf16
      check 15 "softmax attention, N = $n, bf16" speed gpt2_attention:softmax:$n bf16 $((n > 20000 ? 1 : 3))
      check 15 "PyTorch's scaled_dot_product_attention, N = $n" flash $n
    done
    for kind in softmax flexformer_n; do check 20 "training step, dim 512, $kind, f32" speed step:big:$kind f32; done
  fi
fi

printf '\n'
printf '%s\n' "${table[@]}"
summary="$passed passed, $failed failed"
[ $skipped = 0 ] || summary="$summary, $skipped skipped"
printf '\n%s\n' "$summary"
[ $failed = 0 ]
