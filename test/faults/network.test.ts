import { createServer, type Server } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { createServer as createTlsServer } from 'node:tls';
import { describe, expect, it } from 'vitest';
import type { AgentProcess } from '../support/agent-process.ts';
import { CHOSEN_CONNECTOR } from '../support/connectors.ts';
import { quantile, seconds } from '../support/finding.ts';
import { FlakyProxy } from '../support/flaky-proxy.ts';
import { listening } from '../support/loopback.ts';
import { measured } from '../support/measured.ts';
import { Network, NO_NETWORKS } from '../support/network.ts';
import { processResources } from '../support/process-resources.ts';
import { unless } from '../support/requirements.ts';
import { selfSigned } from '../support/self-signed.ts';
import { expectRecovery, SLACK } from './recovery.ts';
import { FULL, rounds } from './rounds.ts';
import { Scene } from './scene.ts';

const ROUNDS = rounds({ short: 1, full: 3 });
const TUNNELS = 10;
/** Milliseconds that faults last which have no end of their own. */
const LENGTH_MS = rounds({ short: 4_000, full: 20_000 });
/** Far above the measured times, so that the speed of the machine does not matter. */
const LIMIT_MS = 50_000;
/** Lines that an outage may add to the log: the loss, five reasons, the return. */
const MAX_LINES = 12;
const PORTAL_LIMIT_MS = 6_000;
/** Of 99 in 100 cuts; an attempt may be cut, too. */
const CUT_LIMIT_MS = 3_000;
const REDIRECT = 'HTTP/1.1 302 Found\r\nLocation: http://portal.hotel.example/\r\n\r\n';
const MAX_GROWTH_MIB = 64;
const LOST = 'session lost';
const TRYING = 'session attempt failed; retrying';

interface Device {
  scene: Scene;
  network: Network;
  agent: AgentProcess;
}

interface Fault {
  name: string;
  /** Provokes the fault and ends it; resolves to the moment from which recovery counts. */
  provoke(device: Device): Promise<number>;
}

const faults: Fault[] = [
  {
    name: 'a link that loses 30 % of all packets',
    async provoke({ scene, network }) {
      network.lose(30);
      const until = performance.now() + LENGTH_MS;
      const answers: boolean[] = [];
      while (performance.now() < until) {
        answers.push(...(await Promise.all(scene.hosts.map((host) => scene.serves(host)))));
      }
      network.restore();
      const served = answers.filter(Boolean).length;
      const note = `${Math.round((100 * served) / answers.length)} % of requests answered in time meanwhile`;
      measured({ fault: this.name, tried: 0, note });
      return performance.now();
    },
  },
  {
    name: 'a link that drops everything without a word',
    async provoke({ network, agent }) {
      const from = agent.lines.length;
      const began = performance.now();
      network.lose(100);
      const { reason } = await agent.logged(LOST, from);
      const noticed = CHOSEN_CONNECTOR === 'sdk' ? 'acknowledges what is sent' : 'answers heartbeats';
      expect(reason).toBe(`the gateway no longer ${noticed}`);
      measured({ fault: this.name, tried: 0, note: `noticed after ${seconds(performance.now() - began)}` });
      network.restore();
      return performance.now();
    },
  },
  {
    name: 'a link that drops large packets without a word (MTU black hole)',
    async provoke({ scene, network, agent }) {
      const from = agent.lines.length;
      const began = performance.now();
      network.lose(100, 'meta length > 1000');
      const [host = ''] = scene.hosts;
      await Promise.all([agent.logged(LOST, from), scene.client.get(host, `/${'x'.repeat(6_000)}`)]);
      measured({ fault: this.name, tried: 0, note: `noticed after ${seconds(performance.now() - began)}` });
      network.restore();
      return performance.now();
    },
  },
  {
    name: 'a cable that is out for a while',
    async provoke({ network }) {
      network.unplug();
      await delay(LENGTH_MS);
      network.plug();
      return performance.now();
    },
  },
  {
    name: 'a name server that is silent while the session is lost',
    async provoke({ scene, network, agent }) {
      network.lose(100, 'udp dport 53');
      await loseSession(scene, agent);
      await delay(LENGTH_MS);
      network.restore();
      return performance.now();
    },
  },
  {
    name: 'a name server that fails while the session is lost',
    async provoke({ scene, network, agent }) {
      network.forget();
      await loseSession(scene, agent);
      await delay(LENGTH_MS);
      network.lead(network.near[0]);
      return performance.now();
    },
  },
  {
    name: 'a gateway that moves to another address, from the move',
    async provoke({ scene, network, agent }) {
      const [port, lines] = [scene.proxy.address.split(':')[1], agent.lines.length];
      const there = await FlakyProxy.start(() => scene.gateway.sessionAddress, network.near[1], Number(port));
      const moved = performance.now();
      network.lead(network.near[1]);
      network.lose(100, `ip daddr ${network.near[0]} meta l4proto tcp`);
      await agent.logged(LOST, lines);
      await scene.recovered();
      const recovered = performance.now();
      expect(there.open).toBeGreaterThan(0);
      // And back again, with a close that the agent receives.
      network.restore();
      network.lead(network.near[0]);
      await there.close();
      measured({ fault: this.name, tried: 0, note: `and back in ${seconds(await slowest(scene))}` });
      return performance.now() - (recovered - moved);
    },
  },
  {
    name: 'a gateway with two addresses, one of which drops everything, from then on',
    async provoke({ scene, network, agent }) {
      const port = Number(scene.proxy.address.split(':')[1]);
      const there = await FlakyProxy.start(() => scene.gateway.sessionAddress, network.near[1], port);
      network.lead(...network.near);
      let lines = agent.lines.length;
      scene.proxy.cut();
      await agent.logged(LOST, lines);
      await scene.recovered();
      lines = agent.lines.length;
      const began = performance.now();
      network.lose(100, `ip daddr ${network.near[0]} meta l4proto tcp`);
      await agent.logged(LOST, lines);
      await scene.recovered();
      const recovered = performance.now();
      // Nobody asks for anything: the native connector's heartbeats are far apart then.
      expect(recovered - began).toBeLessThan(CHOSEN_CONNECTOR === 'sdk' ? 20_000 : 35_000);
      expect(there.open).toBeGreaterThan(0);
      network.restore();
      network.lead(network.near[0]);
      await there.close();
      await scene.recovered();
      return performance.now() - (recovered - began);
    },
  },
];

