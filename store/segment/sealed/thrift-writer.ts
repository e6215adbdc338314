/**
 * Thrift's compact protocol, as far as a Parquet file's own structures need it.
 *
 * Source: apache/thrift doc/specs/thrift-compact-protocol.md. All integers written here are ≥ 0.
 */
import { Writer } from "#proto";

const kinds = { true: 1, false: 2, i16: 4, i32: 5, i64: 6, binary: 8, list: 9, struct: 12 } as const;

export type ElementKind = "i32" | "i64" | "binary" | "struct";

export class ThriftWriter {
  readonly writer = new Writer(1 << 12);
  private last = 0;

  i16 = (id: number, value: number) => this.number(id, kinds.i16, value);
  i32 = (id: number, value: number) => this.number(id, kinds.i32, value);
  i64 = (id: number, value: number) => this.number(id, kinds.i64, value);

  bool(id: number, value: boolean): void {
    this.header(id, value ? kinds.true : kinds.false);
  }

  binary(id: number, value: Uint8Array): void {
    this.header(id, kinds.binary);
    this.bytes(value);
  }

  text(id: number, value: string): void {
    this.binary(id, new TextEncoder().encode(value));
  }

  struct(id: number, write: () => void): void {
    this.header(id, kinds.struct);
    this.inside(write);
  }

  list<T>(id: number, kind: ElementKind, items: readonly T[], write: (item: T) => void): void {
    this.header(id, kinds.list);
    if (items.length < 15) this.byte((items.length << 4) | kinds[kind]);
    else {
      this.byte(0xf0 | kinds[kind]);
      this.writer.varint(items.length);
    }
    for (const item of items) {
      if (kind === "struct") this.inside(() => write(item));
      else write(item);
    }
  }

  /** An element of a list. */
  integer(value: number): void {
    this.writer.varint(value * 2);
  }

  /** An element of a list. */
  bytes(value: Uint8Array): void {
    this.writer.varint(value.length);
    this.writer.raw(value);
  }

  /** The bytes of the struct whose fields were written; the writer starts over. */
  finish(): Uint8Array {
    this.byte(0);
    this.last = 0;
    return this.writer.finish();
  }

  private inside(write: () => void): void {
    const { last } = this;
    this.last = 0;
    write();
    this.byte(0);
    this.last = last;
  }

  private number(id: number, kind: number, value: number): void {
    this.header(id, kind);
    this.integer(value);
  }

  /** Ids rise within a struct, each by at most 15. */
  private header(id: number, kind: number): void {
    this.byte(((id - this.last) << 4) | kind);
    this.last = id;
  }

  private byte(value: number): void {
    this.writer.room(1);
    this.writer.bytes[this.writer.at++] = value;
  }
}
