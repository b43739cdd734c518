import { errnoMessage } from '../guest/errno.js';

/** The kernel of a sandbox has refused a connection to one of its ports. */
export class ConnectError extends Error {
  constructor(readonly errno: number) {
    super(errnoMessage(errno));
  }
}
