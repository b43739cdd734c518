import { afterAll, beforeAll, expect, test } from 'vitest';
import { AgentClient } from '../support/agent-client.js';
import { makeClient, type Client } from '../support/client.js';
import { describeDocker, IMAGE, makeImage } from '../support/docker.js';
import { untilStatus } from '../support/polling.js';
import {
  cleanUp,
  inDatabase,
  kill,
  launch,
  makeFolder,
  ready,
  stop,
  until,
  type Served,
} from '../support/processes.js';
import { openOwnEngine, type OwnEngine } from './support/docker-engine.js';

const MARK = '7654321';

describeDocker('after kill -9 under open sessions', () => {
  let engine: OwnEngine;
  let folder: string;
  let service: Served;
  let key: string;
  let client: Client;
  let id: string;
  beforeAll(async () => {
    engine = await openOwnEngine();
    makeImage(engine.socket);
    folder = makeFolder();
    service = await serve();
    key = service.firstKey!;
    client = clientOf();
    id = await make('first');
  });
  afterAll(async () => {
    await stop(service);
    await cleanUp(folder);
    await engine.close();
  });

  function serve(): Promise<Served> {
    const runtime = ['--runtime', 'docker', '--docker-socket', engine.socket, '--docker-network', 'none'];
    const args = ['serve', '--json', '--port', '0', '--data-dir', folder, '--log-level', 'warn', ...runtime];
    return ready(launch(args), folder);
  }
  const clientOf = () => makeClient(service.url, { org: { id: '', name: '', slug: '' }, key, keyId: '' });
  async function make(name: string): Promise<string> {
    const spec = {
      name,
      image: { type: 'oci', reference: IMAGE },
      pull_policy: 'never',
      runtime: { cmd: ['sleep', '1000'] },
      resources: { memory_mib: 64 },
    };
    const query = { start: true, wait_for: 'running', wait_timeout: 120 };
    const { body } = await client.post('/v1/sandboxes', spec, query);
    expect(body.status).toBe('running');
    return body.id;
  }
  /** A command with output, a terminal and files, each open. */
  async function visit(sandboxId: string): Promise<AgentClient> {
    const channel = await AgentClient.open(client, sandboxId);
    const noisy = `while true; do echo ${MARK}; sleep 0.1; done`;
    const loud = channel.exec('sh', ['-c', noisy]);
    const terminal = channel.exec('sh', ['-c', `sleep ${MARK}`], { tty: true });
    await channel.next(loud, 'core.exec.stdout');
    await channel.next(terminal, 'core.exec.started');
    expect((await channel.fs({ Mkdir: { path: '/tmp/made', mode: null } })).ok).toBe(true);
    return channel;
  }
  /** The processes in the sandbox beside its own command. */
  async function visitors(sandboxId: string): Promise<string[]> {
    const label = [`dev.sandkeep.sandbox=${sandboxId}`];
    const [found] = await engine.docker.listContainers({ filters: { label } });
    if (!found) return [];
    const { Processes } = await engine.docker.getContainer(found.Id).top();
    return Processes.map((columns: string[]) => columns.at(-1)!).filter((line: string) =>
      /\/agent\b|7654321/.test(line),
    );
  }
  async function sessionsOf(sandboxId: string) {
    return inDatabase(folder, async (database) => {
      const { rows: open } = await database.query('select from sandbox_sessions where sandbox_id = $1', [
        sandboxId,
      ]);
      const { rows } = await database.query<{ type: string; session: string; reason: string }>(
        `select event_type as type, payload ->> 'session_id' as session, payload ->> 'reason' as reason from events
         where resource_id = $1 and event_type like 'sandbox_session_%'`,
        [sandboxId],
      );
      const idsOf = (type: string) => rows.filter((row) => row.type === type).map(({ session }) => session);
      const ends = rows.filter(({ type }) => type === 'sandbox_session_ended');
      return {
        open: open.length,
        opened: idsOf('sandbox_session_opened').toSorted(),
        ended: idsOf('sandbox_session_ended').toSorted(),
        reasons: new Set(ends.map(({ reason }) => reason)),
      };
    });
  }

  test('nothing of a killed service runs on in the sandbox, and each session ends once, as cut off', async () => {
    const channel = await visit(id);
    expect((await visitors(id)).length).toBeGreaterThan(2);
    kill('SIGKILL', service.pid);
    await service.exited;
    await channel.untilClosed();
    await until('nothing of the session runs', async () => (await visitors(id)).length === 0);
    service = await serve();
    client = clientOf();
    await untilStatus(client, id, 'running');
    // As if the minute had passed until the service takes its sessions for lost.
    await inDatabase(folder, (database) =>
      database.query("update sandbox_sessions set seen_at = seen_at - interval '1 hour'"),
    );
    await until('each session has ended', async () => (await sessionsOf(id)).open === 0);
    const { opened, ended, reasons } = await sessionsOf(id);
    expect(opened).toHaveLength(3);
    expect(ended).toEqual(opened);
    expect([...reasons]).toEqual(['cut_off']);
  });

  test('each session of a killed engine ends once, and the sandbox can be entered after its next start', async () => {
    const sandbox = await make('second');
    const channel = await visit(sandbox);
    await engine.kill();
    // The way into a sandbox bypasses the engine, which ends the sandbox at its next start.
    expect(await channel.run('echo', 'still')).toEqual({ code: 0, stdout: 'still\n' });
    await engine.start();
    await channel.untilClosed();
    await until('each session has ended', async () => (await sessionsOf(sandbox)).open === 0);
    const { opened, ended } = await sessionsOf(sandbox);
    expect(opened).toHaveLength(4);
    expect(ended).toEqual(opened);
    let again: AgentClient | undefined;
    await until('the sandbox can be entered', async () => {
      await client.post(`/v1/sandboxes/${sandbox}/start`, {}, { wait_for: 'running', wait_timeout: 120 });
      again = await AgentClient.open(client, sandbox).catch(() => undefined);
      return again !== undefined;
    });
    expect(await again!.run('echo', 'back')).toEqual({ code: 0, stdout: 'back\n' });
    again!.socket.close();
  });
});
