import type { Page } from 'playwright-core';
import { expect, test } from 'vitest';
import { newMember, newToken, signInMember } from '../support/members.js';
import { OPEN_HOSTS } from '../support/preview-service.js';
import { describeBrowser, enterBrowser } from './browser.js';
import { furnish, openPage, pendingRequests } from './every-page.js';
import { useConsole } from './use-console.js';

interface Stop {
  /** The number of the control in the order of the document. -1: it came later, or is no control. */
  control: number;
  name: string;
  isVisible: boolean;
  left: number;
  right: number;
  top: number;
  bottom: number;
}

/** A field of a time has a stop for each of its parts, and one for its calendar. */
const MOST_STOPS_OF_ONE = 8;
/** Presses between two readings of the stops. */
const AT_ONCE = 10;

/** Notes each control, and each stop of the focus, with its place. */
const RECORD = `(() => {
  const nameOf = (one) => (one.ariaLabel || one.labels?.[0]?.textContent || one.textContent || one.title
    || document.getElementById(one.getAttribute('aria-labelledby'))?.textContent || '').trim();
  const controls = [...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex]')]
    .filter((one) => one.tabIndex >= 0 && !one.disabled && one.checkVisibility());
  globalThis.stops = [];
  globalThis.controls = controls;
  globalThis.noteStop ??= document.addEventListener('focusin', ({ target }) => {
    const around = [target, ...(target.labels ?? [])];
    const { left, right, top, bottom } = around.at(-1).getBoundingClientRect();
    const isShown = (one) => {
      const { outlineStyle, outlineWidth, boxShadow } = getComputedStyle(one);
      return (outlineStyle !== 'none' && outlineWidth !== '0px') || boxShadow !== 'none';
    };
    const control = globalThis.controls.indexOf(target);
    // The window that gets the focus back tells again of the control that has it.
    if (control >= 0 && control === globalThis.stops.at(-1)?.control) return;
    globalThis.stops.push({
      control, name: nameOf(target), isVisible: around.some(isShown),
      left, right, top, bottom,
    });
  }) ?? true;
  // The next Tab begins at the start of the document: the place of a removed element that had the focus.
  const start = document.createElement('span');
  start.tabIndex = -1;
  document.body.prepend(start);
  start.focus();
  start.remove();
  globalThis.stops = [];
  return controls.map((one) => one.tagName.toLowerCase() + ' "' + nameOf(one) + '"');
})()`;

/** Presses Tab until the focus comes around to the first control. */
async function tabThrough(page: Page): Promise<string[]> {
  const controls = await page.evaluate<string[]>(RECORD);
  const faults: string[] = [];
  let stops: Stop[] = [];
  const isAround = () => stops.filter(({ control }) => control === 0).length > 1;
  for (let presses = 0; !isAround(); presses += AT_ONCE) {
    if (presses > MOST_STOPS_OF_ONE * (controls.length + 1)) {
      faults.push(`the focus is trapped at "${stops.at(-1)?.name}"`);
      break;
    }
    for (let press = 0; press < AT_ONCE; press += 1) await page.keyboard.press('Tab');
    stops = await page.evaluate<Stop[]>('globalThis.stops');
  }
  const reached = new Set(stops.map(({ control }) => control));
  controls.forEach((control, index) => {
    if (!reached.has(index)) faults.push(`Tab does not reach ${control}`);
  });
  if (faults.length > 0) faults.push(`the stops were: ${stops.map(({ name }) => name).join(' | ')}`);
  for (const stop of stops) {
    if (stop.name === '') faults.push(`a control has no name: ${controls[stop.control]}`);
    if (!stop.isVisible) faults.push(`the focus is not visible: ${controls[stop.control] ?? stop.name}`);
  }
  stops.slice(1).forEach((next, index) => {
    const { name, left, right, top } = stops[index]!;
    if (next.control === 0) return;
    const isAbove = next.bottom <= top && next.left < right;
    const isBefore = next.right <= left && next.bottom > top && next.top < stops[index]!.bottom;
    if (isAbove || isBefore) faults.push(`the focus goes back from "${name}" to "${next.name}"`);
  });
  return faults;
}

describeBrowser('the keyboard', () => {
  const its = useConsole({ previews: OPEN_HOSTS() });

  test('reaches each control of each page, in their visual order, with a visible focus', async () => {
    const { client, service } = its;
    const { page } = its.visitor;
    const addresses = await furnish(service, client);
    const member = await newMember(service, client.org.id, 'owner');
    await newToken(service, client.org.id, member);
    const pending = pendingRequests(page);
    await enterBrowser(its.visitor, service.url, await signInMember(service, client.org.id, member));
    // Nothing scrolls, so that places of different moments can be compared.
    await page.setViewportSize({ width: 1280, height: 4000 });
    await page.goto('/console/');
    const faults: string[] = [];
    for (const [address, path] of addresses) {
      await openPage(page, address, pending);
      for (const fault of await tabThrough(page)) faults.push(`${path}: ${fault}`);
    }
    expect(faults).toEqual([]);
  }, 900_000);

  test('would not pass a page with a wrong order, a hidden focus, a control without a name, or a trap', async () => {
    const { page } = its.visitor;
    await page.setContent(`
      <a href="#first">first</a>
      <div style="display: flex; flex-direction: row-reverse"><button>right</button><button>left</button></div>
      <button style="outline: none">plain</button>
      <input>
      <button onkeydown="event.preventDefault()">trap</button>
      <button>after the trap</button>`);
    expect(await tabThrough(page)).toEqual([
      'the focus is trapped at "trap"',
      'Tab does not reach button "after the trap"',
      expect.stringMatching(/^the stops were: first \| right \| left \| plain \|  \| trap/),
      'the focus is not visible: button "plain"',
      'a control has no name: input ""',
      'the focus goes back from "right" to "left"',
    ]);
  });
});
