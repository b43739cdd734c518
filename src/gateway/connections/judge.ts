import { isIP } from 'node:net';
import { hasDomainRules } from '../../network-policy/domains.js';
import type { Attempt, Verdict } from '../../network-policy/evaluate.js';
import type { GatedSandbox } from '../sandbox.js';
import type { FirstBytes } from './first-bytes.js';

const WEB_PORTS = new Set([80, 443]);

export interface Target {
  sandbox: GatedSandbox;
  /** The original destination. */
  address: string;
  port: number;
}

export interface Judgement extends Verdict {
  /** The name that the first bytes claim. An IP address counts as none. */
  name: string | undefined;
  /** For people, when it is denied. */
  reason: string;
}

/** Whether clients of the port speak first, by TLS or HTTP. The name that they show is known then. */
export function mustShowName({ sandbox, port }: Target): boolean {
  return WEB_PORTS.has(port) || isIntercepted(sandbox, port);
}

/** Whether the policy asks for the names that connections claim. */
export function isNamed({ settings }: GatedSandbox): boolean {
  return settings.strict && hasDomainRules(settings.policy);
}

/**
 * Decides by the policy. A rule that allows a domain matches only the name of the first bytes, and only if the sandbox
 * resolved it to this address. A rule that denies one matches every claimed name. A connection that claims none is
 * judged by its address. On other ports than those of the web, the names of the address count for other protocols.
 */
export function judge(target: Target, first: FirstBytes): Judgement {
  const { sandbox, address, port } = target;
  const name = 'name' in first && first.name !== undefined && isIP(first.name) === 0 ? first.name : undefined;
  if (first.kind === 'broken' && isNamed(sandbox))
    return { action: 'deny', rule: 'default', name, reason: first.reason };
  const isOpaque = first.kind === 'other' || first.kind === 'broken';
  if (isOpaque && sandbox.settings.tls.enabled && isIntercepted(sandbox, port))
    return {
      action: 'deny',
      rule: 'default',
      name,
      reason: 'a connection to an intercepted port must be TLS',
    };
  const decide = (names: Names) => sandbox.evaluator.decide({ carrier: 'tcp', address, port, ...names });
  const isBound = name !== undefined && sandbox.bindings.has(name, address);
  const verdict = decide(namesFor(target, first, name, isBound));
  if (verdict.action === 'deny' && first.kind === 'http2') {
    // Its requests have names, which the forwarder judges one by one. Some name must be possible.
    for (const possible of sandbox.bindings.namesOf(address)) {
      const other = decide({ names: [possible], claims: [] });
      if (other.action === 'allow') return { ...other, name: possible, reason: '' };
    }
  }
  return { ...verdict, name, reason: reasonOf(verdict, name, isBound) };
}

type Names = Required<Pick<Attempt, 'names' | 'claims'>>;

function namesFor(target: Target, first: FirstBytes, name: string | undefined, isBound: boolean): Names {
  const { sandbox, address } = target;
  // The kernel's sets count every name of an address, and so does the gateway for the same policy.
  const isByAddress = !isNamed(sandbox) || (first.kind === 'other' && !mustShowName(target));
  if (isByAddress) return { names: sandbox.bindings.namesOf(address), claims: [] };
  if (name === undefined) return { names: [], claims: sandbox.bindings.namesOf(address) };
  // A tunnel leads to another machine than the one that has the name.
  const counts = isBound && !(first.kind === 'http' && first.isTunnel);
  return { names: counts ? [name] : [], claims: [name] };
}

function reasonOf({ action, rule }: Verdict, name: string | undefined, isBound: boolean): string {
  if (action === 'allow') return '';
  if (rule === 'guard')
    return 'the address belongs to the machine, to a metadata service or to another sandbox';
  const why = rule === 'default' ? 'no rule of the network policy allows it' : 'the network policy denies it';
  if (rule !== 'default') return why;
  if (name === undefined) return `${why}, and the connection names no host`;
  return isBound ? why : `${why}, and the sandbox did not resolve the name to this address`;
}

function isIntercepted({ settings }: GatedSandbox, port: number): boolean {
  const { tls, secrets } = settings;
  return (tls.enabled || secrets.length > 0) && tls.ports.includes(port);
}
