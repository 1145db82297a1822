import type { ReportedRule } from '../../../agent-protocol/request-report.ts';
import type { RequestDetail } from './inspection-reports.ts';

/** `rule 2 of on_http_request`, with the name that its author gave it. Rules of an endpoint's options have a place of their own. */
export function ruleTitle({ phase, place, name }: ReportedRule): string {
  const [, list = phase, at] = /^(\w+)\[(\d+)\]$/.exec(place) ?? [];
  const title = at === undefined ? place : `rule ${Number(at) + 1} of ${list}`;
  return name === null ? title : `${title}, ${name}`;
}

export function outcomeText({ outcome }: ReportedRule): string | null {
  switch (outcome.kind) {
    case 'continue':
      return null;
    case 'answer':
      return `answered ${outcome.status}`;
    case 'error':
      return `answered ${outcome.status}, ${outcome.code}`;
    case 'close':
      return 'closed the connection';
    case 'forward':
      return `forwarded to ${outcome.url}`;
  }
}

/** What the gateway's error pages mean, by status and code: codes stand for several failures. */
const MEANINGS: Readonly<Record<string, string>> = {
  '502 ERR_NGROK_3004': 'the upstream sent an invalid HTTP response',
  '502 ERR_NGROK_3007': 'the connection to the upstream was lost before it answered',
  '502 ERR_NGROK_8012': 'the upstream is unreachable',
  '503 ERR_NGROK_3007': 'the agent has reached its connection limit',
  '504 ERR_NGROK_3005': 'the upstream did not answer in time',
};

/** Whose response the client got and why, in one line; null when it is the upstream's, or not known. */
export function verdictText({ answered_by, gateway }: RequestDetail): string | null {
  if (gateway === null || answered_by === null || answered_by === 'upstream') return null;
  const rule = gateway.rules.findLast(({ outcome }) => outcome.kind !== 'continue');
  const { status, error_code } = gateway;
  const code = error_code === null ? '' : `, ${error_code}`;
  if (rule === undefined) {
    const meaning = MEANINGS[`${status} ${error_code}`];
    const why = meaning === undefined ? '' : `: ${meaning}`;
    return `answered by the gateway: ${status ?? 'connection closed'}${code}${why}`;
  }
  const why = `${ruleTitle(rule)}: ${rule.actions.at(-1) ?? 'failed'}`;
  if (answered_by === 'endpoint') return `answered by an internal endpoint: ${why}, ${status}`;
  return status === null
    ? `connection closed by the gateway: ${why}`
    : `answered by the gateway: ${why}, ${status}${code}`;
}
