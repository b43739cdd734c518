import type { ServiceContext } from '../../context.js';
import { ApiError } from '../../http/errors.js';
import { microsOf } from '../../lib/instant.js';
import type { PreviewRequest, PreviewResponse, PreviewTarget, PreviewWaker } from '../types.js';
import { PAGE_HEADERS, refusedPage, waitingPage } from './page.js';
import { isOfOpenPage, isVisit, patienceOf } from './patience.js';
import { getStartedAt } from './queries.js';
import { asleep } from './refusals.js';
import { Waker } from './waker.js';

/** How long a server may take to listen after the start of its sandbox. */
const LISTEN_MS = 15_000;

/** Wakes sandboxes for the listener of previews. */
export function openWaker(ctx: ServiceContext): PreviewWaker {
  const waker = new Waker(ctx);
  return {
    patienceOf,
    async wait(target, { request, ...options }) {
      await waker.wait(target, { ...options, isBackground: isOfOpenPage(request) });
    },
    async page(target, request, response) {
      await page(waker, target, request, response);
    },
    async listensUntil({ orgId, sandboxId }) {
      const startedAt = await getStartedAt(ctx.requests.of(orgId).reads, orgId, sandboxId);
      if (startedAt === undefined) return -Infinity;
      // The clock of the engine may be ahead.
      const age = Math.max(0, Number((microsOf(ctx.now()) - microsOf(startedAt)) / 1_000n));
      return performance.now() + LISTEN_MS - age;
    },
  };
}

async function page(
  waker: Waker,
  target: PreviewTarget,
  request: PreviewRequest,
  response: PreviewResponse,
): Promise<void> {
  let refusal = asleep('starting');
  let isStarting = true;
  try {
    await waker.begin(target, isOfOpenPage(request));
  } catch (error) {
    if (!(error instanceof ApiError) || error.kind !== 'sandbox_not_running') throw error;
    refusal = error;
    isStarting = false;
  }
  if (!isVisit(request)) throw refusal;
  const text = isStarting ? waitingPage() : refusedPage(String(refusal.details?.['reason']));
  response.statusCode = refusal.status;
  for (const [name, value] of Object.entries({ ...PAGE_HEADERS, ...refusal.headers })) {
    response.setHeader(name, value);
  }
  response.setHeader('content-length', Buffer.byteLength(text));
  response.end(request.method === 'HEAD' ? '' : text);
}
