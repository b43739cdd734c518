#!/bin/sh
# Builds process 1 of sandboxes for each processor. The builds are kept in the repository, so that an installation needs
# no compiler. With --check: builds to a temporary directory and fails when the kept builds differ.
#
# On Debian 12: apt-get install gcc gcc-aarch64-linux-gnu libc6-dev-arm64-cross
# Another version of gcc makes other bytes of the same source.
set -eu
cd "$(dirname "$0")"

target=.
if [ "${1:-}" = --check ]; then
  target=$(mktemp -d)
  trap 'rm -rf "$target"' EXIT
fi

for processor in x86_64 aarch64; do
  "$processor-linux-gnu-gcc" -std=gnu11 -Os -Wall -Wextra -Werror \
    -ffreestanding -nostdlib -static -fno-pic -no-pie \
    -fno-stack-protector -fno-asynchronous-unwind-tables -fno-unwind-tables -fno-tree-loop-distribute-patterns \
    -Wl,--build-id=none -Wl,-z,noseparate-code -Wl,-z,noexecstack -Wl,-s \
    -o "$target/init-$processor" init.c
  chmod 0644 "$target/init-$processor"
  [ "$target" = . ] || cmp "init-$processor" "$target/init-$processor"
done
