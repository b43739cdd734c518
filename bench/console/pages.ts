import { ask, type Api } from '../speed/api.js';
import { LABELS } from '../speed/data-set.js';

export interface ConsolePage {
  name: string;
  /** Below `/console`. */
  path: string;
  /** The content, as a selector. */
  shows: string;
  /** The path of the API request that the content comes from. */
  asks: string;
}

const ROWS = 'main tbody tr';

export async function consolePages(api: Api): Promise<ConsolePage[]> {
  const first = JSON.parse(await ask(api, '/v1/sandboxes?limit=50')) as {
    data: { id: string }[];
    next_cursor: string;
  };
  const [{ id } = { id: '' }] = first.data;
  const list = { shows: ROWS, asks: '/v1/sandboxes' };
  const labels = (of: object) => `/?labels=${encodeURIComponent(JSON.stringify(of))}`;
  return [
    { name: 'Sandboxes', path: '/', ...list },
    { name: 'Sandboxes, second page', path: `/?cursor=${encodeURIComponent(first.next_cursor)}`, ...list },
    { name: 'Sandboxes, a rare label', path: labels(LABELS.rare), ...list },
    { name: 'Sandboxes, a common label', path: labels(LABELS.common), ...list },
    { name: 'Sandboxes, beginning of the name', path: '/?name_prefix=box-0001', ...list },
    { name: 'A sandbox', path: `/sandboxes/${id}`, shows: 'main dl.facts', asks: `/v1/sandboxes/${id}` },
    {
      name: 'A sandbox, usage',
      path: `/sandboxes/${id}/usage`,
      shows: 'main tbody tr, main .empty',
      asks: '/v1/billing/usage/sandbox',
    },
    { name: 'Volumes', path: '/volumes', shows: ROWS, asks: '/v1/volumes' },
    {
      name: 'Usage, a month by label',
      path: '/usage?label=team',
      shows: 'main .legend li',
      asks: '/v1/billing/usage/labels',
    },
    { name: 'Audit', path: '/audit', shows: ROWS, asks: '/v1/events' },
    { name: 'Audit, a type', path: '/audit?event_type=sandbox_stopped', shows: ROWS, asks: '/v1/events' },
    { name: 'Keys', path: '/keys', shows: ROWS, asks: '/v1/keys' },
    { name: 'Webhooks', path: '/webhooks', shows: 'main .empty', asks: '/v1/webhooks' },
    { name: 'Organization', path: '/organization', shows: 'main .meter, main tbody tr', asks: '/v1/members' },
  ];
}
