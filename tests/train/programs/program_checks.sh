# What the shell tests of the programs share: they source this file, which goes to a temporary folder that is removed at the
# end, with a text and a table to train on. Facts are printed as "ok NAME", "FAIL NAME" or "skip NAME"; a script ends with
# `exit $status`.
set -u
bin=$(cd "${BUILD:-build/release}" && pwd) || exit 1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
cd "$tmp" || exit 1
export LC_ALL=C
status=0

# ok NAME COMMAND...: the fact NAME holds when the command succeeds; otherwise what the last program said is shown.
ok() {
  local name=$1
  shift
  if eval "$@"; then
    echo "ok $name"
  else
    echo "FAIL $name"
    sed 's/^/    /' out err 2>/dev/null | tail -n 15
    status=1
  fi
}
# run STATUS PROGRAM ARGUMENTS...: the program must leave with this status; its output is in `out` and `err`.
run() {
  local wanted=$1 program=$2
  shift 2
  env LC_ALL="${locale:-C}" "$bin/$program" "$@" >out 2>err </dev/null
  local got=$?
  [ $got = "$wanted" ] || { echo "status $got instead of $wanted" >>err; return 1; }
}
said() { grep -q -e "$1" out; }
# The one line on stderr is an error with this in it.
complained() { [ "$(wc -l <err)" = 1 ] && grep -q '^error: ' err && grep -q -e "$1" err; }
# A column of the metrics, one value a line.
column() { sed -n "s/.*\"$2\":\([^,}]*\).*/\1/p" "$1/metrics.jsonl"; }
# All of a run's metrics but the speed.
figures() { sed 's/,"tokens_per_second":[^}]*//' "$1/metrics.jsonl"; }
# figure FOLDER KEY FORMAT: a number of the summary.
figure() { printf "$3" "$(sed -n "s/.*\"$2\": *\([^,]*\).*/\1/p" "$1/summary.json")"; }
# whole REPORT: complete, and it refers to nothing outside itself.
whole() {
  tail -n 1 "$1" | grep -q '</html>' &&
    ! sed 's/ src="data:image\/png;base64,[^"]*"//g' "$1" | grep -Eq '(src|href)=|url\(|@import|https?:'
}
# later FOLDER [LINES]: waits until the run has written this many lines of metrics.
later() {
  for _ in $(seq 400); do
    [ "$(cat "$1/metrics.jsonl" 2>/dev/null | wc -l)" -ge "${2:-1}" ] && return 0
    sleep 0.02
  done
  return 1
}

mkdir 'data files'
words=(a ba cab dab face bead fade)
for i in $(seq 1 400); do
  printf '%s ' "${words[$((i * i % 7))]}" "${words[$((i / 3 % 7))]}"
done >'data files/a text.txt'
printf 'label\ttext\n' >table.tsv
for i in $(seq 1 20); do printf 'up\trise %s rise\ndown\tfall fall %s\n' "$i" "$i" >>table.tsv; done
tiny=(--model.layers=2 --model.heads=2 --model.dim=32 --model.ffn=64 --train.batch=4 --log_every=1 --threads=1)
lm=("${tiny[@]}" --data.train='data files/a text.txt' --train.block=16)
cls=("${tiny[@]}" --data.train=table.tsv --data.max_length=16 --data.min_count=1)
