import { EventEmitter, once } from 'node:events';
import { expect, it, onTestFinished } from 'vitest';
import { createLog } from '../../src/lib/log/log.ts';
import { ServiceReport } from '../../src/service/service-report.ts';

/** A report on a fake program to a fake systemd. */
async function startReport() {
  const program = { text: 'connecting, gw:443\n(refused)', silentMs: 0 };
  const events = new EventEmitter();
  const all: string[] = [];
  const logged: string[] = [];
  const report = new ServiceReport({
    notifier: {
      send: async (...messages) => {
        all.push(...messages);
        events.emit('message');
      },
    },
    program: { describe: () => program.text, silentMs: () => program.silentMs },
    watchdogMs: 60,
    log: await createLog('info', 'json', { write: (line) => void logged.push(JSON.parse(line).msg) }),
  });
  onTestFinished(() => report.stop());
  /** Waits for a message, unless it was already sent at index `from` or later. */
  const waitFor = async (message: string, from = 0) => {
    while (!all.includes(message, from)) await once(events, 'message');
  };
  return { program, report, all, logged, waitFor };
}

it('ServiceReport sends readiness, changes of the status and watchdog notifications', async () => {
  const { program, report, all, waitFor } = await startReport();
  await report.start();
  expect(all).toEqual(['READY=1', 'STATUS=connecting, gw:443 (refused)']);
  await waitFor('WATCHDOG=1');
  program.text = 'online, gw:443';
  await waitFor('STATUS=online, gw:443');
  await waitFor('WATCHDOG=1', all.length);
  await report.stop();
  expect(all.slice(-2)).toEqual(['STOPPING=1', 'STATUS=stopping']);
});

it('ServiceReport stops the watchdog notifications while the program is stuck, and logs that once', async () => {
  const { program, report, all, logged, waitFor } = await startReport();
  await report.start();
  await waitFor('WATCHDOG=1');
  program.silentMs = 91_000;
  const before = all.length;
  // Each change of the status proves that a check ran.
  for (const text of ['one', 'two', 'three', 'four', 'five']) {
    program.text = text;
    await waitFor(`STATUS=${text}`);
  }
  expect(all.slice(before).filter((message) => message === 'WATCHDOG=1')).toEqual([]);
  expect(logged).toEqual(['no progress; systemd restarts the service']);
  program.silentMs = 0;
  await waitFor('WATCHDOG=1', all.length);
});
