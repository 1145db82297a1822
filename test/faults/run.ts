import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { cpus, machine, release, tmpdir, totalmem } from 'node:os';
import { join } from 'node:path';
import { VERSION } from '../../src/packaged.ts';
import { faultReport } from '../support/fault-report.ts';
import { FINDINGS_VARIABLE, type Finding } from '../support/finding.ts';
import { networkFaultTools } from '../support/network.ts';

/** Where faults are provoked with each connector, and where no agent takes part. */
const WITH_AGENT = ['test/faults'];
const WITHOUT_AGENT = [
  'test/faults/acme-orders',
  'test/faults/ca-change-kills',
  'test/lib/files/durable-file',
  'test/gateway/store/sql/crash',
  'test/gateway/events/event-kills',
  'test/gateway/history/year',
  'test/update/trial',
];
const CONNECTORS = {
  sdk: [],
  native: [...WITHOUT_AGENT.map((test) => `--exclude=${test}.test.ts`), '--passWithNoTests'],
};
/** Without the project of `npm test` that runs some of them with the native connector. */
const ONCE = '--project=!native';
const REPORT = 'docs/reliability.md';
/** The end of the report: what `npm run attack -- --report` found, and what is updated by hand. */
const FURTHER = ['test/attack/last-run.md', 'test/faults/mutation-testing.md', 'test/gateway/cluster/last-run.md'];
/** Times are judged here, so that fewer tests run at once than in `npm test`. */
const WORKERS = '--maxWorkers=2';

/** `npm run faults [-- --report | -- what vitest takes]`: fault tests at full length, and the report about all. */
function main(args: readonly string[]): number {
  const report = args.includes('--report');
  const passed = args.filter((arg) => arg !== '--report');
  if (report && passed.length > 0) {
    process.stderr.write('The report is about all fault tests: --report takes nothing beside it.\n');
    return 2;
  }
  const folder = mkdtempSync(join(tmpdir(), 'faults-'));
  const findings = join(folder, 'findings');
  writeFileSync(findings, '');
  const started = Date.now();
  try {
    for (const [connector, options] of Object.entries(CONNECTORS)) {
      const env = { ...process.env, FAULTS: 'full', [FINDINGS_VARIABLE]: findings, TEST_CONNECTOR: connector };
      const vitest = join('node_modules', 'vitest', 'vitest.mjs');
      const tests = passed.length > 0 ? passed : [...WITH_AGENT, ...WITHOUT_AGENT];
      const what = ['run', WORKERS, ONCE, ...options, ...tests];
      const { status } = spawnSync(process.execPath, [vitest, ...what], { env, stdio: 'inherit' });
      if (status !== 0) {
        if (report) process.stderr.write(`A fault test failed: ${REPORT} stays as it is.\n`);
        return status ?? 1;
      }
    }
    if (report) writeReport(readFileSync(findings, 'utf8'), Date.now() - started);
    return 0;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function writeReport(lines: string, ms: number): void {
  const findings = lines
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as Finding);
  const run = {
    date: new Date().toISOString().slice(0, 10),
    version: VERSION,
    machine: describeMachine(),
    minutes: Math.round(ms / 60_000),
  };
  const further = FURTHER.filter((path) => existsSync(path)).map((path) => readFileSync(path, 'utf8'));
  writeFileSync(REPORT, [faultReport(findings, run), ...further].join('\n'));
  process.stdout.write(`${REPORT} is written.\n`);
}

function describeMachine(): string[] {
  const [cpu] = cpus();
  return [
    `${cpus().length} × ${cpu?.model ?? 'unknown processor'} (${machine()})`,
    `${Math.round(totalmem() / 2 ** 30)} GiB of memory`,
    `Linux ${release()}`,
    `Node ${process.version}`,
    networkFaultTools(),
  ];
}

process.exitCode = main(process.argv.slice(2));
