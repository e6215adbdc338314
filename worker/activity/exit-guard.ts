/**
 * Keeps activities from ending the process that they share with the worker (and, in development,
 * with the server). Whatever else calls `process.exit()` ends the process as ever.
 */
import { AsyncLocalStorage } from "node:async_hooks";

/** What is executing, for messages. Unset outside of activity code. */
const current = new AsyncLocalStorage<string>();
let isInstalled = false;

/** Calls activity code: until its last promise and timer is done, it can't end the process. `what` is its name in messages. */
export function withoutExit<T>(what: string, call: () => T): T {
  installExitGuard();
  return current.run(what, call);
}

/** To be done before activity modules are loaded: they may keep `process.exit` under a name of their own. */
export function installExitGuard(): void {
  if (isInstalled) return;
  isInstalled = true;
  const guarded = process as unknown as Record<string, (...values: unknown[]) => unknown>;
  for (const name of ["exit", "reallyExit", "abort"]) guard(guarded, name, () => true);
  guard(guarded, "kill", ([pid, signal]) => (Number(pid) === process.pid || Number(pid) === 0) && signal !== 0);
}

function guard(
  owner: Record<string, (...values: unknown[]) => unknown>,
  name: string,
  endsProcess: (values: readonly unknown[]) => boolean,
): void {
  const original = owner[name];
  if (original === undefined) return;
  owner[name] = (...values) => {
    const what = current.getStore();
    if (what !== undefined && endsProcess(values)) {
      const problem = `An activity may not end the worker's process: ${what} called process.${name}()`;
      throw new Error(`${problem}; throw an error to fail, and run what has to exit in a process of its own`);
    }
    return original.apply(process, values);
  };
}
