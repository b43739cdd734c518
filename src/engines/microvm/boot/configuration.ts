import { Buffer } from 'node:buffer';
import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import {
  BOOT,
  BOOT_MOUNT,
  BOOT_PATCH,
  LAYOUT,
  LIMIT,
  MOUNT_FLAG,
  PATCH_FLAG,
} from '../../../guest/protocol.js';
import { encode, RequestWriter } from '../../../guest/wire.js';

/** The sandbox of a machine. See `BOOT` for the format, and `guest/boot` for its reader. */
export interface BootConfiguration {
  hostName: string;
  /** As on Docker. Null: root. */
  user: string | null;
  /** Made for the user, with its parents, where it is missing. */
  workdir: string;
  /** Each `NAME=value`. */
  environment: readonly string[];
  /** The arguments of process 1. */
  arguments: readonly string[];
  /** A program of the image that becomes process 1, with ours beside it. Default: none. */
  handoff?: BootHandoff | undefined;
  rlimits: readonly { resource: number; soft: bigint; hard: bigint }[];
  /** The file names of further modules, in the order of loading. */
  modules: readonly string[];
  /** The disk is a new copy of that of another sandbox. Default: false. */
  isCopy?: boolean;
  /** The changes to a new disk, in their order. */
  patches: readonly BootPatch[];
  files: readonly { path: string; mode: number; content: Buffer }[];
  mounts: readonly BootMount[];
  network: BootNetwork | null;
  /** The sandbox gets no capabilities. */
  restricted: boolean;
  /** The machine sends the files of the sandbox, and runs no program of it. Default: false. */
  isArchive?: boolean;
  /** The authorities to add to those of the image. Default: none. */
  trust?: BootTrust | null;
}

export interface BootTrust {
  /** It is in the names of all authorities of the service, also of earlier ones, which leave the bundles. */
  name: string;
  /** In the form of PEM, each with a line break at its end. */
  texts: Buffer;
  /** Files of the sandbox with all authorities. */
  bundles: readonly string[];
  anchors: readonly { directory: string; file: string }[];
  hashed: { directory: string; file: string; link: string; content: Buffer } | null;
  /** A link to the first bundle, or a file where there is none. */
  whole: { path: string; content: Buffer };
}

export interface BootPatch {
  operation: keyof typeof BOOT_PATCH;
  path: string;
  /** The mode of a file or a directory. Null: the default. */
  mode: number | null;
  replace: boolean;
  /** The bytes of a file, or the target of a link. */
  content: Buffer;
}

export interface BootMount {
  /** `shared`, `sharedFile`: by virtiofs. `disk`: a file system on a further disk. */
  kind: keyof typeof BOOT_MOUNT;
  /** The tag of a shared directory or file, or the serial number of a disk. */
  source: string;
  target: string;
  /** The file system of a disk. Null: it is found. */
  fstype: string | null;
  flags: ReadonlySet<keyof typeof MOUNT_FLAG>;
  /** Options of the file system, such as `size=64m`. */
  options: string;
}

export interface BootHandoff {
  /** `auto`: where the kernel looks for it, or systemd. */
  path: string;
  arguments: readonly string[];
  /** Each `NAME=value`. */
  environment: readonly string[];
  /** The signal that ends it in order. Null: that of the program. */
  stopSignal: number | null;
}

/** Addresses of IPv4. */
export interface BootNetwork {
  address: string;
  gateway: string;
  mtu: number;
}

const SECTOR = 512;
const SEED_BYTES = 64;

/** Writes the disk of the configuration. It has the secrets of the sandbox. Throws RangeError when it is too long. */
export async function writeBootConfiguration(file: string, configuration: BootConfiguration): Promise<void> {
  await writeFile(file, encodeConfiguration(configuration), { mode: 0o600 });
}

