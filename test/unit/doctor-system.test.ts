import { describe, expect, test } from 'vitest';
import { checkNode, checkSystem } from '../../src/cli/doctor-machine.js';
import { installCommand, systemOf, type Part } from '../../src/engine/host-system.js';

const PARTS: Part[] = ['docker', 'nftables', 'util-linux', 'node'];
const linux = (release: string) => systemOf({ platform: 'linux', release, glibc: '2.36' });
const debian = linux('ID=debian\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n');

describe('doctor on other systems', () => {
  test.each([
    ['ID=debian\n', 'debian', 'apt-get install'],
    ['ID=ubuntu\nID_LIKE=debian\n', 'debian', 'apt-get install'],
    ['ID=linuxmint\nID_LIKE="ubuntu debian"\n', 'debian', 'apt-get install'],
    ['ID=fedora\n', 'fedora', 'dnf install'],
    ['ID="rocky"\nID_LIKE="rhel centos fedora"\n', 'fedora', 'dnf install'],
    ['ID=alpine\n', 'alpine', 'apk add'],
    ['ID=nixos\n', 'other', 'package manager'],
    ['', 'other', 'package manager'],
  ])('names the package manager of %j', (release, kind, command) => {
    const system = linux(release);
    expect(system.kind).toBe(kind);
    expect(installCommand(system, 'nftables')).toContain(command);
    for (const part of PARTS) expect(installCommand(system, part)).not.toBe('');
  });

  test('names Homebrew on macOS', () => {
    const system = systemOf({ platform: 'darwin', release: '', glibc: undefined });
    expect(installCommand(system, 'node')).toMatch(/^brew install node@24/);
    expect(checkSystem(system, undefined).state).toBe('ok');
  });

  test('says that Alpine has no glibc, with a remedy', () => {
    const system = systemOf({
      platform: 'linux',
      release: 'ID=alpine\nPRETTY_NAME="Alpine Linux v3.22"\n',
      glibc: undefined,
    });
    expect(checkSystem(system, undefined)).toMatchObject({
      state: 'broken',
      found: expect.stringContaining('no glibc, so the embedded PostgreSQL does not run'),
      remedy: 'use the container image, or Debian or Fedora in place of Alpine',
    });
    expect(checkSystem(system, 'postgres://elsewhere/db').state).toBe('missing');
    expect(system.name).toBe('Alpine Linux v3.22');
  });

  test.each([
    ['18.20.0', 'broken'],
    ['20.18.1', 'broken'],
    ['20.19.0', 'missing'],
    ['21.7.3', 'missing'],
    ['22.11.0', 'ok'],
    ['23.1.0', 'missing'],
    ['24.0.0', 'ok'],
    ['26.0.0', 'ok'],
  ])('judges Node %s as %s', (version, state) => {
    const finding = checkNode(debian, version);
    expect(finding.state).toBe(state);
    expect(finding.remedy).toBe(
      state === 'ok'
        ? undefined
        : 'curl -fsSL https://deb.nodesource.com/setup_24.x | bash - && apt-get install -y nodejs',
    );
    if (state !== 'ok') expect(finding.found).toMatch(/24 is recommended$/);
  });
});
