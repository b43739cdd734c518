import type Docker from 'dockerode';
import type { ContainerCreateOptions, Ulimit } from 'dockerode';
import { stringifyExact, type Integer } from '../../lib/exact-json.js';
import type { RunSpec } from '../../spec/run-spec.js';

/** The engine stores limits as signed 64-bit integers and reads them as unsigned: unlimited is -1. */
export function ulimitOf({ resource, soft, hard }: RunSpec['rlimits'][number]): Ulimit {
  return { Name: resource, Soft: signed(soft), Hard: signed(hard) };
}

/** A bigint where a number would be rounded; the types of the client know only numbers. */
function signed(value: Integer): number {
  const wrapped = BigInt.asIntN(64, BigInt(value));
  const number = Number(wrapped);
  return Number.isSafeInteger(number) ? number : (wrapped as unknown as number);
}

/** The client's own method cannot serialize bigints. */
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
