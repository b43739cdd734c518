import { expect, test } from 'vitest';
import { holdProcessors } from '../../src/engines/microvm/hold.js';
import { connectIn, requestSave, requestStop } from '../../src/engines/microvm/supervisor.js';
import { describeSupervisor, READY, supervise, type Supervised } from '../support/fake-monitor.js';
import { until } from '../support/polling.js';

/** A monitor and a sandbox that do what they are asked, and log it. The second resumption ends them. */
const HELD = `${READY}
  (while read -r word <&7; do [ "$word" = sync ] && echo 'said sync' && echo synced >&7; done) &
  for round in 1 2; do
    while read -r command <&6; do
      case $command in
        *'"stop"'*) echo 'said stop'; echo '{"timestamp": {}, "event": "STOP"}' >&6 ;;
        *'"cont"'*) echo 'said cont'; echo '{"timestamp": {}, "event": "RESUME"}' >&6; break ;;
      esac
    done
  done`;

const commandsOf = (vm: Supervised) => [...vm.console().matchAll(/^said (.+)$/gm)].map(([, word]) => word);

describeSupervisor('the processors of a virtual machine', () => {
  test('stand still after the sandbox has written its files, while its client is connected', async () => {
    const vm = supervise(HELD);
    await vm.untilRecord(({ readyAt }) => readyAt !== undefined);
    const { signal } = new AbortController();
    const hold = await holdProcessors(vm.places.run, signal);
    await expect(holdProcessors(vm.places.run, signal)).rejects.toThrow(
      'another process captures the sandbox',
    );
    await expect(requestSave(vm.places.run, 60_000)).rejects.toThrow('a snapshot of it is being made');
    await until(
      async () => Promise.resolve(commandsOf(vm)),
      (commands) => commands.join(' ') === 'sync stop',
    );
    expect(hold.isLost()).toBe(false);
    hold.release();
    await until(
      async () => Promise.resolve(commandsOf(vm)),
      (commands) => commands.join(' ') === 'sync stop cont',
    );
    // A stop ends it, and the client learns that the disk has changed.
    const next = await holdProcessors(vm.places.run, signal);
    expect(await requestStop(vm.places.run, 60_000)).toBe(true);
    await until(
      async () => Promise.resolve(next.isLost()),
      (isLost) => isLost,
    );
    await until(
      async () => Promise.resolve(commandsOf(vm)),
      (commands) => commands.join(' ') === 'sync stop cont sync stop cont',
    );
    await expect(holdProcessors(vm.places.run, signal)).rejects.toThrow(
      'the sandbox ended before its capture',
    );
  });

  test('run again when the client of a hold goes without a word', async () => {
    const vm = supervise(HELD);
    await vm.untilRecord(({ readyAt }) => readyAt !== undefined);
    const socket = await connectIn(vm.places.run, 'supervisor.sock');
    socket.on('error', () => undefined).write('hold\n');
    await until(
      async () => Promise.resolve(commandsOf(vm)),
      (commands) => commands.join(' ') === 'sync stop',
    );
    socket.destroy();
    const commands = await until(
      async () => Promise.resolve(commandsOf(vm)),
      (found) => found.length > 2,
    );
    expect(commands).toEqual(['sync', 'stop', 'cont']);
  });
});
