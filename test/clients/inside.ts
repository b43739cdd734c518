import {
  clientRefuses,
  msb,
  node,
  onDocker,
  piped,
  serviceRefuses,
  typing,
  works,
  type Session,
} from './row.js';

/** The rows of the table that reach into a sandbox. */

export const NO_CHANNEL = serviceRefuses(
  'error: runtime error: cloud agent websocket: HTTP error: 501 Not Implemented',
);
export const NOT_FOUND =
  /^error: failed to exec "nope"\n +→ not found: spawn "nope": No such file or directory \(ENOENT\)/;
const NO_CHANNEL_IN_SDK = serviceRefuses(
  'RuntimeError: runtime error: cloud agent websocket: HTTP error: 501 Not Implemented',
);
const WEB = 'const s = await (await Sandbox.get("web")).connect();';
const FILES = 'const fs = (await (await Sandbox.get("web")).connect()).fs();';
const SFTP =
  'const ssh = await (await (await Sandbox.get("web")).connect()).ssh().openClient({ sftp: true }); const ftp = await ssh.sftp();';
const CLOSE = 'await ftp.close(); await ssh.close()';

export const CLI_INSIDE: readonly Session[] = [
  {
    title: 'msb: commands inside',
    rows: [
      msb('create sandkeep-test:busybox --name web -e GREETING=hello', works()),
      msb('exec web -- echo hello', NO_CHANNEL, works('hello')),
      msb(
        'ssh web -- echo hello',
        serviceRefuses('error: SSH channel closed during exec request'),
        works('hello'),
      ),
      ...onDocker(
        msb("exec web -- sh -c 'exit 7'", works('', 7)),
        msb('exec web -- nope', works(NOT_FOUND, 127)),
        msb("exec web -- echo 'a  b' $HOME && >file", works('a b $HOME && >file')),
        msb(
          "exec -e A=b -w /tmp -u 1000 web -- sh -c 'echo $A $GREETING $PWD $(id -u)'",
          works('b hello /tmp 1000'),
        ),
        msb(
          'exec -u nobody web -- id',
          works(/user setup: spawn "id": the user is not known in the sandbox/, 1),
        ),
        msb(
          'exec -w /nope web -- pwd',
          works(/bad cwd: spawn "pwd": the working directory "\/nope" cannot be entered/, 1),
        ),
        msb("exec --rlimit nofile=100:200 web -- sh -c 'ulimit -Sn; ulimit -Hn'", works('100 200')),
        msb('exec --timeout 1s web -- sleep 60', works('error: exec timed out after 1s', 1)),
        piped('hello\n', msb('exec web -- cat', works('hello'))),
        piped('hello\n', msb('exec --stream web -- cat', works('hello'))),
        msb('exec web', works('warn: no command provided and stdin is not a terminal')),
        typing([], msb("exec -t web -- sh -c 'busybox stty size; exit 5'", works('30 100', 5))),
        typing(['echo $GREETING $((6*7))', 'exit 5'], msb('exec web', works(/\nhello 42\r\n/, 5))),
        typing(['busybox stty size', 'exit 4'], msb('ssh web', works(/\n30 100\r\n/, 4))),
        msb('ssh web -- exit 4', works('', 4)),
        msb('create sandkeep-test:scratch --name scratch', works()),
        msb('exec scratch -- nope', works(NOT_FOUND, 127)),
        msb('create sandkeep-test:busybox --name user --user 1000 -w /tmp', works()),
        msb("exec user -- sh -c 'busybox id -u; pwd; exit 3'", works('1000 /tmp', 3)),
        msb('exec -w / user -- pwd', works('/')),
        msb('create sandkeep-test:workdir --name image', works()),
        msb('exec image -- pwd', works('/etc')),
        msb('exec -w /. image -- pwd', works('/')),
        msb(
          'exec -u root user -- busybox id',
          works(/user setup: spawn "busybox": Operation not permitted/, 1),
        ),
        msb('ssh user -- busybox id', works('spawn "/bin/sh": Operation not permitted', 127)),
        msb('stop web', works('✓ Stopped web')),
        msb('exec web -- echo started again', works('started again')),
      ),
      msb(
        'exec nope -- echo hello',
        serviceRefuses('error: sandbox not found: GET /v1/sandboxes/by-name/:name: resource not found'),
      ),
    ],
  },
  {
    title: 'msb: files inside',
    files: { 'notes.txt': 'hello\n', 'folder/one.txt': 'one\n', 'folder/below/two.txt': 'two\n' },
    rows: [
      msb('create sandkeep-test:busybox --name web', works()),
      msb('cp notes.txt web:/tmp/notes.txt', NO_CHANNEL, works()),
      msb('cp web:/tmp/notes.txt ./copy.txt', serviceRefuses('error: stat /tmp/notes.txt'), works()),
      ...onDocker(
        msb('cp copy.txt web:/srv/', works()),
        msb('exec web -- cat /srv/copy.txt', works('hello')),
        msb('cp folder web:/tmp/', works()),
        msb('exec web -- busybox ln -s one.txt /tmp/folder/link', works()),
        msb('cp web:/tmp/folder ./back', works()),
        msb('cp back web:/srv/again', works()),
        msb(
          "exec web -- sh -c 'cd /srv/again; cat one.txt below/two.txt; busybox readlink link'",
          works('one two one.txt'),
        ),
        msb('cp missing.txt web:/tmp/', clientRefuses('error: stat missing.txt')),
        msb('cp web:/missing.txt ./missing.txt', serviceRefuses('error: stat /missing.txt')),
        msb('cp web:/tmp/notes.txt notes2.txt', clientRefuses('error: open copy destination root')),
        msb('create sandkeep-test:busybox --name user --user 1000', works()),
        msb(
          'cp notes.txt user:/srv/',
          serviceRefuses('error: sandbox fs error: Permission denied (os error 13)'),
        ),
        msb('create sandkeep-test:scratch --name scratch', works()),
        msb('cp scratch:/notes.txt ./scratch.txt', works()),
      ),
    ],
  },
];

