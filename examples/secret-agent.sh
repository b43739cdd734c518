#!/usr/bin/env bash
# An agent that calls an API with a key that it cannot read. The script makes a service of its own in a temporary folder,
# and an API in a network namespace that stands for the internet: a name server, and a TLS server with a certificate. It
# then shows both sides of a request, and checks them. Needs root, a Docker engine, nftables, iproute2, openssl and curl.
set -euo pipefail
cd "$(dirname "$0")/.."

image=sandkeep-example:node
host=api.example.com
inside=sk-example
address=10.222.0.2
real_key="sk-$(openssl rand -hex 16)"
work=$(mktemp -d)
cleanup() {
  for pid in ${server:-} ${api:-}; do kill "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; done
  [ -z "${id:-}" ] || left | xargs -r docker rm -f >/dev/null 2>&1 || true
  docker rmi "$image" >/dev/null 2>&1 || true
  ip link del "$inside" 2>/dev/null || true
  ip netns del "$inside" 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT
# Its container, and the one that holds its network.
left() {
  docker ps --all --quiet --filter "label=dev.sandkeep.sandbox=$id"
  docker ps --all --quiet --filter "label=dev.sandkeep.holder-of=$id"
}
say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
die() { echo "secret-agent: $*" >&2; exit 1; }
field() { node -e "let t='';process.stdin.on('data',d=>t+=d).on('end',()=>{const v=JSON.parse(t)$1;console.log(typeof v==='object'?JSON.stringify(v):v)})"; }

[ "$(id -u)" = 0 ] || die "this needs root, for a network of its own"
docker info >/dev/null 2>&1 || die "no Docker engine answers (on Debian: apt-get install docker.io)"
for program in nft ip openssl curl; do command -v "$program" >/dev/null || die "there is no program $program"; done
[ -f dist/program/main.js ] || npm run -s build

say "An image of nothing but Node, from this machine"
node=$(node -p process.execPath)
ldd "$node" | grep -o '/[^ ]*' | while read -r library; do
  mkdir -p "$work/image$(dirname "$library")"
  cp -L "$library" "$work/image$library"
done
mkdir -p "$work/image/bin"
cp -L "$node" "$work/image/bin/node"
tar -C "$work/image" -c . | docker import --change 'ENV PATH=/bin' - "$image" >/dev/null
rm -rf "$work/image"
echo "$image"

say "The internet: the API $host, its certificate, and a name server"
ip netns add "$inside"
ip link add "$inside" type veth peer name eth0 netns "$inside"
ip addr add 10.222.0.1/30 dev "$inside"
ip link set "$inside" up
ip -n "$inside" addr add "$address/30" dev eth0
ip -n "$inside" link set eth0 up
ip -n "$inside" link set lo up
ip -n "$inside" route add default via 10.222.0.1
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=Example root" \
  -keyout "$work/root.key" -out "$work/root.pem" 2>/dev/null
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$host" \
  -keyout "$work/api.key" -out "$work/api.csr" 2>/dev/null
openssl x509 -req -in "$work/api.csr" -CA "$work/root.pem" -CAkey "$work/root.key" -CAcreateserial -days 2 \
  -extfile <(echo "subjectAltName=DNS:$host,DNS:other.example.com") -out "$work/api.pem" 2>/dev/null
cat >"$work/internet.mjs" <<'END'
import { createSocket } from 'node:dgram';
import { appendFileSync, readFileSync } from 'node:fs';
import { createServer } from 'node:https';
const [, , folder, address] = process.argv;
// Every name has this address, and no IPv6 one.
const names = createSocket('udp4', (query, from) => {
  let end = 12;
  while (query[end] !== 0) end += query[end] + 1;
  end += 5;
  const isA = query.readUInt16BE(end - 4) === 1;
  const header = Buffer.from([query[0], query[1], 0x81, 0x80, 0, 1, 0, isA ? 1 : 0, 0, 0, 0, 0]);
  const record = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, ...address.split('.').map(Number)];
  names.send(Buffer.concat([header, query.subarray(12, end), Buffer.from(isA ? record : [])]), from.port, from.address);
});
names.bind(53, address);
const identity = { key: readFileSync(`${folder}/api.key`), cert: readFileSync(`${folder}/api.pem`) };
createServer(identity, ({ headers, url }, answer) => {
  appendFileSync(`${folder}/seen`, `${headers.host}${url} ${headers.authorization}\n`);
  answer.setHeader('content-type', 'application/json').end(JSON.stringify({ you: headers.authorization }));
}).listen(443, address, () => console.log('ready'));
END
ip netns exec "$inside" node "$work/internet.mjs" "$work" "$address" >"$work/api.log" &
api=$!
for _ in $(seq 100); do
  grep -q ready "$work/api.log" && break
  kill -0 "$api" 2>/dev/null || die "the API did not start"
  sleep 0.1
