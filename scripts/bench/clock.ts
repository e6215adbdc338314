/**
 * CLOCK_MONOTONIC, the one clock that all processes of a machine share: what one process reads may
 * be subtracted from what another one reads. Bun's own clocks count from the start of the process.
 */
import { dlopen, FFIType, ptr } from "bun:ffi";

const clockMonotonic = 1;
const readings = 20;

/** Milliseconds between this process's clock and the shared one; the tightest of several readings. */
function measureOffset(): number {
  const library = dlopen("libc.so.6", { clock_gettime: { args: [FFIType.i32, FFIType.ptr], returns: FFIType.i32 } });
  const time = new BigInt64Array(2);
  let tightest = Number.POSITIVE_INFINITY;
  let offset = 0;
  for (let i = 0; i < readings; i++) {
    const before = Bun.nanoseconds();
    library.symbols.clock_gettime(clockMonotonic, ptr(time));
    const after = Bun.nanoseconds();
    if (after - before >= tightest) continue;
    tightest = after - before;
    offset = (Number(time[0]) * 1e9 + Number(time[1]) - (before + after) / 2) / 1e6;
  }
  library.close();
  return offset;
}

const offset = measureOffset();

/** Milliseconds on the shared clock. */
export const now = (): number => Bun.nanoseconds() / 1e6 + offset;
