import { STATUSES } from '../src/spec/statuses.js';
import {
  OPERATIONS,
  TRANSITIONS,
  type Occurrence,
  type Operation,
  type Outcome,
} from '../src/sandboxes/lifecycle/state.js';

/** The lifecycle as pictures of the table in code: what is drawn is what is done. */

type Event = Operation | Occurrence;

const EVENTS = Object.keys(TRANSITIONS.starting) as Event[];
const ASKED_FOR: ReadonlySet<string> = new Set(OPERATIONS);

/** A state diagram in Mermaid. Occurrences are in lower case, operations of callers in capitals. */
function diagram(): string {
  const arrows = STATUSES.flatMap((from) => {
    const byTarget = new Map<string, string[]>();
    for (const event of EVENTS) {
      const outcome = TRANSITIONS[from][event];
      if (DRAWN_NOWHERE.has(outcome)) continue;
      byTarget.set(outcome, [...(byTarget.get(outcome) ?? []), labelOf(event)]);
    }
    return [...byTarget].map(([to, labels]) => `  ${from} --> ${to}: ${labels.join(', ')}`);
  });
  return ['```mermaid', 'stateDiagram-v2', '  [*] --> created: CREATE', ...arrows, '```'].join('\n');
}

function labelOf(event: Event): string {
  return ASKED_FOR.has(event) ? event.toUpperCase() : event.replaceAll('_', ' ');
}

const DRAWN_NOWHERE: ReadonlySet<Outcome> = new Set(['same', 'queued', 'refused', 'gone']);

const WORDS: Record<Outcome, string> = {
  same: 'stays',
  queued: 'stays, then starts',
  gone: 'gone',
  refused: '409',
  created: '→ created',
  starting: '→ starting',
  running: '→ running',
  stopping: '→ stopping',
  stopped: '→ stopped',
  failed: '→ failed',
};

/** Status against event, every cell. */
function table(): string {
  const row = (cells: string[]) => `| ${cells.join(' | ')} |`;
  return [
    row(['', ...EVENTS.map((event) => `\`${event}\``)]),
    row(['---', ...EVENTS.map(() => '---')]),
    ...STATUSES.map((status) =>
      row([`\`${status}\``, ...EVENTS.map((event) => WORDS[TRANSITIONS[status][event]])]),
    ),
  ].join('\n');
}

const BEGIN = '<!-- drawn from src/sandboxes/lifecycle/state.ts by "npm run generate" -->';
const END = '<!-- end of what is drawn -->';

/** The page with the picture and the table drawn anew. Throws when it has lost the marks between which they stand. */
export function redraw(page: string): string {
  const begin = page.indexOf(BEGIN);
  const end = page.indexOf(END);
  if (begin === -1 || end < begin) throw new Error(`the page has no "${BEGIN}" before a "${END}"`);
  return `${page.slice(0, begin + BEGIN.length)}\n\n${diagram()}\n\n${table()}\n\n${page.slice(end)}`;
}
