import type { ServiceState } from '../service/status.ts';
import { type Check, failed, ok, type Result } from './finding.ts';

const ADVICE: Readonly<Record<ServiceState['state'], string | null>> = {
  'not installed': 'sudo device-agent service install',
  stopped: 'sudo systemctl enable --now device-agent',
  starting: null,
  running: null,
  stopping: null,
  failing: 'see the other problems here and the log: journalctl -u device-agent',
};

/** Checks that the systemd service runs, and starts at boot. */
export function serviceCheck(find: () => Promise<ServiceState>): Check {
  return { name: 'service', title: 'Service', run: async () => judge(await find()) };
}

function judge({ state, lines: [first = state, ...lines] }: ServiceState): Result {
  const absent = lines.find((line) => /at boot: does not start/.test(line))?.trim();
  if (state === 'running' && absent) return failed(`${first}; ${absent}`, 'sudo systemctl enable device-agent');
  const advice = ADVICE[state];
  return advice === null ? ok(first) : failed(first, advice);
}
