// npm run testssl: testssl.sh judges the TLS of a gateway's HTTPS port. Fails for findings above LOW. Takes two minutes.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const PROGRAM = fileURLToPath(new URL('../dist/cli.js', import.meta.url));
const DOMAIN = 'tunnels.example.com';
const ACCEPTED = new Set([
  // A private CA: its clients trust a file, and certificates end with their name.
  'cert_revocation',
  // About the machine that tests.
  'engine_problem',
]);
const HARMLESS = new Set(['OK', 'INFO', 'LOW']);

/**
 * @param {string} folder
 * @returns {Promise<{ port: number, stop: () => Promise<unknown> }>} its HTTPS port, and how to stop it
 */
async function startGateway(folder) {
  const settings = {
    DATA_DIR: folder,
    GATEWAY_DOMAIN: DOMAIN,
    GATEWAY_HTTPS_PORT: '18443',
    GATEWAY_HTTP_PORT: '18080',
  };
  const env = { ...process.env, ...settings, LOG_FORMAT: 'json' };
  const gateway = spawn(process.execPath, [PROGRAM, 'gateway'], {
    cwd: folder,
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exited = once(gateway, 'exit');
  const stop = () => {
    gateway.kill();
    return exited;
  };
  for await (const line of createInterface(gateway.stdout)) {
    const { msg, https } = JSON.parse(line);
    if (msg === 'gateway listening') return { port: https, stop };
  }
  throw new Error('the gateway did not start');
}

/**
 * @param {string} folder
 * @param {number} port
 * @returns {{ id: string, severity: string, finding: string }[]} all findings
 */
function judge(folder, port) {
  const report = join(folder, 'report.json');
  const options = ['--quiet', '--color', '0', '--warnings', 'batch', '--ip', '127.0.0.1', '--jsonfile', report];
  const ca = ['--add-ca', join(folder, 'gateway/ca.pem')];
  // It would not write into an existing one.
  rmSync(report, { force: true });
  const { error } = spawnSync('testssl', [...options, ...ca, `https://cam.${DOMAIN}:${port}`], { stdio: 'inherit' });
  if (error) throw new Error(`cannot run testssl (Debian: testssl.sh): ${error.message}`);
  return JSON.parse(readFileSync(report, 'utf8'));
}

/**
 * On a busy machine a check may fail to connect: then all are made once more, and what failed gets its second result.
 * @param {() => ReturnType<typeof judge>} look
 */
function repeated(look) {
  /** @param {ReturnType<typeof judge>[number]} found */
  const isMissed = ({ severity, finding }) => severity === 'WARN' && /check failed/i.test(finding);
  const findings = look();
  const missed = findings.filter(isMissed);
  if (missed.length === 0) return findings;
  process.stdout.write(`checks failed, repeating: ${missed.map(({ id }) => id).join(', ')}\n`);
  const again = look();
  return findings.map((found) => (isMissed(found) ? (again.find(({ id }) => id === found.id) ?? found) : found));
}

const folder = mkdtempSync(join(tmpdir(), 'testssl-'));
try {
  const { port, stop } = await startGateway(folder);
  const findings = await (async () => repeated(() => judge(folder, port)))().finally(stop);
  const serious = findings.filter(({ id, severity }) => !HARMLESS.has(severity) && !ACCEPTED.has(id));
  for (const { id, severity, finding } of serious) process.stdout.write(`${severity} ${id}: ${finding}\n`);
  process.stdout.write(`${findings.length} findings, ${serious.length} of them above LOW\n`);
  process.exitCode = findings.length > 0 && serious.length === 0 ? 0 : 1;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
