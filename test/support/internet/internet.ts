import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { PACKAGE_ROOT } from '../../../src/lib/package-root.js';
import { Authority } from '../certificates.js';
import { networkOf, sh } from '../netns.js';
import type { Command, SeenRequest, ServedCertificate, ServersConfig, Zone } from './protocol.js';

/** Below the time limit of the set-up of a test file. */
const LOCK_SECS = 170;
const SERVERS = join(PACKAGE_ROOT, 'dist/test/support/internet/servers.js');

export interface InternetOptions {
  /** Each test file that runs beside others has a block of addresses of its own: 45.13.<number>.0/24. */
  number: number;
  zone: (address: (last: number) => string) => Zone;
  /** Further hosts of the certificate of the test authority. Those of the zone are in it. */
  names?: string[];
  /** Hosts with a certificate of an authority that nobody trusts. */
  untrusted?: string[];
  /** Hosts with a certificate for another name. */
  misnamed?: string[];
  files?: Record<string, string>;
  /** The field `authorization` that a host demands, with 401 before. */
  authorizations?: Record<string, string>;
  /** A program in place of the servers, which reads the same configuration. */
  program?: string;
}

/**
 * A small internet for sandboxes: a network namespace with public addresses, to which the machine has a route. It has
 * name servers, web servers and others, which `servers.ts` opens on every address.
 */
export class Internet {
  private readonly waiting = new Map<number, (answer: any) => void>();
  private last = 0;

  private constructor(
    private readonly options: InternetOptions,
    readonly namespace: string,
    readonly authority: Authority,
    private readonly child: ChildProcess,
    private readonly lock: ChildProcess,
  ) {
    createInterface(child.stdout!).on('line', (line) => {
      const { id, answer } = JSON.parse(line);
      this.waiting.get(id)?.(answer);
      this.waiting.delete(id);
    });
  }

  static async start(options: InternetOptions): Promise<Internet> {
    const { number, untrusted = [], misnamed = [] } = options;
    const namespace = `sk-internet-${number}`;
    const lock = await takeBlock(number);
    makeNamespace(namespace, number);
    const child = spawn('nsenter', [networkOf(namespace), process.execPath, options.program ?? SERVERS], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    const authority = new Authority();
    const internet = new Internet(options, namespace, authority, child, lock);
    const zone = options.zone((last) => internet.address(last));
    const special = new Set([...untrusted, ...misnamed]);
    const names = [...Object.keys(zone), ...(options.names ?? [])].filter((name) => !special.has(name));
    const certificates: ServedCertificate[] = [{ ...authority.issue({ names }), names }];
    if (untrusted.length > 0) {
      certificates.push({ ...new Authority().issue({ names: untrusted }), names: untrusted });
    }
    if (misnamed.length > 0) {
      certificates.push({ ...authority.issue({ names: ['other.invalid'] }), names: misnamed });
    }
    const all = [internet.resolver, ...Object.values(zone).flatMap((record) => record.addresses ?? [])];
    const addresses = new Set(all.filter((address) => address.startsWith(internet.address(0).slice(0, -1))));
    const config: ServersConfig = {
      resolver: internet.resolver,
      zone,
      certificates,
      files: options.files ?? {},
      authorizations: options.authorizations ?? {},
      udpAddresses: [...addresses],
    };
    const ready = internet.answerTo(undefined);
    child.stdin.write(`${JSON.stringify(config)}\n`);
    await ready;
    return internet;
  }

  address(last: number): string {
    return `45.13.${this.options.number}.${last}`;
  }

  /** The name server has it. */
  get resolver(): string {
    return this.address(53);
  }

  /** Adds to the records of names. */
  async setNames(zone: Zone): Promise<void> {
    await this.send({ do: 'zone', zone });
  }

  /** The requests since the previous call. */
  async requests(): Promise<SeenRequest[]> {
    return this.send({ do: 'requests' });
  }

  /** The questions to the name server since the previous call. */
  async questions(): Promise<string[]> {
    return this.send({ do: 'questions' });
  }

  /** The connections since the previous call, as `tcp <address>:<port>`. */
  async contacts(): Promise<string[]> {
    return this.send({ do: 'contacts' });
  }

  async close(): Promise<void> {
    this.child.stdin!.end();
    if (this.child.exitCode === null) await once(this.child, 'exit');
    removeNamespace(this.namespace, this.options.number);
    this.lock.stdin!.end();
  }

  private async send(command: Command): Promise<any> {
    const id = (this.last += 1);
    const answer = this.answerTo(id);
    this.child.stdin!.write(`${JSON.stringify({ id, command })}\n`);
    return answer;
  }

  /** `undefined`: the line that says that the servers listen. */
  private async answerTo(id: number | undefined): Promise<any> {
    return new Promise((resolve, reject) => {
      const fail = () => reject(new Error('the servers of the internet have ended'));
      this.child.once('exit', fail);
      this.waiting.set(id as number, (answer) => {
        this.child.off('exit', fail);
        resolve(answer);
      });
    });
  }
}

/** Waits while another test run has the block. The lock ends with this process. */
async function takeBlock(number: number): Promise<ChildProcess> {
  const file = `/run/lock/sandkeep-internet-${number}`;
  const command = ['--timeout', String(LOCK_SECS), file, 'sh', '-c', 'echo locked; exec cat'];
  const child = spawn('flock', command, { stdio: ['pipe', 'pipe', 'inherit'] });
  const isLocked = await Promise.race([
    once(child.stdout, 'data').then(() => true),
    once(child, 'exit').then(() => false),
  ]);
  if (!isLocked) throw new Error(`another test run has the addresses ${blockOf(number)} for ${LOCK_SECS} s`);
  return child;
}

/** Replaces the remains of a killed test run. */
function makeNamespace(namespace: string, number: number): void {
  removeNamespace(namespace, number);
  const link = linkOf(number);
  sh(`
    ip netns add ${namespace}
    ip link add ${link} type veth peer name eth0 netns ${namespace}
    ip addr add 10.211.${number}.1/30 dev ${link}; ip link set ${link} up
    ip route add ${blockOf(number)} via 10.211.${number}.2
    # Packets of a test that outlives its internet must never leave the machine.
    ip route add blackhole ${blockOf(number)} metric 1000
  `);
  sh(
    `ip link set lo up; ip link set eth0 up; ip addr add 10.211.${number}.2/30 dev eth0
     ip route add default via 10.211.${number}.1
     ip route add local ${blockOf(number)} dev lo`,
    namespace,
  );
}

function removeNamespace(namespace: string, number: number): void {
  sh(`
    ip link del ${linkOf(number)} 2>/dev/null || true
    ip netns del ${namespace} 2>/dev/null || true
    ip route del blackhole ${blockOf(number)} metric 1000 2>/dev/null || true
  `);
}

const linkOf = (number: number) => `sk-inet-${number}`;
const blockOf = (number: number) => `45.13.${number}.0/24`;
