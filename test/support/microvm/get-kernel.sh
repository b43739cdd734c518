#!/usr/bin/env bash
# Unpacks Debian's kernel for clouds, for the tests of virtual machines. Usage: get-kernel.sh DIR. Needs apt-get; installs nothing. A
# directory that has a kernel is left as it is. Prints the path of the kernel.
set -euo pipefail
directory=${1:?usage: get-kernel.sh DIR}
if ! compgen -G "$directory/boot/vmlinuz-*" >/dev/null; then
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  find_package() {
    apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -1
  }
  package=$(find_package)
  [ -n "$package" ] || { apt-get update -qq; package=$(find_package); }
  [ -n "$package" ] || { echo "get-kernel.sh: the packages of this machine have no kernel for clouds" >&2; exit 3; }
  (cd "$scratch" && apt-get download -qq "$package" 2>/dev/null >&2)
  dpkg -x "$scratch"/linux-image-*.deb "$scratch/kernel"
  mkdir -p "$(dirname "$directory")"
  rm -rf "$directory"
  cp -a "$scratch/kernel" "$directory"
fi
printf '%s\n' "$directory"/boot/vmlinuz-*
