import { Type } from 'typebox';
import { validatorOf } from '../http/validation.js';
import { parseJson } from '../lib/json.js';
import { PullError } from './pull-error.js';

const Text = Type.String({ pattern: '^[^\\0]*$' });
const Words = Type.Optional(Type.Union([Type.Null(), Type.Array(Text)]));
const Names = Type.Optional(Type.Union([Type.Null(), Type.Record(Type.String(), Type.Unknown())]));

const isConfig = validatorOf(
  Type.Object({
    Env: Words,
    Cmd: Words,
    Entrypoint: Words,
    User: Type.Optional(Text),
    WorkingDir: Type.Optional(Text),
    StopSignal: Type.Optional(Text),
    ExposedPorts: Names,
    Volumes: Names,
  }),
);
const isDocument = validatorOf(Type.Object({ config: Type.Optional(Type.Unknown()) }));

/** The part of a configuration that is about programs. */
export interface ImageConfig {
  /** Such as `PATH=/bin`. */
  env: string[];
  cmd: string[];
  entrypoint: string[];
  /** Empty: root. */
  user: string;
  /** Empty: the top of the file system. */
  workdir: string;
  stopSignal: string | null;
  /** Such as `80/tcp`. */
  exposedPorts: string[];
  volumes: string[];
}

/** Reads the document of an image. Throws PullError. */
export function readImageConfig(bytes: Buffer): ImageConfig {
  const document = parseJson(bytes.toString());
  if (!isDocument(document)) refuse();
  return imageConfigOf(document.config ?? {});
}

function refuse(): never {
  throw new PullError('broken', 'the configuration of the image is invalid');
}

/** Reads the `config` of such a document, which Docker also tells of its images. Throws PullError. */
export function imageConfigOf(config: unknown): ImageConfig {
  if (!isConfig(config)) refuse();
  const { Env, Cmd, Entrypoint, User, WorkingDir, StopSignal, ExposedPorts, Volumes } = config;
  return {
    env: Env ?? [],
    cmd: Cmd ?? [],
    entrypoint: Entrypoint ?? [],
    user: User ?? '',
    workdir: WorkingDir ?? '',
    stopSignal: StopSignal ?? null,
    exposedPorts: Object.keys(ExposedPorts ?? {}),
    volumes: Object.keys(Volumes ?? {}),
  };
}

/** The inverse of `readImageConfig`, as the `config` of a configuration. */
export function configDocument(config: ImageConfig): Record<string, unknown> {
  const { env, cmd, entrypoint, user, workdir, stopSignal, exposedPorts, volumes } = config;
  const names = (list: readonly string[]) => Object.fromEntries(list.map((name) => [name, {}]));
  return {
    ...(user === '' ? {} : { User: user }),
    ...(exposedPorts.length === 0 ? {} : { ExposedPorts: names(exposedPorts) }),
    ...(env.length === 0 ? {} : { Env: env }),
    ...(entrypoint.length === 0 ? {} : { Entrypoint: entrypoint }),
    ...(cmd.length === 0 ? {} : { Cmd: cmd }),
    ...(volumes.length === 0 ? {} : { Volumes: names(volumes) }),
    ...(workdir === '' ? {} : { WorkingDir: workdir }),
    ...(stopSignal === null ? {} : { StopSignal: stopSignal }),
  };
}
