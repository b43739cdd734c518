import { clientRefuses, onDocker, python, serviceRefuses, works, type Session } from './row.js';
import { VERSIONS } from './versions.js';

/** The rows of the Python SDK, whose users have a later version than those of npm. */

const NO_CHANNEL = serviceRefuses(
  'MicrosandboxError: runtime error: cloud agent websocket: HTTP error: 501 Not Implemented',
);
const WEB = 's = await (await Sandbox.get("web")).connect();';
const FILES = 'fs = (await (await Sandbox.get("web")).connect()).fs;';
const local = (operation: string) =>
  clientRefuses(`UnsupportedError: ${operation} is not supported by this backend: use a local backend`);

export const PYTHON: readonly Session[] = [
  {
    title: `Python SDK ${VERSIONS.pypi}: sandboxes and volumes`,
    rows: [
      python(
        's = await Sandbox.create("web", image="sandkeep-test:busybox", cpus=1, memory=128, labels={"team": "ml"}); print(await s.name, (await s.id).startswith("cloud:"))',
        works('web True'),
      ),
      python('print([s.name for s in (await Sandbox.list()).sandboxes])', works("['web']")),
      python('print((await Sandbox.get("web")).status)', works('running')),
      python(
        'h = await Sandbox.get("web"); await h.stop(); print((await Sandbox.get("web")).status)',
        works('stopped'),
      ),
      python('await Sandbox.start("web"); print((await Sandbox.get("web")).status)', works('running')),
      python(
        'h = await Sandbox.get("web"); await h.restart(); print((await Sandbox.get("web")).status)',
        works('running'),
      ),
      python(`${WEB} await s.pause()`, local('sandbox.pause()')),
      python(
        `${WEB} await s.fork("other")`,
        clientRefuses('InvalidConfigError: invalid config: direct forking requires a local backend'),
      ),
      python(
        's = await (await Sandbox.get("web")).snapshot("one"); print(s.digest[:7], s.image_ref)',
        works('sha256: sandkeep-test:busybox'),
      ),
      python(
        's = await Snapshot.create("two", from_sandbox="web", labels={"team": "ml"}, record_integrity=True); print(s.labels)',
        works("{'team': 'ml'}"),
      ),
      python(
        'await Snapshot.create("two", from_sandbox="web")',
        serviceRefuses(
          'MicrosandboxError: snapshot already exists: POST /v1/snapshots: a snapshot with the name "two" already exists',
        ),
      ),
      python('print([s.name for s in await Snapshot.list()])', works("['two', 'one']")),
      python(
        's = await Sandbox.restore("one", name="copy"); print(await s.name); await Sandbox.remove("copy")',
        works('copy'),
      ),
      python(
        'await Snapshot.remove("one"); print([s.name for s in await Snapshot.list()])',
        works("['two']"),
      ),
      python('await Sandbox.remove("web")', works()),
      python(
        'await Sandbox.get("web")',
        serviceRefuses(
          'SandboxNotFoundError: sandbox not found: GET /v1/sandboxes/by-name/:name: resource not found',
        ),
      ),
      python(
        'await Volume.create("data"); print([v.name for v in await Volume.list()])',
        works("['', 'data']"),
      ),
    ],
  },
  {
    title: `Python SDK ${VERSIONS.pypi}: commands, files and logs inside`,
    rows: [
      python(
        'await Sandbox.create("web", image="sandkeep-test:busybox", env={"GREETING": "hello"}, cmd=["busybox", "echo", "logged"])',
        works(),
      ),
      python(
        `${WEB} o = await s.exec("sh", ["-c", "echo $GREETING; echo err >&2; exit 3"]); print(o.exit_code, repr(o.stdout_text), repr(o.stderr_text))`,
        works(String.raw`3 'hello\n' 'err\n'`),
        NO_CHANNEL,
      ),
      python(
        `${FILES} await fs.write("/tmp/x", b"hello"); print(await fs.read_text("/tmp/x"))`,
        works('hello'),
        NO_CHANNEL,
      ),
      ...onDocker(
        python(`${WEB} print((await s.shell("echo hello && exit 7")).exit_code)`, works('7')),
        python(
          `${WEB} await s.exec("nope")`,
          serviceRefuses('MicrosandboxError: exec failed: spawn "nope": No such file or directory'),
        ),
        python(
          `${WEB} print([e.event_type.value async for e in await s.exec_stream("sh", ["-c", "echo hello; sleep 1; exit 7"])])`,
          works("['started', 'stdout', 'exited']"),
        ),
        python(
          `${WEB} h = await s.exec_stream("sleep", ["60"]); await h.recv(); await h.signal(15); print(await h.wait())`,
          works('(143, False)'),
        ),
        python(
          `${FILES} await fs.mkdir("/tmp/a"); await fs.copy("/tmp/x", "/tmp/a/y"); await fs.rename("/tmp/a/y", "/tmp/a/z"); print([(e.path, e.size) for e in await fs.list("/tmp/a")], await fs.exists("/tmp/a/y"))`,
          works("[('/tmp/a/z', 5)] False"),
        ),
        python(
          `${FILES} await fs.read("/tmp/nope")`,
          serviceRefuses('FilesystemError: sandbox fs error: No such file or directory (os error 2)'),
        ),
        python(`${FILES} await fs.remove_dir("/tmp/a"); print(await fs.exists("/tmp/a"))`, works('False')),
        python(`${WEB} print((await anext(aiter(await s.log_stream(follow=True)))).text())`, works('logged')),
        python(`${WEB} print((await s.exec("cat")).exit_code)`, works('0')),
        python(
          `${WEB} print((await s.exec("busybox", ["wc", "-c"], stdin=b"0" * 4_000_000)).stdout_text)`,
          works('4000000'),
        ),
        python(
          `${WEB} await s.exec("busybox", ["wc", "-c"], stdin=b"0" * 6_000_000)`,
          clientRefuses('MicrosandboxError: runtime error: exec session ended without exit event'),
        ),
        python(
          'await Sandbox.create("own", image="sandkeep-test:busybox", workdir="/tmp", user="1000", cmd=["sh", "-c", "pwd; busybox id -u"], volumes={"/scratch": Volume.tmpfs(size_mib=8)})',
          works(),
        ),
        python(
          's = await (await Sandbox.get("own")).connect(); print((await s.exec("pwd")).stdout_text, (await s.exec_default()).stdout_text)',
          works('/tmp /tmp 1000'),
        ),
        python('await (await Sandbox.get("web")).modify(cpus=2)', local('sandbox_handle.config()')),
        python(`${WEB} await s.ping()`, local('sandbox.ping()')),
        python(
          `${WEB} await s.exec_detached("sleep", ["1"])`,
          clientRefuses(
            'JobError: unsupported_feature: managed jobs require a supporting local runtime and backend',
          ),
        ),
      ),
    ],
  },
];
