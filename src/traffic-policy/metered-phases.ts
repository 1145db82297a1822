import type { ReportTrouble } from './action-context.ts';
import { CLOSE } from './actions/deny.ts';
import type { ProcessorTime } from './state/processor-time.ts';
import type { ConnectStep, PolicyError, RequestStep } from './steps.ts';

/** In ngrok's catalogue: the account is limited to an amount of a resource per interval. */
const CODE = 'ERR_NGROK_5001';

interface Metering {
  readonly time: ProcessorTime;
  readonly reportTrouble: ReportTrouble;
}

/**
 * Rejects requests while the authtoken has no processor time left, and makes them wait for a turn of the event loop after
 * its policies ran long in this one.
 *
 * @param run null when only other phases take time
 */
export function meteredRequests(run: RequestStep | null, { time, reportTrouble }: Metering): RequestStep {
  const step: RequestStep = (request) => {
    if (time.isSpent) return busy('on_http_request', time, reportTrouble);
    if (run === null) return undefined;
    if (time.shouldYield) return new Promise(setImmediate).then(() => step(request));
    return time.run(() => run(request));
  };
  return step;
}

/** Closes connections while the authtoken has no processor time left. */
export function meteredConnections(run: ConnectStep, { time, reportTrouble }: Metering): ConnectStep {
  return (connect) => {
    if (!time.isSpent) return time.run(() => run(connect));
    busy('on_tcp_connect', time, reportTrouble);
    return CLOSE;
  };
}

function busy(place: string, time: ProcessorTime, reportTrouble: ReportTrouble): PolicyError {
  reportTrouble(place, CODE, "the authtoken's policies have used up their processor time");
  return {
    kind: 'error',
    status: 503,
    code: CODE,
    message: 'The traffic policies of this account have used up their processor time. Try again later.',
    headers: ['retry-after', String(Math.ceil(time.waitMs / 1000))],
  };
}
