import { LIMIT } from './protocol.js';

/** The argument of process 1 that it overwrites at the end of the command. See guest/init/record.h. */
export const RECORD_OPTION = '--record=';
export const EMPTY_RECORD = `${RECORD_OPTION}${'-'.repeat(LIMIT.record)}`;
