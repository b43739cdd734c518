import { afterAll, beforeAll, expect, test } from 'vitest';
import { operator } from '../../../src/audit/events/actor.js';
import { turnSwitch } from '../../../src/orgs/turn-switch.js';
import { describeDocker } from '../../support/docker.js';
import { startInside, type Inside } from '../../support/inside.js';

describeDocker('command lines in the audit trail', () => {
  let inside: Inside;
  beforeAll(async () => {
    inside = await startInside();
  });
  afterAll(() => inside.close());

  const turn = (on: boolean) =>
    turnSwitch(
      inside.service.ctx.pool,
      inside.client.org.id,
      { name: 'command_lines', on },
      operator('test'),
    );
  async function endAfter(name: string, ...args: string[]): Promise<any> {
    const id = await inside.start(name);
    await inside.client.post(`/v1/sandboxes/${id}/exec`, { cmd: 'echo', args });
    return inside.endOf(id, 'exited');
  }

  test('are recorded only while the operator says so, and cut', async () => {
    expect(await endAfter('before', 'secret')).not.toHaveProperty('command');
    expect(await turn(true)).toEqual({ before: false, after: true });
    expect(await endAfter('during', 'a b', '')).toMatchObject({
      command: ['echo', 'a b', ''],
      command_cut: false,
    });
    const long = await endAfter('long', 'x'.repeat(5_000), 'never seen');
    expect(long).toMatchObject({
      command: ['echo', 'x'.repeat(4_091)],
      command_cut: true,
      argument_count: 2,
    });
    expect(await turn(false)).toEqual({ before: true, after: false });
    expect(await turn(false)).toEqual({ before: false, after: false });
    expect(await endAfter('after', 'secret')).not.toHaveProperty('command');
    const { body } = await inside.client.get('/v1/events', { event_type: 'event_command_lines_changed' });
    expect(body.data.map(({ payload }: any) => payload.after)).toEqual([false, true]);
  });
});
