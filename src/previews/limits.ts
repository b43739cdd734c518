/** Servers in sandboxes set large cookies; the heads of browsers are below 16 KiB. */
export const MAX_HEAD_BYTES = 32 * 1024;
/** Node drops the headers beyond a limit of its own without a word, so it has none, and `readHost` counts them. */
export const MAX_HEADERS = 200;
