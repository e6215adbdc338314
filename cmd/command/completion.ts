/**
 * `hop completion`: the script that makes a shell complete commands, options, their choices and
 * run ids. It is derived from the grammar, so it never lags behind it.
 */
import type { Command, Option } from "commander";
import type { Context, GlobalOptions } from "../context.ts";
import { type ExitCode, exit, UsageError } from "../failure.ts";

/** One command as a shell has to know it. */
interface Node {
  /** Words that lead to it, without `hop`: "workflow list". */
  readonly path: string;
  readonly description: string;
  readonly children: readonly { readonly name: string; readonly description: string }[];
  readonly options: readonly Flag[];
  /** What its operands are. */
  readonly operand: "run" | "file" | "shell" | "none";
}

interface Flag {
  readonly names: readonly string[];
  readonly description: string;
  readonly takesValue: boolean;
  readonly choices: readonly string[];
  readonly isPath: boolean;
}

const shells = ["bash", "zsh", "fish"] as const;

export async function completion({ output }: Context, _options: GlobalOptions, shell: string, root: Command): Promise<ExitCode> {
  const script = completionScript(shell, root);
  if (script === undefined) throw new UsageError(`Cannot print completions for ${JSON.stringify(shell)}: want bash, zsh or fish`);
  output.out.write(script);
  return exit.ok;
}

/** Undefined for a shell that is not known. */
export function completionScript(shell: string, root: Command): string | undefined {
  const nodes = nodesOf(root, []);
  if (shell === "bash") return bash(nodes);
  if (shell === "zsh") return zsh(nodes);
  return shell === "fish" ? fish(nodes) : undefined;
}

function nodesOf(command: Command, path: readonly string[]): Node[] {
  const children = command.commands;
  const argument = command.registeredArguments[0]?.name();
  const own: Node = {
    path: path.join(" "),
    description: command.description(),
    children: children.map((child) => ({ name: child.name(), description: child.description() })),
    options: [
      ...command.options.map(flagOf),
      { names: ["-h", "--help"], description: "show help", takesValue: false, choices: [], isPath: false },
    ],
    operand: argument === "run" ? "run" : argument === "file" ? "file" : argument === "shell" ? "shell" : "none",
  };
  return [own, ...children.flatMap((child) => [child.name(), ...child.aliases()].flatMap((name) => nodesOf(child, [...path, name])))];
}

function flagOf(option: Option): Flag {
  return {
    names: [option.short, option.long].filter((name) => name !== undefined && name !== null) as string[],
    description: option.description,
    takesValue: option.required || option.optional,
    choices: option.argChoices ?? [],
    isPath: /<(file|folder)/.test(option.flags),
  };
}

const listRuns = "hop workflow list -o ids --limit 100 --timeout 1s 2>/dev/null";

function bash(nodes: readonly Node[]): string {
  const words = (node: Node) => [...node.children.map((child) => child.name), ...node.options.flatMap((flag) => flag.names)].join(" ");
  const valued = [...new Set(nodes.flatMap((node) => node.options.filter((flag) => flag.takesValue).flatMap((flag) => flag.names)))];
  const choices = choiceList(nodes).map(
    ({ name, values }) => `    ${name}) COMPREPLY=($(compgen -W "${values.join(" ")}" -- "$word")); return ;;`,
  );
  const paths = pathList(nodes).join("|");
  return `# Completion of hop for bash. Load it with: source <(hop completion bash)
_hop() {
  local word="\${COMP_WORDS[COMP_CWORD]}" before="\${COMP_WORDS[COMP_CWORD-1]}" path="" at item
  local valued=" ${valued.join(" ")} "
  for ((at = 1; at < COMP_CWORD; at++)); do
    item="\${COMP_WORDS[at]}"
    if [[ "$valued" == *" $item "* ]]; then ((at++)); continue; fi
    [[ "$item" == -* ]] && continue
    case "$path $item" in
${nodes
  .filter((node) => node.path !== "")
  .map((node) => `      "${node.path.includes(" ") ? node.path : ` ${node.path}`}") path="${node.path}" ;;`)
  .join("\n")}
    esac
  done
  case "$before" in
${choices.join("\n")}
    ${paths}) COMPREPLY=($(compgen -f -- "$word")); return ;;
  esac
  case "$path" in
${nodes.map((node) => `    "${node.path}") COMPREPLY=($(compgen -W "${words(node)}" -- "$word")) ;;`).join("\n")}
  esac
  case "$path" in
    ${nodes
      .filter((node) => node.operand === "run")
      .map((node) => `"${node.path}"`)
      .join("|")})
      if [[ "$word" != -* ]]; then
        # A colon ends a word for bash: complete what follows the last one.
        local whole="\${COMP_LINE:0:COMP_POINT}" IFS=$'\\n'
        whole="\${whole##* }"
        [[ "$word" == ":" ]] && word=""
        for item in $(${listRuns}); do [[ "$item" == "$whole"* ]] && COMPREPLY+=("\${item#"\${whole%"$word"}"}"); done
      fi ;;
    ${nodes
      .filter((node) => node.operand === "file")
      .map((node) => `"${node.path}"`)
      .join("|")}) [[ "$word" != -* ]] && COMPREPLY+=($(compgen -f -- "$word")) ;;
    "completion") COMPREPLY+=($(compgen -W "${shells.join(" ")}" -- "$word")) ;;
  esac
}
complete -o filenames -F _hop hop
`;
}

