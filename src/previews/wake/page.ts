import { hash } from 'node:crypto';
import { REASON_HEADER } from './refusals.js';

/** The texts must stay as they are sent: the policy of the page has their hashes. */
const STYLE = `:root{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}
main{max-width:34rem;margin:20vh auto 0;padding:0 1.5rem}h1{font-size:1.4rem}button{font:inherit;padding:.4rem 1rem}`;

/**
 * Waits by requests for the page itself, which the service holds until a server answers in the sandbox. HEAD changes
 * nothing there. The texts of reasons are in the page, so an answer of the sandbox cannot show others.
 */
const SCRIPT = `(() => {
const say = JSON.parse(document.getElementById('reasons').textContent);
const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));
const wait = async () => {
  for (;;) {
    const answer = await fetch(location.href, {
      method: 'HEAD', headers: { prefer: 'wait=20' }, cache: 'no-store', redirect: 'manual',
    }).catch(() => null);
    const reason = answer?.headers.get('${REASON_HEADER}');
    if (answer && !reason) return location.reload();
    if (reason && say[reason]) {
      document.querySelector('h1').textContent = 'The sandbox does not run';
      document.getElementById('text').textContent = say[reason];
      document.querySelector('button').hidden = false;
      return;
    }
    await pause(Math.min(Number(answer?.headers.get('retry-after')) || 2, 30));
  }
};
document.querySelector('button').addEventListener('click', () => location.reload());
wait();
})();`;

/** Sentences for people in a browser. A reason without one is waited for. */
const REASONS = {
  stopped: 'It was stopped while it started.',
  stopped_by_caller: 'It was stopped. Load the page again to start it.',
  not_allowed: 'Requests do not start it. Its owner can.',
  secret_violation: 'It was stopped because it misused a secret. Its owner can start it.',
  start_failed: 'It did not start. Its owner finds the reason in the console.',
  starts_fail: 'Its latest starts failed, so the next one waits. Try again in some minutes.',
  quota: 'A limit of its organization or of its machine does not allow the start now.',
};

/** The page of a visitor whose sandbox starts. It goes on by itself. */
export function waitingPage(): string {
  const title = 'The sandbox is starting';
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>${title}</title><style>${STYLE}</style><noscript><meta http-equiv="refresh" content="3"></noscript></head>
<body><main><h1>${title}</h1><p id="text">The page opens by itself.</p><button hidden>Try again</button></main>
<script type="application/json" id="reasons">${JSON.stringify(REASONS)}</script>
<script>${SCRIPT}</script></body></html>
`;
}

/** The page of a visitor whose sandbox does not start. */
export function refusedPage(reason: string): string {
  const text = REASONS[reason as keyof typeof REASONS] ?? 'Too many requests wait for it. Try again.';
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>The sandbox does not run</title><style>${STYLE}</style></head>
<body><main><h1>The sandbox does not run</h1><p id="text">${text}</p></main></body></html>
`;
}

/** Tools show previews in frames, so `frame-ancestors` is not limited. */
export const PAGE_HEADERS = {
  'content-type': 'text/html; charset=utf-8',
  'cache-control': 'no-store',
  'content-security-policy': [
    "default-src 'none'",
    `script-src '${digest(SCRIPT)}'`,
    `style-src '${digest(STYLE)}'`,
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
  ].join('; '),
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
  'x-robots-tag': 'noindex',
};

function digest(text: string): string {
  return `sha256-${hash('sha256', text, 'base64')}`;
}
