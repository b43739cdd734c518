import { execFileSync } from 'node:child_process';
import { mkdtempSync, truncateSync, writeFileSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import type { RunSpec } from '../../src/spec/run-spec.js';
import { drive } from '../support/microvm/machine.js';
import { describeMicrovm } from '../support/microvm/needs.js';
import { makeFolder, script, startRun } from '../support/microvm/runs.js';

describeMicrovm('the devices of a virtual machine', () => {
  test('mounts disk images by the file systems that they have', async () => {
    const directory = makeFolder();
    const makers: Record<string, (file: string) => string[]> = {
      ext4: (file) => ['mke2fs', '-q', '-t', 'ext4', file],
      erofs: (file) => ['mkfs.erofs', file, mkdtempSync(join(directory, 'empty-'))],
    };
    const types = Object.keys(makers);
    const devices = types.flatMap((type, index) => {
      const file = join(directory, type);
      writeFileSync(file, '');
      truncateSync(file, 16 * 1024 * 1024);
      const [program, ...args] = makers[type]!(file);
      execFileSync(program!, args, { stdio: 'ignore' });
      return drive(`image${index}`, 'raw', file, type === 'erofs');
    });
    const mounts = types.map((type): RunSpec['mounts'][number] => ({
      type: 'disk_image',
      host: type,
      volumeId: '',
      guest: `/images/${type}`,
      format: 'raw',
      options: type === 'ext4' ? { nosuid: true, nodev: true, noexec: true } : { readonly: true },
    }));
    const text =
      'grep " /images/" /proc/mounts | cut -d" " -f2-4; for i in /images/*; do touch $i/x; done; ls /images/*';
    const machine = await startRun({ ...script(text), endsWithCommand: true, mounts }, { devices });
    expect(await machine.line('exit')).toBe('exit 0 0');
    await machine.ended;
    const [ext4, erofs, ...rest] = machine.output.stdout().split('\n');
    expect(ext4).toMatch(/^\/images\/ext4 ext4 rw,nosuid,nodev,noexec,/);
    expect(erofs).toMatch(/^\/images\/erofs erofs ro,/);
    expect(rest.join(' ')).toBe('/images/erofs:  /images/ext4: lost+found x ');
    expect(machine.output.stderr().match(/Read-only file system/g)).toHaveLength(1);
  });

  test('are one interface with one address, whose traffic goes to the gateway', async () => {
    const server = createServer((socket) => void socket.end('through the gateway\n'));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => void server.close());
    const { port } = server.address() as AddressInfo;
    const text = `ip -o addr; ip route; cat /sys/class/net/eth0/mtu /sys/class/net/eth0/address
      nc 10.0.2.2 ${port} </dev/null`;
    const machine = await startRun(
      { ...script(text), endsWithCommand: true },
      {
        network: { address: '10.0.2.15', gateway: '10.0.2.2', mtu: 1400 },
        devices: [
          ['-netdev', 'user,id=net,ipv6=off'],
          ['-device', 'virtio-net-device,netdev=net,mac=02:00:00:00:00:07'],
        ].flat(),
      },
    );
    expect(await machine.line('exit')).toBe('exit 0 0');
    await machine.ended;
    expect(machine.output.stdout().replaceAll(/ +/g, ' ').split('\n')).toEqual([
      expect.stringMatching(/^1: lo inet 127\.0\.0\.1\/8 /),
      expect.stringMatching(/^1: lo inet6 ::1\/128 /),
      expect.stringMatching(/^2: eth0 inet 10\.0\.2\.15\/32 /),
      expect.stringMatching(/^default via 10\.0\.2\.2 dev eth0/),
      expect.stringMatching(/^10\.0\.2\.2 dev eth0/),
      '1400',
      '02:00:00:00:00:07',
      'through the gateway',
      '',
    ]);
  });
});
