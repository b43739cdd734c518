import type { Capability } from '../engine/runtime.js';

export interface Requirement {
  capability: Capability;
  field: string;
  what: string;
  remedy?: string;
}
