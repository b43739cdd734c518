import type { Caller } from '../access/caller.js';
import { readerOf } from '../access/reader.js';
import type { Context } from '../context.js';
import { ApiError } from '../http/errors.js';
import { readCursor } from '../http/parameters.js';
import type { PageQuery } from '../http/schema.js';
import { PAGE_LIMIT, toPage, type Page } from '../lib/page.js';
import { presentTemplate } from './present.js';
import { findTemplate, listTemplates as listRows } from './queries.js';
import type { TemplateResponse } from './schema.js';
import { TEMPLATE_STATUSES, type TemplateStatus } from './state.js';

export interface ListTemplatesQuery extends PageQuery {
  name?: string;
  tag?: string;
  status?: TemplateStatus[];
}

export async function listTemplates(
  { pool, cursors }: Context,
  caller: Caller,
  { cursor, limit = PAGE_LIMIT.default, name, tag, status }: ListTemplatesQuery,
): Promise<Page<TemplateResponse>> {
  const { orgId } = caller;
  const statuses = status ?? TEMPLATE_STATUSES;
  const binding = ['templates', name ?? null, tag ?? null, [...new Set(statuses)].toSorted()];
  const after = readCursor(cursors, orgId, binding, cursor) as [string, string] | undefined;
  const rows = await listRows(pool, readerOf(caller), { name, tag, statuses, after, limit: limit + 1 });
  return toPage(rows, limit, presentTemplate, ({ created_at, id }) =>
    cursors.encode(orgId, binding, [created_at, id]),
  );
}

/** Throws `template_not_found`. */
export async function showTemplate({ pool }: Context, caller: Caller, id: string): Promise<TemplateResponse> {
  const row = await findTemplate(pool, readerOf(caller), id);
  if (!row) throw new ApiError('template_not_found');
  return presentTemplate(row);
}
