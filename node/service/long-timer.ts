/** Timers of any length: the runtime's own fire at once above 2^31−1 ms. */
const stepMsMax = 0x7fff_ffff;

/** Calls `fire` once after `ms` milliseconds; returns what withdraws it. */
export function after(ms: number, fire: () => void): () => void {
  let left = ms;
  let timer: ReturnType<typeof setTimeout>;
  const arm = (): void => {
    const step = Math.min(left, stepMsMax);
    left -= step;
    timer = setTimeout(left > 0 ? arm : fire, step);
  };
  arm();
  return () => clearTimeout(timer);
}
