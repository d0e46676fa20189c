#!/usr/bin/env bash
# Hostile files given to the programs while their memory is limited: a size that a file claims must be refused before
# anything is allocated for it. Prints a line "ok NAME", "FAIL NAME" or "skip NAME" for each fact. Takes a few seconds.
#   usage: BUILD=build/release bash tests/train/programs/test_hardening.sh
if [ -n "${SAN:-}" ]; then
  echo "skip hostile files under limited memory (a sanitizer reserves terabytes of address space)"
  exit 0
fi
. "$(dirname "${BASH_SOURCE[0]}")/program_checks.sh"

# refused NAME PATTERN PROGRAM ARGUMENTS...: with 2 GB of memory and within 20 seconds the program must leave with
# status 1 or 2 and one line "error: ..." that holds the pattern. Its input is `in`.
refused() {
  local name=$1 pattern=$2 program=$3 got
  shift 3
  (
    ulimit -v 2000000 -c 0
    exec timeout -s KILL 20 "$bin/$program" --threads=1 "$@"
  ) >out 2>err <in
  got=$?
  if { [ $got = 1 ] || [ $got = 2 ]; } && [ "$(wc -l <err)" = 1 ] && [ "$(wc -c <err)" -lt 4000 ] &&
    grep -q '^error: ' err && grep -q -e "$pattern" err; then
    echo "ok $name"
  else
    echo "FAIL $name (status $got)"
    cut -c 1-300 err | head -n 5 | sed 's/^/    /'
    status=1
  fi
}
# repeated TEXT COUNT
repeated() { head -c "$((${#1} * $2))" < <(yes "$(printf "$1%.0s" {1..1000})" | tr -d '\n'); }
zeros() { head -c "$1" /dev/zero; }

# Two small runs, whose files are then damaged one at a time.
: >in
printf 'label\ttext\n' >table.tsv
for i in 1 2 3 4 5 6; do printf 'up\trise rise\ndown\tfall fall\n' >>table.tsv; done
for i in 1 2 3 4 5 6 7 8; do printf 'a word and another\n' >>text.txt; done
tiny=(--model.layers=1 --model.heads=1 --model.dim=8 --model.ffn=8 --train.steps=1 --train.batch=2 --threads=1)
"$bin/train_lm" "${tiny[@]}" --data.train=text.txt --train.block=8 --out=lm >/dev/null &&
  "$bin/train_classifier" "${tiny[@]}" --data.train=table.tsv --data.min_count=1 --data.max_length=8 --out=cls \
    >/dev/null || { echo "FAIL small runs to damage"; exit 1; }
# damaged RUN FILE: a copy of the run, of which standard input replaces a file.
damaged() {
  rm -rf bad && cp -r "$1" bad && cat >"bad/$2"
}

printf '\0\0\0\0\0\0\0\020{}' | damaged lm checkpoint/best.safetensors
refused "a safetensors header of 2^60 bytes" 'header claims 1152921504606846976 bytes' generate --run=bad
header='{"a":{"dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,0]}}'
{ printf "\\x$(printf %x ${#header})\0\0\0\0\0\0\0%s" "$header"; } | damaged lm checkpoint/best.safetensors
refused "a shape whose product overflows" 'does not fill its 0 bytes' generate --run=bad
{ printf '\060\165\0\0\0\0\0\0{"a":{"dtype":' && repeated '[' 29986; } | damaged cls checkpoint/best.safetensors
refused "a safetensors header nested 30,000 deep" 'nested deeper' predict --run=bad
damaged lm config.json <<<'{"format_version":1,"program":"train_lm","model":{"layers":1000,"dim":1048576,"heads":1}}'
refused "a config of a model of petabytes" 'describes a model of at least .* numbers, but .* has only' generate --run=bad
repeated '[' 100000 | damaged lm tokenizer.json
refused "a tokenizer nested 100,000 deep" 'nested deeper than 200 levels' generate --run=bad
damaged lm tokenizer.json <<<'{"format_version":1,"name":"bpe","lowercase":false,"specials":[],
  "merges":[[4611686018427387904,18446744073709551615]]}'
