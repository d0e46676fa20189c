#!/usr/bin/env bash
# Three tiny runs whose checkpoints are pinned: whoever moves code proves with it that no bit of training has changed.
# The bits depend on the compiler and the processor's instructions, so pinned.txt has a block for each pair that was
# tried, and on any other machine the test is skipped. A change that is meant to change bits replaces the block:
#   PIN=1 bash tests/train/programs/test_pinned.sh      (with the programs of build/release)
pins=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/pinned.txt
. "$(dirname "${BASH_SOURCE[0]}")/program_checks.sh"

# What the bits depend on: the compiler's version and all that it defines for this processor.
machine=$({ ${CXX:-g++} -dumpfullversion && ${CXX:-g++} -march=native -dM -E -x c++ /dev/null | sort; } | sha256sum | cut -c 1-16)
shape=(--train.steps=20 --train.eval_every=10 --model.layers=2 --model.dim=32 --model.heads=2 --train.batch=4)
hash_of() { # NAME PROGRAM ATTENTION
  run 0 "$2" --model.attention="$3" "${shape[@]}" --threads=1 --out="pin-$1" || return 1
  local file="pin-$1/checkpoint/last.safetensors"
  tail -c +$((9 + $(od -An -tu8 -N8 "$file"))) "$file" | sha256sum | cut -c 1-64  # behind the header, which names keys
}
runs=("softmax-language train_lm softmax" "flexformer-language train_lm flexformer_n"
  "flexformer-classifier train_classifier flexformer_n")
for words in "${runs[@]}"; do
  # shellcheck disable=SC2086
  set -- $words
  if [ "${PIN:-}" = 1 ]; then
    sed -i "/^$machine $1 /d" "$pins"
    echo "$machine $1 $(hash_of "$@")" | tee -a "$pins"
  elif [ -n "${SAN:-}" ] || [[ ${BUILD:-build/release} != build/release ]] || ! grep -q "^$machine $1 " "$pins"; then
    echo "skip pinned checkpoint $1 (this compiler and processor have none)"
  else
    ok "the checkpoint of $1 has its pinned bits" '[ "$(hash_of '"$*"')" = "$(sed -n "s/^'"$machine $1"' //p" "$pins")" ]'
  fi
done
exit $status
