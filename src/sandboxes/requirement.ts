import type { Capability } from '../runtimes/runtime.js';

export interface Requirement {
  capability: Capability;
  field: string;
  what: string;
  remedy?: string;
}
