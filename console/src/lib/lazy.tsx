import type { ComponentType } from 'preact';
import { useEffect, useState } from 'preact/hooks';

type Load = () => Promise<ComponentType> | ComponentType;

const loaded = new Map<Load, ComponentType>();

/** A page whose code is loaded when it is opened. */
export function Lazy({ load }: { load: Load }) {
  const [, setRound] = useState(0);
  const [isBroken, setBroken] = useState(false);
  useEffect(() => {
    if (loaded.has(load)) return;
    const show = async () => {
      loaded.set(load, await load());
      setRound((round) => round + 1);
    };
    show().catch(() => setBroken(true));
  }, [load]);
  const Component = loaded.get(load);
  if (Component !== undefined) return <Component />;
  if (!isBroken) return null;
  return (
    <div class="panel fault" role="alert">
      <p>This part of the console could not be loaded. A newer release may be running.</p>
      <button type="button" onClick={() => location.reload()}>
        Load again
      </button>
    </div>
  );
}
