import type Docker from 'dockerode';
import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { SANDBOX_LABEL } from '../../src/engines/docker/container.js';
import { DirectPorts } from '../../src/engines/docker/ports/direct-ports.js';
import { GuestInit } from '../../src/engines/docker/guest-init.js';
import { INIT_PROGRAM } from '../../src/guest/programs.js';
import { DockerGuests } from '../../src/engines/docker/guests.js';
import type { Guest } from '../../src/guest/guest.js';
import type { Census, GuestTarget } from '../engines/guest/target.js';
import { docker, IMAGE, SOCKET } from './docker.js';
import { sh } from './guest.js';

/** As in `src/engines/docker/container.ts`. */
const CAPABILITIES = ['CHOWN', 'DAC_OVERRIDE', 'FOWNER', 'KILL', 'SETGID', 'SETUID'];

/** A container with the options of a sandbox. */
export interface TestSandbox {
  container: Docker.Container;
  guests: DockerGuests;
  open(): Promise<Guest>;
  remove(): Promise<void>;
}

export interface SandboxOptions extends Docker.ContainerCreateOptions {
  /** Default: those of the default security profile. */
  capabilities?: string[];
  /** Default: process 1 starts the agent. */
  byEngine?: boolean;
}

export async function startSandbox(options: SandboxOptions = {}): Promise<TestSandbox> {
  const { capabilities = CAPABILITIES, byEngine = false, HostConfig = {}, ...more } = options;
  const init = new GuestInit(docker, ((await docker.info()) as { Architecture: string }).Architecture);
  await init.ensureVolume();
  const container = await docker.createContainer({
    Image: IMAGE,
    Entrypoint: [INIT_PROGRAM],
    Cmd: ['--agents'],
    Labels: { [SANDBOX_LABEL]: randomUUID() },
    OpenStdin: true,
    ...more,
    HostConfig: {
      NetworkMode: 'none',
      Mounts: [init.mount],
      CapDrop: ['ALL'],
      CapAdd: capabilities,
      SecurityOpt: ['no-new-privileges'],
      PidsLimit: 1024,
      ...HostConfig,
    },
  });
  await container.start();
  const ports = byEngine
    ? undefined
    : new DirectPorts({ instanceId: randomUUID(), find: async () => undefined });
  const guests = new DockerGuests(docker, ports);
  return {
    container,
    guests,
    open: async () => (await guests.open(container.id)).guest,
    remove: async () => {
      guests.close();
      ports?.close();
      await container.remove({ force: true });
    },
  };
}

/** Links of every applet of busybox in /bin, and a /tmp for every user. */
export function installApplets({ id }: Docker.Container): void {
  const install = ['sh', '-c', '/bin/busybox --install -s /bin && chmod 1777 /tmp'];
  execFileSync('docker', ['-H', `unix://${SOCKET}`, 'exec', '-u', '0', id, ...install], { stdio: 'ignore' });
}

export async function openDockerTarget(): Promise<GuestTarget> {
  const sandbox = await startSandbox({ Env: ['COLOUR=blue'] });
  installApplets(sandbox.container);
  const guest = await sandbox.open();
  return {
    guest,
    directory: await sh(guest, 'mktemp -d /tmp/XXXXXX'),
    census: () => censusOf(guest),
    close: () => sandbox.remove(),
  };
}

export async function censusOf(guest: Guest): Promise<Census> {
  const script = `
    zombies=0 processes=0
    for stat in /proc/[0-9]*/stat; do
      read -r pid name state rest < $stat 2>/dev/null || continue
      processes=$((processes + 1))
      [ $state = Z ] && zombies=$((zombies + 1))
      [ "$name" = "(agent)" ] && set -- /proc/$pid/fd/*
    done
    echo $processes $zombies $#`;
  const [processes, zombies, descriptors] = (await sh(guest, script)).split(' ').map(Number);
  return { processes: processes!, zombies: zombies!, descriptors: descriptors! };
}