/** Every option with choices, once for each name. */
function choiceList(nodes: readonly Node[]): { readonly name: string; readonly values: readonly string[] }[] {
  const found = new Map<string, readonly string[]>();
  for (const flag of nodes.flatMap((node) => node.options)) if (flag.choices.length > 0) found.set(flag.names.join("|"), flag.choices);
  return [...found].map(([name, values]) => ({ name, values }));
}

const pathList = (nodes: readonly Node[]) => [
  ...new Set(nodes.flatMap((node) => node.options.filter((flag) => flag.isPath).flatMap((flag) => flag.names))),
];

const quoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;

function zsh(nodes: readonly Node[]): string {
  const describe = (name: string, description: string) => quoted(`${name.replaceAll(":", "\\:")}:${description}`);
  const valued = [...new Set(nodes.flatMap((node) => node.options.filter((flag) => flag.takesValue).flatMap((flag) => flag.names)))];
  const cases = nodes.map((node) => {
    const items = [
      ...node.children.map((child) => describe(child.name, child.description)),
      ...node.options.flatMap((flag) => flag.names.map((name) => describe(name, flag.description))),
    ];
    return `    ${quoted(node.path)}) items=(${items.join(" ")}) ;;`;
  });
  const operands = nodes.filter((node) => node.operand !== "none").map((node) => `    ${quoted(node.path)}) ${zshOperand(node)} ;;`);
  return `#compdef hop
# Completion of hop for zsh. Put it on fpath as _hop, or load it with: source <(hop completion zsh)
_hop() {
  local -a items runs
  local path_="" item before="\${words[CURRENT-1]}" word="\${words[CURRENT]}"
  local valued=${quoted(` ${valued.join(" ")} `)}
  integer at
  for ((at = 2; at < CURRENT; at++)); do
    item="\${words[at]}"
    if [[ "$valued" == *" $item "* ]]; then ((at++)); continue; fi
    [[ "$item" == -* ]] && continue
    case "\${path_:+$path_ }$item" in
      ${nodes
        .filter((node) => node.path !== "")
        .map((node) => quoted(node.path))
        .join("|")}) path_="\${path_:+$path_ }$item" ;;
    esac
  done
  case "$before" in
${choiceList(nodes)
  .map(({ name, values }) => `    ${name}) compadd -- ${values.join(" ")}; return ;;`)
  .join("\n")}
    ${pathList(nodes).join("|")}) _files; return ;;
  esac
  case "$path_" in
${cases.join("\n")}
  esac
  _describe 'hop' items
  [[ "$word" == -* ]] && return
  case "$path_" in
${operands.join("\n")}
  esac
}
if [[ "$funcstack[1]" == "_hop" ]]; then _hop "$@"; else compdef _hop hop; fi
`;
}

function zshOperand(node: Node): string {
  if (node.operand === "file") return "_files";
  if (node.operand === "shell") return `compadd -- ${shells.join(" ")}`;
  return `runs=("\${(@f)$(${listRuns})}"); compadd -- $runs`;
}

function fish(nodes: readonly Node[]): string {
  const lines = ["# Completion of hop for fish. Load it with: hop completion fish | source", "complete -c hop -f"];
  for (const node of nodes) {
    const when =
      node.path === ""
        ? "__fish_use_subcommand"
        : node.path
            .split(" ")
            .map((word) => `__fish_seen_subcommand_from ${word}`)
            .join("; and ");
    const names = node.children.map((child) => child.name);
    const still = names.length > 0 && node.path !== "" ? `; and not __fish_seen_subcommand_from ${names.join(" ")}` : "";
    for (const child of node.children)
      lines.push(`complete -c hop -n ${quoted(when + still)} -a ${child.name} -d ${quoted(child.description)}`);
    for (const flag of node.options) lines.push(fishOption(flag, when + still));
    if (node.operand === "run") lines.push(`complete -c hop -n ${quoted(when)} -a ${quoted(`(${listRuns})`)}`);
    if (node.operand === "file") lines.push(`complete -c hop -n ${quoted(when)} -F`);
    if (node.operand === "shell") lines.push(`complete -c hop -n ${quoted(when)} -a ${quoted(shells.join(" "))}`);
  }
  return `${lines.join("\n")}\n`;
}

function fishOption(flag: Flag, when: string): string {
  const names = flag.names.map((name) => (name.startsWith("--") ? `-l ${name.slice(2)}` : `-s ${name.slice(1)}`)).join(" ");
  const value =
    flag.choices.length > 0 ? ` -x -a ${quoted(flag.choices.join(" "))}` : flag.takesValue ? (flag.isPath ? " -r -F" : " -x") : "";
  return `complete -c hop -n ${quoted(when)} ${names}${value} -d ${quoted(flag.description)}`;
}
