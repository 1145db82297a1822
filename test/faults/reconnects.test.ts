import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { expect, it } from 'vitest';
import { expectRecovery, say } from './recovery.ts';
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

function resources(pid: number) {
  const fds = readdirSync(`/proc/${pid}/fd`).map((fd) => {
    try {
      return readlinkSync(`/proc/${pid}/fd/${fd}`);
    } catch {
      return 'closed meanwhile';
    }
  });
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const field = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(status)?.[1]);
  const sockets = fds.filter((target) => target.startsWith('socket:')).length;
  return { fds: fds.length, sockets, threads: field('Threads'), rssMib: field('VmRSS') / 1024 };
}

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
      const before = resources(pid);
      for (let i = 0; i < RECONNECTS; i++) await reconnect();
      await expect.poll(() => resources(pid).fds, { timeout: 10_000 }).toBeLessThanOrEqual(before.fds);
      const after = resources(pid);
      say(`${RECONNECTS} reconnects with ${TUNNELS} tunnels: ${JSON.stringify({ before, after })}`);
      expectRecovery(
        'one reconnect',
        times.toSorted((a, b) => a - b),
        5_000,
      );
      expect(after.sockets).toBeLessThanOrEqual(before.sockets);
      expect(after.threads).toBeLessThanOrEqual(before.threads);
      expect(after.rssMib - before.rssMib).toBeLessThan(MAX_GROWTH_MIB);
      expect(scene.gateway.endpoints.list()).toHaveLength(TUNNELS + 1);
      expect(await Promise.all(scene.hosts.map((host) => scene.serves(host)))).not.toContain(false);
      expect(await agent.end()).toBe(0);
    }),
);
