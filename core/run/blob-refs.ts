/** What an event refers to outside of the log. */

export interface BlobRef {
  readonly sha256: Uint8Array;
  /** Undefined where the event does not say it. */
  readonly size: number | undefined;
}

/** Every blob that an event's message names: large payloads and code. */
export function blobsOf(message: object | undefined): BlobRef[] {
  const found: BlobRef[] = [];
  const visit = (value: unknown, name: string): void => {
    if (value instanceof Uint8Array) {
      if (name === "bundle" && value.length === 32) found.push({ sha256: value, size: undefined });
    } else if (Array.isArray(value)) {
      for (const item of value) visit(item, name);
    } else if (typeof value === "object" && value !== null) {
      if (name === "ref") found.push(value as BlobRef);
      else for (const [field, inner] of Object.entries(value)) visit(inner, field);
    }
  };
  visit(message, "");
  return found;
}
