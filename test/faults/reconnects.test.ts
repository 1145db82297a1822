import { expect, it } from 'vitest';
import { measured } from '../support/measured.ts';
import { processResources } from '../support/process-resources.ts';
import { expectRecovery } from './recovery.ts';
import { rounds } from './rounds.ts';
import { Scene } from './scene.ts';

const RECONNECTS = rounds({ short: 50, full: 1000 });
const WARM_UP = 20;
const TUNNELS = 10;
/** Chance answers 0 in the agent's process: every back-off is over at once, else this would take hours. */
const NO_BACKOFF = { NODE_OPTIONS: '--import=data:text/javascript,Math.random=()=>0' };
/**
 * The SDK keeps 3 KB of each listener whose session was lost, and 30 KB of the session, for ever (1.7.0, measured);
 * what comes on top is the leeway that the collector takes.
 */
const MAX_GROWTH_MIB = 64 + (RECONNECTS * (32 + 4 * TUNNELS)) / 1024;

it.runIf(process.platform === 'linux')(
  `${RECONNECTS} reconnects leak no socket, listener or file descriptor`,
  { timeout: 60_000 + RECONNECTS * 1_000 },
  () =>
    Scene.play({ tunnels: TUNNELS, env: NO_BACKOFF }, async (scene) => {
      const agent = await scene.startServing();
      const pid = agent.child.pid ?? 0;
      const times: number[] = [];
      const reconnect = async () => {
        const from = performance.now();
        const up = agent.logged('tunnels are up', agent.lines.length);
        scene.proxy.cut();
        await up;
        times.push(performance.now() - from);
      };
      for (let i = 0; i < WARM_UP; i++) await reconnect();
      const before = processResources(pid);
      for (let i = 0; i < RECONNECTS; i++) await reconnect();
      await expect.poll(() => processResources(pid).fds, { timeout: 10_000 }).toBeLessThanOrEqual(before.fds);
      const after = processResources(pid);
      const fault = `a connection that is cut, with ${TUNNELS} tunnels`;
      measured({ fault, tried: 0, note: JSON.stringify({ before, after }) });
      expectRecovery(fault, times, 5_000, RECONNECTS);
      expect(after.sockets).toBeLessThanOrEqual(before.sockets);
      expect(after.threads).toBeLessThanOrEqual(before.threads);
      expect(after.rssMib - before.rssMib).toBeLessThan(MAX_GROWTH_MIB);
      expect(scene.gateway.endpoints.list()).toHaveLength(TUNNELS + 1);
      expect(await Promise.all(scene.hosts.map((host) => scene.serves(host)))).not.toContain(false);
      expect(await agent.end()).toBe(0);
    }),
);
