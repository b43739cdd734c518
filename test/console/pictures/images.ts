import { spawnSync } from 'node:child_process';
import { chmodSync, cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { importImage } from '../../support/docker.js';

/** Names of the kind that organizations give their images. No registry is needed: each holds only busybox. */
export const IMAGES = {
  agent: 'registry.example.com/agents/python:3.12',
  node: 'registry.example.com/web/node:22',
  train: 'registry.example.com/ml/train:2026.11',
  runner: 'registry.example.com/ci/runner:14',
} as const;

const FILES: Readonly<Record<string, string>> = {
  'etc/hostname': 'sandbox\n',
  'etc/os-release': 'NAME="Busybox"\nID=busybox\n',
  'app/README.md': '# Agent\n\nReads tasks from the queue and answers them.\n\n    ./run.sh --once\n',
  'app/config.yaml': 'model: small-instruct\nmax_steps: 40\ntools:\n  - shell\n  - files\nlog_level: info\n',
  'app/main.py':
    'import sys\n\n\ndef main() -> int:\n    for line in sys.stdin:\n        print(line.upper(), end="")\n    return 0\n\n\nraise SystemExit(main())\n',
  'app/requirements.txt': 'httpx==0.28.1\npydantic==2.12.4\nrich==14.2.0\n',
  'app/run.sh': '#!/bin/sh\nset -eu\nexec python main.py "$@"\n',
  'app/data/tasks.jsonl': '{"id":1,"task":"summarize"}\n{"id":2,"task":"translate"}\n',
};

export function makeImages(): void {
  const root = mkdtempSync(join(tmpdir(), 'sandkeep-pictures-'));
  for (const folder of ['bin', 'tmp', 'etc', 'srv', 'root', 'var/log']) {
    mkdirSync(join(root, folder), { recursive: true });
  }
  cpSync('/bin/busybox', join(root, 'bin', 'busybox'));
  spawnSync('/bin/busybox', ['--install', '-s', join(root, 'bin')]);
  // The links of --install name the busybox of the machine.
  spawnSync('sh', [
    '-c',
    `cd "$1" && for each in *; do [ -L "$each" ] && ln -sf busybox "$each"; done`,
    'sh',
    join(root, 'bin'),
  ]);
  for (const [path, text] of Object.entries(FILES)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
  chmodSync(join(root, 'app/run.sh'), 0o755);
  for (const name of Object.values(IMAGES)) importImage(root, name);
  rmSync(root, { recursive: true });
}

export function removeImages(): void {
  spawnSync('docker', ['image', 'rm', '--force', ...Object.values(IMAGES)], { stdio: 'ignore' });
}
