import type { ServiceError } from '@grpc/grpc-js';
import { Buffer } from 'node:buffer';

/**
 * The part of the API of containerd that names the directories of a container's disk. Docker keeps images there by
 * default from 29 on.
 */

export interface ContainerdPlace {
  /** The path of its socket. */
  Address: string;
  Namespaces: { Containers: string };
}

export interface SnapshotMount {
  type: string;
  source: string;
  options: string[];
}

/** From containerd/api/services/snapshots/v1/snapshots.proto, and the type `Mount` that it uses. */
const MESSAGES = `
  syntax = "proto3";
  message MountsRequest { string snapshotter = 1; string key = 2; }
  message Mount { string type = 1; string source = 2; string target = 3; repeated string options = 4; }
  message MountsResponse { repeated Mount mounts = 1; }
`;
const METHOD = '/containerd.services.snapshots.v1.Snapshots/Mounts';
const TIMEOUT_MS = 10_000;
const LARGEST_BYTES = 1024 * 1024;

/**
 * Mounts nothing: containerd answers how it would mount the snapshot. Undefined: the service does not reach it, because
 * its socket is elsewhere or is not for this user.
 */
export async function snapshotMounts(
  { Address, Namespaces }: ContainerdPlace,
  snapshotter: string,
  key: string,
): Promise<SnapshotMount[] | undefined> {
  // Loaded on demand: most engines keep no images in containerd.
  const { Client, credentials, Metadata, status } = await import('@grpc/grpc-js');
  const { request, response } = await (types ??= parseTypes());
  const client = new Client(`unix:${Address}`, credentials.createInsecure(), {
    'grpc.max_receive_message_length': LARGEST_BYTES,
  });
  const metadata = new Metadata();
  metadata.set('containerd-namespace', Namespaces.Containers);
  try {
    return await new Promise<SnapshotMount[] | undefined>((resolve, reject) => {
      client.makeUnaryRequest(
        METHOD,
        (sought: Record<string, string>) => Buffer.from(request.encode(sought).finish()),
        (bytes) => response.toObject(response.decode(bytes), { defaults: true, arrays: true }),
        { snapshotter, key },
        metadata,
        { deadline: Date.now() + TIMEOUT_MS },
        (error: ServiceError | null, answer?: Record<string, unknown>) => {
          if (error?.code === status.UNAVAILABLE) resolve(undefined);
          else if (error) reject(new Error(`containerd does not name the disk of ${key}`, { cause: error }));
          else resolve(answer!['mounts'] as SnapshotMount[]);
        },
      );
    });
  } finally {
    client.close();
  }
}

let types: ReturnType<typeof parseTypes> | undefined;

async function parseTypes() {
  const { default: protobuf } = await import('protobufjs');
  const { root } = protobuf.parse(MESSAGES);
  return { request: root.lookupType('MountsRequest'), response: root.lookupType('MountsResponse') };
}