refused "a merge of giant ids" 'merge 0 is not a pair of earlier ids' generate --run=bad
for n in $(seq 256 400); do printf '[%d,%d],' "$n" "$n"; done | sed 's/^/[97,97],/; s/,$/]}/' |
  { printf '{"format_version":1,"name":"bpe","lowercase":false,"specials":[],"merges":[' && cat; } |
  damaged lm tokenizer.json
refused "merges that double a token without end" 'makes too long a token' generate --run=bad
{ printf '[' && repeated '"a",' 300000 && printf '"a"]'; } | damaged cls labels.json
refused "300,000 equal labels" 'stands there twice' predict --run=bad
repeated '{"a":' 100000 >deep.json
refused "a config nested 100,000 deep" 'deep.json:1:.*nested deeper than 200 levels' train_lm --config=deep.json
{ printf '{"' && repeated k 3000000 && printf '":1}'; } >long.json
refused "a config key of 3 MB" 'unknown key' train_lm --config=long.json
mkdir words
printf '{"a":4611686018427387904,"b":2147483648}' >words/vocab.json
printf 'a b\n' >words/merges.txt
refused "a vocabulary of giant ids" 'does not fit: 2 tokens must have the ids 0 to 1' \
  train_lm --data.train=text.txt --data.tokenizer=words --out=none

idx() { printf '\0\0\010%b' "$1"; }
idx '\003\0200\0\0\0\0\0\0\034\0\0\0\034' >x-images-idx3-ubyte
idx '\001\0200\0\0\0' >x-labels-idx1-ubyte
refused "two billion pictures in 16 bytes" 'promises 2147483648 x 28 x 28 bytes, but 0 follow' \
  train_classifier --data.train=x-images-idx3-ubyte --out=none
idx '\003\0377\0377\0377\0377\0377\0377\0377\0377\0377\0377\0377\0377' >x-images-idx3-ubyte
refused "IDX sizes that overflow" 'promises 4294967295 x 4294967295 x 4294967295' \
  train_classifier --data.train=x-images-idx3-ubyte --out=none

{
  idx '\003\0\0\0\02\0\0\0\02\0\0\0\02' && printf abcdABCD
} >two-images-idx3-ubyte
{ idx '\001\0\0\0\02' && printf '\0\1'; } >two-labels-idx1-ubyte
"$bin/train_classifier" "${tiny[@]}" --data.train=two-images-idx3-ubyte --data.max_length=4 --out=pictures >/dev/null
# Checksums are right, so that it is the size which is refused.
printf '\211PNG\r\n\032\n\0\0\0\rIHDR\200\0\0\0\200\0\0\0\010\0\0\0\0\330\337\006\226' >huge.png
refused "a picture of 2^31 x 2^31 pixels" '2147483648 x 2147483648 pixels are too many' \
  predict --run=pictures --file=huge.png

# 335 MB of zeros in 330 kB: equal members, one after the other.
zeros 16777216 | gzip >member.gz
for i in {1..20}; do cat member.gz; done >bomb.tsv.gz
refused "a gzip file of a thousand times its size" 'if that is right, unpack it first: gunzip -k' \
  train_classifier --data.train=bomb.tsv.gz --out=none
truncate -s 8T sparse.tsv
refused "a file of 8 TB" 'do not fit into the memory that is free' train_classifier --data.train=sparse.tsv --out=none

{ cat table.tsv && printf 'up\t' && repeated 'word,' 10000000 && printf '\n'; } >field.tsv
ln field.tsv field.csv  # the separator is the one that every row has, whatever the name says
for name in field.tsv field.csv; do
  ok "a field of 50 MB in $name is cut to the length of all texts" \
    "(ulimit -v 2000000 && '$bin/train_classifier' \"\${tiny[@]}\" --data.train=$name --data.max_length=8 --train.steps=2 \
      --out=of-$name >out 2>err) && said '^training: .*(tsv,'"
done
{ printf 'text,label\n"' && repeated 'a,' 5000000; } >open.csv
refused "a quote that never closes" 'open.csv:2: the quote that opens here is never closed' \
  train_classifier --data.train=open.csv --out=none
repeated $'1\t' 1000000 >columns.tsv
refused "a million columns" 'and 999971 more' train_classifier --data.train=columns.tsv --out=none

exit $status
