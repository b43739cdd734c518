import { join } from 'node:path';

/** The part of the data directory that is the engine's. Only the user of the service enters it. */
export const DIRECTORY = 'microvm';

/** The files of one virtual machine. */
export interface SandboxPlaces {
  directory: string;
  identity: string;
  base: string;
  disk: string;
  /** It exists once a run of a disk of a snapshot has begun. Before, the disk has nothing of its own. */
  begun: string;
  /** The supervisor of the latest run works in it. */
  run: string;
  runFile: string;
  /** By the supervisor. */
  record: string;
  alive: string;
  /** The directory of the latest run was moved there when another run began to continue it. */
  paused: string;
  /** The output of the runs; see `output-log.ts`. */
  output: string;
  olderOutput: string;
}

export function sandboxesDirectory(engineDirectory: string): string {
  return join(engineDirectory, 'sandboxes');
}

export function placesOf(engineDirectory: string, sandboxId: string): SandboxPlaces {
  return placesIn(join(sandboxesDirectory(engineDirectory), sandboxId));
}

export function placesIn(directory: string): SandboxPlaces {
  const run = join(directory, 'run');
  return {
    directory,
    identity: join(directory, 'sandbox.json'),
    base: join(directory, 'base.erofs'),
    disk: join(directory, 'disk.qcow2'),
    begun: join(directory, 'begun'),
    run,
    runFile: join(run, 'run.json'),
    record: join(run, 'record'),
    alive: join(run, 'alive'),
    paused: join(directory, 'paused'),
    output: join(directory, 'output'),
    olderOutput: join(directory, 'output.1'),
  };
}

export function snapshotsDirectory(engineDirectory: string): string {
  return join(engineDirectory, 'snapshots');
}

/** A directory for each machine that reads a snapshot. */
export function exportsDirectory(engineDirectory: string): string {
  return join(engineDirectory, 'exports');
}

/** Supervisors write to it at each change. */
export function changesFile(engineDirectory: string): string {
  return join(engineDirectory, 'changes');
}
