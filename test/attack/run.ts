import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import type { AddressInfo, Server } from 'node:net';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { createEnrolmentKey } from '../../src/gateway/devices/invite.ts';
import { gatewayDomains } from '../../src/gateway/endpoints/domain-names.ts';
import { issueCredential } from '../../src/gateway/store/tokens.ts';
import { EnrolmentKeyCreate } from '../../src/management/resources/enrolment.ts';
import { persistTunnels } from '../faults/persisted-tunnels.ts';
import { AgentProcess } from '../support/agent-process.ts';
import { issueCertificate } from '../support/certificates.ts';
import { GatewayProcess } from '../support/gateway-process.ts';
import { processResources } from '../support/process-resources.ts';
import type { AttackResult, Target } from './attack.ts';
import type { Order } from './attackers.ts';
import type { Visit, Visited } from './honest-clients.ts';
import { attackReport, faultsOf, type Outcome } from './report.ts';
import { hungUpstream, identityProvider, issuerOf, sharedTunnels } from './shared-tenant.ts';
import { amazon, brokenUpstream, honestUpstream } from './upstreams.ts';

const HEAP_MIB = 256;
const DESCRIPTORS = '256';
/** Honest clients alone, to compare with. */
const QUIET_SECONDS = 15;
const HONEST = ['honest-1.localhost', 'honest-2.localhost'];
/** As many as `tenants:` attacks have; the first one carries out all others. */
const HOSTILE_TENANTS = 4;
const BROKEN = 'broken.localhost';
const REPORT = 'test/attack/last-run.md';
const PAGE = 'docs/reliability.md';

/**
 * `npm run attack [-- minutes] [--only name] [--descriptors 256] [--report] [--trace]`: a small gateway under a mixed attack, with honest agents
 * and clients beside it. Fails when one of the honest ones notices. `--only` carries out the attacks whose name contains the
 * text, `--descriptors` is the gateway's limit of open files, `--report` writes the result of all into docs/reliability.md, `--trace` prints each failure and slow answer as it comes, what
 * the gateway and the agents warn of, and why sessions end.
 */
async function main(args: string[]): Promise<number> {
  const { values, positionals } = parseArgs({
    args,
    options: {
      only: { type: 'string', default: '' },
      descriptors: { type: 'string', default: DESCRIPTORS },
      report: { type: 'boolean', default: false },
      trace: { type: 'boolean', default: false },
    },
    allowPositionals: true,
  });
  const minutes = Number(positionals[0] ?? 30);
  if (!(minutes > 0) || positionals.length > 1 || (values.report && values.only !== ''))
    throw new Error('usage: npm run attack -- [minutes] [--only name [--descriptors n] | --report] [--trace]');
  if (process.platform !== 'linux' || cpus().length < 2) throw new Error('the attack needs Linux and two cores');
  // The gateway has a core of its own; everything that starts from here shares another one.
  execFileSync('taskset', ['-cp', '1', String(process.pid)], { stdio: 'ignore' });
  const outcome = await attack(minutes, values.only, Number(values.descriptors), values.trace);
  const report = attackReport(outcome);
  process.stdout.write(`\n${report}\n`);
  if (values.report) writeReport(report);
  return faultsOf(outcome).length === 0 ? 0 : 1;
}

