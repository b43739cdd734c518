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
  /** Arrived, and not shown yet. */
  held: readonly EventResponse[];
  release: () => void;
}

/**
 * Follows a stream of events. While `isHeld`, new events are only counted, so that nothing moves under the reader.
 * `reload`: reads the events between the list and the stream.
 */
export function useNewEvents(
  address: string | undefined,
  isHeld: () => boolean,
  reload: () => void,
): NewEvents {
  const [state, setState] = useState<NewEvents['state']>('off');
  const [refusal, setRefusal] = useState<Problem>();
  const [shown, setShown] = useState<readonly EventResponse[]>([]);
  const [held, setHeld] = useState<readonly EventResponse[]>([]);
  const arrived = useRef<readonly EventResponse[]>([]);
  const latest = useRef({ isHeld, reload });
  latest.current = { isHeld, reload };

  const release = () => {
    const released = arrived.current;
    arrived.current = [];
    setHeld([]);
    setShown((before) => [...released, ...before]);
  };
  const forget = () => {
    arrived.current = [];
    setHeld([]);
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
          arrived.current = [JSON.parse(data) as EventResponse, ...arrived.current];
          if (latest.current.isHeld()) setHeld(arrived.current);
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

  return { state, refusal, shown, held, release };
}
