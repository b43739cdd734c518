import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { table } from '../src/cli/table.js';
import { ExplainedError } from '../src/lib/explained-error.js';
import { PACKAGE_ROOT } from '../src/lib/package-root.js';
import { IMAGE as MICROVM_IMAGE } from '../test/support/microvm/service.js';
import { machineLine, type MicrovmOptions } from './microvm-service.js';
import { ATTACKS } from './neighbours/attacks.js';
import { Client } from './neighbours/client.js';
import { openInstallation, type Installation } from './neighbours/installation.js';
import { KINDS, UsualWork, type Kind, type Measured } from './neighbours/usual-work.js';

export interface NeighboursOptions {
  /** Undefined: the simulated runtime, without the attacks that need containers. */
  image?: string | undefined;
  dockerSocket: string;
  /** Undefined, default: on Docker, or simulated. */
  microvm?: MicrovmOptions | undefined;
  seconds: number;
  /** Names of attacks; empty: all. */
  only: readonly string[];
}

export interface Attacked {
  /** The number of answers of each status that the attacking organization got. */
  answers: Record<string, number>;
  attacked: Measured;
}

interface Beside extends Attacked {
  attack: string;
  idle: Measured;
}

const TARGET = 3;
/** Messages can have ids of sandboxes, so all of them may differ. */
const SHOWN_ERRORS = 5;
/** The time in which an attack prepares itself. */
const PREPARATION_MS = 400_000;
/** An emulated processor takes seconds for a start. One a second would measure only the queue of starts. */
const EMULATED_START_MS = 10_000;

/** Prints the times of one organization beside an idle neighbour, and beside one that does its worst. */
export async function neighbours(asked: NeighboursOptions): Promise<void> {
  const { microvm } = asked;
  const options = microvm ? { ...asked, image: MICROVM_IMAGE } : asked;
  if (microvm) console.log(machineLine(microvm, `${options.seconds} s a measurement`));
  const unknown = options.only.find((name) => !ATTACKS[name]);
  if (unknown !== undefined) {
    throw new ExplainedError(
      `there is no attack "${unknown}"; there are: ${Object.keys(ATTACKS).join(', ')}`,
    );
  }
  const rows: string[][] = [];
  let missed = 0;
  const names = Object.keys(ATTACKS).filter((name) =>
    options.only.length > 0
      ? options.only.includes(name)
      : options.image !== undefined || !ATTACKS[name]!.containers,
  );
  for (const name of names) {
    const beside = await measureBeside(name, options);
    const cells = KINDS.map((kind) => compare(kind, beside));
    if (beside.attacked.errors.length > 0 || cells.some((cell) => cell.endsWith('✗'))) missed += 1;
    rows.push([beside.attack, ...cells, String(beside.attacked.errors.length), answersText(beside.answers)]);
    console.error(`${beside.attack}: ${cells.join(' | ')} | ${answersText(beside.answers)}`);
    const errors = new Set(beside.attacked.errors.map(({ kind, message }) => `${kind}: ${message}`));
    for (const error of [...errors].slice(0, SHOWN_ERRORS)) console.error(`  ${error}`);
  }
  const head = KINDS.map((kind) => `${kind.toUpperCase()} p99 ms`);
  console.log(table(['NEIGHBOUR', ...head, 'ERRORS', 'ANSWERS TO THE NEIGHBOUR'], rows));
  const verdict =
    missed === 0
      ? 'Every row meets the target, without errors.'
      : `${missed} of ${rows.length} rows miss it.`;
  console.log(
    `\nIn each cell: beside an idle neighbour → beside this one, and the ratio (target: ${TARGET}). ${verdict}`,
  );
  if (options.image === undefined) {
    const left = Object.keys(ATTACKS).filter((name) => ATTACKS[name]!.containers);
    console.log(`Without --image these were left out: ${left.join(', ')}.`);
  }
}

/** Measures one attack on an installation of its own: none leaves anything to the next. */
async function measureBeside(attack: string, { seconds, ...options }: NeighboursOptions): Promise<Beside> {
  const neighbourhood = await openNeighbourhood(options);
  try {
    // The first requests of a process are slow.
    await neighbourhood.work.measure(Math.min(seconds, 2));
    const idle = await neighbourhood.work.measure(seconds);
    return { attack, idle, ...(await neighbourhood.measure(attack, seconds)) };
  } finally {
    await neighbourhood.close();
  }
}

/** An installation with the usual work of one organization, beside which another one attacks. */
export async function openNeighbourhood({
  image,
  dockerSocket,
  microvm,
}: Pick<NeighboursOptions, 'image' | 'dockerSocket' | 'microvm'>) {
  const installation = await openInstallation(
    microvm ?? (image === undefined ? undefined : { dockerSocket }),
  );
  const client = new Client(installation.address, installation.key);
  let work: UsualWork | undefined;
  const close = async () => {
    work?.close();
    client.close();
    await installation.close();
  };
  try {
    const prepared = (work = await UsualWork.prepare(
      client,
      image,
      microvm?.emulation ? EMULATED_START_MS : undefined,
    ));
    return {
      work: prepared,
      close,
      async measure(attack: string, seconds: number): Promise<Attacked> {
        const attacker = await beginAttack(installation, attack, image);
        const attacked = await prepared.measure(seconds);
        return { answers: await attacker.end(), attacked };
      },
    };
  } catch (error) {
    await close();
    throw error;
  }
}

async function beginAttack({ address, attackerKey }: Installation, name: string, image = '') {
  const program = join(PACKAGE_ROOT, 'dist', 'bench', 'neighbours', 'attacker.js');
  // Attackers are on other machines: here they take what the service and the measured client leave.
  const child = spawn('nice', ['-n', '19', process.execPath, program, name, address, attackerKey, image], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  // After the last line; 'exit' can come before it.
  const ended = once(child, 'close');
  const lines: string[] = [];
  const reader = createInterface(child.stdout);
  reader.on('line', (line) => lines.push(line));
  const silent = AbortSignal.timeout(PREPARATION_MS);
  await Promise.race([once(reader, 'line', { signal: silent }), ended]);
  if (lines[0] !== 'begun') throw new Error(`the attack "${name}" ended before it began`);
  return {
    async end(): Promise<Record<string, number>> {
      child.kill('SIGTERM');
      await ended;
      const last = lines.at(-1);
      if (last === undefined || last === 'begun') throw new Error(`the attack "${name}" failed`);
      return JSON.parse(last) as Record<string, number>;
    },
  };
}

/** A cell names the failures: work that failed has no time. */
function compare(kind: Kind, { idle, attacked }: Beside): string {
  const [before, beside] = [p99(idle.times[kind]), p99(attacked.times[kind])];
  if (before === undefined) return failuresOf(kind, idle) === 0 ? '' : 'fails beside an idle one ✗';
  const failed = failuresOf(kind, attacked);
  const failures = failed === 0 ? '' : `, ${failed} failed`;
  if (beside === undefined) return `${before.toFixed(0)} → none${failures} ✗`;
  const ratio = beside / before;
  const mark = ratio <= TARGET && failed === 0 ? '✓' : '✗';
  return `${before.toFixed(0)} → ${beside.toFixed(0)} (${ratio.toFixed(1)})${failures} ${mark}`;
}

function failuresOf(kind: Kind, { errors }: Measured): number {
  return errors.filter((error) => error.kind === kind).length;
}

function p99(times: readonly number[]): number | undefined {
  const sorted = times.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * 0.99))];
}

function answersText(answers: Record<string, number>): string {
  return Object.entries(answers)
    .map(([answer, count]) => `${count} × ${answer}`)
    .join(', ');
}