/** Servers that a network leads connections to until somebody logs in, and how the agent's log names them. */
const portals: { kind: string; named: RegExp; open(): Promise<Server> }[] = [
  {
    kind: 'presents a certificate of its own',
    named: /CN=localhost.*captive portal/,
    open: async () =>
      createTlsServer(await selfSigned(), (socket) => socket.end(REDIRECT)).on('tlsClientError', () => {}),
  },
  {
    kind: 'answers with a redirect in plain text',
    named: /does not answer with TLS.*captive portal/,
    open: async () => createServer((socket) => socket.on('error', () => {}).once('data', () => socket.end(REDIRECT))),
  },
  {
    kind: 'accepts connections and is silent',
    named: /no answer within.*captive portal/,
    open: async () => createServer((socket) => socket.on('error', () => {}).resume()),
  },
];

/** Cuts the session's connection; resolves when the agent has found that it cannot come back. */
async function loseSession(scene: Scene, agent: AgentProcess): Promise<void> {
  const from = agent.lines.length;
  scene.proxy.cut();
  await agent.logged(TRYING, from);
}

async function slowest(scene: Scene): Promise<number> {
  return Math.max(...(await scene.recovered()));
}

/** Every name is online, and only once. */
function expectEachOnce(scene: Scene): void {
  const online = scene.gateway.endpoints.list().map(({ host }) => host);
  expect(online.filter((host) => scene.hosts.includes(host)).toSorted()).toEqual(scene.hosts.toSorted());
}

async function within(act: (network: Network) => Promise<void>): Promise<void> {
  const network = await Network.create();
  try {
    await act(network);
  } finally {
    await network.close();
  }
}

describe.concurrent('in its own network namespace, the agent recovers with a short log after', () => {
  for (const fault of faults) {
    it(fault.name, { timeout: 120_000 + ROUNDS * 120_000, ...unless(NO_NETWORKS) }, () =>
      within((network) =>
        Scene.play({ tunnels: TUNNELS, network }, async (scene) => {
          const agent = await scene.startServing();
          const before = processResources(agent.child.pid).rssMib;
          const recovery: number[] = [];
          for (let round = 0; round < ROUNDS; round++) {
            const lines = agent.lines.length;
            recovery.push(...(await scene.recovered(await fault.provoke({ scene, network, agent }))));
            const logged = agent.lines.slice(lines).map(({ msg, reason }) => `${msg}: ${reason}`);
            expect(logged.length, logged.join('\n')).toBeLessThanOrEqual(MAX_LINES);
            expectEachOnce(scene);
          }
          expectRecovery(fault.name, recovery, LIMIT_MS, ROUNDS);
          expect(agent.child.exitCode).toBeNull();
          expect(processResources(agent.child.pid).rssMib - before).toBeLessThan(MAX_GROWTH_MIB);
          expect(await agent.end()).toBe(0);
        }),
      ),
    );
  }

  it('a start without a link or name resolution', { timeout: 240_000, ...unless(NO_NETWORKS) }, () =>
    within((network) =>
      Scene.play({ tunnels: TUNNELS, network }, async (scene) => {
        await scene.rehearse();
        network.unplug();
        const agent = scene.startAgent();
        await agent.logged(TRYING);
        await delay(LENGTH_MS);
        network.plug();
        expectRecovery('a start without a link or name resolution', await scene.recovered(), LIMIT_MS);
        expectEachOnce(scene);
        expect(await agent.end()).toBe(0);
      }),
    ),
  );
});

