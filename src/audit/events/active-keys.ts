import type { EventMarker } from '../../db/pool.js';
import type { EventKeys } from './event-keys.js';

type Loaded = EventKeys | undefined;

/** The event keys under which this process writes events. Its pools carry `marker`. */
export class ActiveEventKeys {
  readonly marker: EventMarker = async () => (await this.get())?.mark;

  /** `load`: called for each write until `activate`. */
  constructor(private load: () => Loaded | Promise<Loaded>) {}

  /** The keys must be in `event_keys`: a sealer that does not know them takes their events for forged. */
  activate(keys: EventKeys): void {
    this.load = () => keys;
  }

  async get(): Promise<Loaded> {
    return this.load();
  }
}
