import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { get } from 'node:http';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import type { AgentProcess } from '../support/agent-process.ts';
import { seconds } from '../support/finding.ts';
import { measured } from '../support/measured.ts';
import { SLACK } from './recovery.ts';
import { rounds } from './rounds.ts';
import { Scene } from './scene.ts';

const TUNNELS = rounds({ short: 20, full: 100 });
const LIMIT_MS = 5_000;

interface Case {
  name: string;
  signal?: NodeJS.Signals;
  /** Brings the agent into the state in which it is stopped. */
  prepare(scene: Scene): Promise<AgentProcess>;
  /** Whether the gateway can hear of the end. */
  connected: boolean;
}

async function startReady(scene: Scene): Promise<AgentProcess> {
  const agent = scene.startAgent();
  await agent.ready();
  return agent;
}

const cases: Case[] = [
  { name: 'all is well', connected: true, prepare: startReady },
  { name: 'all is well, by SIGINT', connected: true, signal: 'SIGINT', prepare: startReady },
  {
    name: 'there is no network yet',
    connected: false,
    async prepare(scene) {
      await scene.proxy.refuse();
      const agent = scene.startAgent();
      await agent.logged('session attempt failed; retrying');
      return agent;
    },
  },
  {
    name: 'the network is gone',
    connected: false,
    async prepare(scene) {
      const agent = await startReady(scene);
      await scene.proxy.refuse();
      await agent.logged('session lost');
      return agent;
    },
  },
  {
    name: 'the gateway is stuck',
    connected: false,
    async prepare(scene) {
      const agent = await startReady(scene);
      scene.proxy.silence();
      return agent;
    },
  },
  {
    name: 'a session is being started and nobody answers',
    connected: false,
    async prepare(scene) {
      const agent = await startReady(scene);
      scene.proxy.cut();
      scene.proxy.silence();
      await agent.logged('session lost');
      await delay(2_000); // within the next attempt, whenever that began
      return agent;
    },
  },
  {
    name: 'tunnels are just being bound',
    connected: true,
    async prepare(scene) {
      scene.proxy.delay(50);
      const agent = scene.startAgent();
      await agent.logged('session online');
      return agent;
    },
  },
  {
    name: 'a client is connected to the API and asks nothing',
    connected: true,
    async prepare(scene) {
      const agent = await startReady(scene);
      const request = get(`${await agent.api()}/tunnels`, { headers: { connection: 'keep-alive' } });
      request.on('error', () => {});
      const [response] = await once(request, 'response');
      response.resume();
      return agent;
    },
  },
];

// One after another: how soon an agent ends says nothing while seven others start.
describe(`an agent with ${TUNNELS} tunnels ends within ${LIMIT_MS / 1000} s and with code 0 when`, () => {
  for (const { name, signal = 'SIGTERM', prepare, connected } of cases) {
    it(name, { timeout: 180_000 }, () =>
      Scene.play({ tunnels: TUNNELS }, async (scene) => {
        const agent = await prepare(scene);
        const from = performance.now();
        const code = await agent.end(signal);
        const took = performance.now() - from;
        measured({ fault: `stop when ${name}`, note: `ended in ${seconds(took)}` });
        expect(code).toBe(0);
        expect(took).toBeLessThan(LIMIT_MS * SLACK);
        expect(agent.lines.map(({ msg }) => msg)).not.toContain('shutdown timed out; exiting');
        if (connected) {
          await expect.poll(() => scene.gateway.endpoints.list()).toHaveLength(0);
        }
        const kept = JSON.parse(readFileSync(join(scene.folder, 'data', 'tunnels.json'), 'utf8'));
        expect(kept.tunnels).toHaveLength(TUNNELS);
      }),
    );
  }
});
