import { isIP } from 'node:net';
import { sleep } from '../../../lib/sleep.js';
import { READ_ONLY, type Guest } from '../../../guest/guest.js';
import type { Cluster } from '../client.js';
import { PodGuests } from '../guests.js';
import { notEnforced, type Findings } from './findings.js';
import { PROBE_PORT, ProbePods, type ProbeOptions } from './probe-pods.js';

/** How long a network may take to follow a policy. */
const FOLLOW_LIMIT_MS = 15_000;
const CONNECT_LIMIT_MS = 2_000;
const POLL_MS = 250;
const KUBELET_PORT = 10_250;
const LARGEST_FILE = 64 * 1024;

/** Finds out with two Pods whether the cluster enforces policies. A connection between them must work without one. */
export async function probeNetwork(cluster: Cluster, options: ProbeOptions): Promise<Findings> {
  const pods = new ProbePods(cluster, options);
  const guests = new PodGuests(cluster, (name) => ({ place: { name, namespace: cluster.namespace } }));
  await pods.remove();
  try {
    const started = await pods.start();
    if (typeof started === 'string') return notEnforced(`the probe of the network could not run: ${started}`);
    const { guest, release } = await guests.open(pods.nameOf('client'));
    try {
      return await probeFrom(guest, pods, started);
    } finally {
      release();
    }
  } finally {
    guests.close();
    await pods.remove();
  }
}

type Started = Exclude<Awaited<ReturnType<ProbePods['start']>>, string>;

async function probeFrom(guest: Guest, pods: ProbePods, { client, server }: Started): Promise<Findings> {
  const addresses = (server.status?.podIPs ?? []).flatMap(({ ip }) => ip ?? []);
  const node = client.status!.hostIP!;
  const reach = async (isWanted: boolean) => {
    const all = await Promise.all(addresses.map(async (address) => follows(guest, address, isWanted)));
    return all.every(Boolean);
  };
  if (!(await reach(true)))
    return notEnforced('its Pods do not reach each other, so the probe shows nothing');
  const seesNode = await connects(guest, node, KUBELET_PORT);

  await pods.addPolicy('server', 'closed', { policyTypes: ['Ingress'] });
  if (!(await reach(false))) return notEnforced('a NetworkPolicy does not stop traffic to a Pod');
  // Beside the first one: without it the connection would work before this policy has any effect.
  const ports = [{ protocol: 'TCP', port: PROBE_PORT - 1, endPort: PROBE_PORT }];
  const opening = { policyTypes: ['Ingress'], ingress: [{ _from: [pods.peerOf('client')], ports }] };
  await pods.addPolicy('server', 'open', opening);
  const hasPortRanges = await reach(true);
  await pods.removePolicies();
  if (!(await reach(true))) return notEnforced('its Pods do not reach each other any more after a policy');
  await pods.addPolicy('client', 'closed', { policyTypes: ['Ingress', 'Egress'] });
  if (!(await reach(false))) return notEnforced('a NetworkPolicy does not stop traffic from a Pod');
  return {
    isEnforced: true,
    reason: null,
    hasPortRanges,
    reachesNode: seesNode && (await connects(guest, node, KUBELET_PORT)),
    podAddresses: addresses,
    otherAddresses: [node, ...serviceAddress(guest)],
    resolvers: await resolversOf(guest),
  };
}

/**
 * Whether connections succeed or fail as they should, soon. Two in a row must, because networks follow a policy in
 * steps.
 */
async function follows(guest: Guest, address: string, isWanted: boolean): Promise<boolean> {
  const deadline = performance.now() + FOLLOW_LIMIT_MS;
  for (let hits = 0; performance.now() < deadline; await sleep(POLL_MS)) {
    hits = (await connects(guest, address, PROBE_PORT)) === isWanted ? hits + 1 : 0;
    if (hits === 2) return true;
  }
  return false;
}

async function connects(guest: Guest, address: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const end = (isConnected: boolean) => {
      clearTimeout(limit);
      resolve(isConnected);
    };
    const connection = guest.connect(address, port, {
      connected: () => {
        connection.close();
        end(true);
      },
      data: () => undefined,
      ended: () => undefined,
      closed: () => end(false),
    });
    const limit = setTimeout(() => {
      connection.close();
      end(false);
    }, CONNECT_LIMIT_MS);
  });
}

function serviceAddress({ environment }: Guest): string[] {
  const name = 'KUBERNETES_SERVICE_HOST=';
  const address = environment.find((entry) => entry.startsWith(name))?.slice(name.length) ?? '';
  return isIP(address) === 0 ? [] : [address];
}

async function resolversOf(guest: Guest): Promise<string[]> {
  const text = await readText(guest, '/etc/resolv.conf');
  return [...text.matchAll(/^nameserver\s+(\S+)/gm)].flatMap(([, address = '']) =>
    isIP(address) === 0 ? [] : [address],
  );
}

async function readText(guest: Guest, path: string): Promise<string> {
  const files = guest.files();
  try {
    const handle = await files.open(path, READ_ONLY);
    return (await files.read(handle, 0n, LARGEST_FILE)).toString('utf8');
  } finally {
    files.end();
  }
}
