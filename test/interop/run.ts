import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { NO_POSTGRES } from '../support/postgres-server.ts';
import { AGENT_NAMES, type AgentName, prepareAgent } from './agents.ts';
import type { Case, Client } from './client.ts';
import { CLIENTS } from './clients.ts';
import { labMissing, runIsolated, startLab } from './lab.ts';
import { describe, judge, type Outcome } from './outcome.ts';
import { compatibilityPage, type LastRuns } from './page.ts';

const USAGE = `usage: npm run interop -- <client>… [--gateways <number>] [--report]
       npm run interop -- prepare [${AGENT_NAMES.join('|')}]…`;
const LAST_RUNS = 'test/interop/last-runs.json';
const PAGE = 'docs/compatibility.md';
/** First argument that builds what `npm test` uses. */
const PREPARE = 'prepare';
/** First argument of the process inside the isolated network. */
const ISOLATED = '--isolated';

/**
 * `npm run interop -- <client>…`: clients that others wrote, tried against a gateway on this machine. Fails when a case
 * fails that is not expected to. `--gateways 3` has so many of them share a PostgreSQL, and passes each connection to the
 * next one. `--report` writes docs/compatibility.md.
 */
async function main(args: string[]): Promise<number> {
  const { values, positionals: names } = parseArgs({
    args,
    allowPositionals: true,
    options: { report: { type: 'boolean' }, gateways: { type: 'string', default: '1' } },
  });
  const { report, gateways } = values;
  const unknown = names.filter((name) => !Object.hasOwn(CLIENTS, name));
  if (names.length === 0 || unknown.length > 0) {
    process.stderr.write(`${USAGE}\n\n${listOfClients()}\n`);
    return 2;
  }
  let failures = 0;
  for (const name of names) {
    const outcomes: Outcome[] = [];
    for (const [index, client] of (CLIENTS[name] ?? []).entries()) {
      const missing = labMissing() ?? client.missing() ?? (gateways === '1' ? null : NO_POSTGRES);
      if (missing !== null) throw new Error(`${client.title}: ${missing}; it needs ${client.needs}`);
      const outcome = await tryClient(client, [name, String(index), gateways]);
      process.stdout.write(`${describe(outcome)}\n`);
      failures += outcome.failed.length;
      outcomes.push(outcome);
    }
    if (report) writeReport(gateways === '1' ? name : `${name} --gateways ${gateways}`, outcomes);
  }
  return failures === 0 ? 0 : 1;
}

/** Builds agents with the SDKs of other languages, for `npm test`: those named, or all. */
async function prepare(names: string[]): Promise<number> {
  const isKnown = (name: string): name is AgentName => AGENT_NAMES.some((known) => known === name);
  if (!names.every(isKnown)) {
    process.stderr.write(`${USAGE}\n`);
    return 2;
  }
  for (const name of names.length > 0 ? names : AGENT_NAMES) {
    const missing = await prepareAgent(name);
    process.stdout.write(`${name}: ${missing === null ? 'ready' : `skipped: ${missing}`}\n`);
  }
  return 0;
}

function listOfClients(): string {
  const lines = Object.entries(CLIENTS).flatMap(([name, clients]) =>
    clients.map(({ title, needs }) => `  ${name.padEnd(16)}${title}; needs ${needs}`),
  );
  return lines.join('\n');
}

async function tryClient(client: Client, which: string[]): Promise<Outcome> {
  const folder = mkdtempSync(join(tmpdir(), 'interop-'));
  try {
    const sources = join(folder, 'client');
    mkdirSync(sources);
    process.stdout.write(`fetching ${client.title}\n`);
    await client.fetch(sources);
    const code = await runIsolated(folder, fileURLToPath(import.meta.url), [ISOLATED, folder, ...which]);
    if (code !== 0) throw new Error(`${client.title}: the run ended with ${code}`);
    const cases = JSON.parse(readFileSync(join(folder, 'cases.json'), 'utf8')) as Case[];
    for (const { name, status, output } of cases)
      if (status === 'failed') process.stdout.write(`--- ${name}\n${output}\n`);
    const what = which.at(-1) === '1' ? client.what : `${client.what}; with ${which.at(-1)} gateways`;
    return judge({ ...client, what }, cases, new Date().toISOString().slice(0, 10));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Tries one client; inside the isolated network. */
async function mainIsolated([folder = '', name = '', index = '', gateways = '1']: string[]): Promise<number> {
  const client = CLIENTS[name]?.[Number(index)];
  if (!client) throw new Error(`no client ${name} ${index}`);
  const sources = join(folder, 'client');
  const lab = await startLab(join(folder, 'lab'), client.gateway?.(sources), Number(gateways));
  try {
    process.stdout.write(`trying ${client.title}\n`);
    writeFileSync(join(folder, 'cases.json'), JSON.stringify(await client.run(lab, sources)));
  } finally {
    await lab.close();
  }
  return 0;
}

function writeReport(name: string, outcomes: Outcome[]): void {
  const lastRuns: LastRuns = { ...(JSON.parse(readFileSync(LAST_RUNS, 'utf8')) as LastRuns), [name]: outcomes };
  writeFileSync(LAST_RUNS, `${JSON.stringify(lastRuns, null, 2)}\n`);
  writeFileSync(PAGE, compatibilityPage(lastRuns));
  process.stdout.write(`${LAST_RUNS} and ${PAGE} are written.\n`);
}

const [command, ...rest] = process.argv.slice(2);
const commands: Record<string, (args: string[]) => Promise<number>> = { [ISOLATED]: mainIsolated, [PREPARE]: prepare };
process.exit(await (commands[command ?? '']?.(rest) ?? main(process.argv.slice(2))));
