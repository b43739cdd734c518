import { clientRefuses, newestMsb, onDocker, serviceRefuses, typing, works, type Session } from './row.js';
import { VERSIONS } from './versions.js';

/** The rows of the CLI that the Python package brings. They are few: the rows of the other CLI have every option. */

const local = (operation: string, advice = 'use a local backend') =>
  clientRefuses(`error: ${operation} is not supported by this backend: ${advice}`);

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
