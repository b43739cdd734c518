import { FRAGMENT, GRANT_PATH, NOTICE_PATH, OPEN_PATH } from './link.js';

/** The texts must stay as they are sent: the policy of the pages has their hashes. */
export const STYLE = `:root{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}
main{max-width:34rem;margin:20vh auto 0;padding:0 1.5rem}h1{font-size:1.4rem}button{font:inherit;padding:.4rem 1rem}`;

/**
 * Takes the token out of the address before anything else, so that it is in no history entry, and exchanges it for a
 * cookie. `replace` leaves no entry of this page. The way on stays on this origin.
 */
export const OPEN_SCRIPT = `(() => {
const show = (title, text) => {
  document.title = title;
  document.querySelector('h1').textContent = title;
  document.getElementById('text').textContent = text;
};
const start = () => {
const isOpen = location.pathname === '${OPEN_PATH}';
const token = new URLSearchParams(location.hash.slice(1)).get('${FRAGMENT}');
if (!token) {
  if (isOpen) show('This preview needs a link', 'The link is not complete: copy the whole link.');
  return;
}
const asked = isOpen ? new URLSearchParams(location.search).get('to') ?? '/' : location.pathname + location.search;
history.replaceState(null, '', location.pathname + location.search);
let to = new URL('/', location.origin);
try {
  const url = new URL(asked, location.origin);
  if (url.origin === location.origin) to = url;
} catch {}
fetch('${GRANT_PATH}', {
  method: 'POST',
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify({ token }),
}).then(async (answer) => {
  if (!answer.ok) {
    const isEnded = (await answer.json()).error.message.includes('ended');
    if (isEnded) show('The preview has ended', 'It was revoked, or its time is over. Ask for a new link.');
    else show('The link does not open this preview', 'Copy the whole link, or ask for a new one.');
  } else if (to.pathname + to.search === location.pathname + location.search) {
    history.replaceState(null, '', to.href);
    location.reload();
  } else location.replace(to.href);
}).catch(() => show('The preview cannot be opened now', 'The service did not answer. Open the link again.'));
};
start();
addEventListener('hashchange', start);
})();`;

export const NOTICE_SCRIPT = `(() => {
const button = document.querySelector('button');
button.hidden = false;
button.addEventListener('click', async () => {
  await fetch('${NOTICE_PATH}', { method: 'POST' });
  location.reload();
});
})();`;
