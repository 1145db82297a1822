import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { ConnectedEndpoint } from '../../src/agent/connectors/connector.ts';
import type { GatewaySession } from '../../src/agent/connectors/gateway-link.ts';
import { ProgressMonitor } from '../../src/agent/connectors/progress-monitor.ts';
import { SessionSupervisor } from '../../src/agent/connectors/session-supervisor.ts';
import { AgentProcess } from '../support/agent-process.ts';
import { agentSettings } from '../support/gateway.ts';
import { GatewayProcess } from '../support/gateway-process.ts';
import { serving } from '../support/loopback.ts';
import { measured } from '../support/measured.ts';
import { seeded } from '../support/seeded.ts';
import { silentLog } from '../support/silent-log.ts';
import { SteeredClock } from '../support/steered-clock.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import type { Crew } from './fleet-agents.ts';
import { persistTunnels } from './persisted-tunnels.ts';
import { PublicClient } from './public-client.ts';
import { expectRecovery, timeUntilAll } from './recovery.ts';
import { rounds } from './rounds.ts';

const AGENTS = rounds({ short: 24, full: 200 });
const PROCESSES = rounds({ short: 2, full: 4 });
const ROUNDS = rounds({ short: 1, full: 3 });
const CREW = fileURLToPath(new URL('../../build/faults/fleet-agents.js', import.meta.url));
const LIMIT_MS = 60_000;

/** A session that ends when the gateway does. */
class Line implements GatewaySession {
  end: (reason: string) => void = () => {};
  readonly lost = new Promise<string>((resolve) => {
    this.end = resolve;
  });
  open = (): Promise<ConnectedEndpoint> => Promise.reject(new Error('not in this test'));
  close = async () => this.end('closed');
}

/** The moments at which 200 agents come back to a gateway, in milliseconds since it was there again. */
async function returnsTo(gatewayIsAwayMs: number): Promise<number[]> {
  const clock = new SteeredClock();
  // Chance that is the same in each run, so that the test is.
  clock.chance = seeded(7);
  let isUp = true;
  let lines: Line[] = [];
  const returns: number[] = [];
  const fleet = Array.from(
    { length: 200 },
    () =>
      new SessionSupervisor({
        gateway: 'gateway.example:443',
        clock,
        progress: new ProgressMonitor(clock),
        log: silentLog,
        findRoute: () => async () => null,
        online: () => {},
        offline: () => {},
        probe: async () => {
          if (!isUp) throw new Error('connect ECONNREFUSED');
          return { certificate: 'CN=gateway.example', problem: null, peer: null };
        },
        connect: async () => {
          const line = new Line();
          lines.push(line);
          returns.push(clock.now());
          return line;
        },
      }),
  );
  for (const agent of fleet) agent.start();
  await clock.advance(60_000);
  isUp = false;
  const cut = lines;
  lines = [];
  returns.length = 0;
  for (const line of cut) line.end('the gateway is restarted');
  if (gatewayIsAwayMs > 0) await clock.advance(gatewayIsAwayMs);
  isUp = true;
  const from = clock.now();
  await clock.advance(10_000);
  await Promise.all(fleet.map((agent) => agent.stop()));
  return returns.map((at) => at - from);
}

describe('200 agents after an outage of their gateway', () => {
  it.each([
    { awayMs: 0, windowMs: 500 },
    { awayMs: 10_000, windowMs: 3_000 },
    { awayMs: 60_000, windowMs: 3_000 },
  ])(
    'for $awayMs ms come back spread over $windowMs ms, no tenth with much more than its share',
    async (away) => {
      const returns = await returnsTo(away.awayMs);
      expect(returns).toHaveLength(200);
      expect(Math.max(...returns)).toBeLessThanOrEqual(away.windowMs);
      const tenths = Array.from({ length: 10 }, (_, i) =>
        returns.filter((at) => Math.floor((at / away.windowMs) * 10) === i),
      );
      const shares = tenths.map((tenth) => tenth.length);
      expect(Math.max(...shares), String(shares)).toBeLessThan(60);
      const note = `at most ${Math.max(...shares)} of 200 in ${away.windowMs / 10} ms; the first of them ${shares[0]}`;
      measured({ fault: `a gateway that was away for ${away.awayMs / 1000} s, in simulated time`, note });
    },
    60_000,
  );
});

it(`${AGENTS} agents are all back within a minute of a gateway that was killed`, async () => {
  const folder = temporaryFolder();
  const gateway = await GatewayProcess.start(folder);
  onTestFinished(() => gateway.kill());
  const upstream = createServer((req, res) => res.end(req.headers.host));
  await serving(upstream);

  const client = new PublicClient(() => gateway);
  onTestFinished(() => client.close());

  const hosts = Array.from({ length: AGENTS }, (_, i) => `fleet-${i}.localhost`);
  const { port } = upstream.address() as AddressInfo;
  const folders = hosts.map((domain, i) => {
    const device = join(folder, `device-${i}`);
    persistTunnels(device, [
      { domain, forwards_to: `localhost:${port}`, url: `https://${domain}:${gateway.httpsPort}` },
    ]);
    return device;
  });
  const env = {
    ...agentSettings(gateway),
    AGENT_PORT: '0',
    DEFAULT_POLICIES: fileURLToPath(new URL('../../defaults/policies.json', import.meta.url)),
  };
  for (let i = 0; i < PROCESSES; i++) {
    const crew: Crew = { folders: folders.filter((_, j) => j % PROCESSES === i), env };
    const agents = AgentProcess.run(CREW, [JSON.stringify(crew)], folder);
    onTestFinished(async () => void (await agents.end('SIGKILL')));
    await agents.logged('tunnels online');
  }
  const serves = async (host: string) => (await client.get(host)) === `${host}:${gateway.httpsPort}`;
  await timeUntilAll(hosts, serves, { limitMs: 120_000 });

  const fault = `a gateway of ${AGENTS} agents that is killed and started again`;
  const recovery: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    await gateway.restart();
    recovery.push(...(await timeUntilAll(hosts, serves)));
    const online = gateway.process.lines.filter(({ msg }) => msg === 'agent session online');
    const peak = busiest(online.map(({ time }) => Date.parse(String(time))));
    measured({ fault, tried: 0, note: `${online.length} sessions, ${peak} of them in the busiest 250 ms` });
  }
  expectRecovery(fault, recovery, LIMIT_MS, ROUNDS);
}, 900_000);

/** How many of the moments, at most, are within 250 ms. */
function busiest(moments: readonly number[]): number {
  return Math.max(...moments.map((from) => moments.filter((at) => at >= from && at < from + 250).length));
}
