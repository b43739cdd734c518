type Done = (error?: Error) => void;

/**
 * Ends a hook with a callback after a promise. Most requests need no wait in such a hook, and then no promise.
 * `work` resolves with false when it has answered the request itself.
 */
export async function callBack(done: Done, work: Promise<boolean | void>): Promise<void> {
  let goesOn: boolean | void;
  try {
    goesOn = await work;
  } catch (error) {
    done(error as Error);
    return;
  }
  if (goesOn !== false) done();
}
