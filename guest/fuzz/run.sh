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

# The kernel and the first instructions are those of the fuzzer and of the library.
clang -std=gnu11 -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize=alignment -fno-sanitize-recover=undefined \
  -include tables.h -o "$built/agent" agent.c ../agent/*.c ../common/bytes.c ../common/directories.c ../common/execute.c ../common/oom.c ../common/text.c ../common/users.c
# The fuzzer begins with inputs of many frames: its own first ones have few.
[ -n "$(ls "$corpus")" ] || for seed in $(seq 64); do head -c 4096 /dev/urandom >"$corpus/seed-$seed"; done
# The agent leaves its loop by a jump, behind which the frames of a fake stack would stay. The quarantine keeps the inputs that were freed.
export ASAN_OPTIONS=detect_stack_use_after_return=0:quarantine_size_mb=8
# In rounds of ten minutes: the corpus in memory grows.
while [ "$seconds" -gt 0 ]; do
  round=$((seconds < 600 ? seconds : 600))
  "$built/agent" -max_total_time="$round" -max_len=4096 -len_control=0 -timeout=10 -rss_limit_mb=4096 -print_final_stats=1 "$corpus"
  seconds=$((seconds - round))
done
