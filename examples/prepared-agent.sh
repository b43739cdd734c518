#!/bin/sh
# Prepares the repository of an agent once as a template, and starts sandboxes from it.
# Needs: a running service on Docker, SANDKEEP_URL, SANDKEEP_API_KEY, curl, and the command sandkeep.
# Arguments: an image (default: python:3.12-slim), the number of sandboxes (default: 3).
set -eu

: "${SANDKEEP_URL:=http://127.0.0.1:8080}" "${SANDKEEP_API_KEY:?set the API key}"
image=${1:-python:3.12-slim}
count=${2:-3}
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT

cat > "$context/Dockerfile" <<END
FROM $image
WORKDIR /work
RUN echo "prepared at \$(cat /proc/uptime)" > prepared
COPY main.sh .
ENV AGENT=example
CMD ["sh", "-c", "echo ready; sleep 3600"]
END
echo 'echo "$AGENT runs on a disk that was $(cat prepared)"' > "$context/main.sh"

sandkeep templates build "$context" -t example-agent:1 --memory-mib 128
for number in $(seq "$count"); do
  curl -fsS -X POST "$SANDKEEP_URL/v1/sandboxes?start=true&wait_for=running" \
    -H "authorization: Bearer $SANDKEEP_API_KEY" -H 'content-type: application/json' \
    -d '{"name": "agent-'"$number"'", "image": {"type": "template", "name": "example-agent", "tag": "1"},
         "resources": {"vcpus": 1, "memory_mib": 128}}' > /dev/null
  curl -fsS -X POST "$SANDKEEP_URL/v1/sandboxes/by-name/agent-$number/exec" \
    -H "authorization: Bearer $SANDKEEP_API_KEY" -H 'content-type: application/json' \
    -d '{"cmd": "sh", "args": ["main.sh"]}'
  echo
  curl -fsS -X DELETE "$SANDKEEP_URL/v1/sandboxes/by-name/agent-$number" -H "authorization: Bearer $SANDKEEP_API_KEY" > /dev/null
done
