/** Tells when source files below folders change: once for a burst of changes, never for data and packages. */
import { type FSWatcher, watch } from "node:fs";

const ignored = /(^|\/)(node_modules|\.hop|\.git|dist|coverage)(\/|$)/;
const relevant = /\.(?:[mc]?[jt]sx?|json)$/;
const settleMs = 60;

export interface Watching {
  close(): void;
}

/** Calls `changed` after a change. Throws where the system can't watch a folder. */
export function watchSources(folders: readonly string[], changed: () => void): Watching {
  const watchers: FSWatcher[] = [];
  let timer: Timer | undefined;
  const notice = (name: string | null) => {
    if (name === null || ignored.test(name) || !relevant.test(name)) return;
    clearTimeout(timer);
    timer = setTimeout(changed, settleMs);
  };
  const close = () => {
    clearTimeout(timer);
    for (const watcher of watchers) watcher.close();
  };
  try {
    for (const folder of withoutNested(folders)) watchers.push(watch(folder, { recursive: true }, (_event, name) => notice(name)));
  } catch (error) {
    close();
    throw error;
  }
  return { close };
}

/** A folder inside another of the list is watched with it. */
function withoutNested(folders: readonly string[]): string[] {
  const all = [...new Set(folders)];
  return all.filter((folder) => !all.some((other) => other !== folder && folder.startsWith(`${other}/`)));
}
