import { readFile } from 'node:fs/promises';
import { Type, type Static } from 'typebox';
import { Value } from 'typebox/value';
import { parseJson } from '../../lib/json.js';

/** The configuration of an image, which may be removed meanwhile. Runs use the first fields, and snapshots all. */
export const ImageDefaults = Type.Object({
  env: Type.Array(Type.String()),
  entrypoint: Type.Array(Type.String()),
  user: Type.String(),
  workdir: Type.String(),
  stopSignal: Type.Union([Type.String(), Type.Null()]),
  cmd: Type.Optional(Type.Array(Type.String())),
  exposedPorts: Type.Optional(Type.Array(Type.String())),
  volumes: Type.Optional(Type.Array(Type.String())),
});

/** A sandbox, in its own directory. */
const Identity = Type.Object({
  orgId: Type.String(),
  sandboxId: Type.String(),
  /** The run for which its disk was made. */
  firstRunId: Type.String(),
  imageDigest: Type.String(),
  /** The size of its disk. Absent: a release before this one made it. */
  diskMib: Type.Optional(Type.Integer()),
  /** How many layers of snapshots its disk has below it. Absent: none. */
  layers: Type.Optional(Type.Integer()),
  image: ImageDefaults,
});
export type Identity = Static<typeof Identity>;

/** The latest run of a sandbox, written before its supervisor starts. */
const RunFile = Type.Object({
  runId: Type.String(),
  /** The user of its monitor. */
  user: Type.Integer(),
  /** Commands run in it. */
  workdir: Type.String(),
  /** The name of its link on the machine. Absent: it has no network. */
  link: Type.Optional(Type.String()),
  /** The ports of this machine that lead to it. Absent: none. */
  ports: Type.Optional(
    Type.Array(
      Type.Object({
        guest_port: Type.Integer(),
        host_port: Type.Integer(),
        host_bind: Type.String(),
        protocol: Type.Union([Type.Literal('tcp'), Type.Literal('udp')]),
      }),
    ),
  ),
  /** The files of its disk images. Absent: it has none. */
  diskImages: Type.Optional(
    Type.Array(
      Type.Object({
        file: Type.String(),
        isReadonly: Type.Boolean(),
        folders: Type.Optional(Type.Array(Type.String())),
      }),
    ),
  ),
  /** The directories of volumes that it mounts. Absent: none. */
  folders: Type.Optional(Type.Array(Type.Object({ folder: Type.String(), isReadonly: Type.Boolean() }))),
  /** The machine as a monitor must make it again to continue its memory. Absent: an earlier release has started it. */
  shape: Type.Optional(Type.String()),
  memoryMib: Type.Optional(Type.Integer()),
  /** The size of its disk. Absent: an earlier release has started it. */
  diskMib: Type.Optional(Type.Integer()),
  /** Its supervisor can hold its processors. Absent: an earlier release has started it. */
  canHold: Type.Optional(Type.Literal(true)),
});
export type RunFile = Static<typeof RunFile>;

/** Undefined: there is no such file, or a crash left half of it. */
export async function readIdentity(path: string): Promise<Identity | undefined> {
  return checked(Identity, await readText(path));
}

export async function readRunFile(path: string): Promise<RunFile | undefined> {
  return checked(RunFile, await readText(path));
}

function checked<T extends Type.TSchema>(schema: T, text: string | undefined): Static<T> | undefined {
  const value = text === undefined ? undefined : parseJson(text);
  return Value.Check(schema, value) ? value : undefined;
}

/** Undefined: there is no such file. */
export async function readText(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR') return undefined;
    throw error;
  }
}
