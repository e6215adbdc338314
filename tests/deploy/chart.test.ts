/** The Helm chart as Helm renders it, held against Kubernetes' own schemas, and against what nodes need. */
import { expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { root } from "../sources.ts";
import { helmTool, kubernetesValidate, outputOf, reasonsOf } from "./tools.ts";

const chart = join(root, "deploy/helm/hopskip");
const helm = await helmTool();
const validate = await kubernetesValidate();
const skipped = reasonsOf(helm, validate);
const missing = skipped === "" ? "" : ` (skipped here: ${skipped})`;
const isMissing = skipped !== "";

/** All parts that are optional. */
const everything = [
  "replicas=5",
  "objectStore.url=s3://bucket/prefix?region=eu-central-1",
  "objectStore.credentialsSecret=s3",
  "objectStore.sealSize=64MiB",
  "objectStore.sealAge=1h",
  "objectStore.keepSize=1GiB",
  "objectStore.tailSize=2GiB",
  "peerTls.secret=tls",
  "persistence.storageClass=fast",
  "podAntiAffinity.zone=required",
  "priorityClassName=high",
  "networkPolicy.enabled=true",
  "serviceMonitor.enabled=true",
  "worker.enabled=true",
  "worker.image.repository=shop/worker",
];

const helmRun = (command: string, ...args: string[]) => outputOf([helm.file ?? "", command, ...args]);

const render = (values: readonly string[], ...args: string[]) =>
  helmRun("template", "hop", chart, "--namespace=shop", "--kube-version=1.31.0", ...values.flatMap((each) => ["--set", each]), ...args);

interface Resource {
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly spec: Spec;
}

/** Of what the chart has, the parts that are looked at. */
interface Spec {
  readonly serviceName: string;
  readonly podManagementPolicy: string;
  readonly maxUnavailable: number;
  readonly selector: Record<string, string>;
  readonly ports: readonly { readonly targetPort: string }[];
  readonly volumeClaimTemplates: readonly { readonly metadata: { readonly name: string } }[];
  readonly template: { readonly metadata: { readonly labels: Record<string, string> }; readonly spec: PodSpec };
}

interface PodSpec {
  readonly serviceAccountName: string;
  readonly terminationGracePeriodSeconds: number;
  readonly securityContext: object;
  readonly volumes: readonly object[];
  readonly containers: readonly [Container];
}

interface Probe {
  readonly httpGet: { readonly path: string };
}

interface Container {
  readonly args: readonly string[];
  readonly envFrom: readonly object[];
  readonly ports: readonly { readonly name: string }[];
  readonly livenessProbe: Probe;
  readonly readinessProbe: Probe;
}

const resources = (text: string) => (Bun.YAML.parse(text) as (Resource | null)[]).filter((each): each is Resource => each !== null);

function one(all: readonly Resource[], kind: string, name: string): Resource {
  const found = all.find((each) => each.kind === kind && each.metadata.name === name);
  if (found === undefined)
    throw new Error(`There is no ${kind} ${name} among ${all.map((each) => `${each.kind} ${each.metadata.name}`).join(", ")}`);
  return found;
}

test.skipIf(isMissing)(`Helm finds nothing wrong with the chart [needs helm]${missing}`, async () => {
  expect(await helmRun("lint", chart, "--strict")).toContain("0 chart(s) failed");
});

test.skipIf(isMissing).each([
  ["as it is", []],
  ["with everything", everything],
])(`Kubernetes 1.27, 1.31 and 1.37 take the chart %s [needs helm and kubernetes-validate]${missing}`, async (_, values) => {
  const folder = mkdtempSync(join(tmpdir(), "hop-chart-"));
  try {
    const file = join(folder, "rendered.yaml");
    writeFileSync(file, await render(values));
    for (const version of ["1.27", "1.31", "1.37"]) {
      const said = await outputOf([validate.file ?? "", "--strict", "--no-warn", `--kubernetes-version=${version}`, file]);
      expect(said).toContain("passed for resource statefulset/hop-hopskip");
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test.skipIf(isMissing)(`nodes find each other by names that outlive pods [needs helm]${missing}`, async () => {
  const all = resources(await render([]));
  const nodes = one(all, "StatefulSet", "hop-hopskip");
  const peers = one(all, "Service", "hop-hopskip-peers");
  const { args, ports } = nodes.spec.template.spec.containers[0];
  expect(nodes.spec.serviceName).toBe(peers.metadata.name);
  expect(peers.spec).toMatchObject({ clusterIP: "None", publishNotReadyAddresses: true });
  expect(args).toContain("--seed=hop-hopskip-peers.shop.svc.cluster.local:7072");
  expect(args).toContain("--advertise=$(POD_NAME).hop-hopskip-peers.shop.svc.cluster.local:7072");
  expect(nodes.spec.podManagementPolicy).toBe("Parallel");
  for (const service of [peers, one(all, "Service", "hop-hopskip")]) {
    expect(nodes.spec.template.metadata.labels).toMatchObject(service.spec.selector);
    for (const { targetPort } of service.spec.ports) expect(ports.map(({ name }) => name)).toContain(targetPort);
  }
});

test.skipIf(isMissing)(`at most one node is away at a time, and it has the time to hand over [needs helm]${missing}`, async () => {
  const all = resources(await render([]));
  const { spec } = one(all, "StatefulSet", "hop-hopskip");
  expect(one(all, "PodDisruptionBudget", "hop-hopskip").spec.maxUnavailable).toBe(1);
  expect(spec.template.spec.terminationGracePeriodSeconds).toBeGreaterThanOrEqual(20);
  expect(spec.template.spec.containers[0].readinessProbe.httpGet.path).toBe("/readyz");
  expect(spec.template.spec.containers[0].livenessProbe.httpGet.path).toBe("/healthz");
  expect(spec.template.spec.securityContext).toMatchObject({ runAsNonRoot: true, fsGroup: 10001 });
  expect(spec.volumeClaimTemplates[0]?.metadata.name).toBe("data");
});

test.skipIf(isMissing)(`the cluster is made with the install, never with an upgrade [needs helm]${missing}`, async () => {
  const kinds = async (values: string[], ...args: string[]) => resources(await render(values, ...args)).map(({ kind }) => kind);
  expect(await kinds([])).toContain("Job");
  expect(await kinds([], "--is-upgrade")).not.toContain("Job");
  expect(await kinds(["clusterInit.enabled=false"])).not.toContain("Job");
});

test.skipIf(isMissing)(`secrets are named, never written into a manifest [needs helm]${missing}`, async () => {
  const all = resources(await render(everything));
  const { containers, volumes } = one(all, "StatefulSet", "hop-hopskip").spec.template.spec;
  expect(all.map(({ kind }) => kind)).not.toContain("Secret");
  expect(containers[0].envFrom).toEqual([{ secretRef: { name: "s3" } }]);
  expect(volumes).toContainEqual({ name: "tls", secret: { secretName: "tls", defaultMode: 0o440 } });
  expect(containers[0].args).toContain("--peer-key=/tls/tls.key");
  expect(one(all, "Deployment", "hop-hopskip-worker").spec.template.spec.serviceAccountName).toBe("default");
});

test.skipIf(isMissing).each([
  ["replicas=2", "replicas"],
  ["objectStore.url=http://bucket", "objectStore"],
  ["terminationGracePeriodSeconds=5", "terminationGracePeriodSeconds"],
  ["wroker.enabled=true", "wroker"],
  ["worker.enabled=true", "worker.image.repository"],
])(`%s is refused, and named [needs helm]${missing}`, async (value, name) => {
  const refused = await render([value]).catch((error: Error) => error.message);
  expect(refused).toContain("ended with code 1");
  expect(refused).toContain(name);
});
