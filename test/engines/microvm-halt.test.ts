import { expect, test } from 'vitest';
import { holdProcessors } from '../../src/engines/microvm/hold.js';
import { requestSave } from '../../src/engines/microvm/supervisor.js';
import { describeSupervisor, READY, supervise } from '../support/fake-monitor.js';
import { until } from '../support/polling.js';

const STOPS = `echo '{"timestamp": {}, "event": "STOP"}' >&6`;
const RUNS = `echo '{"timestamp": {}, "event": "RESUME"}' >&6`;
const REFUSES = `echo '{"error": {"class": "GenericError", "desc": "Resetting the Virtual Machine is required"}}' >&6`;
const WORDS = 'the monitor has stopped the processors';

describeSupervisor('processors that the monitor stops by itself', () => {
  const begin = (script: string) => supervise(`${READY} ${script}`);

  test('are told to run until they do, and again after the next time', async () => {
    const vm = begin(`
      ${STOPS}; read -r first <&6; ${RUNS}; read -r clock <&7
      ${STOPS}; read -r second <&6; read -r third <&6; ${RUNS}
      echo "said $first $second $third"; sleep 3`);
    const { end } = await vm.untilRecord((record) => record.end !== undefined);
    // It ended by itself: running processors are told nothing.
    expect(end).toMatchObject({ status: 0, stop: 'none' });
    expect(/^said (.*)$/m.exec(vm.console())?.[1]!.match(/"cont"/g)).toHaveLength(3);
    // Each second would fill the console.
    expect(vm.console().split(WORDS)).toHaveLength(2);
  });

  test('end the run where the monitor cannot let them run again', async () => {
    const vm = begin(`${STOPS}; read -r command <&6; ${REFUSES}; sleep 600`);
    const { end } = await vm.untilRecord((record) => record.end !== undefined);
    expect(end).toMatchObject({ status: 9, stop: 'none' });
    expect(vm.console()).toContain(WORDS);
  });

  test('run on after a refusal that nobody asked for', async () => {
    const vm = begin(`${REFUSES}; echo 'end 3 0 2' >&7; sleep 600`);
    await vm.untilRecord(({ command }) => command !== undefined);
    expect((await vm.record())!.end).toBeUndefined();
  });

  test('are in no capture and no pause', async () => {
    const vm = begin(`${STOPS}; while read -r command <&6; do :; done`);
    await until(
      async () => Promise.resolve(vm.console()),
      (text) => text.includes(WORDS),
    );
    const reason = 'its processors have stopped; the disk of the machine may be full';
    await expect(holdProcessors(vm.places.run, new AbortController().signal)).rejects.toThrow(reason);
    await expect(requestSave(vm.places.run, 60_000)).rejects.toThrow(reason);
  });
});
