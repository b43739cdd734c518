import { afterAll, beforeAll, expect, test } from 'vitest';
import { describeDocker, docker, IMAGE } from '../support/docker.js';
import { startInside, type Inside } from '../support/inside.js';
import { until } from '../support/polling.js';
import { readInstance } from '../../src/db/instance-queries.js';
import { build, BUILDS_MS, logOf, type Entries } from '../support/templates.js';

const LOCAL = JSON.stringify({ resources: { vcpus: 1, memory_mib: 64 }, pull_policy: 'never' });
const PASSWD = 'root:x:0:0::/root:/bin/sh\napp:x:1234:1234::/home/app:/bin/sh\n';

describeDocker('templates of a Dockerfile', () => {
  let inside: Inside;
  beforeAll(async () => {
    inside = await startInside({ settings: { volumePurgeAfterMs: 0 } });
  });
  afterAll(async () => {
    const { client, service } = inside;
    for (const { id } of (await client.get('/v1/templates', { limit: 100 })).body.data) {
      await client.delete(`/v1/templates/${id}`);
    }
    for (const { id } of (await client.get('/v1/sandboxes', { limit: 100 })).body.data) {
      await client.delete(`/v1/sandboxes/${id}`);
    }
    // Nothing of the builds stays.
    const { id } = await readInstance(service.ctx.pool);
    await until(
      async () => docker.listImages({ filters: { label: [`dev.sandkeep.instance=${id}`] } }),
      (images) => images.length === 0,
      60_000,
    );
    await inside.close();
  });

  const built = async (tag: string, body: string | Entries, query: Record<string, string | boolean> = {}) =>
    build(inside.client, tag, body, { sandbox: LOCAL, ...query });
  const textOf = async (id: string) => (await logOf(inside.client, id)).map(({ text }) => text).join('');
  const startFrom = async (name: string, tag: string, part: object = {}) => {
    const { body, text } = await inside.client.post(
      '/v1/sandboxes',
      {
        name,
        image: { type: 'template', name: tag.split(':')[0], tag: tag.split(':')[1] },
        resources: { vcpus: 1, memory_mib: 64 },
        ...part,
      },
      { start: true, wait_for: 'running' },
    );
    expect(body.status, text).toBe('running');
    return body.id as string;
  };
  const exec = async (id: string, script: string) => {
    const { body, text } = await inside.client.post(`/v1/sandboxes/${id}/exec`, {
      cmd: 'sh',
      args: ['-c', script],
    });
    expect(body.exit_code, text).toBe(0);
    return body.stdout as string;
  };

  test(
    'is built by its steps, and starts with its files, variables, directory, user and command',
    { timeout: BUILDS_MS },
    async () => {
      const template = await built('whole:1', {
        Dockerfile: `FROM ${IMAGE}
COPY etc/passwd /etc/passwd
ENV GREETING=hello
WORKDIR /work/deep
COPY --chown=app:1234 --chmod=640 a.txt dst/
COPY tree ./tree
COPY link /work/link
RUN echo "$GREETING $(pwd)" > greeting && echo to-stderr >&2
RUN <<EOF
echo one > /work/lines
echo two >> /work/lines
EOF
RUN echo home > /work/deep/home
RUN ["touch", "/work/exec form"]
USER app
WORKDIR /work
CMD ["sh", "-c", "echo started; sleep 600"]
`,
        'etc/passwd': PASSWD,
        'a.txt': 'content of a',
        'tree/one': 'tree one',
        'tree/sub/two': 'tree two',
        link: { type: 'symlink', linkname: 'lines' },
      });
      expect(template['status'], `${JSON.stringify(template['error'])} ${await textOf(template['id'])}`).toBe(
        'succeeded',
      );
      expect([template['steps'], template['steps_done'], template['steps_cached']]).toEqual([10, 10, 0]);
      const log = await logOf(inside.client, template['id']);
      expect(log.filter(({ source }) => source === 'stderr').map(({ text }) => text)).toEqual([
        'to-stderr\n',
      ]);
      expect(await textOf(template['id'])).toContain('step 2 of 10: WORKDIR /work/deep');

      const id = await startFrom('whole', 'whole:1');
      expect(await exec(id, 'cat deep/greeting; cat link; pwd; id -u; echo $GREETING')).toBe(
        'hello /work/deep\none\ntwo\n/work\n1234\nhello\n',
      );
      expect(await exec(id, 'cat deep/dst/a.txt deep/tree/one deep/tree/sub/two; ls "exec form"')).toBe(
        'content of atree onetree twoexec form\n',
      );
      expect(await exec(id, 'ls -ln deep/dst/a.txt')).toMatch(/^-rw-r----- +1 1234 +1234 /);
      const { body } = await inside.client.get(`/v1/sandboxes/${id}`);
      expect(body.spec.runtime).toMatchObject({ user: 'app', workdir: '/work' });
      // Its steps are in the audit trail as the commands of the caller.
      await until(
        async (): Promise<any[]> =>
          (await inside.client.get('/v1/events', { event_type: 'sandbox_session_ended', limit: 100 })).body
            .data,
        (data) => data.some(({ payload }) => payload.name.startsWith('build-') && payload.exit_code === 0),
      );
    },
  );

  test(
    'stages are built as they are needed, and files come from stages, images and templates',
    { timeout: BUILDS_MS },
    async () => {
      const dockerfile = (said: string) => `ARG BASE=${IMAGE}
FROM $BASE AS tools
ARG BASE
RUN mkdir -p /out/sub && echo "$BASE" > /out/base && echo sub > /out/sub/file && ln -s base /out/link
RUN ln -s /out /linked && touch /out/exec && chmod 4755 /out/exec && mkdir /out/empty
ENV OF_TOOLS=yes

FROM \${BASE} AS unused
RUN exit 3

FROM tools AS more
RUN echo more-$OF_TOOLS > /out/more

FROM ${IMAGE}
WORKDIR /app
COPY --from=tools /linked ./all/
COPY --from=more /out/more more.txt
COPY --from=2 --chown=1234:5678 --chmod=600 /out/b* /out/sub/file few/
COPY --from=${IMAGE} /bin/busybox /opt/busybox
RUN echo ${said} > said
`;
      const first = await built('staged:1', dockerfile('one'));
      expect(first['status'], `${JSON.stringify(first['error'])} ${await textOf(first['id'])}`).toBe(
        'succeeded',
      );
      expect([first['steps'], first['steps_done'], first['steps_cached']]).toEqual([9, 9, 0]);
      expect(await textOf(first['id'])).not.toContain('exit 3');
      const id = await startFrom('staged', 'staged:1');
      expect(
        await exec(id, 'cat all/base all/sub/file more.txt said; readlink all/link; ls -d all/empty'),
      ).toBe(`${IMAGE}\nsub\nmore-yes\none\nbase\nall/empty\n`);
      expect(
        await exec(id, 'busybox stat -c "%a %u %g" all/exec few/base few/file all; /opt/busybox echo runs'),
      ).toBe('4755 0 0\n600 1234 5678\n600 1234 5678\n755 0 0\nruns\n');
      expect(await exec(id, 'env | grep OF_TOOLS || echo none')).toBe('none\n');

      // The stages are cached. The last one is kept as a whole: its copies run again with its changed RUN.
      const second = await built('staged:2', dockerfile('two'));
      expect([second['status'], second['steps_done'], second['steps_cached']]).toEqual(['succeeded', 9, 3]);
      const same = await built('staged:3', dockerfile('two'));
      expect([same['steps_done'], same['steps_cached'], same['snapshot_id'], same['digest']]).toEqual([
        9,
        9,
        second['snapshot_id'],
        second['digest'],
      ]);
      expect(first['snapshot_id']).not.toBe(second['snapshot_id']);

      // A target needs its own stages alone, and another template is a source too.
      const target = await built('staged:more', dockerfile('two'), { target: 'MORE' });
      expect([target['status'], target['target'], target['steps']]).toEqual(['succeeded', 'MORE', 3]);
      const other = await built(
        'staged:4',
        `FROM ${IMAGE}\nCOPY --from=template:staged:1 /app/said /\nRUN cat /said`,
      );
      expect(other['status'], await textOf(other['id'])).toBe('succeeded');
      expect(await textOf(other['id'])).toContain('one\n');
    },
  );

  test(
    'a stage without steps is the image itself, and no disk of it is kept',
    { timeout: BUILDS_MS },
    async () => {
      const { pool } = inside.service.ctx;
      const made = await built(
        'plain:1',
        `FROM ${IMAGE} AS base
FROM base AS again
FROM again
COPY --from=base /bin/busybox /opt/busybox
RUN /opt/busybox echo runs
`,
      );
      expect([made['status'], made['steps_done']], await textOf(made['id'])).toEqual(['succeeded', 2]);
      const { rows } = await pool.query('select id from snapshots where template_id = $1', [made['id']]);
      expect(rows).toEqual([{ id: made['snapshot_id'] }]);
      const bare = await built('plain:2', `FROM ${IMAGE} AS base\nFROM base\nCMD ["x"]\n`);
      expect([bare['status'], bare['steps']]).toEqual(['succeeded', 0]);
      // A template is a source like an image, and a stage of it keeps its variables.
      const above = await built('plain:3', `FROM template:plain:1 AS base\nFROM base\nENV A=b\n`);
      expect([above['status'], above['config'].env], await textOf(above['id'])).toEqual([
        'succeeded',
        [{ key: 'A', value: 'b' }],
      ]);
      expect(above['snapshot_id']).not.toBe(made['snapshot_id']);
    },
  );

  test(
    'a source that is missing, of the kernel or no file ends the build with its line',
    { timeout: BUILDS_MS },
    async () => {
      const from = (paths: string) =>
        `FROM ${IMAGE} AS a\nRUN busybox mkfifo /pipe; ln -s loop /loop\nFROM ${IMAGE}\nCOPY --from=a ${paths}`;
      for (const [paths, message] of [
        ['/none /', 'is not on the disk'],
        ['/n*ne /x/', 'matches nothing'],
        ['/proc/version /', 'of the kernel'],
        ['/pipe /', 'neither a file'],
        ['/loop /', 'is not on the disk'],
        ['/../etc/passwd /', 'leads out of'],
      ] as const) {
        const failed = await built('refused:1', from(paths));
        expect([paths, failed['status'], failed['error']]).toMatchObject([paths, 'failed', { line: 4 }]);
        expect(failed['error'].message).toContain(message);
        expect(failed['sandbox_id']).toBeNull();
      }
    },
  );

  test(
    'an image that is not there ends the build with the line of its COPY or FROM',
    { timeout: BUILDS_MS },
    async () => {
      for (const [file, line] of [
        [`FROM ${IMAGE}\nRUN true\nCOPY --from=sandkeep-none /a /`, 3],
        [`FROM ${IMAGE}\n\nFROM sandkeep-none`, 3],
      ] as const) {
        const failed = await built('no-image:1', file);
        expect([failed['status'], failed['error']]).toMatchObject([
          'failed',
          { code: 'sandbox_failed', line },
        ]);
        expect(failed['error'].message).toContain('sandkeep-none');
      }
    },
  );

  test(
    'a link of a stage leads to files of its own disk, and nothing of a stage stays but its copies',
    { timeout: BUILDS_MS },
    async () => {
      const made = await built(
        'kept:1',
        `FROM ${IMAGE} AS a
ARG TOKEN
RUN mkdir -p /out /etc && echo of-stage > /etc/marker && echo "$TOKEN" > /secret
RUN ln -s ../../../../../../etc/marker /out/up && ln -s /proc/1/root/secret /out/root && ln -s /secret /out/abs
FROM ${IMAGE}
RUN mkdir -p /etc && echo of-final > /etc/marker
COPY --from=a /out/up /copied
COPY --from=a /out /out
`,
        { build_args: '{"TOKEN":"hidden-value"}' },
      );
      expect(made['status'], await textOf(made['id'])).toBe('succeeded');
      const id = await startFrom('kept', 'kept:1');
      expect(await exec(id, 'cat /copied /out/up; readlink /out/abs; test -e /out/abs || echo none')).toBe(
        'of-stage\nof-final\n/secret\nnone\n',
      );
      expect(
        await exec(
          id,
          'busybox grep -rl hidden-value /bin /etc /out /copied /root 2>/dev/null; env | busybox grep hidden; true',
        ),
      ).toBe('');
      const [image] = await docker.listImages({
        filters: { label: [`dev.sandkeep.snapshot=${made['snapshot_id']}`] },
      });
      if (image) {
        const { Id } = image;
        const told = JSON.stringify([
          await docker.getImage(Id).inspect(),
          await docker.getImage(Id).history(),
        ]);
        expect(told).not.toContain('hidden-value');
      }
      expect(JSON.stringify(made['config'])).not.toContain('hidden-value');
    },
  );

  test('steps that an earlier build has run are not run again', { timeout: BUILDS_MS }, async () => {
    const file = (more: string) => `FROM ${IMAGE}
RUN cat /proc/sys/kernel/random/uuid > /first
COPY data /data
RUN cat /proc/sys/kernel/random/uuid > /second
${more}`;
    const context = { data: 'one', other: 'x' };
    const first = await built('cached:1', { Dockerfile: file(''), ...context });
    expect(first['status'], await textOf(first['id'])).toBe('succeeded');
    const read = async (tag: string, name: string) => {
      const id = await startFrom(name, tag);
      const text = await exec(id, 'cat /first /second /data');
      await inside.client.delete(`/v1/sandboxes/${id}`);
      return text;
    };
    const begun = await read('cached:1', 'cached-1');
    // A file that no step copies, a comment and a command change nothing.
    const same = await built('cached:2', {
      Dockerfile: file('# comment\nCMD ["x"]\nRUN touch /third'),
      ...context,
      other: 'y',
    });
    expect([same['status'], same['steps_cached'], same['steps_done']]).toEqual(['succeeded', 3, 4]);
    expect(await textOf(same['id'])).toContain('(cached)');
    expect(await read('cached:2', 'cached-2')).toBe(begun);
    // Everything is there already, so nothing starts.
    const created = async () => {
      const { body } = await inside.client.get('/v1/events', { event_type: 'sandbox_created', limit: 1 });
      return body.data[0].id as string;
    };
    const lastCreated = await created();
    const whole = await built('cached:3', { Dockerfile: file(''), ...context });
    expect([whole['status'], whole['steps_cached']]).toEqual(['succeeded', 3]);
    expect(await created()).toBe(lastCreated);
    expect(await read('cached:3', 'cached-3')).toBe(begun);
    // Another file is another step, and the one before stays.
    const changed = await built('cached:4', { Dockerfile: file(''), data: 'two' });
    expect([changed['status'], changed['steps_cached']]).toEqual(['succeeded', 1]);
    const after = await read('cached:4', 'cached-4');
    expect(after).not.toBe(begun);
    expect(after).toMatch(/two$/);
    const again = await built('cached:5', { Dockerfile: file(''), ...context }, { cache: false });
    expect([again['status'], again['steps_cached']]).toEqual(['succeeded', 0]);
    expect(await read('cached:5', 'cached-5')).not.toBe(begun);
    // The first template goes, and the others keep their disks.
    await inside.client.delete(`/v1/templates/${first['id']}`);
    expect(await read('cached:3', 'cached-6')).toBe(begun);
  });

  test(
    'a step that fails ends the build with its line, and the steps before are kept',
    { timeout: BUILDS_MS },
    async () => {
      const file = (script: string) => `FROM ${IMAGE}\nRUN echo kept\n\nRUN ${script}\n`;
      const failed = await built('fails:1', file('echo output; exit 7'));
      expect(failed).toMatchObject({
        status: 'failed',
        error: { code: 'step_failed', line: 4, message: 'the command ended with the exit code 7' },
        sandbox_id: null,
        steps_done: 1,
      });
      expect(await textOf(failed['id'])).toContain(
        'output\nline 4: the command ended with the exit code 7\n',
      );
      const missing = await built('fails:2', `FROM ${IMAGE}\nRUN ["/none"]\n`);
      expect(missing['error']).toMatchObject({ code: 'command_not_started', line: 2 });
      const user = await built('fails:3', {
        Dockerfile: `FROM ${IMAGE}\nCOPY --chown=nobody a /a\n`,
        a: 'x',
      });
      expect(user['error']).toMatchObject({ code: 'step_failed', line: 2 });
      const mended = await built('fails:1', file('true'));
      expect([mended['status'], mended['steps_cached']]).toEqual(['succeeded', 1]);
      await until(
        async (): Promise<any[]> =>
          (await inside.client.get('/v1/sandboxes', { name_prefix: 'build-' })).body.data,
        (data) => data.length === 0,
      );
    },
  );

  test('a command of a build that never ends is stopped with it', { timeout: BUILDS_MS }, async () => {
    const { body } = await inside.client.post('/v1/templates', `FROM ${IMAGE}\nRUN echo begun; sleep 600\n`, {
      tag: 'endless:1',
      sandbox: LOCAL,
    });
    const { pool } = inside.service.ctx;
    await until(
      async () =>
        (
          await pool.query(`select 1 from template_logs where template_id = $1 and text = 'begun\n'`, [
            body.id,
          ])
        ).rows,
      (rows) => rows.length > 0,
      60_000,
    );
    const { body: building } = await inside.client.get(`/v1/templates/${body.id}`);
    expect((await inside.service.runtime.list()).map(({ sandboxId }) => sandboxId)).toContain(
      building.sandbox_id,
    );
    expect((await inside.client.delete(`/v1/templates/${body.id}`)).status).toBe(200);
    await until(
      () => inside.service.runtime.list(),
      (held) => held.every(({ sandboxId }) => sandboxId !== building.sandbox_id),
      60_000,
    );
  });
});
