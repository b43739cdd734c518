import type { EventMarker } from '../../db/pool.js';
import type { EventKeys } from './event-keys.js';

type Loaded = EventKeys | undefined;

export class ActiveEventKeys {
  private load: () => Loaded | Promise<Loaded>;

  /** `load`: called for each write until `activate`. */
  constructor(load: () => Loaded | Promise<Loaded>) {
    this.load = load;
  }

  /** The keys must be in `event_keys`: a sealer that does not know them takes their events for forged. */
  activate(keys: EventKeys): void {
    this.load = () => keys;
  }

  get = async (): Promise<Loaded> => this.load();

  readonly marker: EventMarker = async () => (await this.load())?.mark;
}
