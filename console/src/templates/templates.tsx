import { Link, useLocation } from 'wouter-preact';
import { announce } from '../lib/announce';
import { call } from '../lib/api';
import type { TemplateResponse, TemplateStatus } from '../lib/api-types';
import { API_URL } from '../lib/base';
import { bytes } from '../lib/bytes';
import { useLive, useWhileChanging } from '../lib/live';
import { may } from '../lib/session';
import { useUrlState } from '../lib/url-state';
import { useResource } from '../lib/use-resource';
import { Badge } from '../parts/badge';
import { Empty } from '../parts/empty';
import { Field } from '../parts/field';
import { Loaded } from '../parts/loaded';
import { Page } from '../parts/page';
import { Pager } from '../parts/pager';
import { Table, type Column } from '../parts/table';
import { TableView } from '../parts/table-view';
import { Tags } from '../parts/tags';
import { Time } from '../parts/time';
import { Typed } from '../parts/typed';
import { CreateTemplate } from './create';
import { isUnfinished, reasonOf, tagOf } from './words';

const STATUSES: readonly TemplateStatus[] = ['queued', 'building', 'succeeded', 'failed', 'cancelled'];

const COLUMNS: readonly Column<TemplateResponse>[] = [
  {
    title: 'Template',
    cell: (template) => <Link href={`/templates/${template.id}`}>{tagOf(template)}</Link>,
    isWide: true,
  },
  { title: 'Status', cell: ({ status }) => <Badge status={status} /> },
  { title: 'Steps', cell: ({ steps, steps_done }) => `${steps_done} of ${steps}`, isMinor: true },
  {
    title: 'Size',
    cell: ({ size_bytes }) => (size_bytes === null ? '–' : bytes(size_bytes)),
    isNumber: true,
  },
  { title: 'Labels', cell: ({ labels }) => <Tags of={labels} folded />, isMinor: true },
  { title: 'Problem', cell: (template) => reasonOf(template), isMinor: true, isWide: true },
  { title: 'Created', cell: ({ created_at }) => <Time at={created_at} />, isMinor: true },
];

export function Templates() {
  const url = useUrlState();
  const [, go] = useLocation();
  const status = STATUSES.find((each) => each === url.get('status'));
  const query = {
    cursor: url.get('cursor') || undefined,
    name: url.get('name') || undefined,
    status: status && [status],
  };
  const list = useResource(
    `templates:${JSON.stringify(query)}`,
    (signal) => call('GET /v1/templates', { query, signal }),
    { keeps: true },
  );
  useLive('template', list.reload);
  useWhileChanging(list.data?.data.some(isUnfinished) ?? false, list.reload);
  const isFiltered = Object.values(query).some((value) => value !== undefined);
  return (
    <Page
      title="Templates"
      actions={
        <>
          <TableView of="Templates" columns={COLUMNS} />
          {may('sandboxes:write') && (
            <button type="button" class="primary" onClick={() => url.set({ create: 'commands' })}>
              Create
            </button>
          )}
        </>
      }
    >
      <search>
        <form class="filters" onSubmit={(event) => event.preventDefault()}>
          <Field label="Name">
            <Typed
              label="Name"
              placeholder="agent"
              value={url.get('name')}
              change={(name) => url.set({ name: name.trim() }, { replace: true })}
            />
          </Field>
          <Field label="Status">
            <select
              value={status ?? ''}
              onChange={({ currentTarget }) => url.set({ status: currentTarget.value }, { replace: true })}
            >
              <option value="">all</option>
              {STATUSES.map((each) => (
                <option key={each} value={each}>
                  {each}
                </option>
              ))}
            </select>
          </Field>
        </form>
      </search>
      <Loaded resource={list}>
        {({ data, next_cursor, has_more }) => {
          if (data.length === 0)
            return isFiltered ? <Empty title="No template has these" /> : <FirstTemplate />;
          return (
            <>
              <Table caption="Templates" columns={COLUMNS} rows={data} id={({ id }) => id} name={tagOf} />
              <Pager next={next_cursor} hasMore={has_more} />
            </>
          );
        }}
      </Loaded>
      {url.get('create') !== '' && may('sandboxes:write') && (
        <CreateTemplate
          close={() => url.set({ create: undefined, cursor: query.cursor })}
          created={(template) => {
            announce(`The build of ${tagOf(template)} waits for its turn.`);
            go(`/templates/${template.id}`);
          }}
        />
      )}
    </Page>
  );
}

function FirstTemplate() {
  return (
    <Empty
      title="No template yet"
      create={{ scope: 'sandboxes:write', how: 'The same with a key in the variable KEY:', line: LINE }}
    >
      <p>
        A template is a disk with everything that your sandboxes need: describe it once, and any number of
        them start from it in a moment.
      </p>
      {may('sandboxes:write') && (
        <ol class="steps">
          <li>
            <b>Create</b> one from an image and some commands, from a Dockerfile, or from an archive with
            files.
          </li>
          <li>
            Its page shows the log while it is built. Steps that an earlier build has run are not run again.
          </li>
          <li>
            <b>Start a sandbox</b> there, or name the template as the image of a request.
          </li>
        </ol>
      )}
    </Empty>
  );
}

const LINE = `curl "${API_URL}/v1/templates?tag=tools:1" -H "authorization: Bearer $KEY" -d '{"from":"python:3.12","commands":["pip install numpy"]}'`;
