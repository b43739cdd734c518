import { hash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { boundAnswer } from '../answer.js';
import type { PreviewRequest, PreviewResponse } from '../types.js';
import { NOTICE_SCRIPT, OPEN_SCRIPT, STYLE } from './scripts.js';

const HEADERS = {
  'cache-control': 'no-store',
  'content-security-policy': policyOf(),
  // A page that opened the link gets no hold on the page that follows.
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
  'x-robots-tag': 'noindex',
};

/**
 * Tools show previews in frames, so `frame-ancestors` is not limited. Only scripts of this release run, by their
 * hashes, and nothing is loaded from another origin.
 */
function policyOf(): string {
  const digest = (text: string) => `'sha256-${hash('sha256', text, 'base64')}'`;
  return [
    "default-src 'none'",
    `script-src ${digest(OPEN_SCRIPT)} ${digest(NOTICE_SCRIPT)}`,
    `style-src ${digest(STYLE)}`,
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
  ].join('; ');
}

/** Whether a browser shows the answer as a page. Old browsers send no `Sec-Fetch-Mode`. */
export function isNavigation(headers: IncomingHttpHeaders): boolean {
  const mode = headers['sec-fetch-mode'];
  if (mode !== undefined) return mode === 'navigate';
  return headers.upgrade === undefined && headers.accept?.includes('text/html') === true;
}

export function sendPage(
  request: PreviewRequest,
  response: PreviewResponse,
  status: number,
  page: string,
): void {
  response.statusCode = status;
  if (status === 401) response.setHeader('www-authenticate', 'Bearer');
  send(request, response, 'text/html; charset=utf-8', page);
}

export function sendJson(request: PreviewRequest, response: PreviewResponse, body: object): void {
  send(request, response, 'application/json; charset=utf-8', JSON.stringify(body));
}

function send(request: PreviewRequest, response: PreviewResponse, type: string, body: string): void {
  for (const [name, value] of Object.entries(HEADERS)) response.setHeader(name, value);
  response.setHeader('content-type', type);
  response.setHeader('content-length', Buffer.byteLength(body));
  response.end(request.method === 'HEAD' ? '' : body);
  boundAnswer(request, response);
}

/** Takes the token of its address. */
export function openPage(): string {
  return page('Opening the preview', 'One moment.', OPEN_SCRIPT);
}

/** For a visitor without a grant. It takes the token of its address, if there is one. */
export function grantPage(): string {
  const text =
    'Open the link that was made for this preview. If you have just opened it, the browser refused the cookie of this site.';
  return page('This preview needs a link', text, OPEN_SCRIPT);
}

export function endedPage(): string {
  return page(
    'The preview has ended',
    'It was revoked, or its time is over. Ask for a new link.',
    OPEN_SCRIPT,
  );
}

export function noticePage(names: { sandbox_name: string; org_name: string }): string {
  const text = `The next page was written in the sandbox “${names.sandbox_name}” of “${names.org_name}”, not by Sandkeep. Type no password of another service there.`;
  return page('You open a page of a sandbox', text, NOTICE_SCRIPT, '<button hidden>Continue</button>');
}

function page(title: string, text: string, script: string, more = ''): string {
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>${title}</title><style>${STYLE}</style></head>
<body><main><h1>${title}</h1><p id="text">${escaped(text)}</p>${more}<noscript><p>This page needs JavaScript.</p></noscript></main>
<script>${script}</script></body></html>
`;
}

function escaped(text: string): string {
  return text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;');
}
