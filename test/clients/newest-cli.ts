import {
  clientRefuses,
  newestMsb,
  onDocker,
  only,
  serviceRefuses,
  typing,
  works,
  type Session,
} from './row.js';
import { VERSIONS } from './versions.js';

/** The rows of the CLI that the Python package brings. They are few: the rows of the other CLI have every option. */

const local = (operation: string, advice = 'use a local backend') =>
  clientRefuses(`error: ${operation} is not supported by this backend: ${advice}`);

const notAccepted = (option: string) => local('Sandbox::create', `the ${option} option is not accepted here`);

export const NEWEST_CLI: readonly Session[] = [
  {
    title: `msb ${VERSIONS.pypi}: sandboxes and volumes`,
    rows: [
      newestMsb('create sandkeep-test:busybox --name web --label team=ml', works()),
      newestMsb(
        'create sandkeep-test:busybox --name web',
        serviceRefuses(
          'error: sandbox already exists: POST /v1/sandboxes: a sandbox with the name "web" already exists',
        ),
      ),
      newestMsb('ls --label team=ml -q', works('web')),
      newestMsb('ps', works(/\nweb .* running +-$/)),
      newestMsb('stop web', works('✓ Stopped web')),
      newestMsb('restart web', works('✓ Started web')),
      newestMsb('modify web --cpus 2', local('SandboxHandle::config')),
      newestMsb('ping web', local('Sandbox::ping')),
      newestMsb('logs web', local('Sandbox::logs', 'use Sandbox::log_stream(follow=true)')),
      newestMsb('volume create data', works('data')),
      newestMsb('volume rm data', works('✓ Removed data')),
      newestMsb('rm --force web', works('✓ Removed web')),
    ],
  },
  {
    title: `msb ${VERSIONS.pypi}: snapshots`,
    rows: [
      newestMsb('create sandkeep-test:busybox --name web', works()),
      ...onDocker(newestMsb("exec web -- sh -c 'echo kept > /srv/file'", works())),
      newestMsb('snapshot create one --sandbox web', works(/✓ Snapshotted +web/)),
      newestMsb(
        'snapshot create one --sandbox web',
        serviceRefuses(
          'error: snapshot already exists: POST /v1/snapshots: a snapshot with the name "one" already exists',
        ),
      ),
      newestMsb(
        'snapshot create one --sandbox web --force --integrity --label team=ml',
        works(/✓ Snapshotted +web/),
      ),
      newestMsb('snapshot ls', works(/\none +disk +complete +sandkeep-test:busybox/)),
      newestMsb('snapshot inspect one', works(/Head Integrity: +sha256 sha256:[\s\S]*Labels: +team=ml/)),
      newestMsb('snapshot restore one --name two', works()),
      ...onDocker(newestMsb('exec two -- cat /srv/file', works('kept'))),
      newestMsb(
        'snapshot create two --sandbox web --full',
        local('snapshot operations', 'full snapshots are not supported by the cloud backend'),
      ),
      newestMsb('snapshot verify one', local('snapshot operations')),
      newestMsb('snapshot rm one', works('✓ Removed one')),
      newestMsb(
        'snapshot rm one',
        serviceRefuses(
          'error: snapshot not found: DELETE /v1/snapshots/:identifier: there is no such snapshot',
        ),
      ),
      newestMsb('snapshot ls', works('No snapshots indexed.')),
    ],
  },
  {
    title: `msb ${VERSIONS.pypi}: networks`,
    rows: [
      ...[
        newestMsb(
          'create sandkeep-test:busybox --name one --net-rule allow@api.example.com:tcp:443',
          works(),
        ),
        newestMsb('create sandkeep-test:busybox --name two --net-rule deny@*.ads.example.com', works()),
        newestMsb('create sandkeep-test:busybox --name profile --net public,private', works()),
        newestMsb('create sandkeep-test:busybox --name suffix --net-rule allow@suffix=example.com', works()),
        newestMsb('create sandkeep-test:busybox --name three --net-strict=false --net none', works()),
        newestMsb(
          'create sandkeep-test:busybox --name four --max-tcp-connections 10 --max-udp-connections 5',
          works(),
        ),
      ].map((row) => only('simulated', row)),
      newestMsb(
        'create sandkeep-test:busybox --name web --secret TOKEN@api.example.com',
        serviceRefuses(
          /^error: invalid config: POST \/v1\/sandboxes: a secret cannot come from an environment variable/,
        ),
      ),
      newestMsb(
        'create sandkeep-test:busybox --name web --secret TOKEN=value@api.example.com',
        clientRefuses(/^error: inline secret values/),
      ),
      newestMsb(
        'create sandkeep-test:busybox --name web --dns-nameserver 9.9.9.9',
        notAccepted('network ports / custom DNS / host-CA trust'),
      ),
      newestMsb(
        'create sandkeep-test:busybox --name web --trust-host-cas',
        notAccepted('network ports / custom DNS / host-CA trust'),
      ),
      newestMsb('create sandkeep-test:busybox --name web --tls-intercept', notAccepted('network.tls')),
      newestMsb(
        'create sandkeep-test:busybox --name web --net-ipv4-pool 10.0.0.0/16',
        notAccepted('network.interface'),
      ),
    ],
  },
  {
    title: `msb ${VERSIONS.pypi}: commands and files inside`,
    files: { 'notes.txt': 'hello\n' },
    rows: onDocker(
      newestMsb('create sandkeep-test:busybox --name own -w /tmp --user 1000 -e GREETING=hello', works()),
      newestMsb(
        "exec own -- sh -c 'echo $GREETING; pwd; busybox id -u; exit 3'",
        works('hello /tmp 1000', 3),
      ),
      newestMsb('exec -w / own -- pwd', works('/')),
      newestMsb('create sandkeep-test:workdir --name web', works()),
      newestMsb('exec web -- pwd', works('/etc')),
      newestMsb('exec -w /. web -- pwd', works('/')),
      newestMsb(
        'exec web -- nope',
        works(/not found: spawn "nope": No such file or directory \(ENOENT\)/, 127),
      ),
      { ...newestMsb('exec web -- busybox wc -c', works('6000000')), zeroes: 6_000_000 },
      { ...newestMsb('exec --no-tty web -- echo hello', works('hello')), leavesInputOpen: true },
      typing([], newestMsb("exec -t web -- sh -c 'busybox stty size; exit 5'", works('30 100', 5))),
      newestMsb('ssh web -- exit 4', works('', 4)),
      newestMsb('cp notes.txt web:/tmp/', works()),
      newestMsb('cp web:/tmp/notes.txt ./copy.txt', works()),
      newestMsb('run sandkeep-test:busybox -- busybox echo hello', works('hello')),
      newestMsb('run -d --name job sandkeep-test:busybox -- busybox echo hello', works('job')),
      newestMsb('run --name job sandkeep-test:busybox', works('hello')),
      newestMsb('stop job', works('✓ Stopped job')),
      newestMsb('logs -f job', works('hello')),
    ),
  },
];
