import type { Capability } from './capabilities.js';

export interface Requirement {
  capability: Capability;
  field: string;
  what: string;
  remedy?: string;
}
