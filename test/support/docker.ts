import Docker from 'dockerode';
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { extract } from 'tar-stream';
import { describe } from 'vitest';

export const SOCKET = process.env['SANDKEEP_DOCKER_SOCKET'] ?? '/var/run/docker.sock';
export const docker = new Docker({ socketPath: SOCKET });
/** Built from the machine's static busybox, so no registry is needed. */
export const IMAGE = 'sandkeep-test:busybox';

const BUSYBOX = '/bin/busybox';
const APPLETS = [
  'sh',
  'sleep',
  'cat',
  'echo',
  'env',
  'id',
  'pwd',
  'true',
  'false',
  'ls',
  'touch',
  'mount',
  'ip',
  'dd',
  'yes',
  'head',
  'tail',
  'tr',
  'rm',
];

const reason = await whyNot();
export const hasDocker = reason === undefined;
const CONTENT = createHash('sha256')
  .update(existsSync(BUSYBOX) ? readFileSync(BUSYBOX) : '')
  .update(APPLETS.join(' '))
  .digest('hex');

/**
 * Tests against a real engine. Without one they are skipped with the reason; with SANDKEEP_TEST_DOCKER=required, as
 * in CI, they fail.
 */
export const describeDocker =
  reason === undefined || process.env['SANDKEEP_TEST_DOCKER'] === 'required'
    ? describe
    : (name: string, body: () => void) => describe.skip(`${name} — SKIPPED: ${reason}`, body);

if (reason !== undefined) console.warn(`the tests of the Docker runtime are SKIPPED: ${reason}`);

async function whyNot(): Promise<string | undefined> {
  try {
    await docker.ping();
  } catch {
    return `no Docker engine answers on ${SOCKET} (on Debian: apt-get install docker.io)`;
  }
  return existsSync(BUSYBOX)
    ? undefined
    : `there is no ${BUSYBOX} (on Debian: apt-get install busybox-static)`;
}

/**
 * An image that holds only busybox, without a command. It is made once, because other tests use it at the same time.
 */
export function makeImage(socket = SOCKET): void {
  if (commentOfImage(socket) === CONTENT) return;
  makeBusybox(IMAGE, { socket, comment: CONTENT });
}

function commentOfImage(socket: string): string {
  const args = ['-H', `unix://${socket}`, 'image', 'inspect', '--format', '{{ .Comment }}', IMAGE];
  return spawnSync('docker', args, { encoding: 'utf8' }).stdout.trim();
}

interface ImportOptions {
  /** An instruction of a Dockerfile. */
  change?: string;
  comment?: string;
  socket?: string;
}

/** An image that holds only busybox. */
export function makeBusybox(name: string, options: ImportOptions = {}): void {
  const root = mkdtempSync(join(tmpdir(), 'sandkeep-image-'));
  for (const folder of ['bin', 'tmp', 'etc', 'srv']) mkdirSync(join(root, folder));
  cpSync(BUSYBOX, join(root, 'bin', 'busybox'));
  for (const applet of APPLETS) symlinkSync('busybox', join(root, 'bin', applet));
  importImage(root, name, options);
  rmSync(root, { recursive: true });
}

/** An image of the files in a folder. */
export function importImage(
  root: string,
  name: string,
  { change, comment = '', socket = SOCKET }: ImportOptions = {},
): void {
  if (reason !== undefined) throw new Error(reason);
  const changes = change === undefined ? [] : ['--change', change];
  execFileSync(
    'sh',
    [
      '-c',
      'root=$1 socket=$2; shift 2; tar -C "$root" -c . | docker -H "unix://$socket" import "$@"',
      'sh',
      root,
      socket,
      '--message',
      comment,
      ...changes,
      '-',
      name,
    ],
    { stdio: ['ignore', 'ignore', 'inherit'] },
  );
}

/** The container of a sandbox, found by a label of the service. */
export async function containerOf(sandboxId: string): Promise<Docker.Container | undefined> {
  const found = await docker.listContainers({
    all: true,
    filters: { label: [`dev.sandkeep.sandbox=${sandboxId}`] },
  });
  return found[0] && docker.getContainer(found[0].Id);
}

/** Runs a command inside and returns its output. */
export async function execIn(sandboxId: string, ...command: string[]): Promise<string> {
  const container = await containerOf(sandboxId);
  const exec = await container!.exec({ Cmd: command, AttachStdout: true, AttachStderr: true });
  const stream = await exec.start({ Tty: true });
  let text = '';
  for await (const chunk of stream) text += String(chunk);
  // Without a terminal the engine puts an eight byte header before each piece.
  return text.replace(/[\u0000-\u0002]\u0000\u0000\u0000[\s\S]{4}/g, '');
}

/** The targets of the descriptors of the agent, which shows them to no process of the sandbox. */
export async function agentFiles(sandboxId: string): Promise<string[]> {
  const container = await containerOf(sandboxId);
  const { Processes } = (await container!.top({ ps_args: '-eo pid,comm' })) as { Processes: string[][] };
  return Processes.filter(([, name]) => name === 'agent').flatMap(([pid]) =>
    readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
      try {
        return readlinkSync(`/proc/${pid}/fd/${fd}`);
      } catch {
        return [];
      }
    }),
  );
}

/**
 * A file of a stopped container. An archive of one path would need the files of process 1, which exist only during a
 * start.
 */
export async function exportedFile(container: Docker.Container, path: string): Promise<string> {
  let text = '';
  const files = extract().on('entry', ({ name }, content, next) => {
    content.on('data', (chunk) => (text += name === path ? String(chunk) : '')).on('end', next);
  });
  await pipeline(await container.export(), files);
  return text;
}