async function attack(minutes: number, only: string, descriptors: number, trace: boolean): Promise<Outcome> {
  const folder = mkdtempSync(join(tmpdir(), 'attack-'));
  const ends: (() => unknown)[] = [() => rmSync(folder, { recursive: true })];
  try {
    const authtokens: string[] = [];
    let sharedAuthtoken = '';
    let joinSecret = '';
    // What attackers get of the certificate authorities of the public internet.
    const authority = await issueCertificate({ subject: 'CN=public', ca: true });
    const names = ['127.0.0.1', 'sns.us-east-1.amazonaws.com'];
    const issued = await issueCertificate({ subject: 'CN=server', names, issuer: authority });
    const serverPair = { cert: issued.certificatePem, key: issued.privateKeyPem };
    const authorities = join(folder, 'public.pem');
    writeFileSync(authorities, authority.certificatePem);
    const servers = {
      honest: await listening(honestUpstream()),
      broken: await listening(brokenUpstream()),
      hung: await listening(hungUpstream()),
      provider: await listening(identityProvider(serverPair)),
      amazon: await listening(amazon(serverPair)),
    };
    ends.unshift(
      ...Object.values(servers).map(
        ({ server }) =>
          () =>
            server.close(),
      ),
    );
    const preloaded = new URL('amazon.js', import.meta.url);
    const gateway = await GatewayProcess.start(
      folder,
      // As its service has it on one core.
      {
        NODE_OPTIONS: `--max-old-space-size=${HEAP_MIB} --v8-pool-size=1 --import=${preloaded.href}`,
        AMAZON_PORT: String(servers.amazon.port),
        NODE_EXTRA_CA_CERTS: authorities,
        // Servers of attackers are on this machine.
        GATEWAY_POLICY_NETWORKS: '127.0.0.0/8',
      },
      {
        launcher: ['setsid', 'taskset', '-c', '0', 'prlimit', `--nofile=${descriptors}`],
        prepare: (store) => {
          const tenant = (name: string) => {
            const owner = { id: store.ids.next('bot'), created_at: store.now(), name, active: true };
            store.botUsers.insert(owner);
            return issueCredential(store, { acl: [], owner_id: owner.id, description: name }).token;
          };
          for (let at = 0; at < HOSTILE_TENANTS; at++) authtokens.push(tenant(`hostile tenant ${at}`));
          sharedAuthtoken = tenant('shared tenant');
          const key = EnrolmentKeyCreate.parse({ site: '*.hostile.localhost' });
          joinSecret = createEnrolmentKey(store, gatewayDomains('localhost'), key).secret;
        },
      },
    );
    ends.unshift(() => gateway.kill());
    const { authtoken: honestAuthtoken } = gateway;
    const device = (name: string, authtoken: string, ...tunnels: GivenTunnel[]) =>
      startAgent(join(folder, name), gateway, authtoken, tunnels);
    const agents = HONEST.map((domain) => device(domain, honestAuthtoken, { domain, port: servers.honest.port }));
    agents.push(device(BROKEN, honestAuthtoken, { domain: BROKEN, port: servers.broken.port }));
    const places = {
      upstreamPort: servers.honest.port,
      hungPort: servers.hung.port,
      issuer: issuerOf(servers.provider.server),
    };
    sharedTunnels(places).forEach((tunnels, at) => {
      agents.push(device(`shared-${at}`, sharedAuthtoken, ...tunnels));
    });
    ends.unshift(...agents.map((agent) => () => agent.end('SIGKILL')));
    // Ctrl-C ends this program at once.
    const children = [gateway.process, ...agents].map(({ child }) => child);
    process.once('exit', () => {
      for (const child of children) child.kill('SIGKILL');
    });
    await Promise.all(agents.map((agent) => agent.ready()));

    const sessionPort = Number(gateway.sessionAddress.split(':')[1]);
    const visit: Visit = {
      httpsPort: gateway.httpsPort,
      sessionPort,
      authtoken: gateway.authtoken,
      ca: gateway.sessionCa,
      hosts: HONEST,
      seconds: QUIET_SECONDS,
      trace,
    };
    process.stdout.write(`honest clients alone for ${QUIET_SECONDS} s\n`);
    const quiet = await visited(visit);
    if (trace)
      ends.unshift(traceLog('gateway', gateway.process), ...HONEST.map((host, at) => traceLog(host, agents[at])));

    process.stdout.write(`attack for ${minutes} min\n`);
    const target: Target = {
      httpPort: gateway.httpPort,
      httpsPort: gateway.httpsPort,
      sessionPort,
      host: HONEST[0] ?? '',
      brokenHost: BROKEN,
      authtoken: authtokens[0] ?? '',
      authtokens,
      serverPair,
      authority: authority.certificatePem,
      joinSecret,
    };
    const pid = gateway.process.child.pid;
    const gatewayExit = once(gateway.process.child, 'exit').then(([code, signal]) => String(code ?? signal));
    const attackers = program('attackers', { target, only, trace } satisfies Order);
    const printed = text(attackers.stdout as NodeJS.ReadableStream);
    const watch = watchResources(pid);
    const underAttack = await Promise.race([
      visited({ ...visit, seconds: minutes * 60 }),
      // The clients would go on for the whole time.
      gatewayExit.then((how) => {
        throw new Error(`the gateway ended: ${how}`);
      }),
    ]);
    const { peaks, stop } = watch;
    const core = stop();
    attackers.kill('SIGTERM');
    const results = JSON.parse(await printed) as AttackResult[];
    const sessionsLost = agents
      .slice(0, HONEST.length)
      .flatMap(({ lines }) => lines.filter(({ msg }) => msg === 'session lost').map(({ reason }) => String(reason)));
    return {
      date: new Date().toISOString().slice(0, 10),
      minutes,
      only,
      heapMib: HEAP_MIB,
      descriptors,
      quiet,
      underAttack,
      results,
      sessionsLost,
      peaks,
      core,
    };
  } finally {
    for (const end of ends) await end();
  }
}

