/** The milliseconds from opening a page until it showed its content, and of the API's answers in that time. */
export interface Opening {
  shown: number;
  api: number;
}

export interface Visit {
  bytes: number;
  firstPaint: number;
  shown: number;
  blocked: number;
  shift: number;
}

/** Milliseconds of a task beyond this block the page. */
const LONG_TASK_MS = 50;
const LIMIT_MS = 30_000;

/**
 * An expression of the browser's language, for this program is compiled without its types. `begin` runs before the
 * scripts of a page.
 */
export const STOPWATCH = `({
  begin() {
    const seen = (window.stopwatch = { shift: 0, blocked: 0 });
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) seen.shift += entry.value;
    }).observe({ type: 'layout-shift', buffered: true });
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) seen.blocked += entry.duration - ${LONG_TASK_MS};
    }).observe({ type: 'longtask', buffered: true });
  },
  painted: () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(() => resolve(performance.now())))),
  async until(isTrue) {
    const end = performance.now() + ${LIMIT_MS};
    while (!isTrue()) {
      if (performance.now() > end) throw new Error(location + ' does not show its content: ' + document.body.innerText);
      await this.painted();
    }
    return this.painted();
  },
  async visit(shows) {
    const shown = await this.until(() => document.querySelector(shows) !== null);
    const files = [performance.getEntriesByType('navigation'), performance.getEntriesByType('resource')].flat();
    const bytes = files.filter(({ name }) => !name.includes('/v1/')).reduce((sum, file) => sum + file.transferSize, 0);
    const firstPaint = performance.getEntriesByName('first-contentful-paint')[0].startTime;
    return { bytes, firstPaint, shown, ...window.stopwatch };
  },
  async open(address, shows, asks) {
    history.pushState(null, '', '/console/nowhere');
    await this.until(() => document.querySelector(shows) === null);
    performance.clearResourceTimings();
    const answers = () => performance.getEntriesByType('resource').filter(({ name }) => new URL(name).pathname === asks);
    const begun = performance.now();
    history.pushState(null, '', address);
    const shown = await this.until(() => document.querySelector(shows) !== null && answers().length > 0);
    return { shown: shown - begun, api: answers()[0].duration };
  },
})`;
