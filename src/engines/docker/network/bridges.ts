import type Docker from 'dockerode';
import { INSTANCE_LABEL } from '../container.js';
import { CONFLICT, ignoreStatus, NOT_FOUND } from '../errors.js';
import { networkNames, ownerOf } from './pause-container.js';

/**
 * Sandboxes on a bridge, running or not. The kernel allows 1,024 ports (BR_MAX_PORTS); the gateway has one, and starts
 * that the latest list of the engine does not have yet take some. A stopped sandbox counts, so that it can start again.
 */
export const SANDBOXES_PER_BRIDGE = 1_000;
/** A bridge that the engine calls full is not tried again for so long. */
const FULL_MS = 30_000;
/** After an addition ahead of need that failed. */
const RETRY_MS = 30_000;
/** The addresses of a subnet that no sandbox gets: network, broadcast, machine, gateway of names. */
const OTHER_ADDRESSES = 4;

interface Bridge {
  id: string;
  name: string;
  number: number;
  subnets: string[];
  /** The addresses of the machine on it. */
  gateways: string[];
  room: number;
}

/**
 * The bridges of the installation: `sandkeep-<id>`, then `sandkeep-<id>-2` and so on. A sandbox gets the first with
 * room, so that the last become empty and can be removed. Counts come from lists that are made anyway: a start makes no
 * further call of the engine. See docs/decisions/0049.
 */
export class Bridges {
  private bridges: Bridge[] = [];
  /** By sandbox: the name of its bridge. */
  private readonly placed = new Map<string, string>();
  private readonly full = new Map<string, number>();
  private removing: string | undefined;
  private adding: Promise<void> | undefined;
  private reading: Promise<void> | undefined;
  private isTidying = false;
  private retryAt = 0;

  constructor(
    private readonly docker: Docker,
    private readonly instanceId: string,
    private readonly options: { most: number; changed: () => void },
  ) {}

  /** No sandbox reaches a neighbour on any bridge, nor the machine by its address there. */
  get surroundings(): { subnets: string[]; gateways: string[] } {
    return {
      subnets: this.bridges.flatMap(({ subnets }) => subnets),
      gateways: this.bridges.flatMap(({ gateways }) => gateways),
    };
  }

  /** Another process may have changed them until now. Waits for nothing: the engine may hang. */
  takeOver(): void {
    this.bridges = [];
    void this.readAgain().catch(() => undefined);
  }

  /** Throws when the engine does not answer. */
  async known(): Promise<void> {
    if (this.bridges.length === 0) await this.readAgain();
  }

  /** The bridge of a new sandbox, which counts from now on. */
  async place(sandboxId: string): Promise<string> {
    await this.known();
    for (;;) {
      const found = this.bridges.find((bridge) => this.freeOn(bridge) > 0);
      if (found) {
        this.placed.set(sandboxId, found.name);
        return found.name;
      }
      await this.add();
    }
  }

  /** A sandbox that has its bridge. */
  keep(sandboxId: string, name: string | undefined): void {
    if (name !== undefined) this.placed.set(sandboxId, name);
  }

  /** The bridge of the gateway, and the only one of releases that had one. */
  async first(): Promise<string> {
    await this.known();
    const name = this.nameOf(1);
    while (!this.has(name)) await this.create(1);
    return name;
  }

  /** `docker network prune` removes a network that only stopped containers use. */
  async restore(sandboxId: string): Promise<string> {
    const name = this.placed.get(sandboxId) ?? this.nameOf(1);
    await this.readAgain();
    const number = this.numberOf(name);
    if (number === undefined) return this.place(sandboxId);
    while (!this.has(name)) await this.create(number);
    return name;
  }

  /** The engine calls the bridge of a sandbox full. */
  async placeElsewhere(sandboxId: string): Promise<string> {
    const name = this.placed.get(sandboxId);
    if (name !== undefined) this.full.set(name, performance.now() + FULL_MS);
    this.placed.delete(sandboxId);
    return this.place(sandboxId);
  }

  /** `pauses`: all of a list of the engine. `isClaimed`: its start or removal may be newer than the list. */
  note(pauses: readonly Docker.ContainerInfo[], isClaimed: (sandboxId: string) => boolean): void {
    const listed = new Map(pauses.map((pause) => [ownerOf(pause)!, networkNames(pause)[0]]));
    for (const id of this.placed.keys()) {
      if (!listed.has(id) && !isClaimed(id)) this.placed.delete(id);
    }
    for (const [id, name] of listed) {
      if (!isClaimed(id) || !this.placed.has(id)) this.keep(id, name);
    }
    this.tidy();
  }

  async removeAll(): Promise<void> {
    await this.readAgain();
    for (const { id } of this.bridges)
      await this.docker.getNetwork(id).remove().catch(ignoreStatus(NOT_FOUND));
    this.bridges = [];
  }

