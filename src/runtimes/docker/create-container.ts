import type Docker from 'dockerode';
import type { ContainerCreateOptions, Ulimit } from 'dockerode';
import { stringifyExact, type Integer } from '../../lib/exact-json.js';
import type { RunSpec } from '../runtime.js';

/** The engine keeps limits as signed integers of 64 bits and reads them back as unsigned: no limit is -1. */
export function ulimitOf({ resource, soft, hard }: RunSpec['rlimits'][number]): Ulimit {
  return { Name: resource, Soft: signed(soft), Hard: signed(hard) };
}

/** A bigint where a number would be rounded, for which the types of the client have no place. */
function signed(value: Integer): number {
  const wrapped = BigInt.asIntN(64, BigInt(value));
  const number = Number(wrapped);
  return Number.isSafeInteger(number) ? number : (wrapped as unknown as number);
}

/** Creates a container from options that may hold bigints. The client's own method refuses to write them. */
export async function createContainer(
  docker: Docker,
  { name, ...options }: ContainerCreateOptions,
): Promise<Docker.Container> {
  const created = await new Promise<unknown>((resolve, reject) => {
    docker.modem.dial(
      {
        path: '/containers/create?',
        method: 'POST',
        options: { name },
        file: Buffer.from(stringifyExact(options)),
        headers: { 'Content-Type': 'application/json' },
        statusCodes: {
          201: true,
          400: 'bad parameter',
          404: 'no such image',
          409: 'conflict',
          500: 'server error',
        },
      },
      (error: unknown, answer: unknown) => (error ? reject(error) : resolve(answer)),
    );
  });
  return docker.getContainer((created as { Id: string }).Id);
}
