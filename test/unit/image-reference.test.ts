import { expect, test } from 'vitest';
import { parseChallenge } from '../../src/registry/challenge.js';
import { explainStartFailure } from '../../src/engines/docker/start-failure.js';
import { familiarForm, formatImageReference, parseImageReference } from '../../src/spec/image-reference.js';
import { cpuTime } from '../support/cpu-time.js';

const digest = `sha256:${'a'.repeat(64)}`;

test.each([
  ['busybox', 'docker.io/library/busybox:latest', 'busybox:latest'],
  ['docker.io/busybox', 'docker.io/library/busybox:latest', 'busybox:latest'],
  ['index.docker.io/library/busybox:1', 'docker.io/library/busybox:1', 'busybox:1'],
  ['team/app:1.2_3-x', 'docker.io/team/app:1.2_3-x', 'team/app:1.2_3-x'],
  ['localhost/app', 'localhost/app:latest', 'localhost/app:latest'],
  ['localhost:5000/a/b__c--d', 'localhost:5000/a/b__c--d:latest', 'localhost:5000/a/b__c--d:latest'],
  [
    'Registry.Example.com:5000/team/app:1',
    'registry.example.com:5000/team/app:1',
    'registry.example.com:5000/team/app:1',
  ],
  [`ghcr.io/team/app:1@${digest}`, `ghcr.io/team/app@${digest}`, `ghcr.io/team/app@${digest}`],
])('the image reference %s is %s', (text, normal, familiar) => {
  const reference = parseImageReference(text)!;
  expect([formatImageReference(reference), familiarForm(reference)]).toEqual([normal, familiar]);
});

test.each([
  '',
  ':',
  '@',
  'a:',
  'a@',
  'a//b',
  '/a',
  'a/',
  'team/UPPER',
  '--privileged',
  'a..b',
  'a:-x',
  'a b',
  'a\nb',
  'a@sha256:abc',
  `a@sha512:${'a'.repeat(128)}`,
  `a@${digest}@${digest}`,
  'a.b:x/c',
  'a.b:123456/c',
  'a-.b/c',
  'user:pass@host.example/a',
  'host.example/a?x',
  'host.example/a#x',
  'host.example/../a',
  'a'.repeat(256),
  `a:${'1'.repeat(129)}`,
  '[::1]:5000/a',
])('%j is no image reference', (text) => {
  expect(parseImageReference(text)).toBeUndefined();
});

test('texts of the engine reach callers in the words of the service alone', () => {
  const root = '/var/lib/docker/overlay2/519abf/merged';
  const prefix = 'failed to create shim task: OCI runtime create failed: runc create failed: ';
  const general =
    'the engine refused to start the sandbox; the operator finds the reason in the log of the service';
  const texts: [said: string, words: string][] = [
    [
      'unable to find user a: no matching entries in passwd file',
      'unable to find user a: no matching entries in passwd file',
    ],
    [`unable to find user ${root}: no matching entries in passwd file`, general],
    [`lstat ${root}/etc/passwd/x: not a directory`, 'runtime.workdir is not a directory'],
    [
      `${prefix}error mounting "${root}" to rootfs at "/x": mkdir ${root}/x: not a directory: unknown`,
      'a mount cannot be placed at /x: check that mounts[].guest is a directory, or for a file a file',
    ],
    [
      '--storage-opt is supported only for overlay over xfs',
      'the engine cannot limit the disk: leave resources.disk_size_mib out',
    ],
    [
      `write ${root}/x: no space left on device`,
      'the disk of the sandbox has no room for its patches and scripts, or that of the machine is full: ask for a larger disk, or try again later',
    ],
    ['Conflict. The container name "/other" is already in use by container "0123"', general],
    [`${prefix}something else in ${root}`, general],
  ];
  for (const [said, words] of texts) expect([said, explainStartFailure(said)]).toEqual([said, words]);
});

test('a challenge of a registry is read in bounded work', async () => {
  const realm = 'Bearer realm="https://auth.example/token",service="registry"';
  expect(parseChallenge(realm)).toEqual({
    scheme: 'bearer',
    realm: 'https://auth.example/token',
    service: 'registry',
  });
  expect(parseChallenge('Basic realm="x"')).toEqual({ scheme: 'basic' });
  const taken = await cpuTime(() => {
    for (let round = 0; round < 100; round += 1)
      expect(parseChallenge(`Bearer ${'a'.repeat(15_000)}`)).toBeUndefined();
  });
  expect(taken).toBeLessThan(1_000);
});