done
echo "$address"

say "The service, with its own database, on a free port"
bin/sandkeep serve --json --port 0 --runtime docker --data-dir "$work/data" --log-level warn >"$work/ready.json" &
server=$!
for _ in $(seq 200); do
  [ -s "$work/ready.json" ] && break
  kill -0 "$server" 2>/dev/null || die "the service did not start"
  sleep 0.1
done
service=$(field .address <"$work/ready.json")
key=$(field .first_key.key <"$work/ready.json")
request() {
  local method=$1 path=$2
  shift 2
  curl -sS --fail-with-body -X "$method" -H "Authorization: Bearer $key" -H 'content-type: application/json' "$service$path" "$@"
}

say "A sandbox that reaches one API, with a key that it never has"
root=$(node -p 'JSON.stringify(require("node:fs").readFileSync(process.argv[1], "utf8"))' "$work/root.pem")
sandbox=$(request POST '/v1/sandboxes?start=true&wait_for=running&wait_timeout=60' -d '{
  "name": "secret-agent",
  "image": {"type": "oci", "reference": "'"$image"'"},
  "pull_policy": "never",
  "network": {
    "policy": {
      "rules": [
        {"direction": "egress", "destination": {"domain": "'"$host"'"}, "action": "allow"},
        {"direction": "egress", "destination": {"cidr": "'"$address"'"}, "action": "allow",
         "protocols": ["udp"], "ports": [{"start": 53, "end": 53}]}
      ]
    },
    "dns": {"nameservers": ["'"$address"'"], "rebind_protection": false},
    "secrets": {
      "entries": [{
        "env_var": "API_KEY",
        "placeholder": "$MSB_API_KEY",
        "value": "'"$real_key"'",
        "allowed_hosts": [{"type": "exact", "value": "'"$host"'"}]
      }]
    },
    "tls": {"enabled": false, "upstream_ca_cert": ['"$root"']}
  }
}')
id=$(field .id <<<"$sandbox")
[ "$(field .status <<<"$sandbox")" = running ] || die "the sandbox does not run: $sandbox"
grep -q "$real_key" <<<"$sandbox" && die "the answer has the key"
run() {
  local body
  body=$(node -p 'JSON.stringify({ cmd: "node", args: ["--input-type=module", "-e", process.argv[1]] })' "$1")
  request POST "/v1/sandboxes/$id/exec" -d "$body" | field '.stdout'
}

say "Inside: the agent sends its key, and reads the answer"
agent='
const authorization = `Bearer ${process.env.API_KEY}`;
console.log("sent      ", authorization);
const answer = await fetch("https://'"$host"'/v1/me", { headers: { authorization } });
console.log("answered  ", answer.status, JSON.stringify(await answer.json()));'
output=$(run "$agent")
echo "$output"
grep -q 'answered *200 {"you":"Bearer $MSB_API_KEY"}' <<<"$output" || die "the API did not answer"

say "Outside: the API got the real key"
cat "$work/seen"
grep -q "^$host/v1/me Bearer $real_key$" "$work/seen" || die "the API did not get the key"

say "Inside: another host gets nothing"
output=$(run 'await fetch("https://other.example.com/", { headers: { authorization: process.env.API_KEY } })
  .then((answer) => console.log(answer.status), ({ cause }) => console.log("refused:", cause.code));')
echo "$output"
grep -q refused <<<"$output" || die "another host was reached"
[ "$(wc -l <"$work/seen")" = 1 ] || die "another host got a request"
denied=$(request GET "/v1/sandboxes/$id/network/denied")
echo "$denied"
grep -q other.example.com <<<"$denied" || die "the list of refusals does not have it"

say "Inside: no process, file or variable has the key"
found=$(run '
import { readdirSync, readFileSync } from "node:fs";
const texts = [JSON.stringify(process.env)];
for (const name of readdirSync("/proc").filter((each) => /^[0-9]+$/.test(each)))
  for (const file of ["environ", "cmdline"])
    try { texts.push(readFileSync(`/proc/${name}/${file}`, "utf8")); } catch {}
console.log(texts.join("\n").replaceAll("\0", "\n"));')
grep -q 'MSB_API_KEY' <<<"$found" || die "the variable has no placeholder"
grep -q "$real_key" <<<"$found" && die "the sandbox has the key"
echo "only the placeholder"

request DELETE "/v1/sandboxes/$id" >/dev/null
for _ in $(seq 300); do [ -z "$(left)" ] && break; sleep 0.1; done
echo
echo "secret agent: the API got the key, and the sandbox never had it"
