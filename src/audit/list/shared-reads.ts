import type { Context } from '../../context.js';
import type { RequestAdmission } from '../../http/admission.js';
import type { EventFilter } from '../events/queries.js';
import { readLog } from '../log/log-queries.js';
import { readLogFacts } from '../ocsf/log-facts.js';
import { ocsfOf } from '../ocsf/present.js';
import { presentEvent } from './present.js';
import { encodePosition } from './stream-position.js';

const BATCH = 200;
const PIECE_CHARS = 32 * 1024;
const READ_COST = 1;
const SHARED_COST = 0.25;
const KEEP_MS = 1_000;

export interface Piece {
  /** A position at or after its last event, and before the next piece. */
  seq: number;
  /** Server-sent events. */
  text: Buffer;
}

interface LogRead {
  pieces: Piece[];
  /** The position of the last entry, also of one that the filter omits. */
  seq: number;
  more: boolean;
}

interface KnownRead {
  key: string;
  begunAt: number;
  read: Promise<LogRead>;
}

export const STREAM_FORMATS = ['sandkeep', 'ocsf'] as const;
export type StreamFormat = (typeof STREAM_FORMATS)[number];

export interface LogPlace {
  orgId: string;
  filter: EventFilter;
  format: StreamFormat;
  afterSeq: number;
}

/**
 * Reads the event log for streams, in turns of their organization. Streams of an organization with the same filter,
 * format and position share its latest read.
 */
export class SharedReads {
  private readonly latest = new Map<string, KnownRead>();

  constructor(private readonly read = readMessages) {}

  /**
   * The read has begun at `notBefore` or later, by `performance.now()`. Throws ApiError when the organization is not
   * admitted.
   */
  async next(
    ctx: Context,
    admission: RequestAdmission,
    place: LogPlace,
    notBefore: number,
  ): Promise<LogRead> {
    const { orgId, filter, format, afterSeq } = place;
    const key = JSON.stringify([afterSeq, format, filter]);
    const shared = () => {
      const known = this.latest.get(orgId);
      return known?.key === key && known.begunAt >= notBefore ? known.read : undefined;
    };
    const cost = shared() ? SHARED_COST : READ_COST;
    return admission.more(cost, () => shared() ?? this.begin(ctx, place, key));
  }

  private begin(ctx: Context, place: LogPlace, key: string): Promise<LogRead> {
    const known = { key, begunAt: performance.now(), read: this.read(ctx, place) };
    this.latest.set(place.orgId, known);
    const forget = () => {
      if (this.latest.get(place.orgId) === known) this.latest.delete(place.orgId);
    };
    known.read.then(() => setTimeout(forget, KEEP_MS).unref(), forget);
    return known.read;
  }
}

async function readMessages(
  { pool, cursors }: Context,
  { orgId, filter, format, afterSeq }: LogPlace,
): Promise<LogRead> {
  const { entries, more } = await readLog(pool, orgId, { afterSeq, filter }, BATCH);
  const facts = format === 'ocsf' ? await readLogFacts(pool, orgId, entries) : undefined;
  const pieces: Piece[] = [];
  let [seq, text] = [afterSeq, ''];
  const endPiece = () => {
    if (text !== '') pieces.push({ seq, text: Buffer.from(text) });
    text = '';
  };
  for (const { event, ...entry } of entries) {
    seq = entry.seq;
    if (!event) continue;
    const id = encodePosition(cursors, orgId, seq);
    const data = JSON.stringify(facts ? ocsfOf(event, facts.get(seq)!) : presentEvent(event));
    text += `id: ${id}\nevent: ${oneLine(event.event_type)}\ndata: ${data}\n\n`;
    if (text.length >= PIECE_CHARS) endPiece();
  }
  endPiece();
  return { pieces, seq, more };
}

/** A line break, which imported event types may have, would end the field. */
function oneLine(text: string): string {
  return text.replaceAll(/[\r\n]/g, ' ');
}
