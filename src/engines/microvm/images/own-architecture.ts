import { ExplainedError } from '../../../lib/explained-error.js';

const ARCHITECTURES: Partial<Record<NodeJS.Architecture, string>> = { x64: 'amd64', arm64: 'arm64' };

/** The processor of this machine, in the words of images. Throws ExplainedError. */
export function ownArchitecture(): string {
  const architecture = ARCHITECTURES[process.arch];
  if (architecture !== undefined) return architecture;
  throw new ExplainedError(`microVMs run on x86-64 and ARM64, and not on ${process.arch}`);
}
