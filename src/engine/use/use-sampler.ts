import { Slots } from '../../fairness/slots.js';
import type { Activity, Runtime } from '../runtime.js';
import { UseHistory, HISTORY_MS } from './use-history.js';
import { UseTotals } from './use-totals.js';
import { useOf, type Subject, type Use } from './use.js';

export const SAMPLING = {
  /** The least time between two samples of a sandbox. */
  shortestMs: 1_000,
  /** Between two points of the last hour. */
  pointMs: 30_000,
  /** Added for each tracked sandbox, so that 10,000 have half of the points each: 46 MB in all. */
  pointMsOfEach: 6,
  mostTracked: 10_000,
  /** Sandboxes of a pass, which comes every second. */
  batch: 200,
};
/** Samples for callers under way. A caller without a slot gets the latest sample. */
const ASKED = { total: 8, each: 4 };
/** The engine walks through the files of a disk, and goes on when nobody waits. */
const WALKS = { total: 2, each: 1 };
const WALK_EVERY_MS = 60_000;
const WALK_SHARE = 1 / 50;

/** An engine measures at moments of its own. */
const POINT_SLACK = 0.9;

interface Track {
  subject: Subject;
  history: UseHistory;
  /** The last sample of the run. */
  latest: { use: Use; activity: Activity } | undefined;
  /** The activity at the last point of the history. */
  point: { cpuMicros: number; at: number };
  triedAt: number;
  asking: Promise<void> | undefined;
  disk: { bytes: number | null; nextAt: number };
}

/**
 * The use of the running sandboxes of an engine, in memory. Only the process that has the lease on the engine samples.
 */
export class UseSampler {
  readonly totals;
  private readonly tracks = new Map<string, Track>();
  private readonly asked = new Slots(ASKED);
  private readonly walks = new Slots(WALKS);
  private running: ReadonlySet<string> = new Set();
  private samples = false;

  constructor(
    private readonly runtime: Pick<Runtime, 'activity' | 'diskUse'>,
    private readonly clock: () => number = Date.now,
  ) {
    this.totals = new UseTotals(clock());
  }

  /** This process has the samples of its engine. */
  get isSampling(): boolean {
    return this.samples;
  }

  get pointMs(): number {
    return Math.max(SAMPLING.pointMs, this.tracks.size * SAMPLING.pointMsOfEach);
  }

  /** Another process samples now. */
  stop(): void {
    this.samples = false;
    this.tracks.clear();
    this.running = new Set();
    this.totals.leaveAll();
  }

  /** Samples these from now on. The points of others stay for the last hour. */
  keep(running: readonly Subject[]): void {
    this.samples = true;
    const now = this.clock();
    const ids = new Set(running.map(({ sandboxId }) => sandboxId));
    for (const [id, { history }] of this.tracks) {
      if (ids.has(id)) continue;
      this.totals.leave(id);
      const isFull = this.tracks.size >= SAMPLING.mostTracked;
      if (isFull || history.lastAt < now - HISTORY_MS) this.tracks.delete(id);
    }
    for (const subject of running) this.track(subject);
    this.running = ids;
  }

  /** Takes the points that are due, the longest overdue first. */
  async pass(): Promise<void> {
    const now = this.clock();
    const due = [...this.running]
      .flatMap((id) => this.tracks.get(id) ?? [])
      .filter(({ triedAt, subject }) => {
        const pause = Math.max(this.pointMs, subject.intervalMs);
        return Math.abs(now - triedAt) >= pause;
      })
      .toSorted((a, b) => a.triedAt - b.triedAt)
      .slice(0, SAMPLING.batch);
    if (due.length === 0) return;
    for (const track of due) track.triedAt = now;
    const activities = await this.runtime.activity(due.map(({ subject }) => subject.sandboxId));
    for (const track of due) {
      const activity = activities.get(track.subject.sandboxId);
      if (activity) this.record(track, activity);
    }
  }

  /** A sample that is no older than the interval of the sandbox, if the engine gives one. Otherwise the latest. */
  async sample(subject: Subject): Promise<Use | undefined> {
    const track = this.track(subject);
    if (!track) return undefined;
    this.walk(track);
    if (!track.latest || !isFresh(track.latest.use, subject, this.clock())) {
      track.asking ??= this.ask(track).finally(() => (track.asking = undefined));
      await track.asking;
    }
    return track.latest?.use;
  }

  /** The points of the last hour, from the oldest. */
  history(sandboxId: string): Use[] {
    return this.tracks.get(sandboxId)?.history.points(this.clock()) ?? [];
  }

  private track(subject: Subject): Track | undefined {
    const { sandboxId, runId, startedAt } = subject;
    const known = this.tracks.get(sandboxId);
    if (known?.subject.runId === runId) {
      known.subject = subject;
      return known;
    }
    if (!known && this.tracks.size >= SAMPLING.mostTracked) return undefined;
    this.totals.leave(sandboxId);
    const track: Track = {
      subject,
      history: known?.history ?? new UseHistory(),
      latest: undefined,
      point: { cpuMicros: 0, at: startedAt },
      triedAt: -Infinity,
      asking: undefined,
      disk: { bytes: null, nextAt: -Infinity },
    };
    this.tracks.set(sandboxId, track);
    return track;
  }

  private async ask(track: Track): Promise<void> {
    const { orgId, sandboxId } = track.subject;
    const release = this.asked.acquire(orgId);
    if (!release) return;
    try {
      const activity = (await this.runtime.activity([sandboxId])).get(sandboxId);
      if (activity && this.tracks.get(sandboxId) === track) this.record(track, activity);
    } finally {
      release();
    }
  }

  private record(track: Track, activity: Activity): void {
    const at = activity.measuredAt ?? this.clock();
    const { latest, subject, disk, point } = track;
    // Kubelets measure every ten seconds, and give the same figures until then.
    if (activity.measuredAt !== undefined && latest && at <= latest.use.at) return;
    // A pass and a caller asked at once: the later answer comes before a sample is due.
    if (activity.measuredAt === undefined && latest && isFresh(latest.use, subject, at)) return;
    const before = latest
      ? { cpuMicros: latest.activity.cpuMicros, at: latest.use.at }
      : { cpuMicros: 0, at: subject.startedAt };
    const use = useOf(activity, before, at, disk.bytes);
    this.totals.add(subject, activity, use);
    track.latest = { use, activity };
    const pause = Math.max(this.pointMs, subject.intervalMs);
    if (Math.abs(at - track.history.lastAt) < pause * POINT_SLACK) return;
    track.history.add(useOf(activity, point, at, disk.bytes));
    track.point = { cpuMicros: activity.cpuMicros, at };
  }

  /** Measures the disk in the background while somebody looks, and rests fifty times as long. */
  private walk(track: Track): void {
    const { disk, subject } = track;
    const begun = this.clock();
    if (begun < disk.nextAt) return;
    const release = this.walks.acquire(subject.orgId);
    if (!release) return;
    disk.nextAt = Infinity;
    const measure = async () => {
      disk.bytes = (await this.runtime.diskUse(subject.sandboxId).catch(() => undefined)) ?? null;
      disk.nextAt = begun + Math.max(WALK_EVERY_MS, (this.clock() - begun) / WALK_SHARE);
      release();
    };
    void measure();
  }
}

/** No older than the interval of the sandbox. */
function isFresh(use: Use, { intervalMs }: Subject, now: number): boolean {
  const age = now - use.at;
  // Negative: the clock was set back.
  return age >= 0 && age < Math.max(intervalMs, SAMPLING.shortestMs);
}