describe.concurrent('the agent recovers automatically', () => {
  const late = 'a link on which every answer takes 2 s';
  it(`over ${late}, and serves meanwhile`, { timeout: 240_000 }, () =>
    Scene.play({ tunnels: 5, patienceMs: 10_000 }, async (scene) => {
      const agent = await scene.startServing();
      scene.proxy.delay(2_000);
      const lines = agent.lines.length;
      scene.proxy.cut();
      await agent.logged(LOST, lines);
      expectRecovery(`${late}, from the loss of a session on it`, await scene.recovered(), LIMIT_MS);
      scene.proxy.delay(0);
      expectRecovery(`${late}, from its end`, await scene.recovered(), LIMIT_MS);
      expectEachOnce(scene);
      expect(await agent.end()).toBe(0);
    }),
  );

  for (const { kind, named, open } of portals) {
    it(`from behind a captive portal that ${kind}, and names it`, { timeout: 240_000 }, () =>
      Scene.play({ tunnels: TUNNELS }, async (scene) => {
        const agent = await scene.startServing();
        const portal = await open();
        const port = await listening(portal);
        const [lines, knocks] = [agent.lines.length, scene.proxy.accepted];
        scene.proxy.divert(() => `127.0.0.1:${port}`);
        const { reason } = await agent.logged(TRYING, lines);
        expect(reason).toMatch(named);
        await delay(LENGTH_MS);
        const knocked = scene.proxy.accepted - knocks;
        scene.proxy.divert(() => scene.gateway.sessionAddress);
        const fault = `a captive portal that ${kind}`;
        measured({ fault, tried: 0, note: `${knocked} knocks meanwhile` });
        expectRecovery(fault, await scene.recovered(), PORTAL_LIMIT_MS);
        expect(agent.lines.length - lines).toBeLessThanOrEqual(MAX_LINES);
        expectEachOnce(scene);
        portal.close();
      }),
    );
  }

  const CUTTING_MS = rounds({ short: 20_000, full: 600_000 });
  for (const every of FULL ? [5, 15, 30] : [5]) {
    it(
      `within seconds of every cut of a link that is cut every ${every} s`,
      { timeout: 2 * CUTTING_MS + 120_000 },
      () =>
        Scene.play({ tunnels: TUNNELS }, async (scene) => {
          const agent = await scene.startServing();
          const times: number[] = [];
          for (const end = performance.now() + CUTTING_MS; performance.now() < end; ) {
            await delay(every * 1000 - (times.at(-1) ?? 0));
            const from = performance.now();
            scene.proxy.cut();
            times.push(Math.max(...(await scene.recovered(from))));
          }
          expectRecovery(`a link that is cut every ${every} s, until all tunnels serve`, times, LIMIT_MS, times.length);
          expect(quantile(times, 0.99)).toBeLessThan(CUT_LIMIT_MS * SLACK);
          expectEachOnce(scene);
          expect(await agent.end()).toBe(0);
        }),
    );
  }

  const FLAPS = rounds({ short: 12, full: 100 });
  it(`after ${FLAPS} flaps of the link`, { timeout: 240_000 + FLAPS * 2_000 }, () =>
    Scene.play({ tunnels: TUNNELS }, async (scene) => {
      const agent = await scene.startServing();
      const [lines, before] = [agent.lines.length, processResources(agent.child.pid).rssMib];
      for (let flap = 0; flap < FLAPS; flap++) {
        await scene.proxy.refuse();
        await delay(Math.random() * 300);
        await scene.proxy.listen();
        // Long enough for a session in about every other round: it is lost at any stage of its rise.
        await delay(Math.random() * 1_000);
      }
      const fault = `${FLAPS} flaps of the link in a row`;
      const logged = agent.lines.length - lines;
      measured({ fault, tried: 0, note: `${logged} log lines` });
      expectRecovery(fault, await scene.recovered(), LIMIT_MS, FLAPS);
      expect(logged).toBeLessThanOrEqual(FLAPS * MAX_LINES);
      expectEachOnce(scene);
      expect(processResources(agent.child.pid).rssMib - before).toBeLessThan(MAX_GROWTH_MIB);
      expect(await agent.end()).toBe(0);
    }),
  );
});
