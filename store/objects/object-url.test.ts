import { expect, test } from "bun:test";
import { HopError } from "#core/base";
import { parseObjectUrl } from "./object-url.ts";

const none = { endpoint: undefined, region: undefined, pathStyle: undefined, storageClass: undefined, sse: undefined, kmsKey: undefined };

test("a URL names a folder, or a bucket with its options", () => {
  expect(parseObjectUrl("file:///var/lib/hop%20objects/")).toEqual({ kind: "file", dir: "/var/lib/hop objects" });
  expect(parseObjectUrl("s3://my-bucket")).toEqual({ kind: "s3", options: { bucket: "my-bucket", prefix: "", ...none } });
  const url =
    "s3://my.bucket/prod/eu/?endpoint=http://127.0.0.1:9000/&region=eu-central-1&path-style=true&storage-class=STANDARD_IA&sse=aws:kms&kms-key=alias/hop";
  expect(parseObjectUrl(url)).toEqual({
    kind: "s3",
    options: {
      bucket: "my.bucket",
      prefix: "prod/eu",
      endpoint: "http://127.0.0.1:9000",
      region: "eu-central-1",
      pathStyle: true,
      storageClass: "STANDARD_IA",
      sse: "aws:kms",
      kmsKey: "alias/hop",
    },
  });
});

const refused: readonly (readonly [string, string])[] = [
  ["/var/lib/objects", "neither file:///folder nor s3://bucket"],
  ["http://host/bucket", "neither file:///folder nor s3://bucket"],
  ["file://var/lib", "names the host var"],
  ["file:///var?sync=no", "a folder has no options"],
  ["s3://", '"" is no bucket\'s name'],
  ["s3://Bucket_1", "is no bucket's name"],
  ["s3://user:secret@bucket/x", "credentials do not belong into it"],
  ["s3://bucket/a//b", 'prefix "a//b" is not made of segments'],
  ["s3://bucket?regoin=x", 'no option "regoin"; there are endpoint, region, path-style, storage-class, sse, kms-key'],
  ["s3://bucket?region=a&region=b", "option region is there twice"],
  ["s3://bucket?region=", "option region has no value"],
  ["s3://bucket?endpoint=127.0.0.1:9000", 'endpoint "127.0.0.1:9000" is no http or https URL'],
  ["s3://bucket?path-style=yes", 'option path-style is "yes", want true or false'],
  ["s3://bucket?storage-class=GLACIER", 'option storage-class is "GLACIER", want STANDARD or'],
  ["s3://bucket?sse=none", 'option sse is "none", want AES256 or aws:kms'],
  ["s3://bucket?kms-key=k", "kms-key needs sse=aws:kms"],
];

test.each(refused)("%s is refused: %s", (url, why) => {
  const error = (() => {
    try {
      return parseObjectUrl(url);
    } catch (thrown) {
      return thrown;
    }
  })() as HopError;
  expect(error).toBeInstanceOf(HopError);
  expect(error.reason).toBe("BAD_REQUEST");
  expect(error.message).toContain(why);
  expect(error.message).not.toContain("secret");
});
