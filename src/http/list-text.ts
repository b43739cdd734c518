import type { Turns } from '../lib/turns.js';

const ITEMS_OF_STEP = 100;

/** Makes the text of a long list in turns with other work: in one step, 50,000 files would hold up all other requests. */
export async function listText(
  turns: Turns,
  key: string,
  name: string,
  items: readonly object[],
): Promise<Buffer> {
  const pieces = [Buffer.from(`{${JSON.stringify(name)}:[`)];
  for (let start = 0; start < items.length; start += ITEMS_OF_STEP) {
    const step = () => {
      const texts = items.slice(start, start + ITEMS_OF_STEP).map((item) => JSON.stringify(item));
      pieces.push(Buffer.from(`${start > 0 ? ',' : ''}${texts.join(',')}`));
    };
    await turns.once(key, step);
  }
  pieces.push(Buffer.from(']}'));
  return Buffer.concat(pieces);
}
