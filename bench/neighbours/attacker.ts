/**
 * The program of the attacking organization. Its standard output has a line when the attack begins, and one with its
 * answers.
 */
import { setMaxListeners } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { Attacker } from './attack.js';
import { ATTACKS } from './attacks.js';
import { Client } from './client.js';

const [name = '', address = '', key = '', image = ''] = process.argv.slice(2);
const attack = ATTACKS[name];
if (!attack) throw new Error(`there is no attack "${name}"`);
const client = new Client(address, key);
const over = new AbortController();
// Each open request listens.
setMaxListeners(0, over.signal);
process.once('SIGTERM', () => over.abort());
const attacker = new Attacker(client, image === '' ? undefined : image, over.signal, () =>
  console.log('begun'),
);
// The attack before may have used up the rate of the key.
while ((await client.call('GET', '/v1/sandboxes?limit=1')).status === 429) await pause(200);
await attack.run(attacker).catch((error: unknown) => {
  if (!over.signal.aborted) throw error;
});
console.log(JSON.stringify(attacker.answers));
process.exit(0);
