/** The object stores' suite, on real servers. */
import { BackedObjectStore } from "../../store/objects/backed-object-store.ts";
import { objectStoreSuite } from "../../store/objects/object-store.suite.ts";
import { S3Backend } from "../../store/objects/s3-backend.ts";
import { bucket, credentials, minioServer, onServer, versitygwServer } from "./s3-server.ts";

const partBytes = 5 << 20;

for (const kind of [await versitygwServer(), await minioServer()]) {
  onServer("objects", kind, (server) => {
    let prefixes = 0;
    objectStoreSuite("S3", async () => {
      const place = { bucket, prefix: `case-${++prefixes}`, endpoint: server().endpoint, credentials };
      return {
        partBytes,
        open: async () => new BackedObjectStore(new S3Backend({ ...place, partBytes, thresholdBytes: partBytes })),
        dispose: async () => {},
      };
    });
  });
}
