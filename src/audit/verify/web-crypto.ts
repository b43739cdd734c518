import { concatBytes, fromBase64, sameBytes, toHex } from '../../lib/bytes.js';
import { genesisText, leafText, linkFacts, type ChainEntry, type LoggedEvent } from '../events/chain-text.js';
import {
  findSignatureFault,
  keyTextsIn,
  signedText,
  type SignatureFault,
  type SignedCheckpoint,
  type SignedDrop,
} from '../log/signed-text.js';
import type { LogCrypto } from './log-verifier.js';
import type { ExportLine } from './parse-line.js';

type CryptoKey = Awaited<ReturnType<typeof crypto.subtle.importKey>>;

export interface WebKey {
  id: string;
  key: CryptoKey;
}

const ED25519 = { name: 'Ed25519' };
const encoder = new TextEncoder();

/** `text`: lines of "sandkeep events key", the newest key first. Throws ExplainedError. */
export async function readWebKeys(text: string): Promise<WebKey[]> {
  return Promise.all(
    keyTextsIn(text).map(async (line) => {
      const bytes = fromBase64(line);
      const key = await crypto.subtle.importKey('raw', bytes, ED25519, false, ['verify']);
      return { id: toHex(await sha256(bytes)).slice(0, 16), key };
    }),
  );
}

/**
 * The results of WebCrypto, which has no synchronous functions: `prepare` computes them for a batch of lines at once.
 * The link of an entry is computed from the recorded previous link, which the verifier has compared by then.
 */
export class WebCrypto implements LogCrypto {
  private previous: Uint8Array = new Uint8Array();
  private readonly genesis = new Map<string, Uint8Array>();
  private readonly leaves = new WeakMap<LoggedEvent, Uint8Array>();
  private readonly links = new WeakMap<ChainEntry, { previous: Uint8Array; link: Uint8Array }>();
  private readonly signers = new WeakMap<SignedCheckpoint | SignedDrop, string>();

  /** Undefined: signatures are not verified. */
  constructor(private readonly keys: readonly WebKey[] | undefined) {}

  get currentKeyId(): string | undefined {
    return this.keys?.at(0)?.id;
  }

  async prepare(lines: readonly ExportLine[]): Promise<void> {
    await Promise.all(lines.map((line) => this.prepareLine(line)));
  }

  genesisLink(orgId: string): Uint8Array {
    return prepared(this.genesis.get(orgId));
  }

  leafOf(event: LoggedEvent): Uint8Array {
    return prepared(this.leaves.get(event));
  }

  linkOf(previous: Uint8Array, entry: ChainEntry): Uint8Array {
    const result = prepared(this.links.get(entry));
    if (!sameBytes(result.previous, previous)) throw new Error('the link was prepared after another entry');
    return result.link;
  }

  checkSignature(
    checkpoint: SignedCheckpoint | SignedDrop,
    headKey: string | undefined,
  ): SignatureFault | undefined {
    if (!this.keys) return undefined;
    const signer = this.signers.get(checkpoint);
    return findSignatureFault(checkpoint, this.keys, headKey, ({ id }) => id === signer);
  }

  private prepareLine(line: ExportLine): Promise<void> {
    if ('begin' in line) return this.prepareBegin(line.begin.org_id, line.begin.link);
    if ('entry' in line) return this.prepareEntry(line.entry);
    return this.prepareSignature('drop' in line ? line.drop : 'end' in line ? line.end : line.checkpoint);
  }

  private async prepareBegin(orgId: string, link: Uint8Array): Promise<void> {
    this.previous = link;
    this.genesis.set(orgId, await sha256(encoder.encode(genesisText(orgId))));
  }

  private async prepareEntry(entry: ChainEntry): Promise<void> {
    const { previous } = this;
    this.previous = entry.link;
    const { event } = entry;
    const linked = sha256(concatBytes([previous, encoder.encode(linkFacts(entry)), entry.leaf]));
    if (event) this.leaves.set(event, await sha256(encoder.encode(leafText(event))));
    this.links.set(entry, { previous, link: await linked });
  }

  private async prepareSignature(checkpoint: SignedCheckpoint | SignedDrop): Promise<void> {
    const signer = this.keys?.find(({ id }) => id === checkpoint.key_id);
    if (!signer) return;
    const signature = concatBytes([checkpoint.signature]);
    const text = encoder.encode(signedText(checkpoint));
    if (await crypto.subtle.verify(ED25519, signer.key, signature, text)) {
      this.signers.set(checkpoint, signer.id);
    }
  }
}

async function sha256(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  return new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
}

function prepared<T>(value: T | undefined): T {
  if (value === undefined) throw new Error('the result was not prepared');
  return value;
}
