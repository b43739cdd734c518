#!/bin/sh
# Builds process 1 of sandboxes, the agent, the supervisor of virtual machines, the programs that start the gateway and open ports, and one of the benchmarks, for each processor. The repository has the builds, so an installation needs no compiler.
# --check builds to a temporary directory and fails when the builds in the repository differ.
#
# On Debian 12: apt-get install gcc gcc-aarch64-linux-gnu libc6-dev-arm64-cross
# Other versions of gcc produce other bytes.
set -eu
cd "$(dirname "$0")"

target=.
if [ "${1:-}" = --check ]; then
  target=$(mktemp -d)
  trap 'rm -rf "$target"' EXIT
fi

# The files of a program are optimized together (-flto): apart, the agent for ARM64 is 4 KiB larger. In one part, so that the bytes do
# not depend on the number of processors of this machine.
for processor in x86_64 aarch64; do
  for program in init agent launch connect boot supervise tap take; do
    "$processor-linux-gnu-gcc" -std=gnu11 -Os -Wall -Wextra -Werror \
      -flto -flto-partition=one -ffreestanding -nostdlib -static -fno-pic -no-pie \
      -fno-stack-protector -fno-asynchronous-unwind-tables -fno-unwind-tables -fno-tree-loop-distribute-patterns \
      -Wl,--build-id=none -Wl,-z,noseparate-code -Wl,-z,noexecstack -Wl,-s \
      -o "$target/$program-$processor" common/*.S common/*.c "$program"/*.c
    # Sandboxes get copies of the first two. The service executes the others where they are.
    mode=0755
    case "$program" in init | agent | boot | take) mode=0644 ;; esac
    chmod "$mode" "$target/$program-$processor"
    [ "$target" = . ] || cmp "$program-$processor" "$target/$program-$processor"
  done
done
