import { Client as GrpcClient, credentials, Metadata, status, type ServiceError } from '@grpc/grpc-js';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { testInBrowser } from '../console/browser.js';
import { describeImage } from '../support/container-image.js';
import { until } from '../support/polling.js';
import { prepareImages } from '../support/prepare-images.js';
import { startPrograms, type ProgramsService } from '../support/programs-service.js';
import { makePrograms, PROGRAMS_IMAGE } from '../support/programs.js';

const VITE = 5_173;
const GRPC = 50_051;
const FILES = 8_080;
const COMMAND = `
node grpc.mjs & node files.mjs /app/git ${FILES} &
cd vite && exec node ../node_modules/vite/bin/vite.js`;
const execute = promisify(execFile);

describeImage('programs of others through previews of a domain with TLS', () => {
  let programs: ProgramsService;
  prepareImages(makePrograms);
  beforeAll(async () => {
    programs = await startPrograms(PROGRAMS_IMAGE, COMMAND, [VITE, GRPC, FILES]);
  });
  afterAll(() => programs?.close());

  testInBrowser(
    'Vite replaces a module of a React page over its WebSocket, and keeps the state',
    async () => {
      // Vite answers to names that it knows. The other way is its setting server.allowedHosts.
      const preview = await programs.open(VITE);
      // On a busy machine, Vite did not listen once, right after its first answer.
      const blocked = await until(
        async () => programs.get(preview),
        ({ status }) => status !== 502,
      );
      expect([blocked.status, blocked.text]).toEqual([403, expect.stringContaining('allowedHosts')]);
      const { url } = await programs.open(VITE, { host: 'sandbox' });
      const write = (text: string) =>
        programs.client.post(`/v1/sandboxes/${programs.sandbox}/exec`, {
          cmd: 'sed',
          args: ['-i', '-E', `s/[a-z]+ text/${text} text/`, '/app/vite/App.jsx'],
        });
      await programs.inBrowser(async (page) => {
        const sockets: string[] = [];
        page.on('websocket', (socket) => sockets.push(new URL(socket.url()).host));
        page.setDefaultTimeout(120_000);
        let loads = 0;
        page.on('load', () => (loads += 1));
        await write('first');
        await page.goto(url);
        await page.getByRole('button', { name: 'first text 0' }).click();
        await page.getByRole('button', { name: 'first text 1' }).waitFor();
        const before = loads;
        await write('second');
        await page.getByRole('button', { name: 'second text 1' }).waitFor();
        expect(loads).toBe(before);
        expect(new Set(sockets)).toEqual(new Set([new URL(url).host]));
      });
    },
  );

  test('gRPC has calls of each kind, deadlines, metadata, errors and trailers', async () => {
    const { origin, token } = await programs.open(GRPC);
    const { host, hostname, port } = new URL(origin);
    const grpc = new GrpcClient(
      `127.0.0.1:${port}`,
      credentials.createSsl(readFileSync(join(programs.files, 'ca.pem'))),
      { 'grpc.default_authority': host, 'grpc.ssl_target_name_override': hostname },
    );
    const granted = (more: Record<string, string> = {}) => {
      const metadata = new Metadata();
      for (const [name, value] of Object.entries({ authorization: `Bearer ${token}`, ...more })) {
        metadata.set(name, value);
      }
      return metadata;
    };
    const write = (value: object) => Buffer.from(JSON.stringify(value));
    const read = (bytes: Buffer) => JSON.parse(bytes.toString());
    const unary = (name: string, value: object, metadata = granted(), deadline = Infinity) =>
      new Promise<{ value?: any; error?: ServiceError; trailers: any }>((resolve) => {
        let answer: { value?: any; error?: ServiceError } = {};
        grpc
          .makeUnaryRequest(
            `/test.Programs/${name}`,
            write,
            read,
            value,
            metadata,
            { deadline },
            (error, found) => {
              answer = error ? { error } : { value: found };
            },
          )
          .on('status', ({ metadata: trailers }) => resolve({ ...answer, trailers: trailers.getMap() }));
      });
    try {
      const greeted = await unary('Greet', { name: 'you' }, granted({ 'x-mine': 'kept' }));
      expect(greeted.value).toMatchObject({ hello: 'you', metadata: { 'x-mine': 'kept' } });
      expect(greeted.value.metadata).not.toHaveProperty('authorization');
      expect(greeted.trailers).toMatchObject({ 'x-after': 'trailer' });

      const counted: number[] = [];
      const count = grpc.makeServerStreamRequest(
        '/test.Programs/Count',
        write,
        read,
        { to: 1_000 },
        granted(),
      );
      for await (const { at } of count) counted.push(at);
      expect([counted.length, counted.at(-1)]).toEqual([1_000, 1_000]);

      const sum = await new Promise((resolve, reject) => {
        const call = grpc.makeClientStreamRequest(
          '/test.Programs/Sum',
          write,
          read,
          granted(),
          (error, found) => (error ? reject(error) : resolve(found)),
        );
        for (let value = 1; value <= 100; value += 1) call.write({ value });
        call.end();
      });
      expect(sum).toEqual({ sum: 5_050 });

      // Each message waits for the answer to the one before.
      const echo = grpc.makeBidiStreamRequest('/test.Programs/Echo', write, read, granted());
      for (const turn of [1, 2, 3]) {
        echo.write({ turn });
        expect((await once(echo, 'data'))[0]).toEqual({ turn });
      }
      const ended = once(echo, 'status');
      echo.end();
      expect((await ended)[0]).toMatchObject({ code: status.OK });

      const { error: failed } = await unary('Fail', {});
      expect([failed!.code, failed!.details]).toEqual([status.FAILED_PRECONDITION, 'not so: 100 % "no"']);
      const { error: late } = await unary('Never', {}, granted(), Date.now() + 300);
      expect(late!.code).toBe(status.DEADLINE_EXCEEDED);
      const { error: stranger } = await unary('Greet', { name: 'you' }, new Metadata());
      expect(stranger!.code).toBe(status.UNAUTHENTICATED);
    } finally {
      grpc.close();
    }
  });

  test('git clones a repository with the grant in a header', async () => {
    const { origin, token } = await programs.open(FILES);
    const { host, hostname, port } = new URL(origin);
    const clone = (...more: string[]) => {
      const settings = [`http.curloptResolve=${hostname}:${port}:127.0.0.1`];
      const args = [...settings, ...more].flatMap((setting) => ['-c', setting]);
      const target = join(programs.files, 'clone');
      return execute('git', [...args, 'clone', '--quiet', `https://${host}/repository.git`, target], {
        env: { ...process.env, GIT_SSL_CAINFO: join(programs.files, 'ca.pem'), GIT_TERMINAL_PROMPT: '0' },
      });
    };
    await expect(clone()).rejects.toThrow(/could not read Username|Authentication failed/);
    await clone(`http.extraHeader=x-sandkeep-preview: ${token}`);
    expect(readFileSync(join(programs.files, 'clone/README'), 'utf8')).toBe('a repository in a sandbox\n');
  });
});
