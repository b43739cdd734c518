import { Link } from 'wouter-preact';
import { adviceFor, sentence } from '../lib/advice';
import type { Problem } from '../lib/api';
import { Copy } from './copy';

/** A refusal: its message, the next step, and the request id. */
export function ErrorPanel({ problem, retry }: { problem: Problem; retry?: (() => void) | undefined }) {
  return (
    <div class="panel fault" role="alert">
      <p class="fault-message">{sentence(problem.message)}</p>
      <p>{adviceFor(problem)}</p>
      <p class="actions">
        {retry !== undefined && (
          <button type="button" onClick={retry}>
            Try again
          </button>
        )}
        {problem.status === 401 && (
          <Link class="button" href="/sign-in">
            Sign in
          </Link>
        )}
        <small>
          {problem.status > 0 && <code>{`${problem.status} ${problem.code}`}</code>}
          {problem.requestId !== null && (
            <>
              {' '}
              request <code>{problem.requestId}</code> <Copy text={problem.requestId} of="request id" />
            </>
          )}
        </small>
      </p>
    </div>
  );
}
