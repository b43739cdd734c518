import { StartRefusedError } from '../../engine/runtime.js';
import { lastWords } from './last-words.js';
import { readRecord } from './read-record.js';
import type { MicrovmParts } from './parts.js';
import type { SandboxPlaces } from './places.js';
import { requestStop } from './supervisor.js';

/** A kernel needs a second with KVM, and a few where it is emulated; a busy machine many. */
const READY_MS = { hardware: 60_000, emulated: 300_000 };
/** More than the ten minutes in which a supervisor reads the memory of a pause. */
const RESUMED_MS = 900_000;
const LOOK_MS = 500;

export interface ReadyWait {
  signal: AbortSignal;
  /** The run continues the memory of a pause. Default: false. */
  resumes?: boolean | undefined;
  /** The end of the supervisor. Absent: an earlier process has started it. */
  ended?: Promise<void>;
}

/**
 * Waits for the first program of a virtual machine. Throws StartRefusedError when the run has ended before. A resume
 * that is late throws another error: its memory is still there, and the next attempt continues it. An aborted start
 * waits for the first record too: a deletion that follows finds no other trace of the supervisor.
 */
export async function untilReady(
  { changes, isEmulated }: Pick<MicrovmParts, 'changes' | 'isEmulated'>,
  places: SandboxPlaces,
  { signal, resumes = false, ended = new Promise(() => undefined) }: ReadyWait,
): Promise<void> {
  const most = isEmulated ? READY_MS.emulated : READY_MS.hardware;
  const limit = performance.now() + (resumes ? RESUMED_MS : most);
  let isOver = false;
  const over = ended.finally(() => (isOver = true));
  for (;;) {
    const wasOver = isOver;
    const record = await readRecord(places);
    if (signal.aborted && (record !== undefined || wasOver)) return;
    if (record?.readyAt !== undefined && record.startedAt !== undefined) return;
    if (record?.end !== undefined) throw await refusalOf(places, record.failed);
    if (wasOver) throw await refusalOf(places);
    if (performance.now() > limit) {
      await requestStop(places.run, 0);
      if (resumes)
        throw new Error(`the memory of a pause was not read within ${RESUMED_MS / 60_000} minutes`);
      throw await refusalOf(places, LATE);
    }
    await Promise.race([changes.next(LOOK_MS, signal.aborted ? undefined : signal), over]);
  }
}

const ENDED =
  'the virtual machine ended before its first program ran: the operator finds why in the log of the service';
const LATE =
  'the virtual machine has not become ready in time: the operator finds its last words in the log of the service';

/** The words of the monitor are for the log alone: they name files of the machine. */
async function refusalOf(places: SandboxPlaces, message = ENDED): Promise<Error> {
  const words = await lastWords(places);
  return new StartRefusedError(message, words === '' ? {} : { cause: new Error(words) });
}
