/** Throw-away certificate authorities for tests that speak TLS, made by the machine's openssl. */
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export const hasOpenssl = spawnSync("openssl", ["version"]).status === 0;

/** PEM texts. */
export interface Certificate {
  readonly cert: string;
  readonly key: string;
  readonly ca: string;
}

/** Keeps its key in memory; what openssl needs as files is gone when it is done. */
export class TestAuthority {
  private readonly files: Readonly<Record<string, string>>;

  constructor() {
    this.files = inFolder({}, (folder) => {
      openssl(folder, ["req", "-x509", ...newKey("ca"), "-out", "ca.pem", "-days", "2", "-subj", "/CN=test authority"]);
      return { "ca.pem": read(folder, "ca.pem"), "ca.key": read(folder, "ca.key") };
    });
  }

  /** A certificate of `name` for hosts such as `DNS:hop-node` or `IP:127.0.0.1`. */
  issue(name: string, hosts: readonly string[]): Certificate {
    return inFolder({ ...this.files, "own.ext": `subjectAltName=${hosts.join(",")}\n` }, (folder) => {
      openssl(folder, ["req", ...newKey("own"), "-out", "own.csr", "-subj", `/CN=${name}`]);
      const signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "own.ext"];
      openssl(folder, ["x509", "-req", "-in", "own.csr", ...signed, "-out", "own.pem"]);
      return { cert: read(folder, "own.pem"), key: read(folder, "own.key"), ca: read(folder, "ca.pem") };
    });
  }
}

function inFolder<T>(files: Readonly<Record<string, string>>, work: (folder: string) => T): T {
  const folder = fs.mkdtempSync(join(tmpdir(), "hop-ca-"));
  try {
    for (const [name, text] of Object.entries(files)) fs.writeFileSync(join(folder, name), text);
    return work(folder);
  } finally {
    fs.rmSync(folder, { recursive: true, force: true });
  }
}

const read = (folder: string, name: string) => fs.readFileSync(join(folder, name), "utf8");

function openssl(folder: string, args: readonly string[]): void {
  const { status, stderr } = spawnSync("openssl", args, { cwd: folder, encoding: "utf8" });
  if (status !== 0) throw new Error(`Cannot make a certificate: openssl ${args[0]} ended with ${status}: ${stderr}`);
}

const newKey = (name: string) => ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", `${name}.key`];
