/** The wire and the disk: messages, their codec, and nothing else. */
export * from "./codec/messages.ts";
export { closePolicyNames, type OverlapName, overlapPolicies, type ReducerName, reducerName, reducers } from "./codec/policy-names.ts";
export { CodecError, Reader, utf8Text } from "./codec/reader.ts";
export { liveStatuses, openStatuses, runStatusNames } from "./codec/run-status.ts";
export { Writer } from "./codec/writer.ts";
export * from "./gen/codec.ts";
