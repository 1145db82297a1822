import { EventEmitter, once } from 'node:events';
import { expect, it, onTestFinished } from 'vitest';
import type { AgentStatus } from '../../src/agent/agent.ts';
import { createLog } from '../../src/lib/log.ts';
import { ServiceReport } from '../../src/service/service-report.ts';

/** A report on an agent that the test plays, to a systemd that the test is. */
async function reporting() {
  const agent = {
    status: { state: 'connecting', since: new Date(), gateway: 'gw:443', reconnects: 0, lastError: null },
    silentMs: 0,
  };
  const said = new EventEmitter<{ message: [string] }>();
  const all: string[] = [];
  const logged: string[] = [];
  const report = new ServiceReport({
    notifier: {
      send: async (...messages) => {
        all.push(...messages);
        for (const message of messages) said.emit('message', message);
      },
    },
    agent: {
      status: (): AgentStatus => ({
        session: agent.status as AgentStatus['session'],
        tunnels: { online: 2, connecting: 1, offline: 0, failed: 0 },
      }),
      silentMs: () => agent.silentMs,
    },
    watchdogMs: 60,
    log: await createLog('info', 'json', { write: (line) => void logged.push(JSON.parse(line).msg) }),
  });
  onTestFinished(() => report.stop());
  const next = async () => String((await once(said, 'message'))[0]);
  return { agent, report, all, logged, next };
}

it('says that the agent is ready, how it is, and that it lives', async () => {
  const { agent, report, all, next } = await reporting();
  await report.start();
  expect(all).toEqual(['READY=1', 'STATUS=connecting, gw:443; 2 of 3 tunnels up']);
  expect(await next()).toBe('WATCHDOG=1');
  agent.status = { ...agent.status, state: 'online' };
  const heard: string[] = [];
  while (!heard.includes('STATUS=online, gw:443; 2 of 3 tunnels up')) heard.push(await next());
  expect(await next()).toBe('WATCHDOG=1');
  await report.stop();
  expect(all.slice(-2)).toEqual(['STOPPING=1', 'STATUS=stopping']);
});

it('gives no sign of life while the keeping of the session is stuck, and says so once', async () => {
  const { agent, report, all, logged, next } = await reporting();
  await report.start();
  await next();
  agent.silentMs = 91_000;
  const before = all.length;
  // Each change of the status shows that it looked at the agent.
  for (const gateway of ['one:443', 'two:443', 'three:443', 'four:443', 'five:443']) {
    agent.status = { ...agent.status, gateway };
    await next();
  }
  expect(all.slice(before).filter((message) => message === 'WATCHDOG=1')).toEqual([]);
  expect(logged).toEqual(['keeping the session is stuck; systemd will restart the agent']);
  agent.silentMs = 0;
  expect(await next()).toBe('WATCHDOG=1');
});
