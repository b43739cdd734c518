import type Docker from 'dockerode';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { constants } from 'node:os';
import { basename, join } from 'node:path';
import { finished } from 'node:stream/promises';
import { pack } from 'tar-stream';
import { ExplainedError } from '../../lib/explained-error.js';
import { PACKAGE_ROOT } from '../../lib/package-root.js';
import {
  ALREADY_REMOVED,
  CONFLICT,
  engineMessage,
  ignoreStatus,
  NOT_FOUND,
  NOT_MODIFIED,
  statusOf,
} from './errors.js';

/** Process 1 of every container, from `guest/init.c`. Sandboxes cannot change it: they mount its volume read-only. */

const DIRECTORY = '/.sandkeep/bin';
export const INIT_PROGRAM = `${DIRECTORY}/init`;
/** Started on first use; see guest/agent.c. */
export const AGENT_PROGRAM = `${DIRECTORY}/agent`;
/** All installations on an engine share the objects with this label. */
export const INIT_LABEL = 'dev.sandkeep.init';

const BUILDS: Record<string, string> = {
  x86_64: 'x86_64',
  amd64: 'x86_64',
  aarch64: 'aarch64',
  arm64: 'aarch64',
};

/** C libraries reserve the real-time signals below 34. */
const FIRST_REALTIME = 34;
const LAST_REALTIME = 64;

const MIB = 1024 * 1024;
/** The output of a command in bytes, a second and at once. A line counts 128 bytes more than it has. */
export const OUTPUT = { rate: MIB, burst: 8 * MIB };

export interface InitOptions {
  command: readonly string[];
  untilExit: boolean;
  stopSignal: number;
  output?: typeof OUTPUT;
}

export class GuestInit {
  readonly image: string;
  /** Also the name of the filler container. */
  readonly volume: string;
  private readonly programs: ReadonlyMap<string, Buffer>;
  private filling: Promise<void> | undefined;

  constructor(
    private readonly docker: Docker,
    architecture: string,
    name = 'sandkeep-init',
  ) {
    const build = BUILDS[architecture];
    if (build === undefined) {
      const known = Object.keys(BUILDS).join(', ');
      throw new ExplainedError(`the Docker engine runs on ${architecture}; sandboxes need one of ${known}`);
    }
    this.programs = new Map(
      [INIT_PROGRAM, AGENT_PROGRAM].map((path) => [
        path,
        readFileSync(join(PACKAGE_ROOT, 'guest', `${basename(path)}-${build}`)),
      ]),
    );
    const hash = createHash('sha256');
    for (const program of this.programs.values()) hash.update(program);
    const version = hash.digest('hex').slice(0, 12);
    this.image = `sandkeep/init:${version}`;
    this.volume = `${name}-${version}`;
  }

  async ensureImage(): Promise<void> {
    try {
      await this.docker.getImage(this.image).inspect();
      return;
    } catch (error) {
      if (statusOf(error) !== NOT_FOUND) throw error;
    }
    const archive = pack();
    archive.entry({ name: '.sandkeep', type: 'directory', mode: 0o755 });
    archive.entry({ name: DIRECTORY.slice(1), type: 'directory', mode: 0o755 });
    for (const [path, program] of this.programs) archive.entry({ name: path.slice(1), mode: 0o755 }, program);
    archive.finalize();
    const [repo, tag] = this.image.split(':');
    const answer = await this.docker.importImage(archive, {
      repo,
      tag,
      changes: [`LABEL ${INIT_LABEL}=image`],
    });
    answer.resume();
    await finished(answer);
  }

  /**
   * The engine fills the volume from the image when the container mounts it. A run of the program proves the copy
   * complete.
   */
  async ensureVolume(): Promise<void> {
    this.filling ??= this.ensureFilled().finally(() => (this.filling = undefined));
    await this.filling;
  }

  get mount() {
    return {
      ...{ Type: 'volume' as const, Source: this.volume, Target: DIRECTORY, ReadOnly: true },
      VolumeOptions: { NoCopy: true, Labels: {}, DriverConfig: { Name: '', Options: {} } },
    };
  }

  private async ensureFilled(): Promise<void> {
    if (await this.isFilled()) return;
    await this.ensureImage();
    if ((await this.fill()) === undefined) return;
    // The engine died during an earlier copy.
    await this.docker
      .getContainer(this.volume)
      .remove({ force: true })
      .catch(ignoreStatus(...ALREADY_REMOVED));
    await this.docker
      .getVolume(this.volume)
      .remove()
      .catch(ignoreStatus(...ALREADY_REMOVED));
    const failure = await this.fill();
    if (failure === undefined) return;
    throw new Error(`the engine cannot run ${INIT_PROGRAM} in the container ${this.volume}: ${failure}`);
  }

  private async isFilled(): Promise<boolean> {
    const found = await this.docker.getContainer(this.volume).inspect().catch(ignoreStatus(NOT_FOUND));
    return found !== undefined && found.State.Status === 'exited' && found.State.ExitCode === 0;
  }

  private async fill(): Promise<string | undefined> {
    await this.docker.createVolume({ Name: this.volume, Labels: { [INIT_LABEL]: 'volume' } });
    const { mount } = this;
    await this.docker
      .createContainer({
        name: this.volume,
        Image: this.image,
        Entrypoint: [INIT_PROGRAM],
        Cmd: ['--check'],
        Labels: { [INIT_LABEL]: 'container' },
        HostConfig: {
          Mounts: [{ ...mount, ReadOnly: false, VolumeOptions: { ...mount.VolumeOptions, NoCopy: false } }],
          ...{
            NetworkMode: 'none',
            CapDrop: ['ALL'],
            SecurityOpt: ['no-new-privileges'],
            ReadonlyRootfs: true,
          },
          ...{ LogConfig: { Type: 'none', Config: {} }, RestartPolicy: { Name: 'no' } },
        },
      })
      .catch(ignoreStatus(CONFLICT));
    try {
      const container = this.docker.getContainer(this.volume);
      await container.start().catch(ignoreStatus(NOT_MODIFIED));
      const { StatusCode } = (await container.wait()) as { StatusCode: number };
      return StatusCode === 0 ? undefined : `it ended with code ${StatusCode}`;
    } catch (error) {
      if (statusOf(error) === undefined) throw error;
      return engineMessage(error);
    }
  }
}

export function initArguments({ command, untilExit, stopSignal, output = OUTPUT }: InitOptions): string[] {
  if (command.length === 0) return [];
  return [
    ...(untilExit ? ['--until-exit'] : []),
    `--stop-signal=${stopSignal}`,
    `--output-rate=${output.rate}`,
    `--output-burst=${output.burst}`,
    ...['--', ...command],
  ];
}

/** Accepts `SIGQUIT`, `quit`, `3` and `RTMIN+3`. Default: SIGTERM. */
export function signalNumber(name: string | undefined): number {
  const { signals } = constants;
  const word = (name ?? '').toUpperCase().replace(/^SIG/, '');
  const [, edge, offset = '0'] = /^(RTMIN|RTMAX)([+-]\d+)?$/.exec(word) ?? [];
  const number = edge
    ? (edge === 'RTMIN' ? FIRST_REALTIME : LAST_REALTIME) + Number(offset)
    : Number(word) || signals[`SIG${word}` as NodeJS.Signals];
  return number >= 1 && number <= LAST_REALTIME ? number : signals.SIGTERM;
}
