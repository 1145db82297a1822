import type { Log } from '../lib/log/log.ts';
import { note } from './output.ts';

const AFTER_LOG_MS = 50;

/**
 * Says what to do with an agent that has no tunnels: in two lines on a terminal, else as a log line.
 *
 * @param api URL of the local API
 */
export function showFirstSteps(api: string, log: Log): void {
  if (!process.stdout.isTTY) {
    log.info({ command: 'device-agent http 8001' }, 'no tunnels yet; start one');
    return;
  }
  // After the log lines before it, which wait for the next turn of the event loop.
  setTimeout(() => {
    note(
      '\nNo tunnels yet. In another terminal, in this folder, run: device-agent http 8001\n' +
        `Then open ${api}/ or run: device-agent status (when something fails: device-agent doctor)\n\n`,
    );
  }, AFTER_LOG_MS).unref();
}
