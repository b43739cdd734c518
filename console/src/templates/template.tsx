import { useState } from 'preact/hooks';
import { useLocation, useParams } from 'wouter-preact';
import { sentence } from '../lib/advice';
import { announce } from '../lib/announce';
import { call } from '../lib/api';
import type { TemplateResponse } from '../lib/api-types';
import { useLive, useWhileChanging } from '../lib/live';
import { may } from '../lib/session';
import { useChange } from '../lib/use-change';
import { useResource } from '../lib/use-resource';
import { Badge } from '../parts/badge';
import { confirm } from '../parts/confirm';
import { ErrorPanel } from '../parts/error-panel';
import { Facts } from '../parts/facts';
import { Loaded } from '../parts/loaded';
import { Page } from '../parts/page';
import { StartFrom } from '../sandboxes/start-from';
import { Build } from './build';
import { configFacts, factsOf } from './facts';
import { Numbered } from './numbered';
import './templates.css';
import { isUnfinished, reasonOf, tagOf } from './words';

export function Template() {
  const { id } = useParams<{ id: string }>();
  const [, go] = useLocation();
  const [isStarting, setStarting] = useState(false);
  const { send, problem, isBusy } = useChange();
  const template = useResource(`template:${id}`, (signal) =>
    call('GET /v1/templates/{id}', { path: { id }, signal }),
  );
  useLive('template', template.reload);
  useWhileChanging(template.data !== undefined && isUnfinished(template.data), template.reload);

  const remove = async (data: TemplateResponse) => {
    const isCancel = isUnfinished(data);
    const isConfirmed = await confirm({
      title: isCancel ? 'Cancel this build?' : 'Delete this template?',
      names: [tagOf(data)],
      consequence: isCancel
        ? 'Its sandbox is deleted. Steps that are done stay in the cache.'
        : 'It goes with its log, and cannot be restored. Sandboxes that were made from it keep their disks.',
      action: isCancel ? 'Cancel the build' : 'Delete',
    });
    if (!isConfirmed) return;
    const answer = await send(() => call('DELETE /v1/templates/{id}', { path: { id } }));
    if (answer === undefined) return;
    announce(isCancel ? `Cancelled the build of ${tagOf(data)}.` : `Deleted ${tagOf(data)}.`);
    if (isCancel) template.reload();
    else go('/templates');
  };

  return (
    <Page
      title={template.data === undefined ? 'Template' : tagOf(template.data)}
      actions={
        template.data !== undefined && (
          <>
            <span role="status">
              <Badge status={template.data.status} />
            </span>
            {may('sandboxes:write') && (
              <>
                {template.data.status === 'succeeded' && (
                  <button type="button" class="primary" onClick={() => setStarting(true)}>
                    Start a sandbox
                  </button>
                )}
                <button
                  type="button"
                  class="danger"
                  disabled={isBusy}
                  onClick={() => void remove(template.data!)}
                >
                  {isUnfinished(template.data) ? 'Cancel the build' : 'Delete'}
                </button>
              </>
            )}
          </>
        )
      }
    >
      {problem !== undefined && <ErrorPanel problem={problem} />}
      <Loaded resource={template}>
        {(data) => (
          <>
            {data.error !== null && (
              <div class="panel fault">
                <p class="fault-message">{sentence(reasonOf(data))}</p>
                <p>
                  <small>
                    <code>{data.error.code}</code>
                  </small>
                </p>
              </div>
            )}
            <Facts of={factsOf(data)} />
            <Build key={id} of={data} />
            {data.config !== null && (
              <section class="part">
                <h2>Its sandboxes have</h2>
                <Facts of={configFacts(data.config)} />
              </section>
            )}
            <section class="part">
              <h2>Dockerfile</h2>
              <Numbered text={data.dockerfile} of="Dockerfile" marked={data.error?.line ?? undefined} />
            </section>
            {isStarting && (
              <StartFrom
                source="template"
                image={{ type: 'template', name: data.name, tag: data.tag }}
                labels={data.labels}
                close={() => setStarting(false)}
              />
            )}
          </>
        )}
      </Loaded>
    </Page>
  );
}
