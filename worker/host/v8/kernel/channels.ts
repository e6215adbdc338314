/** Channels, as workflow code uses them: sends and reads, and what was read and not used yet. */
import type { ChannelRead, Engine } from "#sdk/runtime/engine";
import { record } from "../protocol.ts";
import { actingRun, fullAddress, intercept, nextOp, pend, withTimeout } from "./operations.ts";
import { toJson } from "./payload.ts";

export const channelOperations: Pick<Engine, "sendChannel" | "readChannel" | "unread"> = {
  sendChannel(address, value) {
    const run = actingRun("send() to a channel");
    const to = fullAddress(run, address);
    const json = toJson(value, `Message for channel "${to}"`);
    const instead = intercept(run);
    if (instead !== undefined) return instead;
    const op = nextOp(run, json.length);
    run.emit(record.sendChannel, op, to, json);
    return pend(run, op, "channel", to) as Promise<void>;
  },

  readChannel(address, { max, lingerMs, timeoutMs }) {
    const run = actingRun("read() of a channel");
    const to = fullAddress(run, address);
    const instead = intercept(run);
    if (instead !== undefined) return instead;
    const rest = run.unread.get(to);
    if (rest !== undefined) {
      run.unread.delete(to);
      if (max === 0 || rest.messages.length <= max) return Promise.resolve(rest);
      const [now, later] = cut(rest, max);
      run.unread.set(to, later);
      return Promise.resolve(now);
    }
    const op = nextOp(run, 0);
    run.emit(record.readChannel, op, to, max, lingerMs);
    const waited = pend(run, op, "channel", to) as Promise<ChannelRead>;
    if (timeoutMs === undefined) return waited;
    return withTimeout(run, op, {
      waited,
      timeoutMs,
      message: `Channel "${to}" had nothing to read within ${timeoutMs} ms`,
    }) as Promise<ChannelRead>;
  },

  unread(address, read) {
    const run = actingRun("a channel");
    if (read.messages.length > 0 || read.closed || "value" in read) run.unread.set(fullAddress(run, address), read);
  },
};

function cut(read: ChannelRead, count: number): [ChannelRead, ChannelRead] {
  const now = read.messages.slice(0, count);
  const later = read.messages.slice(count);
  return [
    { ...read, messages: now, count: now.length, closed: false },
    { ...read, messages: later, count: later.length, offset: read.offset + count, missed: 0 },
  ];
}
