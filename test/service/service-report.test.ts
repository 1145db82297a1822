import { EventEmitter, once } from 'node:events';
import { expect, it, onTestFinished } from 'vitest';
import { createLog } from '../../src/lib/log.ts';
import { ServiceReport } from '../../src/service/service-report.ts';

/** A report on a program that the test plays, to a systemd that the test is. */
async function reporting() {
  const program = { text: 'connecting, gw:443\n(refused)', silentMs: 0 };
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
    program: { describe: () => program.text, silentMs: () => program.silentMs },
    watchdogMs: 60,
    log: await createLog('info', 'json', { write: (line) => void logged.push(JSON.parse(line).msg) }),
  });
  onTestFinished(() => report.stop());
  const next = async () => String((await once(said, 'message'))[0]);
  return { program, report, all, logged, next };
}

it('says that the program is ready, how it is, and that it lives', async () => {
  const { program, report, all, next } = await reporting();
  await report.start();
  expect(all).toEqual(['READY=1', 'STATUS=connecting, gw:443 (refused)']);
  expect(await next()).toBe('WATCHDOG=1');
  program.text = 'online, gw:443';
  const heard: string[] = [];
  while (!heard.includes('STATUS=online, gw:443')) heard.push(await next());
  expect(await next()).toBe('WATCHDOG=1');
  await report.stop();
  expect(all.slice(-2)).toEqual(['STOPPING=1', 'STATUS=stopping']);
});

it('gives no sign of life while the program is stuck, and says so once', async () => {
  const { program, report, all, logged, next } = await reporting();
  await report.start();
  await next();
  program.silentMs = 91_000;
  const before = all.length;
  // Each change of the status shows that it looked.
  for (const text of ['one', 'two', 'three', 'four', 'five']) {
    program.text = text;
    await next();
  }
  expect(all.slice(before).filter((message) => message === 'WATCHDOG=1')).toEqual([]);
  expect(logged).toEqual(['no progress any more: systemd will restart this']);
  program.silentMs = 0;
  expect(await next()).toBe('WATCHDOG=1');
});
