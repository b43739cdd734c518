import { beforeAll } from 'vitest';
import { forgetNames } from '../../src/db/prepared.js';

/** Test files share processes. Each file begins with the state of a new process. */
beforeAll(() => forgetNames());
