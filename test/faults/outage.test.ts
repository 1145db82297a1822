import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { seconds } from '../support/finding.ts';
import { measured } from '../support/measured.ts';
import { expectRecovery, SLACK } from './recovery.ts';
import { FULL, rounds } from './rounds.ts';
import { Scene } from './scene.ts';
import { SwallowingPort } from './swallowing-port.ts';

const TUNNELS = rounds({ short: 10, full: 50 });
const ROUNDS = rounds({ short: 1, full: 3 });
/** Every tunnel serves again within this time of the end of an outage, in milliseconds. */
const LIMIT_MS = 5_000;
/** Seconds that outages last. */
const LENGTHS = FULL ? [10, 240] : [10];

interface Fault {
  name: string;
  /** Starts the outage; resolves to what ends it. */
  begin(scene: Scene): Promise<() => Promise<void>>;
}

const faults: Fault[] = [
  {
    name: 'a network that refuses',
    async begin({ proxy }) {
      await proxy.refuse();
      return () => proxy.listen();
    },
  },
  {
    name: 'a network that cuts what is there and never answers what comes',
    async begin({ proxy }) {
      proxy.cut();
      proxy.silence();
      return async () => proxy.speak();
    },
  },
  {
    name: 'a network that swallows every packet of new connections',
    async begin({ proxy }) {
      await proxy.refuse();
      const hole = await SwallowingPort.open(proxy.address);
      return async () => {
        await hole.close();
        await proxy.listen();
      };
    },
  },
  {
    name: 'a link on which packets come late, not never',
    async begin({ proxy }) {
      proxy.hold();
      return async () => proxy.release();
    },
  },
  {
    name: 'a gateway that is down',
    async begin(scene) {
      await scene.stopGateway();
      return () => scene.restartGateway();
    },
  },
];

/** Concurrently, for nearly all of the time is spent waiting. */
describe.concurrent(`${TUNNELS} tunnels serve again within ${LIMIT_MS / 1000} s of the end of`, () => {
  for (const { name, begin } of faults) {
    for (const length of LENGTHS) {
      it(`an outage of ${length} s: ${name}`, { timeout: 120_000 + ROUNDS * (length + 60) * 1000 }, () =>
        Scene.play({ tunnels: TUNNELS }, async (scene) => {
          const agent = await scene.startServing();
          const times: number[] = [];
          const tried = length > 60 ? 1 : ROUNDS;
          for (let round = 0; round < tried; round++) {
            const end = await begin(scene);
            await delay(length * 1000);
            expect(agent.child.exitCode).toBeNull();
            await end();
            times.push(...(await scene.recovered()));
          }
          expectRecovery(`outage of ${length} s: ${name}`, times, LIMIT_MS, tried);
          expect(await agent.end()).toBe(0);
        }),
      );
    }
  }

  it('a silent connection, which is detected within 30 s', { timeout: 240_000 * ROUNDS }, () =>
    Scene.play({ tunnels: TUNNELS }, async (scene) => {
      const agent = await scene.startServing();
      const times: number[] = [];
      for (let round = 0; round < ROUNDS; round++) {
        const from = performance.now();
        scene.proxy.silence();
        // What was connected stays silent for ever; only new connections get through.
        scene.proxy.speak();
        const line = await agent.logged('session lost', agent.lines.length);
        const noticed = performance.now();
        expect(line.reason).toBe('the gateway no longer answers heartbeats');
        const note = `noticed after ${seconds(noticed - from)}`;
        measured({ fault: 'half-open link, from when it was noticed', tried: 0, note });
        expect(noticed - from).toBeLessThan(30_000 * SLACK);
        times.push(...(await scene.recovered(noticed)));
      }
      expectRecovery('half-open link, from when it was noticed', times, LIMIT_MS, ROUNDS);
      // This gateway hands over each endpoint immediately, so the agent never sees one online elsewhere.
      const codes = agent.lines.map((line) => line.code).filter((code) => code !== undefined && code !== null);
      expect(codes).toEqual([]);
    }),
  );

  it('a silence that outlasts its detection', { timeout: 240_000 }, () =>
    Scene.play({ tunnels: TUNNELS }, async (scene) => {
      const agent = await scene.startServing();
      scene.proxy.silence();
      await agent.logged('session lost');
      await delay(rounds({ short: 5_000, full: 60_000 }));
      scene.proxy.speak();
      expectRecovery('half-open link, from when the network was back', await scene.recovered(), LIMIT_MS);
    }),
  );
});
