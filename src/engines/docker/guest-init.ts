import type Docker from 'dockerode';
import { finished } from 'node:stream/promises';
import { pack } from 'tar-stream';
import { ExplainedError } from '../../lib/explained-error.js';
import { BUILDS, INIT_PROGRAM, PROGRAMS_DIRECTORY, readPrograms, versionOf } from '../../guest/programs.js';
import {
  ALREADY_REMOVED,
  CONFLICT,
  engineMessage,
  ignoreStatus,
  NOT_FOUND,
  NOT_MODIFIED,
  statusOf,
} from './errors.js';

/** All installations on an engine share the objects with this label. */
export const INIT_LABEL = 'dev.sandkeep.init';

const ATTEMPTS = 3;

/**
 * Process 1 of every container, from `guest/init/main.c`. Sandboxes cannot change it: they have files of their own,
 * mounted read-only. Where the engine does not see mounts of the service, they share a read-only volume.
 */
export class GuestInit {
  readonly image: string;
  /** Also the name of the filler container. */
  readonly volume: string;
  readonly programs: ReadonlyMap<string, Buffer>;
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
    this.programs = readPrograms(build);
    const version = versionOf(this.programs);
    this.image = `sandkeep/init:${version}`;
    this.volume = `${name}-${version}`;
  }

  /** Creates a container of the image. The removal of another installation may take the image away at any moment. */
  async createContainer(options: Docker.ContainerCreateOptions): Promise<void> {
    for (let left = ATTEMPTS - 1; ; left -= 1) {
      await this.ensureImage();
      try {
        await this.docker.createContainer({ ...options, Image: this.image });
        return;
      } catch (error) {
        if (statusOf(error) !== NOT_FOUND || left === 0) throw error;
      }
    }
  }

  protected async ensureImage(): Promise<void> {
    try {
      await this.docker.getImage(this.image).inspect();
      return;
    } catch (error) {
      if (statusOf(error) !== NOT_FOUND) throw error;
    }
    const archive = pack();
    archive.entry({ name: '.sandkeep', type: 'directory', mode: 0o755 });
    archive.entry({ name: PROGRAMS_DIRECTORY.slice(1), type: 'directory', mode: 0o755 });
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
      Type: 'volume' as const,
      Source: this.volume,
      Target: PROGRAMS_DIRECTORY,
      ReadOnly: true,
      VolumeOptions: { NoCopy: true, Labels: {}, DriverConfig: { Name: '', Options: {} } },
    };
  }

  private async ensureFilled(): Promise<void> {
    for (let left = ATTEMPTS - 1; !(await this.isFilled()); left -= 1) {
      const failure = await this.fill();
      if (failure === undefined) return;
      if (left === 0)
        throw new Error(`the engine cannot run ${INIT_PROGRAM} in the container ${this.volume}: ${failure}`);
      // The engine died during an earlier copy, or another installation is being removed.
      await this.docker
        .getContainer(this.volume)
        .remove({ force: true })
        .catch(ignoreStatus(...ALREADY_REMOVED));
      await this.docker
        .getVolume(this.volume)
        .remove()
        .catch(ignoreStatus(...ALREADY_REMOVED));
    }
  }

  private async isFilled(): Promise<boolean> {
    const found = await this.docker.getContainer(this.volume).inspect().catch(ignoreStatus(NOT_FOUND));
    return found !== undefined && found.State.Status === 'exited' && found.State.ExitCode === 0;
  }

  private async fill(): Promise<string | undefined> {
    await this.docker.createVolume({ Name: this.volume, Labels: { [INIT_LABEL]: 'volume' } });
    const { mount } = this;
    await this.createContainer({
      name: this.volume,
      Entrypoint: [INIT_PROGRAM],
      Cmd: ['--check'],
      Labels: { [INIT_LABEL]: 'container' },
      HostConfig: {
        Mounts: [{ ...mount, ReadOnly: false, VolumeOptions: { ...mount.VolumeOptions, NoCopy: false } }],
        NetworkMode: 'none',
        CapDrop: ['ALL'],
        SecurityOpt: ['no-new-privileges'],
        ReadonlyRootfs: true,
        LogConfig: { Type: 'none', Config: {} },
        RestartPolicy: { Name: 'no' },
      },
    }).catch(ignoreStatus(CONFLICT));
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
