/** Holds the lock of the folder in argv[2] until it is killed. */
import { FolderLock } from "./lock.ts";

FolderLock.acquire(process.argv[2] as string);
console.log("locked");
setInterval(() => {}, 1 << 30);
