import { useEffect, useRef, useState } from 'preact/hooks';
import type { Problem } from '../lib/api';
import type { EventResponse } from '../lib/api-types';
import { followStream } from '../lib/event-stream';

const MAX_SHOWN = 300;

interface NewEvents {
  state: 'off' | 'connecting' | 'live' | 'refused';
  refusal: Problem | undefined;
  /** The newest first. */
  shown: readonly EventResponse[];
  heldCount: number;
  release: () => void;
}

/**
 * Follows a stream of events. While `isHeld`, new events are only counted, so that nothing moves under the reader. `reload`: reads
 * the events between the list and the stream.
 */
export function useNewEvents(
  address: string | undefined,
  isHeld: () => boolean,
  reload: () => void,
): NewEvents {
  const [state, setState] = useState<NewEvents['state']>('off');
  const [refusal, setRefusal] = useState<Problem>();
  const [shown, setShown] = useState<readonly EventResponse[]>([]);
  const [heldCount, setHeldCount] = useState(0);
  const held = useRef<EventResponse[]>([]);
  const latest = useRef({ isHeld, reload });
  latest.current = { isHeld, reload };

  const release = () => {
    const arrived = held.current;
    held.current = [];
    setHeldCount(0);
    setShown((before) => [...arrived, ...before]);
  };
  const forget = () => {
    held.current = [];
    setHeldCount(0);
    setShown([]);
  };

  useEffect(() => {
    forget();
    setRefusal(undefined);
    setState(address === undefined ? 'off' : 'connecting');
    if (address === undefined) return undefined;
    const controller = new AbortController();
    const follow = async () => {
      const reason = await followStream(address, {
        signal: controller.signal,
        onOpen: () => {
          setState('live');
          latest.current.reload();
        },
        onLost: () => setState('connecting'),
        onMessage: ({ data }) => {
          held.current = [JSON.parse(data) as EventResponse, ...held.current];
          if (latest.current.isHeld()) setHeldCount(held.current.length);
          else release();
        },
      });
      if (controller.signal.aborted || reason === undefined) return;
      setRefusal(reason);
      setState('refused');
    };
    void follow();
    return () => controller.abort();
  }, [address]);

  useEffect(() => {
    if (shown.length <= MAX_SHOWN) return;
    forget();
    latest.current.reload();
  }, [shown.length]);

  return { state, refusal, shown, heldCount, release };
}
