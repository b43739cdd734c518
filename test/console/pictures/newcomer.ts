import type { Locator, Page } from 'playwright-core';

/** Seconds of the keystroke-level model: to point and click, to press a key, and to decide on the next step. */
const CLICK_S = 1.3;
const KEY_S = 0.28;
const DECIDE_S = 1.35;

/** A person at the console, whose actions are counted. */
export class Newcomer {
  #clicks = 0;
  #keys = 0;
  #begun = Date.now();

  constructor(readonly page: Page) {}

  async begin(): Promise<void> {
    await this.page.goto('/console/');
    await this.page.getByRole('region', { name: 'Newest events' }).getByRole('listitem').first().waitFor();
    this.#clicks = 0;
    this.#keys = 0;
    this.#begun = Date.now();
  }

  async click(target: Locator): Promise<void> {
    this.#clicks += 1;
    await target.click();
  }

  async type(text: string, into?: Locator): Promise<void> {
    if (into !== undefined) {
      await this.click(into);
      await this.page.keyboard.press('Control+a');
    }
    this.#keys += text.length;
    await this.page.keyboard.type(text);
  }

  async press(key: string): Promise<void> {
    this.#keys += 1;
    await this.page.keyboard.press(key);
  }

  /** The model has the seconds of the person, the clock those of the console and the engine. */
  get result(): { clicks: number; keys: number; personSeconds: number; consoleSeconds: number } {
    const personSeconds = this.#clicks * (CLICK_S + DECIDE_S) + this.#keys * KEY_S;
    return {
      clicks: this.#clicks,
      keys: this.#keys,
      personSeconds: Math.round(personSeconds),
      consoleSeconds: Math.round((Date.now() - this.#begun) / 1000),
    };
  }
}
