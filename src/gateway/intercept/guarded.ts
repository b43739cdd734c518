/**
 * A listener whose error ends one exchange only. Node throws when a peer makes it write an invalid message. Uncaught,
 * the error would end the gateway of all sandboxes.
 */
export function guarded<Args extends unknown[]>(
  listener: (...args: Args) => void,
  fail: (...args: Args) => void,
): (...args: Args) => void {
  return (...args) => {
    try {
      listener(...args);
    } catch {
      fail(...args);
    }
  };
}
