import type { GuestFiles } from '../../guest/guest.js';
import type { Visit } from '../sessions/entrance.js';
import type { SessionRecord } from '../sessions/recorder.js';
import { explainEnd } from '../sessions/end-cause.js';
import { untilEnded } from '../sessions/until-ended.js';
import { translateErrors } from './translate-errors.js';

/** The files of a sandbox for one request. */
export interface FileSession {
  readonly files: GuestFiles;
  readonly record: SessionRecord;
  readonly ended: AbortSignal;
  /** Removes a temporary file, also when the session has closed. */
  readonly discard: (path: string) => Promise<void>;
  close(): void;
}

export async function openFiles({ guest, recorder, ended }: Visit): Promise<FileSession> {
  const record = await recorder.files();
  const files = guest.files();
  return {
    files,
    record,
    ended,
    discard: async (path) => {
      const own = guest.files();
      await own.remove(path).catch(() => undefined);
      own.end();
    },
    close() {
      files.end();
      recorder.close(ended.aborted ? String(ended.reason) : 'closed');
    },
  };
}

/** The session closes with the work. */
export async function withFiles<T>(visit: Visit, work: (session: FileSession) => Promise<T>): Promise<T> {
  const session = await openFiles(visit);
  try {
    return await untilEnded(
      visit.ended,
      translateErrors(() => work(session)),
    );
  } catch (error) {
    throw await explainEnd(visit, error);
  } finally {
    session.close();
  }
}
