#!/usr/bin/env bash
# A repository is prepared once in a sandbox, and forked: each copy begins with the prepared files and works on its own.
# Makes a service of its own in a temporary folder, and an image from the machine's static busybox. Needs a Docker engine,
# busybox-static and curl. COPIES: the number of copies, 20 by default.
set -euo pipefail
cd "$(dirname "$0")/.."

copies=${COPIES:-20}
image=sandkeep-example:forks
work=$(mktemp -d)
cleanup() {
  [ -z "${key:-}" ] || delete_all || true
  [ -z "${server:-}" ] || kill "$server" 2>/dev/null || true
  [ -z "${server:-}" ] || wait "$server" 2>/dev/null || true
  [ -z "${server:-}" ] || bin/sandkeep uninstall --yes --data-dir "$work/data" >/dev/null 2>&1 || true
  docker rmi "$image" >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap cleanup EXIT
say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
die() { echo "forked-agents: $*" >&2; exit 1; }
field() { node -e "let t='';process.stdin.on('data',d=>t+=d).on('end',()=>{const v=JSON.parse(t)$1;console.log(typeof v==='object'?JSON.stringify(v):v)})"; }
api() {
  local method=$1 path=$2
  shift 2
  curl -sS --fail-with-body -X "$method" -H "Authorization: Bearer $key" -H 'content-type: application/json' "$address$path" "$@"
}
# inside ID SCRIPT: the output of a script in a sandbox
inside() {
  api POST "/v1/sandboxes/$1/exec" -d "$(node -p 'JSON.stringify({cmd: "sh", args: ["-c", process.argv[1]]})' "$2")" | field .stdout
}
delete_all() {
  for one in $(api GET '/v1/sandboxes?limit=100' | field '.data.map(({id})=>id).join(" ")'); do
    api DELETE "/v1/sandboxes/$one" >/dev/null
  done
}

docker info >/dev/null 2>&1 || die "no Docker engine answers (on Debian: apt-get install docker.io)"
[ -x /bin/busybox ] || die "there is no /bin/busybox (on Debian: apt-get install busybox-static)"
[ -f dist/program/main.js ] || npm run -s build

say "An image of nothing but busybox, and a service"
mkdir -p "$work/image/bin" "$work/image/tmp"
cp /bin/busybox "$work/image/bin/busybox"
for applet in sh sleep cat mkdir tar cksum wc find; do ln -s busybox "$work/image/bin/$applet"; done
tar -C "$work/image" -c . | docker import - "$image" >/dev/null
bin/sandkeep serve --json --port 0 --preview-port 0 --runtime docker --data-dir "$work/data" --log-level warn \
  --capacity-vcpus 1000 >"$work/ready.json" &
server=$!
for _ in $(seq 200); do
  [ -s "$work/ready.json" ] && break
  kill -0 "$server" 2>/dev/null || die "the service did not start"
  sleep 0.1
done
address=$(field .address <"$work/ready.json")
key=$(field .first_key.key <"$work/ready.json")
echo "$address"

say "Prepare: the repository of this project, unpacked once"
source=$(api POST '/v1/sandboxes?start=true&wait_for=running&wait_timeout=30' -d '{
  "name": "prepared",
  "image": {"type": "oci", "reference": "'"$image"'"},
  "pull_policy": "never",
  "resources": {"vcpus": 1, "memory_mib": 32}
}' | field .id)
tar -c src docs package.json >"$work/repository.tar"
curl -sS --fail-with-body -X PUT -H "Authorization: Bearer $key" -H 'content-type: application/octet-stream' \
  "$address/v1/sandboxes/$source/files/content?path=/repository.tar" --data-binary "@$work/repository.tar" >/dev/null
files=$(inside "$source" 'mkdir /work && tar -x -C /work -f /repository.tar && find /work -type f | wc -l')
echo "$files files"

say "Fork: $copies copies"
begun=$(date +%s%N)
fork=$(api POST '/v1/sandboxes/by-name/prepared/fork' -d '{"count": '"$copies"', "name_prefix": "agent", "labels": {"task": "demo"}}')
ids=$(field '.sandboxes.map(({id})=>id).join(" ")' <<<"$fork")
for _ in $(seq 600); do
  operation=$(api GET "/v1/fork-operations/$(field .id <<<"$fork")")
  [ "$(field .status <<<"$operation")" = failed ] && die "the fork has failed: $operation"
  [ "$(field '.sandboxes.every(({status})=>status==="running")' <<<"$operation")" = true ] && break
  sleep 0.1
done
echo "all run after $((($(date +%s%N) - begun) / 1000000)) ms"
[ "$(field .status <<<"$operation")" = succeeded ] || die "the fork has not succeeded: $operation"
echo "they share one disk of $(($(field .size_bytes <<<"$operation") / 1048576)) MiB"

say "Work: each copy has the files, and changes its own"
number=0
for id in $ids; do
  number=$((number + 1))
  [ "$(inside "$id" 'find /work -type f | wc -l')" = "$files" ] || die "a copy lacks files"
  inside "$id" "echo 'attempt $number' >/work/attempt" >/dev/null
done
number=0
for id in $ids; do
  number=$((number + 1))
  [ "$(inside "$id" 'cat /work/attempt')" = "attempt $number" ] || die "the work of one copy is in another"
done
[ "$(inside "$source" '[ -e /work/attempt ] || echo none')" = none ] || die "the work of a copy is in the source"
echo "$number attempts, each in a copy of its own"

say "Delete: the disk goes with the last copy"
delete_all
for _ in $(seq 300); do
  [ "$(api GET /v1/quotas | field .snapshots)" = 0 ] && break
  sleep 0.2
done
[ "$(api GET /v1/quotas | field .snapshots)" = 0 ] || die "the shared disk is still there"
echo "nothing is left"
