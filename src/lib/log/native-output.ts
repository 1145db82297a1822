import { closeSync, openSync } from 'node:fs';
import { isatty } from 'node:tty';
import { logsTo } from './log.ts';

const STDOUT = 1;
const NULL_DEVICE = '/dev/null';

/**
 * Keeps what native code prints off the terminal: from now on, descriptor 1 leads to /dev/null. Node.js and the log have
 * reopened the terminal on descriptors of their own. Does nothing where they have not, or when standard output is no
 * terminal.
 *
 * Call it while nothing asynchronous is pending: a file that another thread opens meanwhile could get descriptor 1.
 *
 * @throws {Error} when descriptor 1 is another file afterwards; the process must end then
 */
export function silenceNativeOutput(): void {
  if (!isatty(STDOUT) || logsTo(STDOUT) || !hasOwnTerminal(process.stdout) || isBusy()) return;
  // Without it, the next file that is opened would get descriptor 1.
  if (!canOpenNullDevice()) return;
  closeSync(STDOUT);
  const opened = openSync(NULL_DEVICE, 'w');
  if (opened !== STDOUT) throw new Error(`standard output could not be replaced: descriptor ${opened} instead of 1`);
}

function canOpenNullDevice(): boolean {
  try {
    closeSync(openSync(NULL_DEVICE, 'w'));
    return true;
  } catch {
    return false; // no such device here, or no descriptor left
  }
}

/** Whether Node.js writes to the terminal through another descriptor; libuv reopens terminals where it can. */
function hasOwnTerminal(stream: unknown): boolean {
  const fd = (stream as { _handle?: { fd?: unknown } })._handle?.fd;
  return typeof fd === 'number' && fd > 2;
}

/** Whether another thread may be working for this one: on files, or on names, which are looked up in files. */
function isBusy(): boolean {
  return process.getActiveResourcesInfo().some((name) => /^FSReq|ReqWrap$/.test(name));
}
