/** The sandbox does not run. Undefined: it is not there. */
export class NotRunningError extends Error {
  constructor(readonly status: string | undefined) {
    super(status === undefined ? 'there is no such sandbox' : `the sandbox is ${status}: start it first`);
  }
}
