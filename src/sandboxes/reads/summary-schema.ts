import { Type, type Static } from 'typebox';
import { DateTime, Field, Int32, Named } from '../../http/schema.js';

/** A higher count is shown as this one: it bounds what an answer costs. */
export const MOST_COUNTED = 10_000;
export const HOURS = 24;

const count = (what: string) => Int32({ maximum: MOST_COUNTED, description: `${what}.` });

export const SandboxSummary = Named(
  'SandboxSummary',
  {
    created: count('Sandboxes that never started'),
    starting: count('Sandboxes that are starting'),
    waiting: count('Those that are starting and wait, because no worker has room'),
    running: count('Sandboxes that are running'),
    stopping: count('Sandboxes that are stopping'),
    stopped: count('Sandboxes that are stopped'),
    failed: count('Sandboxes that are failed'),
    hours: Type.Array(
      Named(
        'SandboxHour',
        {
          hour: Field(DateTime, 'The start of the UTC hour.'),
          started: count('Starts in the hour'),
          failed: count('Failures of starts and of runs in the hour'),
        },
        'The starts and failures of one hour.',
      ),
      { description: `The ${HOURS} latest UTC hours, the current one last.` },
    ),
  },
  `An extension: counts of the sandboxes of the organization. A count of ${MOST_COUNTED} stands for as many or more.`,
);
export type SandboxSummary = Static<typeof SandboxSummary>;