  /** One change at a time: adds a bridge before starts wait for it, or removes the last one when it is empty. */
  private tidy(): void {
    const [first] = this.bridges;
    if (this.isTidying || !first) return;
    const ahead = Math.ceil(first.room / 20);
    const free = this.bridges.reduce((sum, bridge) => sum + Math.max(0, this.freeOn(bridge)), 0);
    const used = new Set(this.placed.values());
    const empty = this.bridges.findLast(({ name, number }) => number > 1 && !used.has(name));
    if (free < ahead) {
      if (performance.now() >= this.retryAt) this.inBackground(async () => this.add());
      // Room for twice as many, else a sandbox that comes and goes would add and remove a bridge.
    } else if (empty && free - this.freeOn(empty) >= 2 * ahead) {
      this.inBackground(async () => this.remove(empty));
    }
  }

  private inBackground(change: () => Promise<void>): void {
    this.isTidying = true;
    change()
      // A start that needs a bridge reports the reason.
      .catch(() => (this.retryAt = performance.now() + RETRY_MS))
      .finally(() => (this.isTidying = false));
  }

  private async remove({ id, name }: Bridge): Promise<void> {
    this.removing = name;
    try {
      // The engine refuses while a container runs on it.
      await this.docker.getNetwork(id).remove().catch(ignoreStatus(NOT_FOUND));
      await this.readAgain();
    } finally {
      this.removing = undefined;
    }
  }

  private async add(): Promise<void> {
    let number = 1;
    while (this.has(this.nameOf(number))) number += 1;
    await this.create(number);
  }

  /** One at a time. It may add another one than that of this number, for another start. */
  private async create(number: number): Promise<void> {
    this.adding ??= this.createNow(number).finally(() => (this.adding = undefined));
    await this.adding;
  }

  private async createNow(number: number): Promise<void> {
    const name = this.nameOf(number);
    await this.docker
      .createNetwork({
        Name: name,
        Driver: 'bridge',
        CheckDuplicate: true,
        EnableIPv6: false,
        Labels: { [INSTANCE_LABEL]: this.instanceId },
        // A second barrier between neighbours, besides the rules.
        Options: { 'com.docker.network.bridge.enable_icc': 'false' },
      })
      .catch(ignoreStatus(CONFLICT));
    await this.readAgain();
    if (this.has(name)) return;
    throw new Error(
      `the engine has a network ${name} that the service did not make: remove it with "docker network rm ${name}"`,
    );
  }

  /** A read that began before a change of this process has nothing of it. */
  private async readAgain(): Promise<void> {
    const before = this.reading;
    const reading = (this.reading = (async () => {
      await before?.catch(() => undefined);
      await this.read();
    })());
    await reading;
  }

  private async read(): Promise<void> {
    const filters = { label: [`${INSTANCE_LABEL}=${this.instanceId}`] };
    const found = new Map<string, Bridge>();
    const networks = await this.docker.listNetworks({ filters });
    for (const network of networks.toSorted((a, b) => order(a).localeCompare(order(b)))) {
      const number = this.numberOf(network.Name);
      if (number === undefined) continue;
      // Two processes made it at once, which the engine does not see. Both keep the older one.
      if (found.has(network.Name))
        await this.docker
          .getNetwork(network.Id)
          .remove()
          .catch(() => undefined);
      else found.set(network.Name, bridgeOf(network, number, this.options.most));
    }
    const before = JSON.stringify(this.surroundings);
    this.bridges = [...found.values()].toSorted((a, b) => a.number - b.number);
    if (JSON.stringify(this.surroundings) !== before) this.options.changed();
  }

  private freeOn({ name, room }: Bridge): number {
    if (name === this.removing || performance.now() < (this.full.get(name) ?? 0)) return 0;
    let used = 0;
    for (const bridge of this.placed.values()) used += Number(bridge === name);
    return room - used;
  }

  private has(name: string): boolean {
    return this.bridges.some((bridge) => bridge.name === name);
  }

  private nameOf(number: number): string {
    return `sandkeep-${this.instanceId}${number === 1 ? '' : `-${number}`}`;
  }

  private numberOf(name: string): number | undefined {
    if (name === this.nameOf(1)) return 1;
    const number = Number(name.slice(this.nameOf(1).length + 1));
    return Number.isSafeInteger(number) && number > 1 && name === this.nameOf(number) ? number : undefined;
  }
}

function order({ Created, Id }: Docker.NetworkInspectInfo): string {
  return `${Created} ${Id}`;
}

function bridgeOf({ Id, Name, IPAM }: Docker.NetworkInspectInfo, number: number, most: number): Bridge {
  const config = IPAM?.Config ?? [];
  const subnets = config.flatMap(({ Subnet }) => Subnet ?? []);
  const prefix = Number(subnets.find((subnet) => !subnet.includes(':'))?.split('/')[1] ?? 16);
  return {
    id: Id,
    name: Name,
    number,
    subnets,
    gateways: config.flatMap(({ Gateway }) => Gateway?.split('/')[0] ?? []),
    // The operator chooses the sizes of subnets with default-address-pools.
    room: Math.max(1, Math.min(most, 2 ** (32 - prefix) - OTHER_ADDRESSES)),
  };
}
