#!/usr/bin/env bash
# A first session from end to end with real containers: makes a service of its own in a temporary folder, an image from
# the machine's static busybox, and takes a sandbox through its life. Needs a Docker engine, busybox-static and curl, and
# npm for the official CLI: without a registry it says so, and leaves the steps inside the sandbox out.
set -euo pipefail
cd "$(dirname "$0")/.."

image=sandkeep-example:busybox
work=$(mktemp -d)
cleanup() {
  [ -z "${server:-}" ] || kill "$server" 2>/dev/null || true
  [ -z "${server:-}" ] || wait "$server" 2>/dev/null || true
  rm -rf "$work"
  [ -z "${image:-}" ] || docker rmi "$image" >/dev/null 2>&1 || true
}
trap cleanup EXIT
say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
die() { echo "first-light: $*" >&2; exit 1; }
# field PATH: that field of the JSON on standard input, such as .data[0].id
field() { node -e "let t='';process.stdin.on('data',d=>t+=d).on('end',()=>{const v=JSON.parse(t)$1;console.log(typeof v==='object'?JSON.stringify(v):v)})"; }

docker info >/dev/null 2>&1 || die "no Docker engine answers (on Debian: apt-get install docker.io)"
[ -x /bin/busybox ] || die "there is no /bin/busybox (on Debian: apt-get install busybox-static)"
[ -f dist/program/main.js ] || npm run -s build

say "An image of nothing but busybox"
mkdir -p "$work/image/bin"
cp /bin/busybox "$work/image/bin/busybox"
for applet in sh sleep cat mkdir httpd; do ln -s busybox "$work/image/bin/$applet"; done
tar -C "$work/image" -c . | docker import - "$image" >/dev/null
echo "$image"

say "The service, with its own database, on a free port"
bin/sandkeep serve --json --port 0 --runtime docker --data-dir "$work/data" --log-level warn >"$work/ready.json" &
server=$!
for _ in $(seq 200); do
  [ -s "$work/ready.json" ] && break
  kill -0 "$server" 2>/dev/null || die "the service did not start"
  sleep 0.1
done
address=$(field .address <"$work/ready.json")
key=$(field .first_key.key <"$work/ready.json")
echo "$address"
api() {
  local method=$1 path=$2
  shift 2
  curl -sS --fail-with-body -X "$method" -H "Authorization: Bearer $key" -H 'content-type: application/json' "$address$path" "$@"
}

say "Create a sandbox and wait until it runs"
sandbox=$(api POST '/v1/sandboxes?start=true&wait_for=running&wait_timeout=30' -d '{
  "name": "first-light",
  "image": {"type": "oci", "reference": "'"$image"'"},
  "pull_policy": "never",
  "resources": {"vcpus": 1, "memory_mib": 64},
  "env": [{"key": "GREETING", "value": "hello"}],
  "labels": {"team": "ml"}
}')
id=$(field .id <<<"$sandbox")
[ "$(field .status <<<"$sandbox")" = running ] || die "the sandbox does not run: $sandbox"
echo "$id runs"

say "The container behind it"
container=$(docker ps --quiet --filter "label=dev.sandkeep.sandbox=$id")
[ -n "$container" ] || die "there is no container"
docker ps --filter "id=$container" --format '{{.ID}}  {{.Image}}  {{.Status}}'
[ "$(docker exec "$container" sh -c 'echo $GREETING')" = hello ] || die "the environment is not in the container"

say "The official CLI"
version=0.6.18
platform=$(node -p 'process.platform + "-" + process.arch + (process.platform === "linux" ? "-gnu" : "")')
cli=node_modules/.cache/microsandbox-$version
[ -d "$cli" ] || cli=$work/cli
# npm omits the package of the platform under Node versions below 22, so it is named here.
if [ -d "$cli" ] || npm install --silent --ignore-scripts --no-save --prefix "$cli" \
  "microsandbox@$version" "@superradcompany/microsandbox-$platform@$version"; then
  msb=$(realpath "$cli/node_modules/@superradcompany/microsandbox-$platform/bin/msb")
  export MSB_BACKEND=cloud MSB_API_URL=$address MSB_API_KEY=$key
  "$msb" exec first-light -- sh -c 'echo "$GREETING from inside"'
  "$msb" exec first-light -- sh -c 'exit 7' && die "the exit code is lost" || [ $? = 7 ] || die "the exit code is not 7"

  echo "notes of the day" >"$work/notes.txt"
  "$msb" cp "$work/notes.txt" first-light:/notes.txt
  "$msb" cp first-light:/notes.txt "$work/back.txt"
  cmp "$work/notes.txt" "$work/back.txt" || die "the file has changed on its way"
  echo "a file went in and came back the same"

  script --quiet --return --command \
    "'$msb' exec -t first-light -- sh -c '[ -t 0 ] && echo \"\$GREETING from a terminal\"'" /dev/null </dev/null ||
    die "there is no terminal"
  sessions=$(api GET "/v1/events?resource_id=$id&event_type=sandbox_session_opened" | field '.data.map((event)=>event.payload.kind).reverse().join(" ")')
  echo "sessions in the audit trail: $sessions"
  [[ "$sessions" =~ ^exec\ exec\ (files\ )+terminal$ ]] || die "these are not the sessions of the commands above"
