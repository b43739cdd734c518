import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, truncateSync, writeFileSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import type { RunSpec } from '../../src/spec/run-spec.js';
import { drive } from '../support/microvm/machine.js';
import { describeMicrovm } from '../support/microvm/needs.js';
import { makeFolder, script, startRun } from '../support/microvm/runs.js';
import { until } from '../support/polling.js';

/** Debian 12 has it beside QEMU, and later releases in a package of its own. */
const VIRTIOFSD = ['/usr/lib/qemu/virtiofsd', '/usr/libexec/virtiofsd'].find((path) => existsSync(path));

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

  test.runIf(VIRTIOFSD)('show directories of the service as volumes', async () => {
    const directory = makeFolder();
    const options = [{}, { readonly: true, noexec: true, nosuid: true, nodev: true }];
    const devices = options.flatMap((_, index) => {
      const [source, socket] = [join(directory, `volume${index}`), join(directory, `socket${index}`)];
      mkdirSync(source, { mode: 0o777 });
      writeFileSync(join(source, 'run'), '#!/bin/sh\necho from a volume\n', { mode: 0o755 });
      const server = spawn(VIRTIOFSD!, ['-f', `--socket-path=${socket}`, '-o', `source=${source}`], {
        stdio: 'ignore',
      });
      onTestFinished(() => void server.kill('SIGKILL'));
      return [
        ['-chardev', `socket,id=fs${index},path=${socket}`],
        ['-device', `vhost-user-fs-device,chardev=fs${index},tag=volume${index}`],
      ].flat();
    });
    await until(
      async () =>
        Promise.resolve(options.filter((_, index) => !existsSync(join(directory, `socket${index}`)))),
      (missing) => missing.length === 0,
    );
    const mounts = options.map((flags, index): RunSpec['mounts'][number] => ({
      type: 'named',
      name: `v${index}`,
      volumeId: `v${index}`,
      guest: `/v/${index}`,
      options: flags,
    }));
    const text =
      'grep " /v/" /proc/mounts | cut -d" " -f1-4; for v in /v/*; do $v/run; echo x >$v/written; done; true';
    const machine = await startRun(
      { ...script(text), endsWithCommand: true, mounts },
      {
        devices: [
          [
            '-object',
            'memory-backend-memfd,id=memory,size=192M,share=on',
            '-machine',
            'memory-backend=memory',
          ],
          ['-global', 'virtio-mmio.force-legacy=false'],
          devices,
        ].flat(),
      },
    );
    expect(await machine.line('exit')).toBe('exit 0 0');
    await machine.ended;
    expect(machine.output.stdout().split('\n')).toEqual([
      expect.stringMatching(/^volume0 \/v\/0 virtiofs rw,relatime$/),
      expect.stringMatching(/^volume1 \/v\/1 virtiofs ro,nosuid,nodev,noexec,relatime$/),
      'from a volume',
      '',
    ]);
    expect(machine.output.stderr()).toMatch(/\/v\/1\/run: (Permission denied|not found)/);
    expect(machine.output.stderr()).toMatch(/\/v\/1\/written: Read-only file system/);
    expect(readFileSync(join(directory, 'volume0/written'), 'utf8')).toBe('x\n');
    expect(existsSync(join(directory, 'volume1/written'))).toBe(false);
  });
});