function encodeConfiguration(configuration: BootConfiguration): Buffer {
  const records: Buffer[] = [];
  const add = (type: number, payload: RequestWriter = new RequestWriter()) => {
    const bytes = payload.end();
    records.push(encode(LAYOUT.bootRecord, { length: bytes.length, type }), bytes);
  };
  const text = (value: string) => new RequestWriter().text(value);
  add(BOOT.hostName, text(configuration.hostName));
  if (configuration.user !== null) add(BOOT.user, text(configuration.user));
  add(BOOT.workdir, new RequestWriter().path(configuration.workdir));
  for (const variable of configuration.environment) add(BOOT.variable, text(variable));
  for (const argument of configuration.arguments) add(BOOT.argument, text(argument));
  const { handoff } = configuration;
  if (handoff) {
    const signal = { stopSignal: handoff.stopSignal ?? 0 };
    add(BOOT.handoff, new RequestWriter().fields(LAYOUT.bootHandoff, signal).text(handoff.path));
    for (const argument of handoff.arguments) add(BOOT.handoffArgument, text(argument));
    for (const variable of handoff.environment) add(BOOT.handoffVariable, text(variable));
  }
  for (const limit of configuration.rlimits)
    add(BOOT.rlimit, new RequestWriter().fields(LAYOUT.limit, limit));
  add(BOOT.seed, new RequestWriter().bytes(randomBytes(SEED_BYTES)));
  for (const name of configuration.modules) add(BOOT.module, text(name));
  for (const patch of configuration.patches) add(BOOT.patch, encodePatch(patch));
  for (const { path, mode, content } of configuration.files)
    add(BOOT.file, new RequestWriter().fields(LAYOUT.bootFile, { mode }).path(path).bytes(content));
  for (const mount of configuration.mounts) add(BOOT.mount, encodeMount(mount));
  if (configuration.network) add(BOOT.network, encodeNetwork(configuration.network));
  if (configuration.restricted) add(BOOT.restricted);
  if (configuration.isCopy === true) add(BOOT.copy);
  if (configuration.isArchive === true) add(BOOT.archive);
  for (const [type, payload] of trustRecords(configuration.trust ?? null)) add(BOOT[type], payload);
  add(BOOT.end);
  const bytes = Buffer.concat(records);
  if (bytes.length > LIMIT.bootBytes - SECTOR)
    throw new RangeError(
      `the files and the environment of the sandbox have ${bytes.length} bytes, and may have ${LIMIT.bootBytes}`,
    );
  return Buffer.concat([bytes, Buffer.alloc(SECTOR - (bytes.length % SECTOR))]);
}

type TrustRecord = 'authorities' | 'bundle' | 'anchor' | 'hashed' | 'whole';

function trustRecords(trust: BootTrust | null): (readonly [TrustRecord, RequestWriter])[] {
  if (!trust) return [];
  const { name, texts, bundles, anchors, hashed, whole } = trust;
  const text = (...parts: string[]) => parts.reduce((writer, part) => writer.text(part), new RequestWriter());
  return [
    ['authorities', text(name).bytes(texts)],
    ...bundles.map((path) => ['bundle', text(path)] as const),
    ...anchors.map(({ directory, file }) => ['anchor', text(directory, file)] as const),
    ...(hashed
      ? [['hashed', text(hashed.directory, hashed.file, hashed.link).bytes(hashed.content)] as const]
      : []),
    ['whole', text(whole.path).bytes(whole.content)],
  ];
}

function encodePatch({ operation, path, mode, replace, content }: BootPatch): RequestWriter {
  const flags = (replace ? PATCH_FLAG.replace : 0) | (mode === null ? 0 : PATCH_FLAG.hasMode);
  const fields = { operation: BOOT_PATCH[operation], flags, mode: mode ?? 0 };
  return new RequestWriter().fields(LAYOUT.bootPatch, fields).path(path).bytes(content);
}

function encodeMount({ kind, source, target, fstype, flags, options }: BootMount): RequestWriter {
  const bits = [...flags].reduce((sum, flag) => sum | MOUNT_FLAG[flag], 0);
  return new RequestWriter()
    .fields(LAYOUT.bootMount, { kind: BOOT_MOUNT[kind], flags: bits })
    .text(source)
    .path(target)
    .text(fstype ?? '')
    .text(options);
}

function encodeNetwork({ address, gateway, mtu }: BootNetwork): RequestWriter {
  const bytes = (text: string) => Buffer.from(text.split('.').map(Number));
  return new RequestWriter().fields(LAYOUT.bootNetwork, { mtu }).bytes(bytes(address)).bytes(bytes(gateway));
}
