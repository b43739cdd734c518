import type { IncomingHttpHeaders } from 'node:http';
import type { Context } from '../../context.js';
import { ApiError } from '../../http/errors.js';
import { answerError } from '../answer.js';
import {
  endedPage,
  grantPage,
  isNavigation,
  noticePage,
  openPage,
  sendJson,
  sendPage,
} from '../pages/answer.js';
import { GRANT_PATH, NOTICE_PATH, OPEN_PATH } from '../pages/link.js';
import { readToken } from '../pages/read-token.js';
import {
  GRANT_COOKIE,
  type Judgement,
  type PreviewAccess,
  type PreviewHost,
  type PreviewRequest,
  type PreviewResponse,
  type Refusal,
} from '../types.js';
import { OpenGrants, targetOf, type OpenGrant } from './open-grants.js';
import { cookieNamed, cookieOf, credentialsOf, tokenHash } from './token.js';
import { PreviewUses } from './uses.js';

const NOTICE_COOKIE = '__Host-sandkeep-notice';
/** Browsers keep no cookie for longer than 400 days, and none of ours lives for longer than its preview. */
const ATTRIBUTES = 'Path=/; Secure; HttpOnly; SameSite=None; Partitioned';

type Needed = Pick<Context, 'pool' | 'changes' | 'now' | 'log'>;

/** Admits the holders of grants to previews, and everybody where a preview is public. */
export class GrantedAccess implements PreviewAccess {
  private readonly grants: OpenGrants;
  private readonly uses: PreviewUses;

  constructor(private readonly ctx: Needed) {
    this.grants = new OpenGrants(ctx);
    this.uses = new PreviewUses(ctx);
  }

  async judge(host: PreviewHost, headers: IncomingHttpHeaders): Promise<Judgement> {
    const found = await this.find(host, headers);
    if (typeof found === 'string') return { refused: found };
    const { row, controller } = found;
    if (row.notice && isNavigation(headers) && cookieNamed(NOTICE_COOKIE, headers.cookie) !== row.id) {
      return { refused: 'notice' };
    }
    this.uses.note(row.org_id, row.id, this.ctx.now());
    return { target: targetOf(host, found), signal: controller.signal };
  }

  async refuse(
    host: PreviewHost,
    refused: Refusal,
    request: PreviewRequest,
    response: PreviewResponse,
  ): Promise<void> {
    if (!isNavigation(request.headers)) {
      answerError(request, response, refusalOf(refused));
      return;
    }
    if (refused === 'notice') {
      const found = await this.find(host, request.headers);
      if (typeof found !== 'string') {
        sendPage(request, response, 403, noticePage(found.row));
        return;
      }
    }
    sendPage(request, response, 401, refused === 'expired' ? endedPage() : grantPage());
  }

  async serve(host: PreviewHost, request: PreviewRequest, response: PreviewResponse): Promise<void> {
    const path = request.url!.split('?', 1)[0];
    const isRead = request.method === 'GET' || request.method === 'HEAD';
    if (path === OPEN_PATH && isRead) return sendPage(request, response, 200, openPage());
    if (path === GRANT_PATH && request.method === 'POST') return this.grant(host, request, response);
    if (path === NOTICE_PATH && request.method === 'POST') return this.noticed(host, request, response);
    throw new ApiError('route_not_found', undefined, null);
  }

  async close(): Promise<void> {
    await this.grants.close();
    await this.uses.close();
  }

  private async find(host: PreviewHost, headers: IncomingHttpHeaders): Promise<OpenGrant | Refusal> {
    let refused: Refusal = 'no_grant';
    for (const hash of [...credentialsOf(headers), undefined]) {
      const found = await this.grants.get(host, hash);
      if (typeof found === 'object') return found;
      if (found === 'ended') refused = 'expired';
    }
    return refused;
  }

  /** Turns the token of a link into a cookie. */
  private async grant(host: PreviewHost, request: PreviewRequest, response: PreviewResponse): Promise<void> {
    checkOrigin(host, request);
    const token = await readToken(request);
    const hash = tokenHash(token);
    const found = hash && (await this.grants.get(host, hash));
    if (typeof found !== 'object') throw refusalOf(found === 'ended' ? 'expired' : 'no_grant');
    const seconds = this.secondsLeft(found);
    response.setHeader('set-cookie', [
      `${GRANT_COOKIE}=${cookieOf(token)}; Max-Age=${seconds}; ${ATTRIBUTES}`,
    ]);
    sendJson(request, response, { message: 'the preview is open' });
  }

  /** Notes that the visitor has seen whose page it is. */
  private async noticed(
    host: PreviewHost,
    request: PreviewRequest,
    response: PreviewResponse,
  ): Promise<void> {
    checkOrigin(host, request);
    const found = await this.find(host, request.headers);
    if (typeof found === 'string') throw refusalOf(found);
    const seconds = this.secondsLeft(found);
    response.setHeader('set-cookie', [`${NOTICE_COOKIE}=${found.row.id}; Max-Age=${seconds}; ${ATTRIBUTES}`]);
    sendJson(request, response, { message: 'the notice was read' });
  }

  private secondsLeft({ row }: OpenGrant): number {
    return Math.max(1, Math.ceil((Date.parse(row.expires_at) - Date.parse(this.ctx.now())) / 1_000));
  }
}

/** Pages of other origins cannot give a visitor a grant, such as one of their own. */
function checkOrigin({ origin }: PreviewHost, { headers }: PreviewRequest): void {
  if (headers.origin !== origin) {
    throw new ApiError(
      'invalid_request',
      'the request comes from another origin: open the link of the preview',
    );
  }
}

function refusalOf(refused: Refusal): ApiError {
  const message = refused === 'expired' ? 'the preview has ended: ask for a new one' : undefined;
  return new ApiError('preview_access_required', message, null, {
    headers: { 'www-authenticate': 'Bearer' },
  });
}
