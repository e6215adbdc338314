/** Documents keep their promises: links lead somewhere, and each reason has its page with the right facts. */
import { expect, test } from "bun:test";
import { existsSync, statSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { status } from "@grpc/grpc-js";
import { type Reason, reasons } from "#core/base";
import { exitCodeOfReason } from "../cmd/failure.ts";
import { codeOf } from "../node/service/status.ts";
import { filesLike, readSource, root } from "./sources.ts";

const documents = filesLike("**/*.md").filter((file) => !file.startsWith("tests/vectors/"));

const withoutCode = (text: string) => text.replace(/^```[\s\S]*?^```/gm, "").replace(/`[^`\n]*`/g, "");

/** Anchors as readers of the rendered page know them. */
function anchorsOf(text: string): Set<string> {
  const titles = [...text.replace(/^```[\s\S]*?^```/gm, "").matchAll(/^#+ +(.*)$/gm)].map(([, title = ""]) => title);
  return new Set(
    titles.map((title) =>
      title
        .toLowerCase()
        .replace(/[^\p{L}\p{N} _-]/gu, "")
        .trim()
        .replaceAll(" ", "-"),
    ),
  );
}

test("every link between documents and files leads somewhere", async () => {
  const errors: string[] = [];
  for (const file of documents) {
    const text = await readSource(file);
    for (const [, link = ""] of withoutCode(text).matchAll(/\]\(([^)\s]+)\)/g)) {
      if (/^(https?|mailto):/.test(link)) continue;
      const [path = "", anchor] = link.split("#");
      const target = path === "" ? file : normalize(join(dirname(file), path));
      if (target.startsWith("..") || !existsSync(join(root, target))) errors.push(`${file}: ${link} leads nowhere`);
      else if (anchor !== undefined && statSync(join(root, target)).isFile() && target.endsWith(".md")) {
        if (!anchorsOf(await readSource(target)).has(anchor)) errors.push(`${file}: ${target} has no heading for #${anchor}`);
      }
    }
  }
  expect(errors).toEqual([]);
});

test("each reason has a page that says its meaning, its gRPC status and its exit code", async () => {
  const errors: string[] = [];
  const index = await readSource("docs/errors/README.md");
  for (const [reason, meaning] of Object.entries(reasons) as [Reason, string][]) {
    const file = `docs/errors/${reason}.md`;
    if (!existsSync(join(root, file))) {
      errors.push(`${file} is missing`);
      continue;
    }
    const page = await readSource(file);
    const facts = `${status[codeOf(reason)]} | ${exitCodeOfReason(reason)}`;
    if (!page.startsWith(`# ${reason}\n\n${meaning}.\n`)) errors.push(`${file}: does not begin with its name and "${meaning}."`);
    if (!page.includes(`| ${facts} (`)) errors.push(`${file}: its table does not say ${facts}`);
    if (!/^## What to do$[\s\S]*^- /m.test(page)) errors.push(`${file}: does not say what to do`);
    if (!index.includes(`| [${reason}](${reason}.md) | ${facts} |`))
      errors.push(`docs/errors/README.md: does not list ${reason} with ${facts}`);
  }
  expect(errors).toEqual([]);
});

test("no page describes a reason that does not exist", () => {
  const known = new Set([...Object.keys(reasons), "README"]);
  expect(filesLike("docs/errors/*.md").filter((file) => !known.has(file.slice("docs/errors/".length, -3)))).toEqual([]);
});

test("each decision is numbered without a gap and listed", async () => {
  const pages = filesLike("docs/adr/0*.md").map((file) => file.slice("docs/adr/".length));
  const index = await readSource("docs/adr/README.md");
  expect(pages.map((page) => Number(page.slice(0, 4)))).toEqual(pages.map((_, at) => at + 1));
  expect(pages.filter((page) => !index.includes(`](${page})`))).toEqual([]);
});
