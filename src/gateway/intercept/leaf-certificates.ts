import { createPublicKey, generateKeyPairSync, type KeyObject } from 'node:crypto';
import { createSecureContext, type SecureContext } from 'node:tls';
import { setTimeout as sleep } from 'node:timers/promises';
import { Rate } from '../../fairness/rate.js';
import type { Authority } from '../protocol.js';
import type { GatedSandbox } from '../sandbox.js';
import type { Signer } from './certificate.js';

/** Contexts of all sandboxes. One takes some 30 KiB. */
const MOST_CONTEXTS = 4_096;
/**
 * To make a leaf certificate takes about a millisecond of the one thread of the gateway. A sandbox that asks for new
 * names all the time gets this part of it.
 */
const LEAF_MS = 1;
const SHARE = 0.05;
/** Names that a sandbox gets at once, and the longest wait for one. */
const BURST_MS = 64 * (LEAF_MS / SHARE);
const LONGEST_WAIT_MS = 5_000;
/** A leaf certificate is made again before it expires. */
const LAST_PART = 0.1;
const HOUR_MS = 3_600_000;

interface Entry {
  context: Promise<SecureContext>;
  endsAt: number;
  owner: string;
}

/** The certificates that the gateway shows, by name. */
export class LeafCertificates {
  private signer: Promise<Signer> | undefined;
  private authority: Authority | undefined;
  /** One key for all of them: only this process uses it, and a key a name would double the work. */
  private key: { pem: string; publicKey: KeyObject } | undefined;
  /** From the least recently used. */
  private readonly entries = new Map<string, Entry>();
  private readonly owned = new Map<string, Set<string>>();
  private readonly rate = new Rate();

  setAuthority(authority: Authority): void {
    const isSame = this.authority?.certificate === authority.certificate;
    if (isSame) return;
    this.authority = authority;
    this.signer = undefined;
    this.entries.clear();
    this.owned.clear();
  }

  get hasAuthority(): boolean {
    return this.authority !== undefined;
  }

  get size(): number {
    return this.entries.size;
  }

  /** The context of a TLS server for the name. Undefined: the sandbox has asked for too many new names. */
  async contextFor(sandbox: GatedSandbox, name: string): Promise<SecureContext | undefined> {
    const { id, tls } = sandbox.settings;
    const key = `${tls.validityHours} ${name}`;
    const known = this.entries.get(key);
    if (known && known.endsAt > Date.now()) {
      this.entries.delete(key);
      this.entries.set(key, known);
      return known.context;
    }
    if (known) this.drop(key, known);
    const now = performance.now();
    const wait = this.rate.aheadOf(id, now) - BURST_MS;
    if (wait > LONGEST_WAIT_MS) return undefined;
    this.rate.charge(id, LEAF_MS / SHARE, now);
    const context = this.make(name, tls.validityHours, wait);
    const lifetimeMs = tls.validityHours * HOUR_MS * (1 - LAST_PART);
    const entry = { context, endsAt: Date.now() + lifetimeMs, owner: id };
    this.keep(key, entry, Math.max(1, tls.cacheCapacity));
    context.catch(() => this.drop(key, entry));
    return context;
  }

  private async make(name: string, validityHours: number, waitMs: number): Promise<SecureContext> {
    if (waitMs > 0) await sleep(waitMs);
    // The library takes 40 ms to load. Gateways that decrypt nothing never load it.
    const { makeLeaf, openAuthority } = await import('./certificate.js');
    if (!this.authority) throw new Error('the service has sent no authority');
    const { authority } = this;
    this.signer ??= Promise.resolve().then(() => openAuthority(authority));
    this.key ??= makeKey();
    const cert = makeLeaf(await this.signer, this.key.publicKey, name, validityHours);
    return createSecureContext({ cert, key: this.key.pem, minVersion: 'TLSv1.2' });
  }

  private keep(key: string, entry: Entry, capacity: number): void {
    const owned = this.owned.get(entry.owner) ?? new Set();
    this.owned.set(entry.owner, owned);
    for (const oldest of owned) {
      if (owned.size < capacity) break;
      owned.delete(oldest);
      if (this.entries.get(oldest)?.owner === entry.owner) this.entries.delete(oldest);
    }
    for (const [oldest, each] of this.entries) {
      if (this.entries.size < MOST_CONTEXTS) break;
      this.drop(oldest, each);
    }
    owned.add(key);
    this.entries.set(key, entry);
  }

  private drop(key: string, entry: Entry): void {
    if (this.entries.get(key) === entry) this.entries.delete(key);
    const owned = this.owned.get(entry.owner);
    owned?.delete(key);
    if (owned?.size === 0) this.owned.delete(entry.owner);
  }
}

function makeKey(): { pem: string; publicKey: KeyObject } {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const pem = privateKey.export({ type: 'pkcs8', format: 'pem' }) as string;
  return { pem, publicKey: createPublicKey(privateKey) };
}