export const SDK_INSIDE: readonly Session[] = [
  {
    title: 'Node SDK: commands inside',
    rows: [
      node(
        'await Sandbox.builder("web").image("sandkeep-test:busybox").env("GREETING", "hello").create()',
        works(),
      ),
      node(
        `${WEB} const o = await s.exec("sh", ["-c", "echo out; echo err >&2; exit 3"]); console.log(JSON.stringify([o.code, o.stdout(), o.stderr()]))`,
        NO_CHANNEL_IN_SDK,
        works(String.raw`[3,"out\n","err\n"]`),
      ),
      ...onDocker(
        node(
          `${WEB} const o = await s.shell("echo $GREETING && exit 7"); console.log(o.code, o.stdout())`,
          works('7 hello'),
        ),
        node(
          `${WEB} await s.exec("nope")`,
          serviceRefuses('Error: [ExecFailed] exec failed: spawn "nope": No such file or directory'),
        ),
        node(
          `${WEB} const o = await s.execWith("sh", (e) => e.args(["-c", "echo $A $PWD $(id -u) $(ulimit -n)"]).env("A", "b").cwd("/tmp").user("1000").rlimit("nofile", 100)); console.log(o.stdout())`,
          works('b /tmp 1000 100'),
        ),
        node(
          `${WEB} await s.execWith("sleep", (e) => e.args(["60"]).timeout(500))`,
          clientRefuses('ExecTimeoutError: exec timed out after 500ms'),
        ),
        node(
          `${WEB} console.log((await s.execWith("cat", (e) => e.stdinBytes(Buffer.from("hello")))).stdout())`,
          works('hello'),
        ),
        node(
          `${WEB} const h = await s.execStreamWith("cat", (e) => e.stdinPipe()); const sink = await h.takeStdin(); await sink.write("hello"); for await (const e of h) { console.log(e.kind, e.data ? String(Buffer.from(e.data)) : ""); if (e.kind === "stdout") await sink.close(); }`,
          works('started stdout hello exited'),
        ),
        node(
          `${WEB} const h = await s.shellStream("echo hello; exit 7"); const o = await h.collect(); console.log(o.code, o.stdout())`,
          works('7 hello'),
        ),
        node(
          `${WEB} const h = await s.execStream("sleep", ["60"]); await h.recv(); await h.signal(15); console.log((await h.wait()).code)`,
          works('143'),
        ),
        node(
          `${WEB} const h = await s.execStream("sleep", ["60"]); await h.recv(); await h.kill(); console.log((await h.wait()).code)`,
          works('137'),
        ),
        node(
          `${WEB} const h = await s.execStreamWith("sh", (e) => e.args(["-c", "read x; busybox stty size"]).tty(true).stdinPipe()); const sink = await h.takeStdin(); await h.resize(40, 120); await sink.write("\\n"); console.log((await h.collect()).stdout())`,
          works('40 120'),
        ),
        node(
          'await Sandbox.builder("own").image("sandkeep-test:busybox").env("GREETING", "hello").workdir("/tmp").user("1000").cmd(["sh", "-c", "echo $GREETING; pwd; busybox id -u"]).rlimit("nofile", 100).create()',
          works(),
        ),
        node(
          'const s = await (await Sandbox.get("own")).connect(); console.log((await s.exec("pwd")).stdout(), (await s.execDefault()).stdout())',
          works('/tmp hello /tmp 1000'),
        ),
        node(
          `${WEB} await s.execDefault()`,
          clientRefuses(
            'NoDefaultCommandError: sandbox has no default command; configure an entrypoint or cmd, or execute a literal command',
          ),
        ),
        node(
          `${WEB} const c = await s.ssh().openClient(); const o = await c.exec("echo hello; exit 4"); console.log(o.status, String(o.stdout)); await c.close()`,
          works('4 hello'),
        ),
        node(
          `${WEB} await s.ssh().prepareServer()`,
          clientRefuses(
            'UnsupportedError: SandboxSshOps::server is not supported by this backend: use a local backend',
          ),
        ),
        node(
          `${WEB} await s.ping()`,
          clientRefuses(
            'UnsupportedError: Sandbox::ping is not supported by this backend: use a local backend',
          ),
        ),
        node(
          `${WEB} await s.touch()`,
          clientRefuses(
            'UnsupportedError: Sandbox::touch is not supported by this backend: use a local backend',
          ),
        ),
      ),
    ],
  },
  {
    title: 'Node SDK: files inside',
    rows: [
      node('await Sandbox.builder("web").image("sandkeep-test:busybox").create()', works()),
      node(
        `${FILES} await fs.mkdir("/tmp/a/b"); await fs.write("/tmp/a/x", "hello")`,
        NO_CHANNEL_IN_SDK,
        works(),
      ),
      ...onDocker(
        node(
          `${FILES} console.log(await fs.readToString("/tmp/a/x"), (await fs.read("/tmp/a/x")).length)`,
          works('hello 5'),
        ),
        node(
          `${FILES} console.log(await fs.exists("/tmp/a/x"), await fs.exists("/tmp/nope"))`,
          works('true false'),
        ),
        node(
          `${FILES} for (const e of (await fs.list("/tmp/a")).toSorted((a, b) => a.path.localeCompare(b.path))) console.log(e.path, e.kind)`,
          works('/tmp/a/b directory /tmp/a/x file'),
        ),
        node(
          `${FILES} const { kind, size, mode } = await fs.stat("/tmp/a/x"); console.log(kind, size, mode.toString(8))`,
          works('file 5 100644'),
        ),
        node(
          `${FILES} await fs.copy("/tmp/a/x", "/tmp/a/y"); await fs.rename("/tmp/a/y", "/tmp/a/z"); console.log(await fs.readToString("/tmp/a/z"))`,
          works('hello'),
        ),
        node(
          `${FILES} const sink = await fs.writeStream("/tmp/big"); await sink.write("one "); await sink.write("two"); await sink.close(); console.log(String(Buffer.from(await (await fs.readStream("/tmp/big")).collect())))`,
          works('one two'),
        ),
        node(
          `${FILES} await fs.copyFromHost("node_modules/microsandbox/package.json", "/tmp/p.json"); await fs.copyToHost("/tmp/p.json", process.env.HOME + "/p.json"); console.log("copied")`,
          works('copied'),
        ),
        node(
          `${FILES} await fs.read("/tmp/nope")`,
          serviceRefuses('SandboxFsOpsError: sandbox fs error: No such file or directory (os error 2)'),
        ),
        node(
          `${FILES} await fs.remove("/tmp/a/x"); await fs.removeDir("/tmp/a"); console.log(await fs.exists("/tmp/a"))`,
          works('false'),
        ),
        node(
          `${SFTP} await ftp.write("/tmp/s", Buffer.from("hello")); await ftp.mkdir("/tmp/d"); await ftp.rename("/tmp/s", "/tmp/d/t"); await ftp.symlink("t", "/tmp/d/l"); console.log(String(await ftp.read("/tmp/d/l")), await ftp.readLink("/tmp/d/l"), await ftp.realPath("/tmp/d/l")); ${CLOSE}`,
          works('hello t /tmp/d/t'),
        ),
        node(
          `${SFTP} await ftp.removeFile("/tmp/d/l"); await ftp.removeFile("/tmp/d/t"); await ftp.removeDir("/tmp/d"); ${CLOSE}`,
          works(),
        ),
        node(
          `${SFTP} await ftp.read("/tmp/nope")`,
          serviceRefuses('Error: SFTP error: No such file: No such file'),
        ),
      ),
    ],
  },
];
