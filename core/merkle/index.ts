/** Verifiable history: hash chain, Merkle Mountain Range, proofs and their files. */
export type { ChainHead, LoggedEvent, NewEvent, OpenRecord } from "./chain.ts";
export { appendEvent, encodeRaw, followEvent, PartitionChain } from "./chain.ts";
export type { ExpectedHead, HistoryFault, HistoryOptions, HistoryRule, HistoryVerdict, VerifiedHead } from "./history.ts";
export { HistoryVerifier, historyFaultText, verifyHistory } from "./history.ts";
export { heightAt, leafCount, leafPosition, Mmr, pathPositions, peakPositions } from "./mmr.ts";
export type { KnownRange, NodeReader } from "./proof.ts";
export { consistencyProof, inclusionProof, NodeList, peaksOf, rootOf } from "./proof.ts";
export type { ProofFile } from "./proof-file.ts";
export { parseProofFile, proofFileText, verifyProofFile } from "./proof-file.ts";
export type { Check, LaterHistory, LaterRoot, SavedRoot } from "./saved-root.ts";
export { consistencyChecks, historyChecks, isVerified, parseSavedRoot, savedRootText } from "./saved-root.ts";
export type { ConsistencyClaim, ConsistencyProof, InclusionClaim, InclusionProof } from "./verify.ts";
export { bagPeaks, bitCount, hashBytes, nodeCount, sizeMax, verifyConsistency, verifyInclusion } from "./verify.ts";
