import { CLIENTS } from './clients.ts';
import type { Outcome } from './outcome.ts';

/** The last outcomes, by the name of the client. */
export type LastRuns = Partial<Record<string, Outcome[]>>;

/** docs/compatibility.md, from the last runs. */
export function compatibilityPage(lastRuns: LastRuns): string {
  const outcomes = Object.keys(CLIENTS).flatMap((name) => lastRuns[name] ?? []);
  const rows = outcomes.map(({ client, what, passed, expected, failed, date }) => {
    const total = passed + expected.length + failed.length;
    return `| ${client} | ${what} | ${passed} of ${total} | ${date} |`;
  });
  const expected = outcomes.flatMap(({ client, expected }) =>
    expected.map(({ name, reason }) => `| ${client} | ${code(name)} | ${reason} |`),
  );
  const failed = outcomes.flatMap(({ client, failed }) => failed.map((name) => `| ${client} | ${code(name)} | |`));
  const commands = Object.entries(CLIENTS).flatMap(([name, clients]) =>
    clients.map(({ title, needs }) => `| \`npm run interop -- ${name}\` | ${title} | ${needs} |`),
  );
  return `${[
    '# Compatibility',
    '',
    '<!-- Written by `npm run interop -- <client> --report`, from test/interop/last-runs.json. -->',
    '',
    "Unmodified clients of ngrok work with this package's gateway. Besides our own tests, which use the `@ngrok/ngrok` SDK and",
    '`@ngrok/ngrok-api`, these clients were tried with their own test suites or step by step:',
    '',
    '| Client | Tried | Passed | Last run |',
    '| --- | --- | --- | --- |',
    ...rows,
    '',
    '## What does not pass',
    '',
    '| Client | Test | Why |',
    '| --- | --- | --- |',
    ...expected,
    ...failed,
    '',
    '## Try them again',
    '',
    'The clients are fetched when they are needed and run in a network namespace, in which every name is the gateway on this',
    'machine. Linux with `unshare` and `ip` is required. `--report` writes this page.',
    '',
    'The SDKs run without changes to their code, but they must trust the gateway: its certificate authority replaces the file',
    "that the Go and Rust SDKs compile in, and is passed to the Python SDK's sessions. The WebSocket client of the Rust suite",
    "uses the machine's authorities.",
    '',
    'Agents with the Python, Go, Rust and JavaScript 1.3 SDKs also run in `npm test`, once `npm run interop -- prepare` has built',
    'them. The JavaScript SDK 1.0 and 1.1 work as well, but connect to a host name only, not to an IP address. What the Java SDK',
    '1.0 sends is tested as it was recorded; the SDK itself is not run, because its native library could not be fetched.',
    '',
    '| Command | Client | Needs |',
    '| --- | --- | --- |',
    ...commands,
  ].join('\n')}\n`;
}

function code(name: string): string {
  return `\`${name}\``;
}
