import { CLIENTS } from './clients.ts';
import type { Outcome } from './outcome.ts';

/** The last outcomes, by the name of the client. */
export type LastRuns = Partial<Record<string, Outcome[]>>;

/** docs/compatibility.md, from the last runs. */
export function compatibilityPage(lastRuns: LastRuns): string {
  const runs = Object.entries(lastRuns);
  const outcomes = Object.keys(CLIENTS).flatMap((name) =>
    runs.filter(([run]) => run.split(' ')[0] === name).flatMap(([, of]) => of ?? []),
  );
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
    // The same with several gateways.
    ...new Set([...expected, ...failed]),
    '',
    '## Kubernetes operator',
    '',
    "ngrok's operator reaches a gateway with a public certificate by the Helm values `apiURL`, `serverAddr` and `rootCAs: host`. Its",
    'controllers for domains, IP policies and cloud endpoints were run against the gateway; its agent is the Go SDK. What is',
    'different:',
    '',
    "- The gateway has no `/kubernetes_operators`: the operator's own registration stays `RegistrationFailed` with 404",
    '  `ERR_GATEWAY_NOT_SUPPORTED`, and is repeated at growing intervals. Nothing else waits for it. Endpoints with the binding',
    '  `kubernetes` are refused, and the operator does not drain: delete its resources before you uninstall it.',
    '- The operator names no certificate for domains. Those outside of `GATEWAY_DOMAIN` need one: reserve them with a',
    '  `certificate_management_policy` first; the operator takes a domain that exists.',
    '- IPv6 ranges of an `IPPolicy` are compared as they are written. Write the shortest form, such as `2001:db8::/32`.',
    '',
    '## Try them again',
    '',
    'The clients are fetched when they are needed and run in a network namespace, in which every name is the gateway on this',
    'machine. Linux with `unshare` and `ip` is required. `--report` writes this page. With `--gateways 3`, three gateways share a',
    'PostgreSQL, and each connection of a client comes to the next one.',
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