interface GivenTunnel {
  domain: string;
  /** Of its upstream. */
  port: number;
  policy?: Record<string, unknown>;
}

/** An agent with these tunnels. */
function startAgent(
  folder: string,
  gateway: GatewayProcess,
  authtoken: string,
  tunnels: readonly GivenTunnel[],
): AgentProcess {
  const persisted = tunnels.map(({ domain, port, policy }) => ({
    domain,
    forwards_to: `localhost:${port}`,
    url: `https://${domain}:${gateway.httpsPort}`,
    ...(policy && { policy }),
  }));
  persistTunnels(folder, persisted);
  return AgentProcess.start(folder, {
    NGROK_AUTHTOKEN: authtoken,
    NGROK_SERVER_ADDR: gateway.sessionAddress,
    NGROK_CA_CERT: gateway.caFile,
    DEFAULT_POLICIES: fileURLToPath(new URL('../../defaults/policies.json', import.meta.url)),
  });
}

async function listening<S extends Server>(server: S): Promise<{ server: S; port: number }> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { server, port: (server.address() as AddressInfo).port };
}

/** A program of this folder; its argument is JSON. */
function program(name: string, argument: object): ChildProcess {
  const script = fileURLToPath(new URL(`${name}.js`, import.meta.url));
  const child = spawn(process.execPath, [script, JSON.stringify(argument)], { stdio: ['ignore', 'pipe', 'inherit'] });
  process.once('exit', () => child.kill('SIGKILL'));
  return child;
}

async function visited(visit: Visit): Promise<Visited> {
  return JSON.parse(await text(program('honest-clients', visit).stdout as NodeJS.ReadableStream)) as Visited;
}

/**
 * Prints what a process warns of from now on, why sessions end, and when this process, which has the upstreams, was late.
 * Returns the end.
 */
function traceLog(name: string, { lines }: Pick<AgentProcess, 'lines'> = { lines: [] }): () => void {
  let printed = lines.length;
  let due = performance.now();
  const timer = setInterval(() => {
    const late = performance.now() - due;
    due = performance.now() + 200;
    if (late > 500) process.stderr.write(`${new Date().toISOString()} upstreams: ${Math.round(late)} ms late\n`);
    for (; printed < lines.length; printed += 1) {
      const { level = '', time, msg, ...facts }: Record<string, unknown> = lines[printed] ?? {};
      if (level === 'warn' || level === 'error' || msg === 'agent session ended')
        process.stderr.write(
          `${new Date(String(time)).toISOString()} ${name}: ${msg} ${JSON.stringify(facts).slice(0, 300)}\n`,
        );
    }
  }, 200);
  return () => clearInterval(timer);
}

/** The gateway's highest use of memory and descriptors, and its time on its core. */
function watchResources(pid: number | undefined): { peaks: Outcome['peaks']; stop(): Outcome['core'] } {
  const from = { at: performance.now(), ...coreTime(pid) };
  const peaks = { rssMib: 0, descriptors: 0 };
  const timer = setInterval(() => {
    try {
      const { rssMib, fds } = processResources(pid);
      peaks.rssMib = Math.max(peaks.rssMib, Math.round(rssMib));
      peaks.descriptors = Math.max(peaks.descriptors, fds);
    } catch {
      // The process has ended, which the run notices.
    }
  }, 500);
  return {
    peaks,
    stop() {
      clearInterval(timer);
      const passed = performance.now() - from.at;
      const { ran, waited } = coreTime(pid);
      return { used: (ran - from.ran) / passed, waited: (waited - from.waited) / passed };
    },
  };
}

/** Milliseconds for which the main thread of a process ran, and was ready to run but had to wait (proc(5), schedstat). */
function coreTime(pid: number | undefined): { ran: number; waited: number } {
  const [ran = 0, waited = 0] = readFileSync(`/proc/${pid}/schedstat`, 'utf8').split(' ');
  return { ran: Number(ran) / 1e6, waited: Number(waited) / 1e6 };
}

/** Replaces the chapter in the page, or appends it, and keeps it for the next `npm run faults -- --report`. */
function writeReport(report: string): void {
  const page = readFileSync(PAGE, 'utf8');
  const before = existsSync(REPORT) ? readFileSync(REPORT, 'utf8') : '';
  writeFileSync(PAGE, before === '' ? `${page}\n${report}` : page.replace(before, () => report));
  writeFileSync(REPORT, report);
  process.stdout.write(`${PAGE} and ${REPORT} are written.\n`);
}

for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1));
process.exit(await main(process.argv.slice(2)));
