import type { FastifyReply, FastifyRequest } from 'fastify';
import { Buffer } from 'node:buffer';
import { isOfSdk } from '../http/official-sdk.js';
import type { SandboxSpec } from './specification.js';

/** The SDKs decode the number of CPUs as 8 bits. A larger one would make them drop the whole specification. */
const MOST_VCPUS = 255;

/**
 * Shows official SDKs the specification of a sandbox in the form of a create request. They read the working directory,
 * the user and the default command from it when another process created the sandbox. They drop the form of the contract
 * without a word.
 */
export function showToSdk(
  request: FastifyRequest,
  reply: FastifyReply,
  payload: unknown,
  done: (error: null, payload?: unknown) => void,
): void {
  const isText = typeof payload === 'string' || Buffer.isBuffer(payload);
  if (!isText || reply.statusCode !== 200 || !isOfSdk(request)) done(null, payload);
  else done(null, JSON.stringify(inSdkForm(JSON.parse(payload.toString()) as Answer)));
}

interface Shown {
  spec?: SandboxSpec | null;
}
type Answer = Shown | { data: Shown[] };

function inSdkForm(answer: Answer): unknown {
  if ('data' in answer) return { ...answer, data: answer.data.map(inSdkForm) };
  return answer.spec == null ? answer : { ...answer, spec: sdkFormOf(answer.spec) };
}

/**
 * Has the fields that an SDK uses after the creation: one that it cannot decode would cost all others. The environment
 * is left out, because the service gives it to each command, and a client would send masked values in its place.
 */
function sdkFormOf({ image, resources, runtime, labels, lifecycle }: SandboxSpec): object {
  const { cmd, entrypoint, user, workdir, shell } = runtime;
  const { vcpus = 1, memory_mib } = resources;
  const { ephemeral, idle_timeout_secs, max_duration_secs } = lifecycle;
  return {
    ...(image == null ? {} : { image: { type: 'oci', reference: image } }),
    resources: { vcpus: Math.min(vcpus, MOST_VCPUS), memory_mib },
    // Version 0.6.18 refuses any other key here.
    runtime: { cmd, entrypoint, user, workdir, shell },
    labels,
    lifecycle: { ephemeral, idle_timeout_secs, max_duration_secs },
  };
}
