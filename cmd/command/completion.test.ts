import { describe, expect, test } from "bun:test";
import { program } from "../program.ts";
import { completionScript } from "./completion.ts";

const root = program(
  () => {
    throw new Error("no command runs here");
  },
  () => {},
);
const script = (shell: string) => completionScript(shell, root) as string;

/** What bash offers for a line whose last word is being typed. */
function bashOffers(line: string, words: readonly string[]): string[] {
  const call = `
hop() { printf 'default:wf_1\\ndefault:order 7\\nother:x\\n'; }
source /dev/stdin <<'SCRIPT'
${script("bash")}
SCRIPT
COMP_LINE=${JSON.stringify(line)} COMP_POINT=${line.length} COMP_WORDS=(${words.map((word) => `'${word}'`).join(" ")}) COMP_CWORD=${words.length - 1}
_hop
printf '%s\\n' "\${COMPREPLY[@]}"`;
  const { stdout, exitCode, stderr } = Bun.spawnSync(["bash", "-c", call]);
  expect({ exitCode, stderr: stderr.toString() }).toEqual({ exitCode: 0, stderr: "" });
  return stdout.toString().trimEnd().split("\n");
}

describe("the script parses", () => {
  for (const shell of ["bash", "zsh", "fish"]) {
    test.skipIf(Bun.which(shell) === null)(`in ${shell} (skipped where ${shell} is not installed)`, async () => {
      const child = Bun.spawn([shell, "-n", "/dev/stdin"], { stdin: new Blob([script(shell)]), stdout: "pipe", stderr: "pipe" });
      expect({ code: await child.exited, err: await child.stderr.text() }).toEqual({ code: 0, err: "" });
    });
  }
});

describe("bash completes", () => {
  test.each([
    ["commands", ["hop", "wo"], ["worker", "workflow"]],
    ["subcommands", ["hop", "workflow", "sh"], ["show"]],
    ["subcommands behind an option with a value", ["hop", "-n", "dev", "workflow", "sh"], ["show"]],
    ["options", ["hop", "run", "--idem"], ["--idempotency-key"]],
    ["an option's choices", ["hop", "run", "x", "--contention", ""], ["attach", "reject", "queue", "supersede"]],
    ["run ids", ["hop", "workflow", "show", "def"], ["default:wf_1", "default:order 7"]],
    ["run ids behind a colon, which ends a word", ["hop", "workflow", "show", "default", ":", "w"], ["wf_1"]],
    ["run ids right at the colon", ["hop", "workflow", "result", "default", ":"], ["wf_1", "order 7"]],
    ["shells", ["hop", "completion", "z"], ["zsh"]],
  ])("%s", (_name, words, offers) => {
    expect(bashOffers(words.join(" ").replaceAll(" : ", ":").replaceAll(" :", ":"), words)).toEqual(offers);
  });
});

test("a shell that is not known has no script", () => {
  expect(completionScript("tcsh", root)).toBeUndefined();
});
