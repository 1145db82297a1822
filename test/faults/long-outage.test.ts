import { pino } from 'pino';
import { expect, it } from 'vitest';
import { startAgent } from '../../src/agent/agent.ts';
import { loadSettings } from '../../src/settings/agent-settings.ts';
import { measured } from '../support/measured.ts';
import { SteeredClock } from '../support/steered-clock.ts';
import { expectRecovery, timeUntilAll } from './recovery.ts';
import { FULL, rounds } from './rounds.ts';
import { Scene } from './scene.ts';

const TUNNELS = rounds({ short: 10, full: 50 });
const LIMIT_MS = 5_000;
const MINUTES = FULL ? [10, 24 * 60] : [10];
/** As many milliseconds of the steered clock in each 5 ms: once the network is back, time passes about as it really does. */
const REAL_PACE = 5;

const outages = {
  refuses: {
    begin: (scene: Scene) => scene.proxy.refuse(),
    end: (scene: Scene) => scene.proxy.listen(),
  },
  'never answers': {
    begin: async ({ proxy }: Scene) => {
      proxy.cut();
      proxy.silence();
    },
    end: async ({ proxy }: Scene) => proxy.speak(),
  },
};

/** A log that keeps its messages, and a way to wait for one that is to come. */
function watchedLog() {
  const messages: string[] = [];
  let waiting: { message: string; resolve: () => void } | null = null;
  const write = (text: string) => {
    const { msg } = JSON.parse(text) as { msg: string };
    messages.push(msg);
    if (waiting?.message === msg) waiting.resolve();
  };
  const logged = (message: string) =>
    new Promise<void>((resolve) => {
      waiting = { message, resolve };
    });
  return { log: pino({ level: 'info' }, { write }), messages, logged };
}

for (const minutes of MINUTES) {
  for (const [name, { begin, end }] of Object.entries(outages)) {
    it(
      `${TUNNELS} tunnels serve again within 5 s of ${minutes} minutes in which the network ${name}`,
      {
        timeout: 300_000,
      },
      () =>
        Scene.play({ tunnels: TUNNELS }, async (scene) => {
          await scene.rehearse();
          const clock = new SteeredClock();
          const { log, messages, logged } = watchedLog();
          const agent = await startAgent(loadSettings(scene.env, scene.folder), log, clock);
          try {
            await scene.recovered();
            const lost = logged('session lost');
            await begin(scene);
            await lost;
            const [lines, knocks] = [messages.length, scene.proxy.accepted];
            await clock.advance(minutes * 60_000);
            const told = messages.length - lines;
            // A port without a listener counts nothing.
            const knocked = name === 'refuses' ? '' : `, ${scene.proxy.accepted - knocks} knocks`;
            const fault = `${minutes} minutes in which the network ${name}`;
            measured({ fault, tried: 0, note: `${told} log lines${knocked}` });
            expect(told).toBeLessThan(20);
            await end(scene);
            const serving = timeUntilAll(scene.hosts, (host) => scene.serves(host), { now: clock.now });
            expectRecovery(fault, await clock.advanceUntil(serving, REAL_PACE), LIMIT_MS);
          } finally {
            await agent.stop();
          }
        }),
    );
  }
}
