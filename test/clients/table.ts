import { CLI_INSIDE, NO_CHANNEL, NOT_FOUND, SDK_INSIDE } from './inside.js';
import { NETWORKS } from './networks.js';
import { NEWEST_CLI } from './newest-cli.js';
import { PYTHON } from './python.js';
import {
  clientRefuses,
  msb,
  node,
  onDocker,
  only,
  serviceRefuses,
  typing,
  works,
  type Session,
} from './row.js';

/**
 * The behaviour of the official CLI and SDKs with this service, command by command. The tests beside this file run
 * every row; `npm run generate` writes the rows to docs/client-commands.md.
 */

const LOCAL_ONLY = clientRefuses(
  'error: this command requires a local backend, but the active default is a cloud backend',
);
const unsupported = (operation: string, advice: string) =>
  clientRefuses(`error: ${operation} is not supported by this backend: ${advice}`);
const notAccepted = (option: string) =>
  unsupported('Sandbox::create', `the ${option} option is not accepted here`);

/** Waits for the first line of the log and prints it. A stop before that could end the command too soon. */
const firstLine = (name: string) =>
  `for await (const line of await (await Sandbox.get("${name}")).logStream({ follow: true })) { console.log(line.text()); break; }`;

export const SESSIONS: readonly Session[] = [
  {
    title: 'msb: create, list and show',
    rows: [
      msb('create sandkeep-test:busybox --name web --label team=ml -e GREETING=hello -c 1 -m 128M', works()),
      msb(
        'create sandkeep-test:busybox --name web',
        serviceRefuses(
          'error: sandbox already exists: POST /v1/sandboxes: a sandbox with the name "web" already exists',
        ),
      ),
      msb('create sandkeep-test:echo --name echo', works()),
      msb('create sandkeep-test:scratch --name scratch --no-net', works()),
      msb('ls', works(/^NAME +IMAGE +STATUS +CREATED\nscratch +- +running .*\necho .*\nweb .*$/)),
      msb('ls -q', works('scratch echo web')),
      msb('ls --label team=ml -q', works('web')),
      msb('ls --label team=ops', works('No sandboxes found.')),
      msb('ls --format json --label team=ml', works(/"name": "web",\n +"status": "Running"/)),
      msb('ps', works(/^NAME .* STATUS +PORTS\necho .* running .*\nscratch .*\nweb .*$/)),
      msb('status web', works(/\nweb +- +- +- +- +running +-$/)),
      msb('inspect web', works(/^Name: +web\nStatus: +running\nCreated: .*\nUpdated: .*$/)),
      msb(
        'inspect nope',
        serviceRefuses('error: sandbox not found: GET /v1/sandboxes/by-name/:name: resource not found'),
      ),
      msb('context', works(/^FIELD +VALUE\nBackend +cloud\nAPI URL +http:.*\nSource +MSB_BACKEND$/)),
    ],
  },
  {
    title: 'msb: start, stop and remove',
    rows: [
      msb('create sandkeep-test:busybox --name web --label team=ml', works()),
      msb(
        'start web',
        serviceRefuses(
          'error: cloud HTTP 409: POST /v1/sandboxes/by-name/:name/start: a sandbox that is running cannot be asked to start',
        ),
      ),
      msb('stop web', works('✓ Stopped web')),
      msb('stop web', works('✓ Stopped web')),
      msb('stop --force web', works('✓ Stopped web')),
      msb('ps', works('No running sandboxes.')),
      msb('ps -a', works(/\nweb .* stopped +-$/)),
      msb('start web', works('✓ Started web')),
      msb('stop --force web', unsupported('Sandbox::kill', 'use Sandbox::stop')),
      msb('restart web', works('✓ Stopped web ✓ Started web')),
      msb('stop --label team=ml', works('✓ Stopped web')),
      msb('stop --label team=ops', works('warn: no sandboxes matched the given labels')),
      msb('start --label team=ml', works('✓ Started web')),
      msb('rm web', works('✓ Removed web')),
      msb(
        'rm web',
        serviceRefuses('error: sandbox not found: DELETE /v1/sandboxes/by-name/:name: resource not found'),
      ),
      msb('create sandkeep-test:busybox --name web', works()),
      msb('rm --force web', works('✓ Removed web')),
      msb('ls', works('No sandboxes found.')),
    ],
  },
  {
    title: 'msb: run and logs',
    rows: [
      msb('run sandkeep-test:busybox -- busybox echo hello', NO_CHANNEL, works('hello')),
      msb('ls -q', works(/^msb-[0-9a-f]{8}$/)),
      msb(
        "run --name job -e GREETING=hello -w /tmp sandkeep-test:busybox -- sh -c 'echo $GREETING; pwd; exit 7'",
        NO_CHANNEL,
        works('hello /tmp', 7),
      ),
      ...onDocker(
        msb('run --name job sandkeep-test:busybox -- echo again', works('again')),
        msb('run --name gone sandkeep-test:busybox -- nope', works(NOT_FOUND, 127)),
        msb(
          'run --name late --timeout 1s sandkeep-test:busybox -- sleep 60',
          works('error: exec timed out after 1s', 1),
        ),
        typing(
          ['echo $((6*7))', 'exit 6'],
          msb('run --name shell sandkeep-test:busybox', works(/\n42\r\n/, 6)),
        ),
      ),
      msb('run -d --name hello sandkeep-test:busybox -- busybox echo hello', works('hello')),
      only('docker', node(firstLine('hello'), works('hello'))),
      msb('status hello', works(/\nhello .* running +-$/)),
      msb('run -d --name hello sandkeep-test:busybox', works('hello')),
      only('docker', msb('run --name hello sandkeep-test:busybox', works('hello'))),
      msb('run -d sandkeep-test:echo', works(/^msb-[0-9a-f]{8}$/)),
      msb('stop hello', works('✓ Stopped hello')),
      msb('logs -f hello', works(), works('hello')),
      msb('run -d --name lost sandkeep-test:scratch -- no-such-program', works('lost')),
      msb('status lost', works(/\nlost .* running +-$/)),
      only('docker', node(firstLine('lost'), works(/no-such-program/))),
      msb('logs hello', unsupported('Sandbox::logs', 'use Sandbox::log_stream(follow=true)')),
      msb('logs --tail 1 hello', unsupported('Sandbox::logs', 'use Sandbox::log_stream(follow=true)')),
    ],
  },
  {
    title: 'msb: logs of a sandbox that runs on',
    rows: [
      only('simulated', msb('create sandkeep-test:busybox --name web', works())),
      only('simulated', msb('logs -f web', clientRefuses('error: http error: error decoding response body'))),
    ],
  },
  ...CLI_INSIDE,
  {
    title: 'msb: configuration files',
    files: {
      'sandbox.yaml': [
        'image: sandkeep-test:busybox',
        'cpus: 1',
        'memory: 128M',
        'max_duration: 1h',
        'rlimits:',
        '  - { resource: nofile, soft: 512, hard: 1024 }',
        'env:',
        '  GREETING: hello',
        'patches:',
        '  - text: { path: /srv/name.txt, content: world }',
        'scripts:',
        '  greet: busybox echo $GREETING $(cat /srv/name.txt) $(ulimit -Sn)',
        'cmd: [greet]',
        'labels:',
        '  team: ml',
        '',
      ].join('\n'),
      'volume.yaml': [
        'image: sandkeep-test:busybox',
        'mounts:',
        '  - named: data',
        '    target: /data',
        '',
      ].join('\n'),
      'misspelt.yaml': 'image: sandkeep-test:busybox\nlabel: {}\n',
    },
    rows: [
      msb('create --conf sandbox.yaml --name web', works()),
      msb('ls --label team=ml -q', works('web')),
      only('docker', node(firstLine('web'), works('hello world 512'))),
      msb('volume create data', works('data')),
      msb('create --conf volume.yaml --name stored', works()),
      msb(
        'volume rm data',
        serviceRefuses('error: cloud HTTP 409: DELETE /v1/volumes/:id: the volume is mounted by stored'),
      ),
      msb(
        'create --conf misspelt.yaml --name web2',
        clientRefuses(/^error: invalid sandbox configuration misspelt\.yaml: unknown field `label`/),
      ),
    ],
  },
  {
    title: 'msb: volumes',
    rows: [
      msb('volume create data', works('data')),
      msb(
        'volume create data',
        serviceRefuses(
          'error: volume already exists: POST /v1/volumes: a volume with the name "data" already exists',
        ),
      ),
      msb(
        'volume create Bad_Name',
        serviceRefuses(
          'error: invalid config: POST /v1/volumes: the name of a volume must be 1 to 63 lower-case letters, digits and single hyphens, such as "team-data"',
        ),
      ),
      msb('volume ls', works(/^NAME +KIND +SIZE +CREATED\n +dir +- +.*\ndata +dir +- +.*$/)),
      msb('volume inspect data', LOCAL_ONLY),
      msb('create sandkeep-test:busybox --name web -v data:/data', notAccepted('named volume inline create')),
      msb(
        'create sandkeep-test:busybox --name web --mount-named data:/data',
        notAccepted('named volume inline create'),
      ),
      msb('volume rm data', works('✓ Removed data')),
      msb('volume ls', works(/^NAME +KIND +SIZE +CREATED\n +dir +- +\S+ \S+$/)),
      msb('volume create data', works('data')),
      msb('volume rm nope', clientRefuses('error: volume not found: nope')),
    ],
  },
  {
    title: 'msb: options of create and run',
    files: { 'notes.txt': 'hello\n' },
    rows: [
      msb(
        'create sandkeep-test:busybox --name limits --max-duration 1h --tmpfs /scratch:16M -w /tmp --user 0:0',
        works(),
      ),
      msb(
        'create 127.0.0.1:1/nothing --name absent',
        works(),
        serviceRefuses(
          /^error: runtime error: cloud sandbox "absent" failed to start: the image 127\.0\.0\.1:1\/nothing cannot be pulled: /,
        ),
      ),
      ...onDocker(
        msb('create sandkeep-test:busybox --name absent', works()),
        msb('rm absent', works('✓ Removed absent')),
      ),
      msb(
        'create sandkeep-test:busybox --name web --secret TOKEN@api.example.com',
        serviceRefuses(
          /^error: invalid config: POST \/v1\/sandboxes: a secret cannot come from an environment variable/,
        ),
      ),
      msb(
        'create sandkeep-test:busybox --name web --copy-file notes.txt:/notes.txt',
        serviceRefuses(
          /^error: invalid config: POST \/v1\/sandboxes: copy_file names a path on your machine/,
        ),
      ),
      msb(
        'create sandkeep-test:busybox --name handed --init auto',
        works(),
        serviceRefuses(
          /^error: invalid config: POST \/v1\/sandboxes: the docker runtime cannot hand process 1 to a program of the guest/,
        ),
      ),
      msb(
        'create sandkeep-test:busybox --name web -p 8080:80',
        notAccepted('network ports / custom DNS / host-CA trust'),
      ),
      msb('create sandkeep-test:busybox --name web --hostname web', notAccepted('hostname')),
      msb('create sandkeep-test:busybox --name limits --replace', notAccepted('replace')),
      msb(
        'create sandkeep-test:busybox --name web --mount-dir ./missing:/data',
        clientRefuses('error: mount-dir source "./missing": No such file or directory (os error 2)'),
      ),
      msb('create ./rootfs --name web', notAccepted('host-directory rootfs')),
      msb(
        'create sandkeep-test:busybox --name web --label sandbox.team=ml',
        clientRefuses("error: invalid config: label key 'sandbox.team' uses reserved prefix 'sandbox.'"),
      ),
    ],
  },
  {
    title: 'msb: commands for local sandboxes only',
    rows: [
      msb('create sandkeep-test:busybox --name web', works()),
      msb('modify web --cpus 2', unsupported('SandboxHandle::config', 'use a local backend')),
      msb('metrics web', LOCAL_ONLY),
      msb('ping web', unsupported('Sandbox::ping', 'use a local backend')),
      msb('touch web', unsupported('Sandbox::touch', 'use a local backend')),
      msb('image ls', LOCAL_ONLY),
      msb('pull sandkeep-test:busybox', LOCAL_ONLY),
      msb('snapshot ls', unsupported('snapshot operations', 'use a local backend')),
    ],
  },
  {
    title: 'Node SDK: sandboxes',
    rows: [
      node(
        'const s = await Sandbox.builder("web").image("sandkeep-test:busybox").cpus(1).memory(128).label("team", "ml").create(); console.log(s.name, s.backendKind, s.ownsLifecycle)',
        works('web cloud true'),
      ),
      node(
        'await Sandbox.builder("web").image("sandkeep-test:busybox").create()',
        serviceRefuses(
          'SandboxAlreadyExistsError: sandbox already exists: POST /v1/sandboxes: a sandbox with the name "web" already exists',
        ),
      ),
      node(
        'const s = await Sandbox.builder("batch").image("sandkeep-test:echo").detached(true).create(); console.log(s.name, s.ownsLifecycle)',
        works('batch false'),
      ),
      node(
        'const s = await Sandbox.builder("batch").image("sandkeep-test:echo").connectOrCreate(); console.log(s.name)',
        works('batch'),
      ),
      node(
        'const s = await Sandbox.builder("third").image("sandkeep-test:scratch").connectOrCreate(); console.log(s.name)',
        works('third'),
      ),
      node(
        'let page, names = []; do { page = await Sandbox.listWith((l) => page ? l.limit(2).cursor(page.nextCursor) : l.limit(2)); names.push(page.sandboxes.map((s) => s.name)); } while (page.nextCursor); console.log(JSON.stringify(names))',
        works('[["third","batch"],["web"]]'),
      ),
      node(
        'console.log((await Sandbox.listWith((l) => l.label("team", "ml"))).sandboxes.map((s) => s.name).join())',
        works('web'),
      ),
      node(
        'await Sandbox.listWith((l) => l.limit(101))',
        clientRefuses('InvalidConfigError: invalid config: sandbox list limit must be between 1 and 100'),
      ),
      node(
        'const h = await Sandbox.get("web"); console.log(h.status, h.id.startsWith("cloud:"))',
        works('running true'),
      ),
      node(
        'await Sandbox.get("nope")',
        serviceRefuses(
          'SandboxNotFoundError: sandbox not found: GET /v1/sandboxes/by-name/:name: resource not found',
        ),
      ),
      node(
        'const h = await Sandbox.get("web"); await h.stop(); console.log((await h.refresh()).status)',
        works('stopped'),
      ),
      node(
        'const h = await Sandbox.get("web"); await h.start(); console.log((await h.refresh()).status)',
        works('running'),
      ),
      node(
        'const h = await Sandbox.get("web"); const ended = h.waitUntilStopped(); await h.requestStop(); console.log((await ended).status)',
        works('stopped'),
      ),
      node(
        'const h = await Sandbox.get("web"); await h.connectOrStart(); console.log((await h.refresh()).status)',
        works('running'),
      ),
      node(
        'await (await Sandbox.get("web")).kill()',
        clientRefuses('UnsupportedError: Sandbox::kill is not supported by this backend: use Sandbox::stop'),
      ),
      node(
        'const h = await Sandbox.get("web"); await h.restart(); console.log((await h.refresh()).status)',
        works('running'),
      ),
      node('await (await Sandbox.get("web")).destroy()', works()),
      node('await Sandbox.remove("batch")', works()),
      node('console.log((await Sandbox.list()).sandboxes.map((s) => s.name).join())', works('third')),
    ],
  },
  {
    title: 'Node SDK: logs',
    rows: [
      node(
        'await Sandbox.builder("web").image("sandkeep-test:busybox").cmd(["busybox", "echo", "hello"]).create()',
        works(),
      ),
      only('docker', node(firstLine('web'), works('hello'))),
      node(
        'await (await Sandbox.get("web")).logs()',
        clientRefuses(
          'UnsupportedError: Sandbox::logs is not supported by this backend: use Sandbox::log_stream(follow=true)',
        ),
      ),
      node(
        'await (await Sandbox.get("web")).metrics()',
        clientRefuses(
          'UnsupportedError: SandboxHandle::metrics is not supported by this backend: use a local backend',
        ),
      ),
      node(
        'await (await Sandbox.get("web")).stop(); for await (const line of await (await Sandbox.get("web")).logStream({ follow: true })) console.log(line.text())',
        works(),
        works('hello'),
      ),
    ],
  },
  ...SDK_INSIDE,
  {
    title: 'Node SDK: volumes and their files',
    rows: [
      node(
        'const v = await Volume.builder("data").label("team", "ml").create(); console.log(v.name)',
        works('data'),
      ),
      node(
        'await Volume.builder("data").create()',
        serviceRefuses(
          'VolumeAlreadyExistsError: volume already exists: POST /v1/volumes: a volume with the name "data" already exists',
        ),
      ),
      node(
        'console.log(JSON.stringify((await Volume.list()).map((v) => [v.name, v.isDefault])))',
        works('[["",true],["data",false]]'),
      ),
      node('console.log((await Volume.getDefault()).isDefault)', works('true')),
      node(
        'const fs = (await Volume.get("data")).fs(); await fs.mkdir("a"); await fs.write("a/x.txt", "hello"); console.log(await fs.readToString("a/x.txt"))',
        works('hello'),
      ),
      node(
        'const fs = (await Volume.get("data")).fs(); await fs.copy("a/x.txt", "a/y.txt"); await fs.rename("a/y.txt", "a/z.txt"); console.log((await fs.list("a")).map((e) => e.path).toSorted().join())',
        works('/a/x.txt,/a/z.txt'),
      ),
      node(
        'const fs = (await Volume.get("data")).fs(); const s = await fs.stat("a/x.txt"); console.log(s.kind, s.size, await fs.exists("nope"))',
        works('file 5 false'),
      ),
      node(
        'const fs = (await Volume.get("data")).fs(); const sink = await fs.writeStream("big"); await sink.write("one "); await sink.write("two"); await sink.close(); console.log(String(Buffer.from(await (await fs.readStream("big")).collect())))',
        works('one two'),
      ),
      node(
        'await (await Volume.get("data")).fs().readToString("nope")',
        serviceRefuses(
          'SandboxFsOpsError: sandbox fs error: volume filesystem request: "nope" does not exist',
        ),
      ),
      node(
        'await (await Volume.get("data")).fs().list("")',
        serviceRefuses(
          'InvalidConfigError: invalid config: volume filesystem request: the path is empty: use / for the top',
        ),
      ),
      node(
        'await (await Volume.get("data")).fs().readToString("../x")',
        serviceRefuses(
          'InvalidConfigError: invalid config: volume filesystem request: the path must not contain ".."',
        ),
      ),
      node(
        'const fs = (await Volume.get("data")).fs(); await fs.remove("a/z.txt"); await fs.removeDir("a"); console.log(await fs.exists("a"))',
        works('false'),
      ),
      node(
        'await Sandbox.builder("web").image("sandkeep-test:busybox").volume("/data", (m) => m.named("data")).create()',
        works(),
      ),
      node(
        'await Volume.remove("data")',
        serviceRefuses(
          'CloudHttpError: cloud HTTP 409: DELETE /v1/volumes/:id: the volume is mounted by web',
        ),
      ),
      node('await Sandbox.remove("web"); await Volume.remove("data")', works()),
    ],
  },
  ...NETWORKS,
  ...NEWEST_CLI,
  ...PYTHON,
];
