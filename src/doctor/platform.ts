import { hasErrno } from '../lib/errors.ts';
import { rootCommand } from '../lib/process/own-command.ts';
import { isSupportedNode, OLDEST_NODE } from '../node-version.ts';
import { VERSION } from '../packaged.ts';
import type { ServiceState } from '../service/service-state.ts';
import { type Check, check, failed, NotKnown, ok, type Result } from './finding.ts';

/** @param version of the running Node, for example `v20.19.0` */
export function nodeVersionCheck(version = process.version): Check {
  return check('node', 'Node', async () => {
    if (isSupportedNode(version)) return ok(`${version} (${process.platform} ${process.arch})`);
    return failed(`${version} is too old`, `install Node ${OLDEST_NODE} or newer`);
  });
}

/** Checks that the systemd service runs, and starts at boot. */
export function serviceCheck(find: () => Promise<ServiceState>, service: string): Check {
  return { name: 'service', title: 'Service', run: async () => judge(await find(), service) };
}

/** An update that ended with the version before it, or was given up where it stays. */
export interface FailedUpdate {
  readonly result: 'returned' | 'kept' | 'confirmed';
  readonly from: string;
  readonly to: string;
  readonly reason: string | null;
  /** Whether it is not tried again. */
  readonly isGivenUp: boolean;
}

/** Says how the last update failed: the version before it runs, so nothing else would. */
export function updateCheck(find: () => Promise<FailedUpdate | null>): Check {
  return check('update', 'Update', async () => {
    const last = await find().catch((error: unknown) => {
      throw hasErrno(error, 'EACCES') ? new NotKnown('only root can read how the last update ended: use sudo') : error;
    });
    if (last === null || (last.result === 'returned' ? last.from : last.to) !== VERSION) return ok('none has failed');
    const { result, to, reason, isGivenUp } = last;
    const why = reason === null ? '' : `: ${reason}`;
    const advice = `see journalctl -u device-agent-update; to try it again: ${rootCommand(`update --to ${to}`)}`;
    if (result === 'kept') return failed(`version ${to} was given up, and stays nevertheless${why}`, advice);
    if (isGivenUp) return failed(`version ${to} was given up${why}; it is not tried again`, advice);
    return ok(`version ${to} went back, and may be tried again${why}`);
  });
}

function judge({ state, lines: [first = state, ...lines] }: ServiceState, service: string): Result {
  const absent = lines.find((line) => /at boot: does not start/.test(line))?.trim();
  if (state === 'running' && absent) return failed(`${first}; ${absent}`, `sudo systemctl enable ${service}`);
  const advice = adviceFor(state, service);
  return advice === null ? ok(first) : failed(first, advice);
}

/** @returns null when no action is needed */
function adviceFor(state: ServiceState['state'], service: string): string | null {
  switch (state) {
    case 'not installed':
      return rootCommand(`service install${service.endsWith('-gateway') ? ' --gateway' : ''}`);
    case 'stopped':
      return `sudo systemctl enable --now ${service}`;
    case 'failing':
      return `see the other problems here and the log: journalctl -u ${service}`;
    default:
      return null;
  }
}
