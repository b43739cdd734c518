import { useState } from 'preact/hooks';
import { addressOf } from '../lib/api';
import type { TemplateResponse } from '../lib/api-types';
import { duration } from '../lib/time';
import { useLog } from '../lib/use-log';
import { Badge } from '../parts/badge';
import { LogView } from '../parts/log-view';
import { stateOf, stepsIn, type BegunStep } from './build-steps';

/** The steps of a build and its log, while it runs and afterwards. */
export function Build({ of: template }: { of: TemplateResponse }) {
  const [begun, setBegun] = useState<readonly BegunStep[]>([]);
  const log = useLog(addressOf('/v1/templates/{id}/log', { id: template.id }, {}), {
    isDivided: true,
    onPiece: (piece) => {
      const steps = stepsIn(piece);
      if (steps.length > 0) setBegun((before) => [...before, ...steps]);
    },
  });
  return (
    <>
      {template.steps > 0 && <Steps of={template} begun={begun} />}
      <section class="part">
        <h2>Log of the build</h2>
        <LogView
          log={log}
          file={`${template.name}-${template.tag}.log`}
          empty="The log begins when the build has its turn."
        />
      </section>
    </>
  );
}

function Steps({ of, begun }: { of: TemplateResponse; begun: readonly BegunStep[] }) {
  const rest = of.steps - begun.length;
  return (
    <section class="part">
      <h2>Steps</h2>
      <ol class="build-steps">
        {begun.map(({ number, text, at }, place) => {
          const state = stateOf(number, of);
          const end = begun[place + 1]?.at ?? of.completed_at;
          const isTimed = state === 'done' && end !== null;
          return (
            <li key={number}>
              <span class="step-number">{number}</span>
              <code title={text}>{state === 'cached' ? text.replace(/ \(cached\)$/, '') : text}</code>
              <Badge status={state} />
              <small class="step-time">
                {isTimed && duration((Date.parse(end) - Date.parse(at)) / 1000)}
              </small>
            </li>
          );
        })}
        {rest > 0 && begun.length > 0 && (
          <li class="step-rest">{rest === 1 ? 'one more' : `${rest} more`}</li>
        )}
      </ol>
      {begun.length === 0 && (
        <p>{of.steps === 1 ? 'One step' : `${of.steps} steps`}, none of which has begun.</p>
      )}
    </section>
  );
}
