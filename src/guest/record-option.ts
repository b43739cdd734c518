/** The argument of process 1 that it overwrites at the end of the command. See guest/init-record.h. */
export const RECORD_OPTION = '--record=';
const RECORD_ROOM = 32;
export const EMPTY_RECORD = `${RECORD_OPTION}${'-'.repeat(RECORD_ROOM)}`;
