#!/bin/sh
# Fuzzes the agent for SECONDS (default: 60), with the address and undefined-behaviour sanitizers. Fails with the input that broke it.
#
# On Debian 12: apt-get install clang
set -eu
cd "$(dirname "$0")"
seconds=${1:-60}
corpus=${2:-$(mktemp -d)}
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT

# The start files of the library define _start too, and come first.
clang -std=gnu11 -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize=alignment -fno-sanitize-recover=undefined \
  -Wno-unused-function -Wl,-z,muldefs -o "$built/agent" agent.c
# In rounds of ten minutes: the memory of the fuzzer grows with its runs.
while [ "$seconds" -gt 0 ]; do
  round=$((seconds < 600 ? seconds : 600))
  "$built/agent" -max_total_time="$round" -max_len=4096 -len_control=0 -timeout=10 -rss_limit_mb=4096 -print_final_stats=1 "$corpus"
  seconds=$((seconds - round))
done
