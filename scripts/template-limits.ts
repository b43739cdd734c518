import { BUILDS_AT_ONCE } from '../src/templates/build-queue.js';
import { MOST_FETCHED_BYTES } from '../src/templates/build/fetch.js';
import { MOST_LOG_BYTES } from '../src/templates/build/log.js';
import { MOST_ENTRIES } from '../src/templates/context/entries.js';
import { MOST_CONTEXT_BYTES } from '../src/templates/context/receive.js';
import { MOST_UNFINISHED } from '../src/templates/create.js';
import { MOST_DOCKERFILE_BYTES, MOST_INSTRUCTIONS } from '../src/templates/dockerfile/parse.js';
import { MOST_PATTERN_CHARS } from '../src/templates/dockerfile/patterns.js';
import { MOST_STAGES } from '../src/templates/dockerfile/stages.js';
import { MOST_EXPANDED_BYTES, MOST_WORD_BYTES } from '../src/templates/dockerfile/words.js';
import { TIMEOUT_SECS } from '../src/templates/read-request.js';
import { UPLOADS_AT_ONCE } from '../src/templates/routes.js';
import { answerText, bytes, number, time, type Limit } from './limit-values.js';

/** The bounds of the builds of an organization. */
export const TEMPLATE_LIMITS: Limit[] = [
  {
    limit: 'builds of templates of an organization that wait or run, and those that run at once',
    value: `${number(MOST_UNFINISHED)}, ${number(BUILDS_AT_ONCE.each)}`,
    beyond: `${answerText({ error: 'quota_exceeded' })}, and the builds wait`,
  },
  {
    limit: 'the context of a build, its entries, and those that arrive at once of an organization',
    value: `${bytes(MOST_CONTEXT_BYTES)}, ${number(MOST_ENTRIES)}, ${number(UPLOADS_AT_ONCE.each)}`,
    beyond: answerText({ error: 'payload_too_large' }),
  },
  {
    limit: 'a Dockerfile, and its instructions',
    value: `${bytes(MOST_DOCKERFILE_BYTES)}, ${number(MOST_INSTRUCTIONS)}`,
    beyond: answerText({ error: 'invalid_request' }),
  },
  {
    limit: 'stages of a Dockerfile, and the bytes of the copies of one from other disks',
    value: `${number(MOST_STAGES)}, ${bytes(MOST_FETCHED_BYTES)}`,
    beyond: `${answerText({ error: 'invalid_request' })}, and the build fails at the line`,
  },
  {
    limit: 'an expanded word of a Dockerfile, all of a stage, and a pattern of COPY',
    value: `${bytes(MOST_WORD_BYTES)}, ${bytes(MOST_EXPANDED_BYTES)}, ${number(MOST_PATTERN_CHARS)} characters`,
    beyond: 'the build fails at the line',
  },
  {
    limit: 'time of a build, if its request names no other; and the longest',
    value: `${time(TIMEOUT_SECS.default * 1000)}, ${time(TIMEOUT_SECS.max * 1000)}`,
    beyond: 'the build fails with `timed_out`',
  },
  { limit: 'log of a build', value: bytes(MOST_LOG_BYTES), beyond: 'the following output is left out' },
];
