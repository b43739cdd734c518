import { StartRefusedError } from '../engine/runtime.js';
import type { NetworkNamespace } from './namespace.js';
import { runWithInput } from './run-program.js';

/** Throws StartRefusedError. */
export async function loadRules(namespace: NetworkNamespace, script: string): Promise<void> {
  try {
    await namespace.enter(async (descriptor) => applyRules(descriptor, script));
  } catch (error) {
    if (error instanceof StartRefusedError) throw error;
    throw new StartRefusedError(
      'the network rules of the sandbox cannot be loaded; the operator finds the reason in the log of the service',
      { cause: error },
    );
  }
}

/** `namespace`: an open descriptor. */
export async function applyRules(namespace: number, script: string): Promise<void> {
  await runWithInput('nsenter', ['--net=/proc/self/fd/3', 'nft', '-f', '-'], script, [namespace]);
}
