#!/usr/bin/env bash
# build.sh OUT: writes the Python package into the new folder OUT. It needs the packages of requirements.txt.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?'usage: clients/python/build.sh OUT'}
[ ! -e "$out" ] || { echo "$out exists already: name a folder that does not" >&2; exit 2; }
version=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["version"])' "$here/../../package.json")
config=$(mktemp --suffix .yaml)
trap 'rm -f "$config"' EXIT
{ cat "$here/config.yaml"; printf 'package_version_override: %s\n' "$version"; } >"$config"
# An operation that the generator does not understand is a fault of the description.
python3 -m openapi_python_client generate --path "$here/../../openapi.json" --config "$config" --output-path "$out" --fail-on-warning
cp "$here/sandkeep_client/connection.py" "$out/sandkeep_client/"
cp "$here/README.md" "$here/../../LICENSE" "$out/"
