import type { NoRoomAnswer } from '../../engine/no-room.js';

/** The answers of the API server to a quota of the cluster or of its operator that mean "no room". */
export const NO_ROOM: readonly NoRoomAnswer[] = [
  { said: /\b(?:exceeded|status unknown for) quota\b/ },
  { said: /\bbeing terminated\b/ },
];
