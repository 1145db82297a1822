import { EventEmitter, once } from 'node:events';
import { expect, it, onTestFinished } from 'vitest';
import { createLog } from '../../src/lib/log.ts';
import { ServiceReport } from '../../src/service/service-report.ts';

/** A report on a program that the test plays, to a systemd that the test is. */
async function reporting() {
  const program = { text: 'connecting, gw:443\n(refused)', silentMs: 0 };
  const said = new EventEmitter();
  const all: string[] = [];
  const logged: string[] = [];
  const report = new ServiceReport({
    notifier: {
      send: async (...messages) => {
        all.push(...messages);
        said.emit('message');
      },
    },
    program: { describe: () => program.text, silentMs: () => program.silentMs },
    watchdogMs: 60,
    log: await createLog('info', 'json', { write: (line) => void logged.push(JSON.parse(line).msg) }),
  });
  onTestFinished(() => report.stop());
  /** Waits for a message, if it is not among those from a place on already. */
  const hear = async (message: string, from = 0) => {
    while (!all.includes(message, from)) await once(said, 'message');
  };
  return { program, report, all, logged, hear };
}

it('says that the program is ready, how it is, and that it lives', async () => {
  const { program, report, all, hear } = await reporting();
  await report.start();
  expect(all).toEqual(['READY=1', 'STATUS=connecting, gw:443 (refused)']);
  await hear('WATCHDOG=1');
  program.text = 'online, gw:443';
  await hear('STATUS=online, gw:443');
  await hear('WATCHDOG=1', all.length);
  await report.stop();
  expect(all.slice(-2)).toEqual(['STOPPING=1', 'STATUS=stopping']);
});

it('gives no sign of life while the program is stuck, and says so once', async () => {
  const { program, report, all, logged, hear } = await reporting();
  await report.start();
  await hear('WATCHDOG=1');
  program.silentMs = 91_000;
  const before = all.length;
  // Each change of the status shows that it looked.
  for (const text of ['one', 'two', 'three', 'four', 'five']) {
    program.text = text;
    await hear(`STATUS=${text}`);
  }
  expect(all.slice(before).filter((message) => message === 'WATCHDOG=1')).toEqual([]);
  expect(logged).toEqual(['no progress; systemd restarts the service']);
  program.silentMs = 0;
  await hear('WATCHDOG=1', all.length);
});
