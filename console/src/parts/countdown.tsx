import { useEffect, useState } from 'preact/hooks';
import { duration } from '../lib/time';

/** The time left until then, each second. `ended` is called once, when it is over. */
export function Countdown({ until, ended }: { until: string; ended?: () => void }) {
  const left = () => (Date.parse(until) - Date.now()) / 1000;
  const [seconds, setSeconds] = useState(left);
  const isOver = seconds <= 0;
  useEffect(() => {
    setSeconds(left());
    const timer = setInterval(() => setSeconds(left()), 1000);
    return () => clearInterval(timer);
  }, [until]);
  useEffect(() => {
    if (isOver) ended?.();
  }, [isOver]);
  return (
    <time dateTime={until} title={until} role="timer">
      {duration(seconds)}
    </time>
  );
}
