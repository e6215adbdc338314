/**
 * The Node process that runs guests: frames in from a unix socket, frames out.
 *
 * Arguments: path of the addon, of the socket, of the marker file, and the parent's process id.
 * A message is u32 length, u8 channel, body. Channel 1 carries frames for the addon, channel 2 a
 * command: u32 length of its JSON, the JSON, then the texts whose lengths the JSON gives.
 */
"use strict";
const net = require("node:net");

const [addonPath, socketPath, markerPath, parentPid] = process.argv.slice(2);
const addon = require(addonPath);
addon.protect(Number(parentPid), markerPath);

const headerBytes = 5;
const socket = net.connect(socketPath);

function send(channel, body) {
  const header = Buffer.allocUnsafe(headerBytes);
  header.writeUInt32LE(body.length + 1, 0);
  header[4] = channel;
  socket.cork();
  socket.write(header);
  socket.write(body);
  socket.uncork();
}

/** Commands are answered in order, `{}` or `{error}`. */
const commands = {
  base({ base, heapMb, limitMs }, [kernel, dependencies, main]) {
    return { dependencies: addon.base(base, kernel, dependencies, main, heapMb, limitMs) };
  },
  open({ realm, base, heapMb, limitMs }) {
    addon.open(realm, base, heapMb, limitMs);
    return {};
  },
  close({ realm }) {
    addon.close(realm);
    return {};
  },
  forget({ base }) {
    addon.forget(base);
    return {};
  },
};

function runCommand(body) {
  const jsonBytes = body.readUInt32LE(0);
  const command = JSON.parse(body.toString("utf8", 4, 4 + jsonBytes));
  let at = 4 + jsonBytes;
  const texts = command.texts.map((bytes) => {
    at += bytes;
    return body.toString("utf8", at - bytes, at);
  });
  let answer;
  try {
    answer = commands[command.name](command, texts);
  } catch (error) {
    answer = { error: error.message };
  }
  send(2, Buffer.from(JSON.stringify(answer)));
}

function receive(channel, body) {
  if (channel === 2) return runCommand(body);
  const answers = addon.run(body);
  if (answers.length > 0) send(1, answers);
}

/** Chunks of a message that is not whole yet. */
let chunks = [];
let bytes = 0;
let wanted = headerBytes;

socket.on("data", (chunk) => {
  chunks.push(chunk);
  bytes += chunk.length;
  if (bytes < wanted) return;
  let data = chunks.length === 1 ? chunk : Buffer.concat(chunks, bytes);
  while (data.length >= headerBytes) {
    const end = 4 + data.readUInt32LE(0);
    if (data.length < end) break;
    receive(data[4], data.subarray(headerBytes, end));
    data = data.subarray(end);
  }
  wanted = data.length < headerBytes ? headerBytes : 4 + data.readUInt32LE(0);
  chunks = data.length === 0 ? [] : [data];
  bytes = data.length;
});

// Without its parent there is nothing to do. V8 aborts when isolates outlive it, and the usual
// way out of Node would run more of it than is needed.
function leave() {
  addon.closeAll();
  process.reallyExit(0);
}
socket.on("close", leave);
socket.on("error", leave);
