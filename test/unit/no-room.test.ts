import { expect, test } from 'vitest';
import { explainOwnLimit, explainStartFailure } from '../../src/engines/docker/start-failure.js';
import { NO_ROOM as DOCKER } from '../../src/engines/docker/no-room.js';
import { NO_ROOM as KUBERNETES } from '../../src/engines/kubernetes/no-room.js';
import { noRoomWords } from '../../src/engine/no-room.js';

const TABLES = { docker: DOCKER, kubernetes: KUBERNETES };

/** Answers of Docker 20 to 29, runc and Kubernetes, as they were seen or as their sources write them. */
const ANSWERS: ['docker' | 'kubernetes', answer: string, words: string][] = [
  [
    'docker',
    'failed to create endpoint sandkeep-net-1 on network sandkeep-2: adding interface veth0a1b2c3 to bridge br-4d5e failed: exchange full',
    'the network of the engine is full',
  ],
  [
    'docker',
    "failed to set up container networking: no available IPv4 addresses on this network's address pools: sandkeep-2 (4d5e)",
    'has no free address',
  ],
  [
    'docker',
    'could not find an available, non-overlapping IPv4 address pool among the defaults to assign to the network',
    'no range of addresses',
  ],
  ['docker', 'all predefined address pools have been fully subnetted', 'no range of addresses'],
  [
    'docker',
    'OCI runtime create failed: runc create failed: unable to apply cgroup configuration: mkdir /sys/fs/cgroup/sandkeep/0a1b: no space left on device',
    'no control group left',
  ],
  [
    'docker',
    'error creating overlay mount to /var/lib/docker/overlay2/0a1b/merged: no space left on device',
    'the disk of the machine is full',
  ],
  ['docker', 'mkdir /var/lib/docker/overlay2/0a1b-init: disk quota exceeded', 'disk quota of the engine'],
  [
    'docker',
    'failed to create shim task: fork/exec /usr/bin/runc: cannot allocate memory: unknown',
    'no memory',
  ],
  [
    'docker',
    'failed to start shim: fork/exec /usr/bin/containerd-shim-runc-v2: resource temporarily unavailable',
    'limit of processes',
  ],
  ['docker', 'failed to create shim task: pipe2: too many open files', 'no file descriptor'],
  ['docker', 'open /proc/1/ns/net: too many open files in system', 'no file descriptor'],
  [
    'docker',
    'failed to add the host (veth0a1b) <=> sandbox (veth1b2c) pair interfaces: no buffer space available',
    'no buffers left',
  ],
  [
    'kubernetes',
    'pods "sandkeep-0a1b" is forbidden: exceeded quota: small, requested: requests.cpu=1, used: requests.cpu=4, limited: requests.cpu=4',
    'exceeded quota: small',
  ],
  ['kubernetes', 'pods "a" is forbidden: status unknown for quota: small', 'status unknown for quota'],
  [
    'kubernetes',
    'pods "a" is forbidden: unable to create new content in namespace b because it is being terminated',
    'being terminated',
  ],
];

test.each(ANSWERS)('%s without room says: %s', (engine, answer, words) => {
  expect(noRoomWords(TABLES[engine], answer)).toContain(words);
});

test('every row of the tables has an answer', () => {
  for (const [engine, table] of Object.entries(TABLES)) {
    const answers = ANSWERS.filter(([of]) => of === engine).map(([, answer]) => answer);
    for (const row of table) {
      expect(answers.some((answer) => noRoomWords([row], answer) === (row.words ?? answer))).toBe(true);
    }
  }
});

test('an answer that quotes the request is no lack of room', () => {
  const quoted = 'exec: "exchange full": executable file not found in $PATH';
  expect(noRoomWords(DOCKER, quoted)).toBeUndefined();
  expect(explainStartFailure(quoted)).toMatch(/^the engine refused/);
});

test('a limit that the engine may not raise is named', () => {
  const said =
    'failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: error setting rlimits for ready process: error setting rlimit type 6: operation not permitted: unknown';
  expect(explainStartFailure(said)).toBe(
    'the engine may not raise the limit nproc that far: request less in rlimits',
  );
});

test("a process limit of the sandbox's own is told from a machine without room", () => {
  const said =
    'OCI runtime create failed: runc create failed: unable to start container process: error during container init: too many open files';
  expect(explainOwnLimit(said, [{ resource: 'data' }, { resource: 'nofile' }])).toContain('nofile');
  expect(explainOwnLimit(said, [{ resource: 'data' }])).toBeUndefined();
  expect(explainOwnLimit(said.replace(/unable.*init: /, ''), [{ resource: 'nofile' }])).toBeUndefined();
});