else
  echo "SKIPPED: npm cannot install microsandbox@$version"
fi

say "A page of the sandbox, for those who have its link"
page='mkdir /page; echo "$GREETING, page" >/page/index.html; httpd -p 127.0.0.1:8000 -h /page'
api POST "/v1/sandboxes/$id/exec" -d "$(node -p 'JSON.stringify({cmd: "sh", args: ["-c", process.argv[1]]})' "$page")" >/dev/null
preview=$(api POST "/v1/sandboxes/$id/previews" -d '{"port": 8000}')
origin=$(field .origin <<<"$preview")
token=$(field .token <<<"$preview")
[ "$(curl -sS -H "Authorization: Bearer $token" "$origin/")" = "hello, page" ] || die "the page is not shown"
[ "$(curl -sS -o /dev/null -w '%{http_code}' "$origin/")" = 401 ] || die "the page is shown without its link"
echo "$origin shows it, and answers 401 without the link"

say "List by label"
[ "$(api GET '/v1/sandboxes?labels=%7B%22team%22%3A%22ml%22%7D' | field '.data[0].id')" = "$id" ] || die "not listed"
[ "$(api GET '/v1/sandboxes?labels=%7B%22team%22%3A%22web%22%7D' | field .data.length)" = 0 ] || die "listed by another label"
echo "found by team=ml, not by team=web"

say "Stop it"
sleep 1
api POST "/v1/sandboxes/$id/stop" -d '{}' | field .status
for _ in $(seq 100); do
  stopped=$(api GET "/v1/sandboxes/$id")
  [ "$(field .status <<<"$stopped")" = stopped ] && break
  sleep 0.1
done
[ "$(field .status <<<"$stopped")" = stopped ] || die "the sandbox did not stop: $stopped"

say "Usage: the seconds of the engine's own record"
engine=$(docker inspect "$container" | node -e "
  let t='';process.stdin.on('data',d=>t+=d).on('end',()=>{
    const micros=(s)=>BigInt(Date.parse(s.slice(0,19)+'Z'))*1000n+BigInt((s.slice(20,-1)+'000000').slice(0,6));
    const {StartedAt,FinishedAt}=JSON.parse(t)[0].State;
    console.log(Number(micros(FinishedAt)-micros(StartedAt))/1e6)})")
billed=$(api GET /v1/billing/usage/sandbox | node -e "
  let t='';process.stdin.on('data',d=>t+=d).on('end',()=>
    console.log(Math.round(JSON.parse(t).rows.reduce((sum,row)=>sum+row.vcpu_seconds,0)*1e6)/1e6))")
echo "engine $engine s, billed $billed vCPU-seconds"
[ "$engine" = "$billed" ] || die "the usage is not what the engine recorded"

say "Audit events"
events=$(api GET "/v1/events?resource_id=$id&limit=100" | field '.data.map((event)=>event.event_type).filter((type)=>!type.startsWith("sandbox_session")).reverse().join(" ")')
echo "$events"
[ "$events" = "sandbox_created sandbox_start_requested sandbox_started sandbox_preview_created sandbox_stop_requested sandbox_stopped" ] ||
  die "these are not the events of a first session"

say "A volume, made and deleted"
volume=$(api POST /v1/volumes -d '{"name": "data"}' | field .id)
api DELETE "/v1/volumes/$volume" | field .message

say "Delete the sandbox"
api DELETE "/v1/sandboxes/$id" | field .message
# Its container, and the one that holds its network: with the last of those the service takes its bridge along when it ends.
left() {
  docker ps --all --quiet --filter "label=dev.sandkeep.sandbox=$id"
  docker ps --all --quiet --filter "label=dev.sandkeep.holder-of=$id"
}
for _ in $(seq 300); do
  [ -z "$(left)" ] && break
  sleep 0.1
done
[ -z "$(left)" ] || die "the container or the holder of its network is still there"
echo
echo "first light: everything is as it should be"
