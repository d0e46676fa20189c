#!/usr/bin/env bash
# Fetches a public data set of train/datasets/data_sets.txt into data/; `make data-NAME` runs it.
#   usage: [MIRROR=URL] bash train/datasets/fetch_data.sh NAME
# Nothing incomplete ever bears a final name. A file is fetched into FILE.part, taking up where a broken download ended,
# and gets its name once its checksum is right; an archive is unpacked into FOLDER.part, which is renamed at the end.
# With MIRROR every file comes from that folder, under the last part of its URL.
set -u
name=${1:?usage: bash train/datasets/fetch_data.sh NAME}
table=$(dirname "$0")/data_sets.txt

error() { echo "error: $1" >&2; shift; printf '%s\n' "$@" >&2; exit 1; }
has() { command -v "$1" >/dev/null; }
need() { has "$1" || error "$1 is needed to unpack $file and is missing" "On Debian: apt-get install $1"; }

size() { wc -c <"$1" 2>/dev/null || echo 0; }
sum() { if has sha256sum; then sha256sum "$1"; else shasum -a 256 "$1"; fi; }
right() { [ -f "$1" ] && [ "$(size "$1")" -eq "$bytes" ] && sum "$1" | grep -q "^$sha256"; }

get() {
  if has curl; then
    curl -fL --connect-timeout 20 --speed-limit 100 --speed-time 60 -C - -o "$part" "$from"
  elif has wget; then
    wget -c -T 60 -t 3 -O "$part" "$from"
  else
    error "curl or wget is needed to fetch data and both are missing" "On Debian: apt-get install curl"
  fi
}

# Whether the part cannot be the start of the right file: a download that ended well, a server that cannot continue it
# (curl's 33), or too many bytes.
wrong_start() { [ -s "$part" ] && { [ "$got" = 0 ] || [ "$got" = 33 ] || [ "$(size "$part")" -ge "$bytes" ]; }; }

# Makes $file of $url, $bytes and $sha256.
fetch() {
  local part=$file.part from=$url got=0
  if [ -n "${MIRROR:-}" ]; then from=${MIRROR%/}/${url##*/}; fi
  mkdir -p "$(dirname "$file")" || exit 1
  right "$part" || { get; got=$?; }
  if ! right "$part" && wrong_start; then
    echo "what was there is not the start of the right file: fetching it afresh"
    rm -f "$part"
    get
    got=$?
  fi
  if ! right "$part"; then
    local what="cannot fetch $from"
    if [ "$got" = 0 ]; then
      rm -f "$part"
      what="$from is not the expected file"
    fi
    error "$what" "Get it elsewhere ($bytes bytes, sha256 $sha256)," \
      "put it at $file and run make data-$name again to check it; or give MIRROR=URL"
  fi
  mv "$part" "$file" && echo "$file is complete"
}

# Makes data/$folder of the archive $file, which then goes.
unpack() {
  local part=data/$folder.part item
  echo "unpacking $file"
  rm -rf "$part"
  mkdir "$part" || exit 1
  case $file in
    *.zip) unzip -q "$file" -d "$part" ;;
    *) tar -xzf "$file" -C "$part" ;;
  esac || error "cannot unpack $file; is the disk full?" "$file is kept: run make data-$name again"
  for item in $holds; do
    [ -e "$part/$folder/$item" ] || error "$file holds no $folder/$item"
  done
  mv "$part/$folder" "data/$folder" && rm -rf "$part" "$file" && echo "data/$folder is complete"
}

file_or_archive() {
  if [ -z "$folder" ]; then
    if right "$file"; then echo "$file is there and complete"; else fetch; fi
    return
  fi
  if [ -e "data/$folder" ]; then
    local item
    for item in $holds; do
      [ -e "data/$folder/$item" ] || error "data/$folder is there but holds no $item" \
        "Remove the folder and run make data-$name again"
    done
    echo "data/$folder is there and complete"
    return
  fi
  case $file in *.zip) need unzip ;; *) need tar; need gzip ;; esac
  right "$file" || fetch
  unpack
}

# A block is carried out as it is read; sha256 is the last line that a file needs.
block='' file='' folder='' holds='' url='' bytes=0 what='' licence=''
while read -r key value <&3; do
  case $key in name) block=$value ;; esac
  [ "$block" = "$name" ] || continue
  case $key in
    what) what=$value ;;
    licence) licence=$value ;;
    file | archive) file=data/$value folder='' holds='' ;;
    folder) folder=$value ;;
    holds) holds=$value ;;
    url) url=$value ;;
    bytes) bytes=$value ;;
    sha256) sha256=$value; file_or_archive ;;
    next) printf '%s: %s; licence: %s\nuse it with: %s\n' "$name" "$what" "$licence" "$value"; exit 0 ;;
  esac
done 3<"$table"
error "there is no data set $name" "make help lists them"
