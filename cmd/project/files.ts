/** The files of a new project. They run as they are, and an editor understands them without an install. */
import runtimeTypes from "./hopskip-runtime.d.txt" with { type: "text" };

const workflow = `/**
 * A durable workflow. Kill the process at any moment, even with kill -9, and start it again:
 * every run goes on where it was, and no finished step is done twice.
 */
import { activities, durable, query, sleep } from "@hopskip/runtime";
import type * as work from "./activities.ts";

// Calls of activities.ts, typed. Each is recorded, retried when it fails, and never repeated once it is done.
const { greet, sendPostcard } = activities<typeof work>({ startToCloseMs: 10_000, retry: { attempts: 5 } });

export const hello = durable(async (name: string) => {
  let step = "greeting";
  query("step", () => step);

  const greeting = await greet(name);
  step = "waiting";
  await sleep(3_000); // Holds no thread and no memory: it may as well be 14 days.
  step = "sending";
  const postcard = await sendPostcard({ to: name, text: greeting });
  return { greeting, postcard };
});
`;

const activities = `/**
 * What touches the world: ordinary TypeScript that may call services, databases and files.
 *
 * An activity that fails is tried again, so it should be safe to repeat: pass \`idempotencyKey\` on
 * to whoever can recognise a repetition by it.
 */
import type { ActivityContext } from "@hopskip/activity";

export async function greet(name: string): Promise<string> {
  return \`Hello, \${name}!\`;
}

// The second argument, which may be left out, also has run, signal, heartbeat and lastHeartbeat.
export async function sendPostcard(card: { to: string; text: string }, { attempt, idempotencyKey, log }: ActivityContext): Promise<string> {
  log.info(\`postcard to \${card.to}: \${card.text}\`, { attempt, idempotencyKey });
  return \`sent at \${new Date().toISOString()}\`;
}
`;

/** So that activities may use the machine with nothing installed. */
const machineTypes = `
/** Node's modules and globals, loosely: activities have them, workflows do not. Exact types: see README.md. */
declare module "node:*";
declare var process: any;
declare var Buffer: any;
`;

const packageJson = (name: string) =>
  `${JSON.stringify({ name, version: "0.1.0", private: true, type: "module", scripts: { dev: "hop dev", deploy: "hop deploy hello.ts" } }, null, 2)}\n`;

const tsconfig = `${JSON.stringify(
  {
    compilerOptions: {
      target: "ESNext",
      module: "ESNext",
      moduleResolution: "bundler",
      lib: ["ESNext", "DOM"],
      types: [],
      strict: true,
      noEmit: true,
      allowImportingTsExtensions: true,
      verbatimModuleSyntax: true,
      skipLibCheck: true,
    },
    include: ["**/*.ts"],
  },
  null,
  2,
)}\n`;

const readme = (name: string) => `# ${name}

A Hopskip project: \`hello.ts\` is a durable workflow, \`activities.ts\` is what it does in the world.

\`\`\`sh
hop dev                                      # server and worker; data in ./.hop, reloads when files change
hop run hello --input '"Ada"' --follow       # in a second terminal
\`\`\`

Then try what makes it durable: start a run, kill \`hop dev\` with \`kill -9\` while it waits, start \`hop dev\` again. The run ends as if nothing had happened.

\`\`\`sh
hop workflow list
hop workflow query RUN step
hop audit RUN                                # who did what when, checked to the byte
\`\`\`

Files:

- \`hello.ts\`: workflows. Only what is deterministic runs here; \`Date\`, \`Math.random\` and timers are replaced by ones that replay.
- \`activities.ts\`: ordinary TypeScript, with Node's modules and \`process\`. It may import packages that you install.
- \`hopskip.d.ts\`: types of \`@hopskip/runtime\`, \`@hopskip/activity\` and \`@hopskip/client\` for the editor. The modules themselves are part of
  \`hop\`: there is nothing to install.

Tests: \`hop testkit\` puts \`@hopskip/testing\` into \`node_modules\`; with it a workflow of 14 days is tested in milliseconds, and with a crash at every await.

For exact types of Node: \`npm install -D @types/node\`, put \`"types": ["node"]\` into \`tsconfig.json\`, and remove the last lines of \`hopskip.d.ts\`.

More is in the guide, \`docs/GUIDE.md\` of Hopskip: retries, timeouts and heartbeats; signals and queries; cancellation; which errors are final;
what workflow code may use; deploying to a server with workers; blocked runs; idempotency keys; audit and proofs; starting runs from a program.
`;

export interface ProjectFile {
  readonly name: string;
  readonly text: string;
}

/** Everything in the folder of a project called `name`. */
export const projectFiles = (name: string): readonly ProjectFile[] => [
  { name: "hello.ts", text: workflow },
  { name: "activities.ts", text: activities },
  { name: "hopskip.d.ts", text: runtimeTypes + machineTypes },
  { name: "package.json", text: packageJson(name) },
  { name: "tsconfig.json", text: tsconfig },
  { name: "README.md", text: readme(name) },
  { name: ".gitignore", text: "node_modules/\n.hop/\n" },
];
